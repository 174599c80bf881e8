"""Batches are a pure function of seed, step and iteration."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from ipseg.data.batch import BatchPlan, StepBatch
from ipseg.data.loader import BatchLoader, Passes
from ipseg.data.memory import Exemplar, MemoryConfig, ReplayMemory, load_memory, save_memory
from ipseg.data.sampler import Shard
from ipseg.data.scenes.dataset import ScenesConfig
from ipseg.data.step_dataset import StepDataset
from ipseg.data.transforms import apply_transform
from ipseg.scenario import ScenarioConfig

CPU = torch.device("cpu")
SPLITS = ScenesConfig(classes=4, size=(32, 48), train=14, val=1).build()
SCENARIO = ScenarioConfig(name="2-1").build("scenes", SPLITS.classes)


@pytest.fixture(scope="module")
def memory(tmp_path_factory) -> ReplayMemory:
    """Four remembered images of the base step."""
    view = StepDataset(SPLITS.train, SCENARIO, SCENARIO.steps[0])
    exemplars = [Exemplar(view.name(i), view.classes_in(i), 0) for i in range(4)]
    folder = tmp_path_factory.mktemp("memory")
    save_memory(ReplayMemory(exemplars, SPLITS.train, SCENARIO.steps[0].seen), folder, view, MemoryConfig())
    return load_memory(folder, SPLITS.train)


def loader_of(memory: ReplayMemory, step: int = 1, seed: int = 0, plan: BatchPlan | None = None) -> BatchLoader:
    view = StepDataset(SPLITS.train, SCENARIO, SCENARIO.steps[step])
    plan = plan or BatchPlan(2, num_replayed=1, num_replay_images=3)
    return BatchLoader(view, memory, plan, crop=(32, 32), scales=(0.5, 2), flip=True, seed=seed, device=CPU)


def same(one: StepBatch, other: StepBatch) -> bool:
    pairs = [(one.inputs, other.inputs), (one.replay_images, other.replay_images)]
    return all(torch.equal(vars(a)[key], vars(b)[key]) for a, b in pairs for key in ("images", "labels", "boxes"))


def test_a_batch_depends_on_nothing_but_seed_step_and_iteration(memory):
    forward = loader_of(memory)
    first = [forward[iteration] for iteration in range(12)]
    np.random.seed(5)  # numpy's and torch's own state must not matter
    torch.manual_seed(5)
    backward = loader_of(memory)
    assert all(same(backward[iteration], first[iteration]) for iteration in reversed(range(12)))


def test_seed_step_and_iteration_each_change_the_batch(memory):
    one = loader_of(memory)[3]
    assert not same(one, loader_of(memory)[4])
    assert not same(one, loader_of(memory, seed=1)[3])
    assert not same(one, loader_of(memory, step=2)[3])


@pytest.mark.parametrize("num_new", [1, 2, 7])
def test_one_pass_shows_every_image_of_the_step(memory, num_new):
    loader = loader_of(memory, plan=BatchPlan(num_new, num_replayed=1))
    passed = list(loader.sampler.one_pass())
    assert {row for batch in passed for row, _ in batch.inputs} >= set(range(loader.sampler.num_images))
    assert list(loader.sampler.one_pass()) == passed
    for number in range(4):
        passed = list(loader.sampler.one_pass(number))
        assert {row for batch in passed for row, _ in batch.inputs} >= set(range(loader.sampler.num_images))
    first, again = list(loader.one_pass()), loader.one_pass()
    assert all(torch.equal(one.inputs.images, next(again).inputs.images) for one in first)


def test_each_time_they_are_gone_through_passes_show_every_image_in_other_crops(memory):
    loader = loader_of(memory, plan=BatchPlan(2))
    passes = Passes(loader)
    for number in range(3):
        found, expected = list(passes), list(loader.one_pass(number))
        assert len(found) == len(expected)
        assert all(
            torch.equal(one.inputs.images, other.inputs.images) for one, other in zip(found, expected, strict=True)
        )
    assert not torch.equal(expected[0].inputs.images, next(loader.one_pass()).inputs.images)


@pytest.mark.parametrize("num_new", [1, 3, 4])
def test_every_image_is_visited_equally_often(memory, num_new):
    sampler = loader_of(memory, plan=BatchPlan(num_new)).sampler
    count = sampler.num_images
    visits = [row for iteration in range(5 * count) for row, _ in sampler[iteration].inputs][: 5 * count]
    assert Counter(visits) == dict.fromkeys(range(count), 5)
    orders = {tuple(visits[epoch * count : (epoch + 1) * count]) for epoch in range(5)}
    assert len(orders) > 1  # in another order each time


def test_labels_and_augmentation_belong_to_the_image_that_is_shown(memory):
    """Row by row: what the sampler says a batch shows is what the loader puts there."""
    loader = loader_of(memory, plan=BatchPlan(3, num_replayed=2, num_replay_images=2))
    for iteration in range(6):
        rows, batch = loader.sampler[iteration], loader[iteration]
        for images, shown in ((batch.inputs, rows.inputs), (batch.replay_images, rows.replay_images)):
            samples = [loader.samples.read(row) for row, _ in shown]
            for i, (sample, (_, params)) in enumerate(zip(samples, shown, strict=True)):
                transform = params.transform(sample.labels.shape, loader.crop)
                alone = apply_transform(loader.samples.pack([sample]), [0], [transform], loader.crop)
                assert torch.equal(images.labels[i], alone.labels[0])
                assert torch.allclose(images.images[i], alone.images[0])
                assert torch.equal(images.stored[i], alone.stored[0])


def test_a_batch_is_made_up_as_planned(memory):
    batch = loader_of(memory)[0]
    assert (len(batch.inputs), batch.num_new, len(batch.replay_images)) == (3, 2, 3)
    assert not batch.inputs.stored[:2].any()
    assert batch.inputs.stored[2:].any(1).all()
    assert set(batch.inputs.labels[2:].unique().tolist()) <= {0, 255}  # nothing is annotated in memory
    assert batch.inputs.stored.shape[1] == len(SCENARIO.steps[1].seen)


def test_whole_images_from_memory_are_not_cropped(memory):
    for iteration in range(4):
        wholes = loader_of(memory)[iteration].replay_images
        height, width = (wholes.boxes[:, 2:] - wholes.boxes[:, :2]).unbind(1)
        assert torch.allclose(height * 48, width * 32, rtol=1e-3)  # 32 x 48 keeps its shape: nothing is cut off


def test_whole_images_from_memory_come_in_many_sizes_and_never_larger_than_fits(memory):
    """Few are remembered and each is seen often: always alike, the network would know them by heart."""
    largest = 32 * 32 / 48  # as high as an image of 32 x 48 is on a canvas of 32 x 32
    heights = torch.cat([loader_of(memory)[iteration].replay_images.boxes for iteration in range(20)])
    heights = heights[:, 2] - heights[:, 0]
    assert heights.max() <= largest + 1e-3
    assert heights.max() > 0.9 * largest
    assert largest / 2 - 1e-3 <= heights.min() < 0.6 * largest  # the smallest scale of crops is a half


def test_without_wholes_there_are_none(memory):
    assert loader_of(memory, plan=BatchPlan(2))[0].replay_images is None


def test_a_memory_smaller_than_its_share_is_drawn_from_more_than_once(memory):
    assert len(loader_of(memory, plan=BatchPlan(1, num_replayed=7))[0].inputs) == 8


@pytest.mark.parametrize("processes", [2, 3, 7])  # 7: each has one image, be it current or replayed
def test_the_shares_of_several_processes_make_up_the_batch_of_one(memory, processes):
    plan = BatchPlan(4, num_replayed=3, num_replay_images=7, num_posterior=2)
    view = StepDataset(SPLITS.train, SCENARIO, SCENARIO.steps[1])

    def batch(shard: Shard) -> StepBatch:
        settings = {"crop": (32, 32), "scales": (0.5, 2), "flip": True, "seed": 0, "device": CPU}
        with BatchLoader(view, memory, plan, shard=shard, **settings).batches(range(3, 4)) as batches:
            return next(batches)

    whole, shares = batch(Shard()), [batch(Shard(rank, processes)) for rank in range(processes)]
    assert sum(share.num_new for share in shares) == whole.num_new
    assert sum(share.num_posterior for share in shares) == whole.num_posterior
    for rank, share in enumerate(shares):
        assert torch.equal(share.inputs.images, whole.inputs.images[rank::processes])
        assert torch.equal(share.replay_images.labels, whole.replay_images.labels[rank::processes])


@pytest.mark.parametrize("processes", [1, 2, 4])  # 4: one has no current image in a batch
def test_images_come_once_each_and_whole(memory, processes):
    view = StepDataset(SPLITS.train, SCENARIO, SCENARIO.steps[1])
    shown = []
    for rank in range(processes):
        plan, shard = BatchPlan(3, num_replayed=1), Shard(rank, processes)
        own = BatchLoader(
            view, memory, plan, crop=(40, 48), scales=(0.5, 2), flip=True, seed=0, device=CPU, shard=shard
        )
        for batch in own.unaugmented():
            assert len(batch.inputs) == batch.num_new <= max(1, len(shard(3)))
            assert torch.equal(batch.inputs.boxes, torch.tensor([[0.0, 0.0, 32.0, 48.0]]).expand(batch.num_new, 4))
            shown += [(image * 255).round().byte() for image in batch.inputs.images[:, :, :32].permute(0, 2, 3, 1)]
    expected = Counter(view.sample(i).image.tobytes() for i in range(len(view)))
    assert Counter(image.numpy().tobytes() for image in shown) == expected


def test_an_image_larger_than_the_canvas_is_shrunk(memory):
    batch = next(loader_of(memory).unaugmented())
    assert torch.allclose(batch.inputs.boxes[0], torch.tensor([0.0, 0.0, 32 * 2 / 3, 32.0]))
