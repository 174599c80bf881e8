"""STAR and Adapter beside the numbers of their authors' code (vectors/README.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from given_network import assert_close, load_cases, numbered_batch, step_of
from given_softmax import TINY, GivenSigmoid
from torch import Tensor

from ipseg.data.batch import StepBatch
from ipseg.methods import star
from ipseg.methods.adapter import adapter_plan, certain_cells, direction_sums, prototype_shift, uncertainty
from ipseg.methods.losses import mean_over
from ipseg.methods.prototypes import class_masks
from ipseg.methods.registry import method_config
from ipseg.methods.star import class_moments, class_statistics, drawn_features, star_plan
from ipseg.scenario import IGNORE

Case = dict[str, Tensor]
STEPS = [("star", v) for v in load_cases("star_step")] + [("adapter", v) for v in load_cases("adapter_step")]
PROTOTYPES = load_cases("star_prototypes") + load_cases("adapter_prototypes")


def at_the_step(name: str, v: Case) -> tuple[Any, list[StepBatch]]:
    steps = v["classes_per_head"].tolist()
    method: Any = method_config({"name": name, "positive_weight": float(v["pos_weight"])}).build(TINY, pretrained=False)
    method.step = replace(step_of(steps, len(steps) - 1), overlap=bool(v["overlap"]))
    labels = v["labels"]
    size = (labels.shape[-2], labels.shape[-1])
    method.network = GivenSigmoid(v["feature"], v["weight"], v["bias"], size, steps)
    method.teacher = GivenSigmoid(v["old_features"].flatten(0, 1), v["old_weight"], v["old_bias"], size)
    new = torch.zeros(steps[-1])
    for key, given in (("cells", "prev_number"), ("prototypes", "prev_prototype"), ("noise", "prev_noise")):
        rows = v[given]
        room = new if rows.ndim == 1 else new[:, None].expand(-1, rows.shape[1])
        method.network.register_buffer(key, torch.cat([rows, room]))
    method.network.register_buffer("norms", torch.cat([v["prev_norm"].T, new[:, None].expand(-1, 2)]))
    batches = []
    for i, each in enumerate(labels):
        crops = numbered_batch(each, torch.zeros_like(each), len(method.step.seen))
        crops.images[:, 0, 0, 0] += i * len(crops)
        batches.append(StepBatch(crops, len(crops)))
    return method, batches


@pytest.mark.parametrize(("name", "v"), STEPS)
def test_what_is_replayed_is_the_authors(name, v):
    method, batches = at_the_step(name, v)
    _, predicted, iterations = method.counted(batches)
    assert torch.equal(predicted, v["out_pred_number"].float())
    plan = {"star": star_plan, "adapter": adapter_plan}[name]
    numbers = v["prev_number"].float(), v["current_number"].float(), predicted
    found = plan(*numbers, iterations, overlap=bool(v["overlap"]))
    assert torch.equal(found.vectors, v["out_fake_per_class"].float())
    assert found.background == pytest.approx(float(v["out_bg_ratio"]), rel=1e-5)
    assert_close(found.cells, v["out_total_number"])


@pytest.mark.parametrize(("name", "v"), STEPS)
def test_losses_and_gradients_of_one_iteration_are_the_authors_but_for_void_pixels(name, v, monkeypatch):
    """Theirs are negatives of every new class."""
    method, batches = at_the_step(name, v)
    bce = star.new_class_bce
    monkeypatch.setattr(star, "new_class_bce", lambda x, y, *rest: bce(x, y.where(y != IGNORE, 0), *rest))
    monkeypatch.setattr(star, "drawn_features", lambda *_: v["drawn_fake_feature"].T)
    count = v["out_fake_per_class"].long()
    method.replay = star.Plan(count, float(v["out_bg_ratio"]), torch.zeros(0))
    method.drawn = torch.arange(len(count)).repeat_interleave(count)
    parts = method.loss(batches[0])
    theirs = {"segmentation": v["out_mbce"].sum(), "features": 5 * v["out_pkd"], "contrast": 0.05 * v["out_cont"]}
    theirs |= {"uncertainty": 0.1 * v["out_uncertainty"]} if name == "adapter" else {}
    assert parts.keys() == theirs.keys()
    for key, value in theirs.items():
        assert_close(parts[key], value)
    total = sum(parts.values())
    assert_close(total, v["out_total"])
    total.backward()
    assert_close(method.network.feature.grad, v["out_grad_feature"])
    gradients = [
        torch.zeros_like(each.weight) if each.weight.grad is None else each.weight.grad
        for each in method.network.classifiers
    ]
    assert_close(torch.cat(gradients)[..., 0, 0], v["out_grad_weight"])


@pytest.mark.parametrize("v", PROTOTYPES)
def test_prototypes_and_lengths_are_the_authors_and_noise_is_measured_from_the_class_s_own(v):
    """Theirs, after the base step, is measured from the prototype of an old class (slip)."""
    old, new, features = int(v["n_old"]), int(v["n_new"]), v["features"].flatten(0, 1)
    labels = v["label"].flatten(0, 1)[:, 8::16, 8::16]
    classes = range(1 + old, 1 + old + new)
    prototypes, noise, norms = class_statistics(class_moments(features, class_masks(labels, classes)))
    assert_close(prototypes, v["out_prototype"][old:])
    assert_close(norms.T, v["out_norm_mean_std"][:, old:])
    unit = F.normalize(features, dim=1).permute(0, 2, 3, 1)

    def spread(of: Tensor) -> Tensor:
        return torch.stack(
            [(unit[labels == k] - each).square().mean(0).sqrt() for k, each in zip(classes, of, strict=False)]
        )

    assert_close(noise, spread(v["out_prototype"][old:]))
    assert_close(spread(v["out_prototype"]), v["out_noise"][old:])


@pytest.mark.parametrize("v", load_cases("star_sampling"))
def test_drawn_features_are_spread_as_the_authors(v):
    torch.manual_seed(0)
    norms = v["norm"].T.reshape(-1, 2)
    for k in range(len(v["prototype"])):
        rows = [each[k].expand(60_000, -1) for each in (v["prototype"], v["noise"], norms)]
        drawn = drawn_features(*rows)
        error = 5 * (v["out_std"][k] / 60_000**0.5 + v["out_std"][k] / float(v["draws"]) ** 0.5)
        assert ((drawn.mean(0) - v["out_mean"][k]).abs() < error).all()
        torch.testing.assert_close(drawn.std(0), v["out_std"][k], rtol=0.03, atol=0)


@pytest.mark.parametrize("v", load_cases("adapter_adc"))
def test_prototypes_move_as_the_authors_code_would_have_it(v):
    old, prototypes, noise = int(v["n_old"]), v["prototype"].clone(), v["noise"].clone()
    cells = [v[name].flatten(0, 1) for name in ("old_cell_logits", "new_cell_logits", "label_cells")]
    where = class_masks(certain_cells(*cells), range(1, 1 + old))
    sums = direction_sums(v["new_features"].flatten(0, 1), v["old_features"].flatten(0, 1), where)
    shift = prototype_shift(sums, v["count_ever"][1 : 1 + old])
    assert_close(prototypes + shift, v["out_prototype"])
    assert_close(noise + shift.abs(), v["out_noise"])


def test_uncertainty_by_hand():
    logits = torch.tensor([[0.3, 0.2, 0.1], [0.75, 0.2, 0.1], [0.3, 0.2, 0.1]]).logit().T[None, :, None]
    found = uncertainty(logits, torch.tensor([[[2, 0, 1]]]))
    assert found.flatten().tolist() == pytest.approx([0.9**2, 0, 0], abs=1e-6)
    assert mean_over(found, found > 0) > 0
