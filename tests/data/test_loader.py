"""What is kept in memory and what is read ahead changes when images are read, and nothing else."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from ipseg.data.batch import BatchPlan
from ipseg.data.loader import AHEAD, GIGABYTE, BatchLoader, StepSamples, cache_limit, read_ahead
from ipseg.data.memory import ReplayMemory
from ipseg.data.scenes.dataset import ScenesConfig
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import Interrupted, UserError
from ipseg.scenario import ScenarioConfig
from ipseg.training import experiment, trainer
from ipseg.training.experiment import run
from ipseg.training.recipe import make_recipe
from ipseg.training.tensors import load_tensors

pytestmark = pytest.mark.slow

SPLITS = ScenesConfig(classes=4, size=(33, 47), train=14, val=1).build()  # 33 * 47 bits do not fill their last byte
SCENARIO = ScenarioConfig(name="2-1").build("scenes", SPLITS.classes)
AN_IMAGE = 33 * 47 * 4 + (33 * 47 + 7) // 8
EVERYTHING = float("inf")


class Counting:
    """A split that notes which images are read, and in which threads."""

    def __init__(self, split):
        self.split, self.names, self.read, self.threads = split, split.names, [], set()
        self.mask, self.saliency, self.class_presence = split.mask, split.saliency, split.class_presence

    def image(self, index):
        self.read.append(index)
        self.threads.add(threading.current_thread().name)
        return self.split.image(index)


def counting_view(*, oracle: bool = False) -> StepDataset:
    return StepDataset(Counting(SPLITS.train), SCENARIO, SCENARIO.steps[0], oracle=oracle)


def make_loader(view: StepDataset, keep: float = 0, workers: int = 0) -> BatchLoader:
    return BatchLoader(
        view,
        ReplayMemory([], view.split, ()),
        BatchPlan(3),
        crop=(32, 32),
        scales=(0.5, 2),
        flip=True,
        seed=0,
        device=torch.device("cpu"),
        cache_bytes=keep,
        workers=workers,
    )


def readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ipseg-reader")]


# ---- keeping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("oracle", [False, True])
def test_a_kept_image_is_the_image(oracle):
    view = counting_view(oracle=oracle)
    kept = make_loader(view, EVERYTHING).samples
    for position in [*range(len(view))] * 2:
        ours, read = kept.read(position), view.sample(position)
        assert ours.salient.dtype == bool
        for name in ("image", "labels", "salient", *(["full"] if oracle else [])):
            np.testing.assert_array_equal(getattr(ours, name), getattr(read, name))


def test_what_fits_is_read_once_and_the_rest_each_time():
    view = counting_view()
    kept = make_loader(view, 2 * AN_IMAGE).samples
    for position in [*range(4)] * 3:
        kept.read(position)
    counts = [view.split.read.count(view.indices[position]) for position in range(4)]
    assert counts == [1, 1, 3, 3]
    assert kept.bytes_left == 0


def test_without_room_nothing_is_kept():
    view = counting_view()
    kept = make_loader(view, 0).samples
    for _ in range(3):
        kept.read(0)
    assert len(view.split.read) == 3


def test_images_take_at_most_half_of_the_memory(monkeypatch, tmp_path):
    assert cache_limit(0) == 0
    assert cache_limit(1e9) < 1e9 * GIGABYTE
    (tmp_path / "max").write_text("1000000\n")
    (tmp_path / "none").write_text("max\n")
    limits = (str(tmp_path / "none"), str(tmp_path / "max"), str(tmp_path / "missing"))
    monkeypatch.setattr("ipseg.data.loader.LIMITS", limits)
    assert cache_limit(8) == 500_000
    assert cache_limit(0.0001) == 0.0001 * GIGABYTE
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert cache_limit(8) == 125_000


# ---- reading ahead ----------------------------------------------------------------------------------------------


def pairs(count: int) -> list[tuple[int, int]]:
    return [(2 * i, 2 * i + 1) for i in range(count)]


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_items_come_in_their_order_however_long_each_takes(workers):
    def read(item):
        time.sleep(0.002 * (item % 3 == 0))
        return item * item

    with read_ahead(read, pairs(15), workers=workers, ahead=3) as results:
        assert list(results) == [[one * one, other * other] for one, other in pairs(15)]


def test_no_more_is_read_than_was_allowed():
    begun = []
    with read_ahead(begun.append, pairs(50), workers=3, ahead=3) as results:
        for _ in range(5):
            next(results)
        time.sleep(0.02)
        assert 10 <= len(begun) <= 16
    assert len(begun) <= 16


def test_an_error_comes_where_its_group_is_due_and_no_thread_is_left():
    def read(item):
        if item >= 4:
            raise UserError(f"image {item} is broken")
        return item

    with read_ahead(read, pairs(25), workers=4, ahead=4) as results:
        assert [next(results) for _ in range(2)] == [[0, 1], [2, 3]]
        assert readers()
        with pytest.raises(UserError, match="image 4 is broken"):
            next(results)
    assert not readers()


def test_ctrl_c_leaves_no_thread():
    def learn():
        with read_ahead(time.sleep, [[0.01]] * 50, workers=2, ahead=8) as results:
            next(results)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn()
    assert not readers()


# ---- batches ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 3 * AN_IMAGE, EVERYTHING])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("start", [0, 5])
def test_batches_are_the_same_with_any_setting_from_any_start(keep, workers, start):
    plain = make_loader(counting_view())
    view = counting_view()
    with make_loader(view, keep, workers).batches(range(start, 14)) as batches:
        for iteration, batch in enumerate(batches, start):
            ours, theirs = vars(batch.inputs), vars(plain[iteration].inputs)
            assert all(torch.equal(ours[name], theirs[name]) for name in ("images", "boxes", "labels", "salient"))
    assert iteration == 13
    assert any(name.startswith("ipseg-reader") for name in view.split.threads) == bool(workers)


def test_nothing_is_read_that_no_iteration_shows():
    view = counting_view()
    with make_loader(view, workers=2).batches(range(2, 5)) as batches:
        assert len(list(batches)) == 3
    assert len(view.split.read) == 9


def test_two_batches_are_read_ahead():
    view = counting_view()
    with make_loader(view, workers=2).batches(range(100)) as batches:
        next(batches)
        time.sleep(0.05)
        assert len(view.split.read) == 3 * (1 + AHEAD)


def test_preloaded_images_make_the_same_batches_and_too_many_are_not_preloaded(monkeypatch):
    """Only a GPU preloads; what it does is the same on a CPU."""
    monkeypatch.setattr("ipseg.data.loader.CHUNK", 4)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1 << 30, 1 << 30))
    plain, loader = make_loader(counting_view()), make_loader(counting_view())
    assert loader.samples._preload(AN_IMAGE) is None
    loader.samples.preloaded = loader.samples._preload(EVERYTHING)
    for way in ("one_pass", "unaugmented"):
        for ours, theirs in zip(getattr(loader, way)(), getattr(plain, way)(), strict=True):
            for name in ("images", "boxes", "labels", "salient", "stored"):
                assert torch.equal(getattr(ours.inputs, name), getattr(theirs.inputs, name))


# ---- whole runs -------------------------------------------------------------------------------------------------


@pytest.fixture
def settings(tiny_settings, make_folder_data):
    """A short run on images in files."""
    tiny_settings["data"] = {"name": "folder", "path": str(make_folder_data())}
    tiny_settings["scenario"] = {"name": "2-1"}
    tiny_settings["training"] |= {"epochs": 2}
    return tiny_settings


def with_training(settings, **training):
    return make_recipe(settings | {"training": settings["training"] | training})


def test_weights_are_bit_equal_with_any_setting(settings, tmp_path):
    ways = {"plain": (0, 0), "kept": (1, 0), "ahead, some kept": (40_000 / GIGABYTE, 2)}
    for name, (cache_gb, workers) in ways.items():
        run(with_training(settings, cache_gb=cache_gb, workers=workers), tmp_path / name, quiet=True)
    for step in range(2):
        files = [tmp_path / name / f"step_{step:02d}" / "weights.safetensors" for name in ways]
        first, *others = [load_tensors(file, "weights")[0] for file in files]
        assert all(first[name].equal(other[name]) for other in others for name in first)
    assert len({(tmp_path / name / "results.json").read_bytes() for name in ways}) == 1


def test_a_run_goes_on_with_other_settings_of_loading(settings, tmp_path, monkeypatch):
    run(with_training(settings, cache_gb=0, workers=0), tmp_path / "whole", quiet=True)
    asked = iter([False, True, True])  # looked at once after the first iteration, and twice after the second
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "stop_request", lambda: nullcontext(lambda: next(asked)))
        with pytest.raises(Interrupted):
            run(with_training(settings, cache_gb=1, workers=2), tmp_path / "stopped", quiet=True)
    assert not readers()
    run(with_training(settings, cache_gb=0, workers=1), tmp_path / "stopped", quiet=True, resume=True)
    ours, theirs = (
        load_tensors(tmp_path / name / "step_01" / "weights.safetensors", "weights")[0] for name in ("stopped", "whole")
    )
    assert all(ours[name].equal(theirs[name]) for name in theirs)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_image_ends_a_run_with_its_name(settings, tmp_path, workers):
    image = tmp_path / "data" / "images" / "image_04.png"
    image.write_bytes(image.read_bytes()[:200])
    with pytest.raises(UserError, match=r"image_04\.png is not a readable image"):
        run(with_training(settings, workers=workers), tmp_path / "run", quiet=True)
    assert not readers()


def test_kept_images_go_with_their_step(settings, tmp_path, monkeypatch):
    """Else a run of many steps would keep the images of all of them."""
    kept: list[weakref.ref[StepSamples]] = []

    def noted(method, loader, *arguments, **options):
        gc.collect()
        assert all(earlier() is None for earlier in kept)
        kept.append(weakref.ref(loader.samples))
        return trainer.train_step(method, loader, *arguments, **options)

    monkeypatch.setattr(experiment, "train_step", noted)
    run(make_recipe(settings), tmp_path / "run", quiet=True)
    assert len(kept) == 2


@pytest.mark.parametrize("name", ["cache_gb", "workers"])
def test_less_than_nothing_is_refused(settings, name):
    with pytest.raises(UserError, match=f"training.{name} is -1"):
        with_training(settings, **{name: -1})
