"""SSUL's training step and inference, and IPSeg's switched off, beside the numbers of SSUL's authors' code."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from given_network import GivenHead, GivenNetwork, assert_close, load, names, numbered_batch, numbered_images, step_of

from ipseg.data.batch import StepBatch
from ipseg.methods.ipseg import IPSeg, IPSegConfig
from ipseg.methods.labels import confident_old_classes, coupled_labels
from ipseg.methods.losses import pixel_bce
from ipseg.methods.ssul import Ssul, SsulConfig

Vectors = dict[str, torch.Tensor]
TRAINING = names("ssul_train_")
OWN_IMAGES = [name for name in TRAINING if not name.endswith("_memory")]


class SsulNetwork(GivenNetwork):
    """Unknown and background have heads of their own."""

    def __init__(self, both: torch.Tensor, heads: list[torch.Tensor], size: torch.Size) -> None:
        super().__init__(both[:, :1], heads, None, size)
        self.background = GivenHead(both[:, 1:])

    def persistent_heads(self) -> list[GivenHead]:
        return [self.permanent, self.background]


def ssul_at_the_step(v: Vectors) -> Ssul:
    sizes, index = v["sizes"].tolist(), int(v["step"])
    heads = list(torch.split(v["classes"], sizes, dim=1))
    method = Ssul(SsulConfig(), SsulNetwork(v["unknown_and_background"], heads, v["y"].shape[-2:]))
    method.step = step_of(sizes, index)
    if index:
        before = v["prev_unknown_and_background"]
        method.teacher = [GivenHead(before[:, :1]), GivenHead(before[:, 1:])]
    return method


def batch(v: Vectors) -> StepBatch:
    return StepBatch(numbered_batch(v["y"], v["salient"], sum(v["sizes"].tolist())), len(v["y"]))


def pseudo_labels(method: Ssul, v: Vectors) -> torch.Tensor:
    """What the channels are taught."""
    crops = batch(v).inputs
    features = method.network.encoder(crops.images)
    old = [features.canvas.upsample(head(features.decoded, ())) for head in method.network.temporary[:-1]]
    before = method._teacher_logits(features, old)
    assert before is not None
    return coupled_labels(crops.labels, confident_old_classes(before, method.config.confidence), crops.salient)


@pytest.mark.parametrize("name", OWN_IMAGES)
def test_label_map_loss_and_gradients_are_the_authors(name):
    v = load(name)
    method = ssul_at_the_step(v)
    if "pseudo_labels" in v:
        assert torch.equal(pseudo_labels(method, v), v["pseudo_labels"])
    loss = method.loss(batch(v))["segmentation"]
    loss.backward()
    assert_close(loss, v["loss"])
    network, new = method.network, int(v["sizes"][-1])
    assert_close(torch.cat([head.logits.grad for head in network.persistent_heads()], 1), v["grad"][:, :2])
    assert_close(network.temporary[-1].logits.grad, v["grad"][:, -new:])


@pytest.mark.parametrize("name", OWN_IMAGES)
@pytest.mark.parametrize("variant", ["paper", "official"])
def test_ipseg_switched_off_has_ssuls_loss_and_gradients(name, variant):
    v = load(name)
    sizes, index = v["sizes"].tolist(), int(v["step"])
    heads = list(torch.split(v["classes"], sizes, dim=1))
    network = GivenNetwork(v["unknown_and_background"], heads, None, v["y"].shape[-2:])
    method = IPSeg(IPSegConfig(variant=variant, image_posterior=False, decoupling=False, head="small"), network)
    method.step = step_of(sizes, index)
    method.teacher = GivenHead(v["prev_unknown_and_background"]) if index else None
    loss = method.loss(batch(v))["segmentation"]
    loss.backward()
    assert_close(loss, v["loss"])
    assert_close(network.permanent.logits.grad, v["grad"][:, :2])
    assert_close(network.temporary[-1].logits.grad, v["grad"][:, -sizes[-1] :])


@pytest.mark.parametrize("name", sorted(set(TRAINING) - set(OWN_IMAGES)))
def test_replayed_images_are_one_channel_off_in_the_authors_code_and_the_rest_of_the_batch_is_ours(name):
    """A slip: labels of stored images are not shifted past the unknown channel, and saliency is not used for them."""
    v = load(name)
    stored = v["from_memory"].bool()
    assert stored.any()
    assert not stored.all()
    assert torch.equal(v["labels"][stored], v["y"][stored])
    ours = pseudo_labels(ssul_at_the_step(v), v)
    assert torch.equal(ours[~stored], v["pseudo_labels"][~stored])
    annotated = (v["y"] > 0) & (v["y"] != 255) & stored[:, None, None]
    assert annotated.any()
    assert torch.equal(ours[annotated], v["y"][annotated] + 1)
    logits = torch.cat([v["unknown_and_background"], v["classes"]], 1).requires_grad_()
    size = v["y"].shape[-2:]
    loss = pixel_bce(F.interpolate(logits, size, mode="bilinear", align_corners=False), v["pseudo_labels"])
    loss.backward()
    assert_close(loss, v["loss"])  # with their labels
    assert_close(logits.grad, v["grad"])


@pytest.mark.parametrize("name", names("ssul_inference_"))
def test_scores_and_labels_are_the_authors(name):
    v = load(name)
    size = v["labels"].shape[-2:]
    network = SsulNetwork(v["logits"][:, :2], [v["logits"][:, 2:]], size)
    prediction = Ssul(SsulConfig(), network).predict(numbered_images(len(v["logits"]), size))
    assert_close(prediction.scores, v["scores"])
    assert torch.equal(prediction.labels, v["labels"])
