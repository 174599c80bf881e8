"""Weights of files that people have: styles of names, strides in another place, and files that are none."""

from __future__ import annotations

import os
from pathlib import Path

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file

import ipseg
from ipseg.errors import UserError
from ipseg.models._torchvision import ensure_torchvision
from ipseg.models.backbone import Backbone, BackboneConfig
from ipseg.models.weights import _fit, _from_torchvision_swin
from ipseg.training.experiment import run
from ipseg.training.recipe import load_recipe, make_recipe
from ipseg.training.recipe_files import shipped_recipes

ensure_torchvision()
import timm  # noqa: E402
import torchvision  # noqa: E402
from timm.models import register_model  # noqa: E402
from timm.models.resnet import Bottleneck, _create_resnet  # noqa: E402

NAME = "resnet10t"
SWIN = "swin_tiny_patch4_window7_224"
SHARED = Path(os.environ.get("IPSEG_SHARED", Path(__file__).parents[3] / "shared"))
HE = SHARED / "weights" / "resnet50_imagenet1k.safetensors"


@pytest.fixture(scope="module")
def whole() -> dict[str, torch.Tensor]:
    """A classifier's weights, not those that every network is born with."""
    torch.manual_seed(1)
    return timm.create_model(NAME, num_classes=7).state_dict()


def start(path: Path, name: str = NAME, **options) -> Backbone:
    return BackboneConfig(name=name, weights=str(path), **options).build().eval()


def refused(path: Path, name: str = NAME) -> str:
    with pytest.raises(UserError) as caught:
        start(path, name)
    assert str(path) in str(caught.value)
    return str(caught.value)


def has(backbone: Backbone, expected: dict[str, torch.Tensor]) -> bool:
    own = backbone.body.state_dict()
    return all(torch.equal(value, expected[key].float()) for key, value in own.items() if "num_batches" not in key)


def stages(backbone: Backbone, size: int = 64) -> list[torch.Tensor]:
    image = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return backbone.eval()(image, torch.ones(1, size, size, dtype=torch.bool))


# ---- files and styles -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth", ".bin", ".pth.tar"])
def test_every_kind_of_file_is_read_and_the_classifier_left_out(whole, tmp_path, capfd, suffix):
    path = tmp_path / f"weights{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(whole, path)
    assert has(start(path), whole)
    said = capfd.readouterr().err.strip()
    assert said.endswith(("left out fc.weight, fc.bias", "left out fc.bias, fc.weight"))
    assert "\n" not in said


@pytest.mark.parametrize(
    ("outer", "prefix"),
    [
        (("state_dict",), "module."),
        (("model",), ""),
        (("state_dict", "model"), "backbone."),
        ((), "module.encoder."),
        ((), "encoder.backbone.body."),
    ],
)
def test_what_is_wrapped_around_the_weights_is_taken_off(whole, tmp_path, outer, prefix):
    made = {prefix + key: value for key, value in whole.items()} | {"decode_head.weight": torch.zeros(3)}
    for key in reversed(outer):
        made = {key: made, "epoch": 3, "best": 0.7}
    torch.save(made, tmp_path / "weights.pth")
    assert has(start(tmp_path / "weights.pth"), whole)


def test_half_precision_becomes_float32(whole, tmp_path):
    halved = {key: value.half() if value.ndim == 4 else value for key, value in whole.items()}
    save_file(halved, tmp_path / "weights.safetensors")
    backbone = start(tmp_path / "weights.safetensors")
    assert has(backbone, halved)
    assert {parameter.dtype for parameter in backbone.parameters()} == {torch.float32}


def test_the_weights_of_a_run_are_weights_for_another(tiny_run):
    path = tiny_run / "step_00" / "weights.safetensors"
    trained = {key.partition(".body.")[2]: value for key, value in load_file(path).items() if ".body." in key}
    assert has(start(path), trained)


def test_parts_that_timm_calls_otherwise_in_a_body_for_features_are_found(tmp_path):
    whole = timm.create_model("test_convnext").state_dict()
    assert any(key.startswith("stages.0.") for key in whole)
    save_file(whole, tmp_path / "weights.safetensors")
    body = start(tmp_path / "weights.safetensors", "test_convnext").body
    assert torch.equal(body.state_dict()["stages_1.blocks.0.conv_dw.weight"], whole["stages.1.blocks.0.conv_dw.weight"])


