"""What a step's images teach, beside the label maps and image labels of IPSeg's and SSUL's data sets.

Ours come from the scenario's table, which shows a step its own classes, and `coupled_labels`.
"""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from given_network import load, names

from ipseg.methods.labels import classes_present, coupled_labels
from ipseg.scenario import Scenario, Step

Vectors = dict[str, torch.Tensor]
TRAINING = names("ipseg_data_train_")
MEMORY = names("ipseg_data_memory_")


def annotation(v: Vectors) -> torch.Tensor:
    """(B, H, W): the masks as the step may see them, in learned indices."""
    values = [value for value in v["order"].tolist() if value]
    ends = list(accumulate(v["step_sizes"].tolist()))
    order = tuple(f"class {value}" for value in values)
    steps = tuple(
        Step(index, order[start:end], order[:start], order[end:])
        for index, (start, end) in enumerate(zip([0, *ends], ends, strict=False))
    )
    classes = tuple(f"class {value}" for value in sorted(values))
    scenario = Scenario(name="toy", setting="overlap", data_classes=classes, order=order, steps=steps)
    return torch.from_numpy(scenario.training_table(steps[int(v["step"])]))[v["mask"]].long()


def labels_of(v: Vectors, salient: torch.Tensor) -> torch.Tensor:
    y = annotation(v)
    return coupled_labels(y, torch.zeros_like(y), salient.bool())


def seen_and_old(v: Vectors) -> tuple[int, int]:
    ends = [0, *accumulate(v["step_sizes"].tolist())]
    return ends[int(v["step"]) + 1], ends[int(v["step"])]


@pytest.mark.parametrize("name", [*TRAINING, *MEMORY, *names("ssul_data_train_"), *names("ipseg_ade_with_maps_")])
def test_label_maps_are_the_authors(name):
    v = load(name)
    assert torch.equal(labels_of(v, v["saliency"]), v["labels"])


@pytest.mark.parametrize("name", TRAINING)
def test_image_labels_are_the_steps_classes_and_the_authors_where_the_order_is_the_data_sets(name):
    """Theirs stand in the order of the data set and leave out its first classes, whichever are old (a slip)."""
    v = load(name)
    seen, old = seen_and_old(v)
    new = torch.arange(seen) >= old
    learned = [value - 1 for value in v["order"].tolist() if value][:seen]
    ours, theirs = classes_present(annotation(v), seen), v["image_label"][:, :seen].bool()
    in_mask = v["classes_in_mask"].bool()
    assert torch.equal(ours, in_mask[:, learned] & new)
    assert torch.equal(theirs, in_mask[:, :seen] & new)
    assert torch.equal(ours, theirs) == (learned == list(range(seen)))


@pytest.mark.parametrize("name", MEMORY)
def test_the_authors_image_labels_of_replayed_images_hold_every_class_that_nobody_annotated_when_they_were_stored(name):
    """A slip: labels that no step has. Ours hold the running step's classes, and what was stored."""
    v = load(name)
    seen, old = seen_and_old(v)
    in_mask = v["classes_in_mask"][:, :seen].bool()
    assert torch.equal(v["image_label"][:, :seen].bool(), in_mask)
    assert torch.equal(classes_present(annotation(v), seen), in_mask & (torch.arange(seen) >= old))
    assert in_mask[:, :old].any()


@pytest.mark.parametrize("name", names("ssul_data_memory_"))
def test_ssuls_labels_of_replayed_images_are_one_channel_off(name):
    """A slip: class c teaches the channel of class c - 1 and background that of the unknown. Ours are shifted."""
    v = load(name)
    seen, _ = seen_and_old(v)
    mask = v["mask"]  # the order is that of the data set
    every = torch.where((mask > seen) & (mask != 255), 0, mask)
    assert torch.equal(v["labels"], every)
    ours = coupled_labels(every, torch.zeros_like(every), v["saliency"].bool())
    shown = (every > 0) & (every != 255)
    assert torch.equal(ours[shown], v["labels"][shown] + 1)
    assert torch.equal(ours[every == 0], 1 - v["saliency"][every == 0])


@pytest.mark.parametrize("name", [*names("ssul_ade_"), "ipseg_ade_without_maps_step1"])
def test_without_saliency_maps_all_that_is_not_annotated_is_unknown(name):
    v = load(name)
    assert torch.equal(labels_of(v, torch.ones_like(v["mask"])), v["labels"])


@pytest.mark.parametrize("name", [name for name in names("ipseg_ade_without_maps_") if name.endswith("step0")])
def test_in_the_authors_base_step_on_ade_void_is_background_and_later_classes_are_unknown(name):
    """A slip: in later steps void is unknown too, for an image is compared there instead of its mask. Ours: always."""
    v = load(name)
    void = v["mask"] == 0
    ours = labels_of(v, torch.ones_like(v["mask"]))
    assert torch.equal(ours[~void], v["labels"][~void])
    assert bool((v["labels"][void] == 1).all())
    assert bool((ours[void] == 0).all())
