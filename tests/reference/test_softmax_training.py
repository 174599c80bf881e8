"""MiB, LwF, LwF-MC, ILT and PLOP beside the numbers of MiB's and PLOP's authors' code (vectors/README.md)."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from given_network import assert_close, load, names
from given_softmax import MAPS, TINY, at_the_step
from torch import Tensor

from ipseg.methods.distillation import local_pod, pod_distance
from ipseg.methods.pseudo_labels import entropy, pseudo_labels
from ipseg.models.softmax import SoftmaxNetwork
from ipseg.scenario import IGNORE

METHODS = ("mib", "lwf", "lwf_mc", "ilt", "plop")
ITERATIONS = [(method, name) for method in METHODS for name in names(f"{method}_step")]
SCALES = (1, 2, 4)


@pytest.mark.parametrize(("name", "case"), ITERATIONS)
def test_losses_and_gradients_of_one_iteration_are_the_authors_but_for_void_pixels_in_a_mean(name, case):
    """Their cross-entropy is divided by the number of all pixels, ours by that of those that are not void."""
    v = load(case)
    method, batch = at_the_step(name, v, v["labels"])
    if name == "plop":
        method.thresholds = v["thresholds"][: len(method.step.old) + 1] * their_divisor(method)
    parts = method.loss(batch)
    parts["segmentation"] = parts["segmentation"] * (v["labels"] != IGNORE).float().mean()
    theirs = {"segmentation": v["loss"]} | {key: v[key] for key in ("distillation", "features", "pod") if key in v}
    assert parts.keys() == theirs.keys()
    for key, value in theirs.items():
        assert_close(parts[key], value)
    sum(parts.values()).backward()
    assert_close(method.network.logits.grad, v["grad_logits_small"])
    for i, each in enumerate(method.network.maps, 1):
        if f"grad_map{i}" in v:
            assert_close(each.grad, v[f"grad_map{i}"])
    if "grad_body" in v:
        assert_close(method.network.maps[3].grad, v["grad_body"])


# ---- MiB ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names("mib_new_classifier_"))
def test_new_classifiers_begin_as_the_authors(name):
    v = load(name)
    network = SoftmaxNetwork(TINY, pretrained=False)
    network.width = v["before_0.weight"].shape[1]
    for outputs in v["sizes"].tolist():
        network.add_step(outputs)
    network.classifiers.load_state_dict({key[7:]: value for key, value in v.items() if key.startswith("before_")})
    network.init_from_background()
    for key, value in network.classifiers.state_dict().items():
        assert_close(value, v[f"after_{key}"])


# ---- PLOP -----------------------------------------------------------------------------------------------------------


def their_divisor(method) -> float:
    """Their entropies are means over the old classes, and divided by the logarithm of all classes too."""
    return (1 + len(method.step.old)) * math.log(1 + len(method.step.seen))


@pytest.mark.parametrize("name", names("plop_step"))
def test_pseudo_labels_and_each_images_factor_are_the_authors(name):
    v = load(name)
    method, _ = at_the_step("plop", v, v["labels"])
    old = F.interpolate(v["old_logits_small"], v["labels"].shape[-2:], mode="bilinear", align_corners=False)
    taught, factor = pseudo_labels(v["labels"], old, v["thresholds"][: old.shape[1]] * their_divisor(method))
    assert torch.equal(taught, v["taught"])
    assert (taught == IGNORE).any()
    assert_close(factor, v["factor"])


@pytest.mark.parametrize("name", names("plop_entropy"))
def test_the_authors_entropy_is_ours_divided_by_the_number_of_classes(name):
    v = load(name)
    assert_close(entropy(v["probabilities"].log()) / v["probabilities"].shape[1], v["entropy"])


@pytest.mark.parametrize("name", names("plop_thresholds_"))
def test_the_official_thresholds_are_the_authors_and_the_papers_keep_half_of_the_labels(name):
    v = load(name)
    labels = v["labels"] if "labels" in v else enlarged(v["labels_small"], int(v["size"]))
    method, batch = at_the_step("plop", v, labels, variant="official")
    old = 1 + len(method.step.old)
    method.thresholds = torch.ones(old)
    method.prepare([batch])
    torch.testing.assert_close(method.thresholds / their_divisor(method), v["thresholds"][:old], rtol=1e-5, atol=0)
    paper, _ = at_the_step("plop", v, labels)
    paper.thresholds = torch.ones(old)
    paper.prepare([batch])
    logits = paper.teacher_outputs(batch.inputs).upsampled()
    sure = entropy(logits) < paper.thresholds[logits.argmax(1)]
    assert sure[labels == 0].float().mean().item() == pytest.approx(0.5, abs=0.02)


def enlarged(labels: Tensor, size: int) -> Tensor:
    times = size // labels.shape[-1]
    return labels.repeat_interleave(times, 1).repeat_interleave(times, 2)


@pytest.mark.parametrize("name", names("plop_local_pod_"))
def test_local_pod_is_the_authors_on_the_cells_that_their_tiles_cover(name):
    """Their tiles have floor(side / s) cells: the last side % s rows and columns are in none. Ours cover all."""
    v = load(name)
    side = v["old"].shape[-1]

    def covered(features: Tensor, scale: int) -> Tensor:
        kept = side // scale * scale
        return features[..., :kept, :kept]

    def joined(features: Tensor) -> Tensor:
        return torch.cat([local_pod(covered(features.square(), s), (s,)) for s in SCALES], 1)

    unsquared = torch.cat([local_pod(covered(v["old"], s), (s,)) for s in SCALES], 1)
    assert_close(unsquared.norm(dim=1), v["embedding_norm_of_old"])
    assert_close((joined(v["new"]) - joined(v["old"])).norm(dim=1).mean(), v["distance"])
    ours = pod_distance(v["new"], v["old"], torch.ones_like(v["old"][:, 0], dtype=torch.bool))
    if side % max(SCALES) == 0:
        assert_close(ours, v["distance"])
    else:
        assert ours.item() == pytest.approx(v["distance"].item(), rel=0.1)


@pytest.mark.parametrize("name", names("plop_step"))
@pytest.mark.parametrize("layer", range(MAPS))
def test_each_map_has_the_authors_part_of_local_pod(name, layer):
    v = load(name)
    method, batch = at_the_step("plop", v, v["labels"])
    method.thresholds = torch.ones(1 + len(method.step.old))
    method.network.maps[layer].data.copy_(method.teacher.maps[layer])
    assert_close(method.loss(batch)["pod"], (v["pod_layers"].sum() - v["pod_layers"][layer]) / len(v["pod_layers"]))