def test_torchvisions_resnet_gives_the_same_features(tmp_path):
    torch.manual_seed(0)
    theirs = torchvision.models.resnet18(num_classes=3).eval()
    torch.save(theirs.state_dict(), tmp_path / "weights.pth")
    backbone = start(tmp_path / "weights.pth", "resnet18", output_stride=32)
    inner = torch.nn.Sequential(*list(theirs.children())[:-2])
    image = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = inner((image - backbone.mean) / backbone.std)
    assert torch.allclose(stages(backbone)[-1], expected, atol=1e-4)


def small_swins() -> tuple[torch.nn.Module, torch.nn.Module]:
    """Swin as torchvision and as timm build it, of the same small size."""
    theirs = torchvision.models.SwinTransformer(
        patch_size=[4, 4],
        embed_dim=24,
        depths=[2, 2, 2, 2],
        num_heads=[1, 2, 3, 4],
        window_size=[7, 7],
        stochastic_depth_prob=0.0,
    )
    sizes = {"embed_dim": 24, "depths": (2, 2, 2, 2), "num_heads": (1, 2, 3, 4), "window_size": 7}
    return theirs.eval(), timm.create_model(SWIN, features_only=True, **sizes).eval()


def test_torchvisions_swin_gives_the_same_features():
    theirs, ours = small_swins()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.1)  # also the norms, which are all ones at birth
    renamed = {_from_torchvision_swin(key): value for key, value in theirs.state_dict().items()}
    fit = _fit(ours, renamed)
    assert fit.whole
    assert set(fit.surplus) == {"norm.weight", "norm.bias", "head.weight", "head.bias"}
    ours.load_state_dict(fit.found, strict=False)
    image = torch.rand(1, 3, 224, 224)
    with torch.no_grad():
        expected = [theirs.features[: 2 * stage + 2](image) for stage in range(4)]
        given = ours(image)
    assert all(torch.allclose(a, b, atol=1e-3, rtol=1e-3) for a, b in zip(given, expected, strict=True))


@pytest.mark.parametrize("name", ["swin_t", "swin_b"])
def test_torchvisions_swins_have_all_that_timms_have(name):
    with torch.device("meta"):
        theirs = getattr(torchvision.models, name)().state_dict()
        ours = timm.create_model(SWIN if name == "swin_t" else "swin_base_patch4_window7_224", features_only=True)
    assert _fit(ours, {_from_torchvision_swin(key): value for key, value in theirs.items()}).whole


@pytest.mark.slow
def test_a_swin_as_its_authors_published_it_is_converted_by_timm(tmp_path):
    whole = timm.create_model(SWIN).state_dict()
    published = {}
    for key, value in whole.items():
        layer, found, rest = key.partition(".downsample.")
        name = f"layers.{int(layer[-1]) - 1}.downsample.{rest}" if found else key.replace("head.fc.", "head.")
        published[name] = value
    torch.save({"model": published}, tmp_path / "weights.pth")
    body = start(tmp_path / "weights.pth", SWIN).body.state_dict()
    assert torch.equal(body["layers_2.downsample.reduction.weight"], whole["layers.2.downsample.reduction.weight"])


# ---- files that are not the weights ---------------------------------------------------------------------------------


def test_a_smaller_network_lacks_tensors_which_are_named_and_counted(whole, tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({key: value for key, value in whole.items() if not key.startswith("layer4")}, path)
    message = refused(path)
    assert "do not fit resnet10t: 1" in message
    assert "layer4.0.conv1.weight" in message
    assert "tensors are missing or of another shape" in message
    assert "bn1.bias (" in message  # what the file looks like
    assert "torchvision" in message  # which styles are known


def test_a_deeper_network_is_refused_although_nothing_is_missing(tmp_path):
    torch.save(timm.create_model("resnet34").state_dict(), tmp_path / "weights.pth")
    message = refused(tmp_path / "weights.pth", "resnet18")
    assert "a deeper network" in message
    assert "layer1.2." in message


def test_another_architecture_is_refused(whole, tmp_path):
    torch.save(whole, tmp_path / "weights.pth")
    assert "do not fit test_convnext" in refused(tmp_path / "weights.pth", "test_convnext")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>", "web page"),
        (b"conv1 0.1 0.2 0.3\n", "a text file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git lfs pull"),
        (b"", "empty"),
        (b"\x00\x01\x02 garbage", "damaged"),
        (b"PK\x03\x04 garbage", "damaged"),
        (b"\x80\x02 garbage", "damaged"),
    ],
)
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_a_file_without_tensors_is_refused_for_what_it_is(tmp_path, content, message, suffix):
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(content)
    assert message in refused(path)


