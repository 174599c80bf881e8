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

from ipseg.data.drawn import ScenesConfig
from ipseg.data.folder import FolderConfig
from ipseg.data.held_out import Part
from ipseg.data.memory import Entry, MemoryConfig, ReplayMemory
from ipseg.data.memory_io import load_memory, move_memory, save_memory
from ipseg.data.memory_update import select_exemplars, update
from ipseg.data.source import EmptyDataset
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import UserError
from ipseg.scenario.split import ScenarioConfig

CLASSES = ("ant", "bee", "cat", "dog", "emu")
SOURCE = ScenesConfig(classes=4, size=(40, 48), train=16, val=1, seed=57).build()  # some show classes of two steps
SCENARIO = ScenarioConfig(name="2-1").build("scenes", SOURCE.classes)


@st.composite
def pools(draw: st.DrawFn) -> list[Entry]:
    labels = st.lists(st.sampled_from(CLASSES), min_size=1, max_size=3, unique=True).map(tuple)
    return [Entry(f"{i:03d}", classes, 0) for i, classes in enumerate(draw(st.lists(labels, min_size=1, max_size=40)))]


@given(pools(), st.integers(1, 45), st.integers(1, 5), st.integers(0, 99))
def test_every_class_has_its_share_where_the_data_has_it(pool, size, known, seed):
    classes = CLASSES[:known]
    chosen = select_exemplars(pool, classes, size, np.random.default_rng(seed))
    assert len({entry.name for entry in chosen}) == len(chosen) == min(size, len(pool))
    for name in classes:
        there = sum(name in entry.classes for entry in pool)
        assert sum(name in entry.classes for entry in chosen) >= min(size // len(classes), there)
    assert (
        select_exemplars(list(reversed(pool)), classes, size, np.random.default_rng(seed)) == chosen
    )  # the seed alone decides


def test_what_the_model_guesses_fills_no_class_s_share():
    """A class that it takes for others would have its places filled with these."""
    taken = [Entry(f"dog{i}", ("ant", "dog"), 1, None, ("ant",)) for i in range(30)]
    pool = [*taken, *(Entry(f"ant{i}", ("ant",), 0) for i in range(30))]
    chosen = select_exemplars(pool, ("ant", "dog"), 20, np.random.default_rng(0))
    assert sum(entry.annotated == ("ant",) for entry in chosen) >= 10
    assert sum(entry.annotated == ("dog",) for entry in chosen) >= 10


def test_a_memory_smaller_than_the_number_of_classes_holds_as_many_of_these_as_it_can():
    pool = [Entry(f"ant{i}", ("ant",), 0) for i in range(50)]
    pool += [Entry(name, (name,), 0) for name in CLASSES[1:]]
    for seed in range(10):
        chosen = select_exemplars(pool, CLASSES, 4, np.random.default_rng(seed))
        assert len(chosen) == len({entry.classes for entry in chosen}) == 4


def test_another_seed_chooses_other_pictures():
    pool = [Entry(f"{i:03d}", ("ant",), 0) for i in range(50)]
    chosen = {
        tuple(e.name for e in select_exemplars(pool, ["ant"], 5, np.random.default_rng(seed))) for seed in range(5)
    }
    assert len(chosen) == 5


def view(step: int) -> StepDataset:
    return StepDataset(SOURCE.train, SCENARIO, SCENARIO.steps[step])


def nothing_else(_picture) -> list[str]:
    return []


def kept(folder, size: int = 5, store: str = "path", step: int = 0) -> ReplayMemory:
    config = MemoryConfig(size=size, store=store)
    memory = update(ReplayMemory([], SOURCE.train, ()), view(step), config, 0, nothing_else)
    save_memory(memory, folder, view(step), config)
    return memory


def test_what_is_saved_is_what_is_loaded(tmp_path):
    memory = kept(tmp_path)
    loaded = load_memory(tmp_path, SOURCE.train)
    assert loaded.order == memory.order == SCENARIO.steps[0].seen
    assert [(e.name, e.classes, e.step) for e in loaded.entries] == [
        (e.name, e.classes, e.step) for e in memory.entries
    ]
    for index, entry in enumerate(loaded.entries):
        at = SOURCE.train.names.index(entry.name)
        picture = loaded.sample(index)
        assert np.array_equal(picture.image, SOURCE.train.image(at))
        assert np.array_equal(picture.salient, SOURCE.train.saliency(at))
        assert picture.stored.tolist() == [name in entry.classes for name in memory.order]
        assert not picture.labels.any()  # its annotation is gone
        assert picture.full is None


def test_the_step_s_own_classes_come_from_its_annotations_and_older_ones_from_the_model(tmp_path):
    first = kept(tmp_path / "first", size=3)
    loaded = load_memory(tmp_path / "first", SOURCE.train)
    cow = SCENARIO.steps[0].new[0]
    second = update(loaded, view(1), MemoryConfig(size=12), 0, lambda _: [cow])
    own = {view(1).name(i): view(1).classes_in(i) for i in range(len(view(1)))}
    before = {entry.name: entry for entry in first.entries}
    assert any(entry.step == 1 for entry in second.entries)
    for entry in second.entries:
        if entry.name in before:
            assert set(entry.classes) == {*before[entry.name].classes, *own.get(entry.name, ())}
        else:
            assert set(entry.classes) == {cow, *own[entry.name]}
            assert entry.guessed == (cow,)
            assert set(entry.annotated) == set(own[entry.name])


def test_a_picture_that_a_later_step_shows_again_gets_the_new_class_and_is_kept_once(tmp_path):
    kept(tmp_path, size=16)
    loaded = load_memory(tmp_path, SOURCE.train)
    again = {view(1).name(i) for i in range(len(view(1)))} & {entry.name for entry in loaded.entries}
    assert again
    second = update(loaded, view(1), MemoryConfig(size=16), 0, nothing_else)
    names = [entry.name for entry in second.entries]
    assert len(set(names)) == len(names)
    dog = SCENARIO.steps[1].new[0]
    for entry in second.entries:
        if entry.name in again:
            assert dog in entry.classes
            assert entry.step == 0


def test_no_stored_file_holds_a_pixel_annotation(tmp_path):
    memory = kept(tmp_path, store="copy")
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    names = sorted(entry.name for entry in memory.entries)
    folders = ("images", "saliency")
    assert files == [*(f"{folder}/{n}.png" for folder in folders[:1] for n in names), "manifest.json"] + [
        f"saliency/{name}.png" for name in names
    ]
    for name in names:
        with Image.open(tmp_path / "saliency" / f"{name}.png") as saliency:
            assert saliency.mode == "1"  # one bit a pixel cannot tell classes apart
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert set(manifest) == {"version", "size", "store", "order", "entries"}
    assert all(set(entry) == {"name", "step", "classes", "multi_hot", "guessed"} for entry in manifest["entries"])


def test_paths_alone_are_kept_unless_a_copy_is_asked_for(tmp_path):
    kept(tmp_path)
    assert not (tmp_path / "images").exists()


def test_copies_work_after_the_data_is_gone(tmp_path, make_folder_data):
    root = make_folder_data()
    source = FolderConfig(path=str(root)).build()
    scenario = ScenarioConfig(name="2-1").build("folder", source.classes)
    base = StepDataset(source.train, scenario, scenario.steps[0])
    config = MemoryConfig(size=3, store="copy")
    memory = update(ReplayMemory([], source.train, ()), base, config, 0, nothing_else)
    save_memory(memory, tmp_path / "memory", base, config)
    images = [source.train.image(source.train.names.index(entry.name)) for entry in memory.entries]
    shutil.rmtree(root / "images")
    shutil.rmtree(root / "masks")
    loaded = load_memory(tmp_path / "memory", source.train)
    assert all(np.array_equal(loaded.sample(i).image, image) for i, image in enumerate(images))


def test_a_memory_that_moves_renames_only_what_another_picture_is_called(tmp_path):
    """The first picture comes again under its name, another one has the name of the second, the third stays alone."""
    kept(tmp_path / "here", size=3)
    memory = load_memory(tmp_path / "here", SOURCE.train)
    first, second, third = (entry.name for entry in memory.entries)
    coming = Part(SOURCE.train, [SOURCE.train.names.index(name) for name in (first, third)])
    coming.names = [first, second]  # the third picture is called as the second was
    move_memory(memory, tmp_path / "there", [coming, SOURCE.val])
    moved = load_memory(tmp_path / "there", EmptyDataset())
    assert [entry.name for entry in moved.entries] == [first, f"old/{second}", third]
    for index in range(3):
        assert np.array_equal(moved.sample(index).image, memory.sample(index).image)
        assert np.array_equal(moved.sample(index).salient, memory.sample(index).salient)


@pytest.mark.parametrize("first", ["train", "val"])
def test_a_name_is_kept_only_if_no_split_calls_another_picture_so(tmp_path, first):
    """COCO and ADE have pictures of equal names in train and in val."""
    kept(tmp_path / "here", size=2)
    memory = load_memory(tmp_path / "here", SOURCE.train)
    own, other = (entry.name for entry in memory.entries)
    same, another = (Part(SOURCE.train, [SOURCE.train.names.index(name)]) for name in (own, other))
    another.names = [own]
    move_memory(memory, tmp_path / "there", [same, another] if first == "train" else [another, same])
    assert [e.name for e in load_memory(tmp_path / "there", EmptyDataset()).entries] == [f"old/{own}", other]
    move_memory(memory, tmp_path / "twice", [same, same])
    assert [e.name for e in load_memory(tmp_path / "twice", EmptyDataset()).entries] == [own, other]


def test_a_new_name_is_never_that_of_another_remembered_picture(tmp_path):
    kept(tmp_path / "here", size=2, store="copy")
    here = load_memory(tmp_path / "here", EmptyDataset())
    old = [replace(here.entries[0], name="a"), replace(here.entries[1], name="old/a")]
    for entry, new in zip(here.entries, old, strict=True):
        for kind in ("images", "saliency"):
            path = tmp_path / "here" / kind / f"{new.name}.png"
            path.parent.mkdir(exist_ok=True)
            (tmp_path / "here" / kind / f"{entry.name}.png").rename(path)
    coming = Part(SOURCE.train, [SOURCE.train.names.index(entry.name) for entry in here.entries])
    coming.names = ["old/a", "a"]  # the other way round: both are other pictures
    move_memory(ReplayMemory(old, EmptyDataset(), here.order), tmp_path / "there", [coming])
    moved = load_memory(tmp_path / "there", EmptyDataset())
    assert [entry.name for entry in moved.entries] == ["old/old/a", "old/old/old/a"]


def test_a_picture_that_is_gone_is_named(tmp_path):
    kept(tmp_path)
    other = ScenesConfig(classes=4, size=(40, 48), train=1, val=1).build()
    memory = load_memory(tmp_path, other.train)
    lost = next(i for i, entry in enumerate(memory.entries) if entry.name not in other.train.names)
    with pytest.raises(UserError, match=f'no picture "{memory.entries[lost].name}"'):
        memory.sample(lost)


def test_a_picture_that_has_another_size_now_is_named(tmp_path):
    memory = kept(tmp_path)
    other = ScenesConfig(classes=4, size=(64, 64), train=16, val=1, seed=57).build()
    with pytest.raises(UserError, match=f"{memory.entries[0].name} is no longer of the size"):
        load_memory(tmp_path, other.train).sample(0)


def change(folder, **values) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    entry = {key: value for key, value in values.items() if key in manifest["entries"][0]}
    manifest["entries"][0] |= entry
    manifest |= {key: value for key, value in values.items() if key not in entry}
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
        load_memory(tmp_path, SOURCE.train)
    assert "manifest.json" in str(caught.value)


def test_a_broken_or_missing_manifest_is_refused_by_name(tmp_path):
    kept(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"manifest is damaged.*manifest\.json"):
        load_memory(tmp_path, SOURCE.train)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"manifest is missing.*manifest\.json"):
        load_memory(tmp_path, SOURCE.train)


def test_a_memory_of_nothing_keeps_nothing(tmp_path):
    memory = kept(tmp_path, size=0)
    assert len(memory) == len(load_memory(tmp_path, SOURCE.train)) == 0
    with pytest.raises(UserError, match=r"memory\.size"):
        MemoryConfig(size=-1)
