"""The replay memory: balanced, without duplicates, and without a single pixel's annotation."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ipseg.data.dataset import EmptyDataset, Subset
from ipseg.data.folder import FolderConfig
from ipseg.data.memory import (
    Exemplar,
    MemoryConfig,
    ReplayMemory,
    load_memory,
    move_memory,
    save_memory,
    select_exemplars,
    update_memory,
)
from ipseg.data.scenes.dataset import ScenesConfig
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import UserError
from ipseg.scenario import ScenarioConfig

CLASSES = ("ant", "bee", "cat", "dog", "emu")
SPLITS = ScenesConfig(classes=4, size=(40, 48), train=16, val=1, seed=57).build()  # some show classes of two steps
SCENARIO = ScenarioConfig(name="2-1").build("scenes", SPLITS.classes)


@st.composite
def pools(draw: st.DrawFn) -> list[Exemplar]:
    labels = st.lists(st.sampled_from(CLASSES), min_size=1, max_size=3, unique=True).map(tuple)
    return [
        Exemplar(f"{i:03d}", classes, 0) for i, classes in enumerate(draw(st.lists(labels, min_size=1, max_size=40)))
    ]


@given(pools(), st.integers(1, 45), st.integers(1, 5), st.integers(0, 99))
def test_every_class_has_its_share_where_the_data_has_it(pool, size, known, seed):
    classes = CLASSES[:known]
    chosen = select_exemplars(pool, classes, size, np.random.default_rng(seed))
    assert len({exemplar.name for exemplar in chosen}) == len(chosen) == min(size, len(pool))
    for name in classes:
        there = sum(name in exemplar.classes for exemplar in pool)
        assert sum(name in exemplar.classes for exemplar in chosen) >= min(size // len(classes), there)
    assert (
        select_exemplars(list(reversed(pool)), classes, size, np.random.default_rng(seed)) == chosen
    )  # the seed alone decides


def test_what_the_model_guesses_fills_no_class_s_share():
    """A class that it takes for others would have its places filled with these."""
    taken = [Exemplar(f"dog{i}", ("ant", "dog"), 1, None, ("ant",)) for i in range(30)]
    pool = [*taken, *(Exemplar(f"ant{i}", ("ant",), 0) for i in range(30))]
    chosen = select_exemplars(pool, ("ant", "dog"), 20, np.random.default_rng(0))
    assert sum(exemplar.annotated == ("ant",) for exemplar in chosen) >= 10
    assert sum(exemplar.annotated == ("dog",) for exemplar in chosen) >= 10


def test_a_memory_smaller_than_the_number_of_classes_holds_as_many_of_these_as_it_can():
    pool = [Exemplar(f"ant{i}", ("ant",), 0) for i in range(50)]
    pool += [Exemplar(name, (name,), 0) for name in CLASSES[1:]]
    for seed in range(10):
        chosen = select_exemplars(pool, CLASSES, 4, np.random.default_rng(seed))
        assert len(chosen) == len({exemplar.classes for exemplar in chosen}) == 4


def test_another_seed_chooses_other_images():
    pool = [Exemplar(f"{i:03d}", ("ant",), 0) for i in range(50)]
    chosen = {
        tuple(e.name for e in select_exemplars(pool, ["ant"], 5, np.random.default_rng(seed))) for seed in range(5)
    }
    assert len(chosen) == 5


def view(step: int) -> StepDataset:
    return StepDataset(SPLITS.train, SCENARIO, SCENARIO.steps[step])


def nothing_else(_image) -> list[str]:
    return []


def kept(folder, size: int = 5, store: str = "path", step: int = 0) -> ReplayMemory:
    config = MemoryConfig(size=size, store=store)
    memory = update_memory(ReplayMemory([], SPLITS.train, ()), view(step), config, 0, nothing_else)
    save_memory(memory, folder, view(step), config)
    return memory


def test_what_is_saved_is_what_is_loaded(tmp_path):
    memory = kept(tmp_path)
    loaded = load_memory(tmp_path, SPLITS.train)
    assert loaded.order == memory.order == SCENARIO.steps[0].seen
    assert [(e.name, e.classes, e.step) for e in loaded.exemplars] == [
        (e.name, e.classes, e.step) for e in memory.exemplars
    ]
    for index, exemplar in enumerate(loaded.exemplars):
        at = SPLITS.train.names.index(exemplar.name)
        sample = loaded.sample(index)
        assert np.array_equal(sample.image, SPLITS.train.image(at))
        assert np.array_equal(sample.salient, SPLITS.train.saliency(at))
        assert sample.stored.tolist() == [name in exemplar.classes for name in memory.order]
        assert not sample.labels.any()  # its annotation is gone
        assert sample.full is None


def test_the_step_s_own_classes_come_from_its_annotations_and_older_ones_from_the_model(tmp_path):
    first = kept(tmp_path / "first", size=3)
    loaded = load_memory(tmp_path / "first", SPLITS.train)
    cow = SCENARIO.steps[0].new[0]
    second = update_memory(loaded, view(1), MemoryConfig(size=12), 0, lambda _: [cow])
    own = {view(1).name(i): view(1).classes_in(i) for i in range(len(view(1)))}
    before = {exemplar.name: exemplar for exemplar in first.exemplars}
    assert any(exemplar.step == 1 for exemplar in second.exemplars)
    for exemplar in second.exemplars:
        if exemplar.name in before:
            assert set(exemplar.classes) == {*before[exemplar.name].classes, *own.get(exemplar.name, ())}
        else:
            assert set(exemplar.classes) == {cow, *own[exemplar.name]}
            assert exemplar.guessed == (cow,)
            assert set(exemplar.annotated) == set(own[exemplar.name])


def test_an_image_that_a_later_step_shows_again_gets_the_new_class_and_is_kept_once(tmp_path):
    kept(tmp_path, size=16)
    loaded = load_memory(tmp_path, SPLITS.train)
    again = {view(1).name(i) for i in range(len(view(1)))} & {exemplar.name for exemplar in loaded.exemplars}
    assert again
    second = update_memory(loaded, view(1), MemoryConfig(size=16), 0, nothing_else)
    names = [exemplar.name for exemplar in second.exemplars]
    assert len(set(names)) == len(names)
    dog = SCENARIO.steps[1].new[0]
    for exemplar in second.exemplars:
        if exemplar.name in again:
            assert dog in exemplar.classes
            assert exemplar.step == 0


def test_no_stored_file_holds_a_pixel_annotation(tmp_path):
    memory = kept(tmp_path, store="copy")
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    names = sorted(exemplar.name for exemplar in memory.exemplars)
    folders = ("images", "saliency")
    assert files == [*(f"{folder}/{n}.png" for folder in folders[:1] for n in names), "manifest.json"] + [
        f"saliency/{name}.png" for name in names
    ]
    for name in names:
        with Image.open(tmp_path / "saliency" / f"{name}.png") as saliency:
            assert saliency.mode == "1"  # one bit a pixel cannot tell classes apart
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert set(manifest) == {"version", "size", "store", "order", "entries"}
    assert all(set(exemplar) == {"name", "step", "classes", "multi_hot", "guessed"} for exemplar in manifest["entries"])


def test_paths_alone_are_kept_unless_a_copy_is_asked_for(tmp_path):
    kept(tmp_path)
    assert not (tmp_path / "images").exists()


def test_copies_work_after_the_data_is_gone(tmp_path, make_folder_data):
    root = make_folder_data()
    splits = FolderConfig(path=str(root)).build()
    scenario = ScenarioConfig(name="2-1").build("folder", splits.classes)
    base = StepDataset(splits.train, scenario, scenario.steps[0])
    config = MemoryConfig(size=3, store="copy")
    memory = update_memory(ReplayMemory([], splits.train, ()), base, config, 0, nothing_else)
    save_memory(memory, tmp_path / "memory", base, config)
    images = [splits.train.image(splits.train.names.index(exemplar.name)) for exemplar in memory.exemplars]
    shutil.rmtree(root / "images")
    shutil.rmtree(root / "masks")
    loaded = load_memory(tmp_path / "memory", splits.train)
    assert all(np.array_equal(loaded.sample(i).image, image) for i, image in enumerate(images))


def test_a_memory_that_moves_renames_only_what_another_image_is_called(tmp_path):
    """The first image comes again under its name, another one has the name of the second, the third stays alone."""
    kept(tmp_path / "here", size=3)
    memory = load_memory(tmp_path / "here", SPLITS.train)
    first, second, third = (exemplar.name for exemplar in memory.exemplars)
    coming = Subset(SPLITS.train, [SPLITS.train.names.index(name) for name in (first, third)])
    coming.names = [first, second]  # the third image is called as the second was
    move_memory(memory, tmp_path / "there", [coming, SPLITS.val])
    moved = load_memory(tmp_path / "there", EmptyDataset())
    assert [exemplar.name for exemplar in moved.exemplars] == [first, f"old/{second}", third]
    for index in range(3):
        assert np.array_equal(moved.sample(index).image, memory.sample(index).image)
        assert np.array_equal(moved.sample(index).salient, memory.sample(index).salient)


@pytest.mark.parametrize("first", ["train", "val"])
def test_a_name_is_kept_only_if_no_split_calls_another_image_so(tmp_path, first):
    """COCO and ADE have images of equal names in train and in val."""
    kept(tmp_path / "here", size=2)
    memory = load_memory(tmp_path / "here", SPLITS.train)
    own, other = (exemplar.name for exemplar in memory.exemplars)
    same, another = (Subset(SPLITS.train, [SPLITS.train.names.index(name)]) for name in (own, other))
    another.names = [own]
    move_memory(memory, tmp_path / "there", [same, another] if first == "train" else [another, same])
    assert [e.name for e in load_memory(tmp_path / "there", EmptyDataset()).exemplars] == [f"old/{own}", other]
    move_memory(memory, tmp_path / "twice", [same, same])
    assert [e.name for e in load_memory(tmp_path / "twice", EmptyDataset()).exemplars] == [own, other]


def test_a_new_name_is_never_that_of_another_remembered_image(tmp_path):
    kept(tmp_path / "here", size=2, store="copy")
    here = load_memory(tmp_path / "here", EmptyDataset())
    old = [replace(here.exemplars[0], name="a"), replace(here.exemplars[1], name="old/a")]
    for exemplar, new in zip(here.exemplars, old, strict=True):
        for kind in ("images", "saliency"):
            path = tmp_path / "here" / kind / f"{new.name}.png"
            path.parent.mkdir(exist_ok=True)
            (tmp_path / "here" / kind / f"{exemplar.name}.png").rename(path)
    coming = Subset(SPLITS.train, [SPLITS.train.names.index(exemplar.name) for exemplar in here.exemplars])
    coming.names = ["old/a", "a"]  # the other way round: both are other images
    move_memory(ReplayMemory(old, EmptyDataset(), here.order), tmp_path / "there", [coming])
    moved = load_memory(tmp_path / "there", EmptyDataset())
    assert [exemplar.name for exemplar in moved.exemplars] == ["old/old/a", "old/old/old/a"]


def test_an_image_that_is_gone_is_named(tmp_path):
    kept(tmp_path)
    other = ScenesConfig(classes=4, size=(40, 48), train=1, val=1).build()
    memory = load_memory(tmp_path, other.train)
    lost = next(i for i, exemplar in enumerate(memory.exemplars) if exemplar.name not in other.train.names)
    with pytest.raises(UserError, match=f'no image "{memory.exemplars[lost].name}"'):
        memory.sample(lost)


def test_an_image_that_has_another_size_now_is_named(tmp_path):
    memory = kept(tmp_path)
    other = ScenesConfig(classes=4, size=(64, 64), train=16, val=1, seed=57).build()
    with pytest.raises(UserError, match=f"{memory.exemplars[0].name} is no longer of the size"):
        load_memory(tmp_path, other.train).sample(0)


def change(folder, **values) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    exemplar = {key: value for key, value in values.items() if key in manifest["entries"][0]}
    manifest["entries"][0] |= exemplar
    manifest |= {key: value for key, value in values.items() if key not in exemplar}
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"multi_hot": [0, 0]}, "contradicts itself"),
        ({"multi_hot": [1, 1, 1]}, "contradicts itself"),
        ({"classes": ["unicorn"]}, "contradicts itself"),
        ({"classes": None}, "damaged"),
        ({"step": "last"}, "damaged"),
        ({"entries": 3}, "damaged"),
        ({"version": 2}, "Update ipseg"),
        ({"version": "new"}, "damaged"),
        ({"name": "../../etc/passwd"}, "leaves its folder"),
        ({"name": "/etc/passwd"}, "leaves its folder"),
    ],
)
def test_a_manifest_that_cannot_be_true_is_refused_by_name(tmp_path, values, message):
    kept(tmp_path)
    change(tmp_path, **values)
    with pytest.raises(UserError, match=message) as caught:
        load_memory(tmp_path, SPLITS.train)
    assert "manifest.json" in str(caught.value)


def test_a_broken_or_missing_manifest_is_refused_by_name(tmp_path):
    kept(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"manifest is damaged.*manifest\.json"):
        load_memory(tmp_path, SPLITS.train)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"manifest is missing.*manifest\.json"):
        load_memory(tmp_path, SPLITS.train)


def test_a_memory_of_nothing_keeps_nothing(tmp_path):
    memory = kept(tmp_path, size=0)
    assert len(memory) == len(load_memory(tmp_path, SPLITS.train)) == 0
    with pytest.raises(UserError, match=r"memory\.size"):
        MemoryConfig(size=-1)