def test_half_a_file_is_damaged(whole, tmp_path):
    for path, save in ((tmp_path / "a.safetensors", save_file), (tmp_path / "a.pth", torch.save)):
        save(whole, path)
        path.write_bytes(path.read_bytes()[:-5000])
        assert "damaged" in refused(path)


def test_objects_that_could_run_code_are_not_read(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "weights.pth")
    message = refused(tmp_path / "weights.pth")
    assert "torch.nn.modules.linear.Linear" in message
    assert "state_dict()" in message


def test_a_file_with_no_names_a_missing_one_and_another_kind_are_told(tmp_path):
    torch.save([torch.zeros(2)], tmp_path / "weights.pth")
    assert "no tensors" in refused(tmp_path / "weights.pth")
    assert "missing" in refused(tmp_path / "gone.pth")
    assert ".safetensors, .pt, .pth" in refused(tmp_path / "weights.h5")
    with pytest.raises(UserError, match=r"must be none, imagenet, wheel or a file.*got imagnet"):
        start(Path("imagnet"))


# ---- what a file says about itself ----------------------------------------------------------------------------------


def test_the_files_own_normalisation_is_used(whole, tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(whole, path, metadata={"mean": "0.5,0.4,0.3", "std": "[0.2, 0.2, 0.1]"})
    backbone = start(path)
    assert backbone.mean.flatten().tolist() == pytest.approx([0.5, 0.4, 0.3])
    assert backbone.std.flatten().tolist() == pytest.approx([0.2, 0.2, 0.1])
    save_file(whole, path, metadata={"mean": "none"})
    assert 'mean must be three numbers in its metadata, not "none"' in refused(path)
    for wrong in ({"mean": "nan,0,0"}, {"std": "1,0,1"}, {"std": "1,1"}):
        save_file(whole, path, metadata=wrong)
        assert "must be three numbers" in refused(path)


@register_model
def tiny_bottlenecks(pretrained: bool = False, **options):
    """The plain ResNet of three convolutions a block, small."""
    sizes = {"block": Bottleneck, "layers": (1, 2, 2, 2), "channels": (4, 8, 16, 32)}
    return _create_resnet("resnet50", pretrained, **sizes, **options)


def save_he(path: Path) -> Path:
    torch.manual_seed(0)
    network = timm.create_model("tiny_bottlenecks", zero_init_last=False)  # else every block does nothing at birth
    save_file(network.state_dict(), path, metadata={"stride_in_1x1": "true"})
    return path


@pytest.fixture(scope="module")
def he(tmp_path_factory) -> Path:
    return save_he(tmp_path_factory.mktemp("weights") / "he.safetensors")


def test_strides_stand_where_the_file_says(he):
    body = start(he, "tiny_bottlenecks", output_stride=32).body
    for layer in (body.layer2, body.layer3, body.layer4):
        assert (layer[0].conv1.stride, layer[0].conv2.stride) == ((2, 2), (1, 1))
        assert layer[0].downsample is not None
    assert body.layer1[0].conv1.stride == (1, 1)


@pytest.mark.parametrize(("output_stride", "every"), [(16, 2), (8, 4)])
def test_with_dilation_every_other_cell_is_what_it_is_without(he, output_stride, every):
    """A stride that is taken away leaves more cells; those that were there before must not change."""
    plain = stages(start(he, "tiny_bottlenecks", output_stride=32), 128)[-1]
    dense = stages(start(he, "tiny_bottlenecks", output_stride=output_stride), 128)[-1]
    assert dense.shape[-1] == plain.shape[-1] * every
    assert torch.allclose(dense[..., ::every, ::every], plain, atol=1e-4)


def test_strides_are_recalled_with_a_runs_own_weights(he, tmp_path):
    first = start(he, "tiny_bottlenecks")
    usual = BackboneConfig(name="tiny_bottlenecks").build(pretrained=False)
    usual.load_state_dict({k: v for k, v in first.state_dict().items() if k != "stride_in_1x1"})
    again = BackboneConfig(name="tiny_bottlenecks", weights=str(tmp_path / "gone.pth")).build(pretrained=False)
    for _ in range(2):  # loading twice moves nothing twice
        again.load_state_dict(first.state_dict())
    assert torch.equal(stages(first)[-1], stages(again)[-1])
    assert not torch.allclose(stages(first)[-1], stages(usual)[-1], atol=1e-3)


def test_a_finished_run_does_not_need_the_file(tiny_settings, tmp_path):
    path = save_he(tmp_path / "he.safetensors")
    tiny_settings["model"]["backbone"] = {"name": "tiny_bottlenecks", "weights": str(path)}
    tiny_settings["scenario"] = {"name": "3-1"}
    tiny_settings["data"] |= {"train": 8, "val": 4}
    seen = []
    image = torch.randint(0, 256, (50, 70, 3), dtype=torch.uint8).numpy()

    def look(method, _step, _result) -> None:
        seen.append(method.predict(torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255).scores[0])

    run(make_recipe(tiny_settings), tmp_path / "run", quiet=True, after_step=look)
    path.unlink()
    model = ipseg.load(tmp_path / "run", device="cpu")
    assert model.method.network.encoder.backbone.body.layer2[0].conv1.stride == (2, 2)
    assert torch.equal(torch.from_numpy(model.predict(image).scores), seen[-1])


def test_strides_in_the_1x1_are_for_networks_that_have_one(whole, tmp_path):
    save_file(whole, tmp_path / "weights.safetensors", metadata={"stride_in_1x1": "true"})
    with pytest.raises(UserError, match="stride_in_1x1"):
        start(tmp_path / "weights.safetensors")
    save_file(whole, tmp_path / "weights.safetensors", metadata={"stride_in_1x1": "maybe"})
    assert "true or false" in refused(tmp_path / "weights.safetensors")


@pytest.mark.skipif(not HE.is_file(), reason=f"needs {HE.name} in shared/weights (or IPSEG_SHARED)")
def test_the_resnet_50_of_he_is_read_whole_with_its_strides():
    backbone = start(HE, "resnet50")
    assert has(backbone, load_file(HE))
    firsts = [getattr(backbone.body, layer)[0] for layer in ("layer2", "layer3", "layer4")]
    assert [block.conv1.stride for block in firsts] == [(2, 2), (2, 2), (1, 1)]  # output stride 16
    assert [block.conv2.stride for block in firsts] == [(1, 1)] * 3
    assert [block.conv2.dilation for block in firsts] == [(1, 1), (1, 1), (2, 2)]


# ---- timm's own -----------------------------------------------------------------------------------------------------


def test_a_tag_that_timm_does_not_know_is_answered_with_the_nearest():
    assert BackboneConfig(name="resnet10t.c3_in1k").build().channels == (64, 128, 256, 512)
    with pytest.raises(UserError, match=r"resnet50\.a1_in2k.*Did you mean resnet50\.a1_in1k"):
        BackboneConfig(name="resnet50.a1_in2k").build()
    with pytest.raises(UserError, match="timm has no weights for convnextv2_small"):
        BackboneConfig(name="convnextv2_small", weights="imagenet").build()


def test_no_network_is_told_with_what_to_do(monkeypatch):
    def offline(*_args, **_options):
        raise FileNotFoundError("cannot find the requested files\nin the cache")

    monkeypatch.setattr("timm.models._builder.load_pretrained", offline)
    with pytest.raises(UserError, match=r"resnet10t cannot be downloaded \(cannot find.*files\).*be a file, or none"):
        BackboneConfig(name=NAME, weights="imagenet").build()


def test_without_a_network_a_file_that_is_not_cached_is_said_at_once(monkeypatch, tmp_path):
    def unreachable(*_args, **_options):
        raise OSError(101, "Network is unreachable")

    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("socket.create_connection", unreachable)
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("waits for another try"))
    with pytest.raises(UserError, match=r"resnet10t cannot be downloaded .* be a file, or none"):
        BackboneConfig(name=NAME, weights="imagenet").build()
    assert not huggingface_hub.constants.HF_HUB_OFFLINE


@pytest.mark.parametrize("path", shipped_recipes(), ids=lambda path: path.stem)
def test_a_shipped_recipe_with_timms_weights_names_the_tag(path):
    backbone = load_recipe(path).model.backbone
    if backbone.weights == "imagenet":
        assert backbone.name in timm.list_pretrained(f"{backbone.name.split('.')[0]}.*")
