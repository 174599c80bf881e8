"""Batches are a pure function of seed, step and iteration."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from ipseg.data.augment import random_crop, whole
from ipseg.data.batch import BatchPlan, StepBatch
from ipseg.data.drawn import ScenesConfig
from ipseg.data.memory import Entry, MemoryConfig, ReplayMemory
from ipseg.data.step_dataset import StepDataset
from ipseg.data.stream import BatchStream, Share
from ipseg.scenario.split import ScenarioConfig

CPU = torch.device("cpu")
SOURCE = ScenesConfig(classes=4, size=(32, 48), train=14, val=1).build()
SCENARIO = ScenarioConfig(name="2-1").build("scenes", SOURCE.classes)


@pytest.fixture(scope="module")
def memory(tmp_path_factory) -> ReplayMemory:
    """Four remembered pictures of the base step."""
    view = StepDataset(SOURCE.train, SCENARIO, SCENARIO.steps[0])
    entries = [Entry(view.name(i), view.classes_in(i), 0) for i in range(4)]
    folder = tmp_path_factory.mktemp("memory")
    ReplayMemory(entries, SOURCE.train, SCENARIO.steps[0].seen).save(folder, view, MemoryConfig())
    return ReplayMemory.load(folder, SOURCE.train)


def stream(memory: ReplayMemory, step: int = 1, seed: int = 0, plan: BatchPlan | None = None) -> BatchStream:
    view = StepDataset(SOURCE.train, SCENARIO, SCENARIO.steps[step])
    plan = plan or BatchPlan(2, num_replayed=1, num_replay_images=3)
    return BatchStream(view, memory, plan, crop=(32, 32), scales=(0.5, 2), flip=True, seed=seed, device=CPU)


def same(one: StepBatch, other: StepBatch) -> bool:
    pairs = [(one.inputs, other.inputs), (one.replay_images, other.replay_images)]
    return all(torch.equal(vars(a)[key], vars(b)[key]) for a, b in pairs for key in ("images", "labels", "boxes"))


def test_a_batch_depends_on_nothing_but_seed_step_and_iteration(memory):
    forward = stream(memory)
    first = [forward[iteration] for iteration in range(12)]
    np.random.seed(5)  # numpy's and torch's own state must not matter
    torch.manual_seed(5)
    backward = stream(memory)
    assert all(same(backward[iteration], first[iteration]) for iteration in reversed(range(12)))


def test_seed_step_and_iteration_each_change_the_batch(memory):
    one = stream(memory)[3]
    assert not same(one, stream(memory)[4])
    assert not same(one, stream(memory, seed=1)[3])
    assert not same(one, stream(memory, step=2)[3])


@pytest.mark.parametrize(("current", "wholes"), [(2, 3), (7, 1), (1, 0)])
def test_one_pass_shows_every_picture_of_the_step_and_every_whole_remembered_one(memory, current, wholes, monkeypatch):
    given, laid = stream(memory, plan=BatchPlan(current, num_replayed=1, num_replay_images=wholes)), []
    plain = BatchStream._lay

    def lay(self, layout, rows, *rest):
        laid.append((layout, rows))
        return plain(self, layout, rows, *rest)

    monkeypatch.setattr(BatchStream, "_lay", lay)
    batches = list(given.one_pass())
    crops, wholly = (
        {row for found, rows in laid if found is layout for row in rows} for layout in (random_crop, whole)
    )
    size = len(given.view)
    assert crops >= set(range(size))
    assert wholly == (set(range(size, size + len(memory))) if wholes else set())
    again = given.one_pass()
    assert all(torch.equal(one.inputs.images, next(again).inputs.images) for one in batches)


@pytest.mark.parametrize("current", [1, 3, 4])
def test_every_picture_is_visited_equally_often(memory, current):
    batches = stream(memory, plan=BatchPlan(current))
    count = len(batches.view)
    visits = Counter(batches._visit(visit) for visit in range(5 * count))
    assert set(visits) == set(range(count))
    assert set(visits.values()) == {5}
    orders = [tuple(batches._visit(epoch * count + k) for k in range(count)) for epoch in range(5)]
    assert len(set(orders)) > 1  # in another order each time


def test_a_batch_is_made_up_as_planned(memory):
    batch = stream(memory)[0]
    assert (len(batch.inputs), batch.num_new, len(batch.replay_images)) == (3, 2, 3)
    assert not batch.inputs.stored[:2].any()
    assert batch.inputs.stored[2:].any(1).all()
    assert set(batch.inputs.labels[2:].unique().tolist()) <= {0, 255}  # nothing is annotated in memory
    assert batch.inputs.stored.shape[1] == len(SCENARIO.steps[1].seen)


def test_whole_pictures_from_memory_are_not_cropped(memory):
    for iteration in range(4):
        wholes = stream(memory)[iteration].replay_images
        height, width = (wholes.boxes[:, 2:] - wholes.boxes[:, :2]).unbind(1)
        assert torch.allclose(height * 48, width * 32, rtol=1e-3)  # 32 x 48 keeps its shape: nothing is cut off


def test_whole_pictures_from_memory_come_in_many_sizes_and_never_larger_than_fits(memory):
    """Few are remembered and each is seen often: always alike, the network would know them by heart."""
    largest = 32 * 32 / 48  # as high as a picture of 32 x 48 is on a canvas of 32 x 32
    heights = torch.cat([stream(memory)[iteration].replay_images.boxes for iteration in range(20)])
    heights = heights[:, 2] - heights[:, 0]
    assert heights.max() <= largest + 1e-3
    assert heights.max() > 0.9 * largest
    assert largest / 2 - 1e-3 <= heights.min() < 0.6 * largest  # the smallest scale of crops is a half


def test_without_wholes_there_are_none(memory):
    assert stream(memory, plan=BatchPlan(2))[0].replay_images is None


def test_a_memory_smaller_than_its_share_is_drawn_from_more_than_once(memory):
    assert len(stream(memory, plan=BatchPlan(1, num_replayed=7))[0].inputs) == 8


@pytest.mark.parametrize("processes", [2, 3, 7])  # 7: each has one picture, be it current or replayed
def test_the_shares_of_several_processes_make_up_the_batch_of_one(memory, processes):
    plan = BatchPlan(4, num_replayed=3, num_replay_images=7, num_posterior=2)
    view = StepDataset(SOURCE.train, SCENARIO, SCENARIO.steps[1])

    def batch(share: Share) -> StepBatch:
        settings = {"crop": (32, 32), "scales": (0.5, 2), "flip": True, "seed": 0, "device": CPU}
        with BatchStream(view, memory, plan, share=share, **settings).batches(range(3, 4)) as batches:
            return next(batches)

    whole, shares = batch(Share()), [batch(Share(rank, processes)) for rank in range(processes)]
    assert sum(share.num_new for share in shares) == whole.num_new
    assert sum(share.num_posterior for share in shares) == whole.num_posterior
    for rank, share in enumerate(shares):
        assert torch.equal(share.inputs.images, whole.inputs.images[rank::processes])
        assert torch.equal(share.replay_images.labels, whole.replay_images.labels[rank::processes])


@pytest.mark.parametrize("processes", [1, 2, 4])  # 4: one has no current picture in a batch
def test_pictures_come_once_each_and_whole(memory, processes):
    view = StepDataset(SOURCE.train, SCENARIO, SCENARIO.steps[1])
    shown = []
    for rank in range(processes):
        plan, share = BatchPlan(3, num_replayed=1), Share(rank, processes)
        own = BatchStream(
            view, memory, plan, crop=(40, 48), scales=(0.5, 2), flip=True, seed=0, device=CPU, share=share
        )
        for batch in own.pictures():
            assert len(batch.inputs) == batch.num_new <= max(1, len(share(3)))
            assert torch.equal(batch.inputs.boxes, torch.tensor([[0.0, 0.0, 32.0, 48.0]]).expand(batch.num_new, 4))
            shown += [(image * 255).round().byte() for image in batch.inputs.images[:, :, :32].permute(0, 2, 3, 1)]
    expected = Counter(view.sample(i).image.tobytes() for i in range(len(view)))
    assert Counter(image.numpy().tobytes() for image in shown) == expected


def test_a_picture_larger_than_the_canvas_is_shrunk(memory):
    batch = next(stream(memory).pictures())
    assert torch.allclose(batch.inputs.boxes[0], torch.tensor([0.0, 0.0, 32 * 2 / 3, 32.0]))
