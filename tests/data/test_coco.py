"""COCO annotations: instances drawn from polygons and run lengths, panoptic PNGs, and files that are wrong."""

from __future__ import annotations

import json
import os
import pickle
import sys
import tracemalloc
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ipseg.data.coco import CocoConfig, _unpack
from ipseg.data.registry import data_config
from ipseg.errors import UserError

HEIGHT, WIDTH = 6, 8
CATEGORIES = [{"id": 17, "name": "cat"}, {"id": 3, "name": "car"}]  # in the order of their numbers: car 1, cat 2
WHOLE = [[0, 0, WIDTH, 0, WIDTH, HEIGHT, 0, HEIGHT]]


def box(left: int, top: int, right: int, bottom: int) -> list[list[int]]:
    return [[left, top, right, top, right, bottom, left, bottom]]


def thing(image: int, category: int, segmentation, crowd: int = 0) -> dict:
    return {"image_id": image, "category_id": category, "segmentation": segmentation, "iscrowd": crowd}


def write_instances(root, part: str, things: list[dict], count: int = 2, **changes) -> None:
    images = [{"id": i, "file_name": f"{i:03d}.jpg", "height": HEIGHT, "width": WIDTH} for i in range(count)]
    data = {"categories": CATEGORIES, "images": images, "annotations": things} | changes
    (root / "annotations").mkdir(parents=True, exist_ok=True)
    (root / "annotations" / f"instances_{part}2017.json").write_text(json.dumps(data))
    (root / f"{part}2017").mkdir(exist_ok=True)
    for i in range(count):
        Image.new("RGB", (WIDTH, HEIGHT)).save(root / f"{part}2017" / f"{i:03d}.jpg")


@pytest.fixture
def coco(tmp_path):
    """A car as large as the image, and a cat on it; an image of nothing."""
    for part in ("train", "val"):
        write_instances(tmp_path, part, [thing(0, 17, box(1, 1, 4, 3)), thing(0, 3, WHOLE)])
    return tmp_path


def test_instances_become_masks_smaller_over_larger_with_classes_in_the_order_of_their_numbers(coco):
    splits = data_config({"name": "coco", "path": str(coco)}).build()
    assert splits.classes == ("car", "cat")
    expected = np.ones((HEIGHT, WIDTH), dtype=int)
    expected[1:3, 1:4] = 2
    assert splits.train.mask(0).tolist() == expected.tolist()
    assert not splits.train.mask(1).any()
    assert splits.train.class_presence() == [{1, 2}, frozenset()]
    assert list(splits.train.names) == ["000", "001"]
    assert splits.train.image(0).shape == (HEIGHT, WIDTH, 3)


@pytest.mark.parametrize("counts", ["list", "text"])
def test_run_lengths_are_read_packed_or_not(coco, counts):
    from pycocotools import mask as coding

    where = np.zeros((HEIGHT, WIDTH), dtype=np.uint8, order="F")
    where[2:5, 3:7] = 1
    if counts == "text":
        shape = coding.encode(where)
        shape["counts"] = shape["counts"].decode()
    else:  # column after column: how many 0, how many 1, how many 0, ...
        flat = where.ravel(order="F")
        ends = [*(np.flatnonzero(np.diff(flat)) + 1).tolist(), len(flat)]
        shape = {"size": [HEIGHT, WIDTH], "counts": np.diff([0, *ends]).tolist()}
    write_instances(coco, "train", [thing(0, 17, shape, crowd=1)])
    assert (CocoConfig(path=str(coco)).build().train.mask(0) == 2 * where).all()
    assert (CocoConfig(path=str(coco), crowd="ignore").build().train.mask(0) == 255 * where).all()


def test_an_edited_json_is_read_again(coco):
    before = CocoConfig(path=str(coco)).build().train
    assert before.class_presence() == [{1, 2}, frozenset()]
    write_instances(coco, "train", [thing(1, 17, WHOLE)])
    after = CocoConfig(path=str(coco)).build().train
    assert after.class_presence() == [frozenset(), {2}]
    assert after.read_mask != before.read_mask


def test_a_json_that_changes_while_the_data_is_open_is_told_not_followed(coco):
    """What its numbers stand for may be something else, and images may be gone."""
    before = CocoConfig(path=str(coco)).build().train
    write_instances(coco, "train", [], categories=[{"id": 1, "name": "sheep"}, *CATEGORIES])
    with pytest.raises(UserError, match=r"instances_train2017\.json has changed since the data was opened\. Start"):
        before.mask(0)
    (coco / "annotations" / "instances_train2017.json").unlink()
    with pytest.raises(UserError, match=r"instances_train2017\.json is missing"):
        before.mask(0)


def test_a_reader_of_masks_travels_to_other_processes(coco):
    split = CocoConfig(path=str(coco)).build().train
    reader = pickle.loads(pickle.dumps(split.read_mask))
    assert len(pickle.dumps(reader)) < 1000  # the annotations do not travel
    assert (reader(split.masks.path("000")) == split.mask(0)).all()


def test_masks_need_no_images(coco):
    for path in (coco / "train2017").iterdir():
        path.unlink()
    splits = CocoConfig(path=str(coco)).open()
    assert splits.train.class_presence() == [{1, 2}, frozenset()]
    with pytest.raises(UserError, match=r"train2017/000 is missing.*2 of 2"):
        CocoConfig(path=str(coco)).build()


def write_panoptic(root, part: str, numbers, segments: list[dict]) -> None:
    red, green, blue = (np.array(numbers) >> shift & 255 for shift in (0, 8, 16))
    png = np.stack([red, green, blue], axis=-1).astype(np.uint8)
    folder = root / "annotations" / f"panoptic_{part}"
    folder.mkdir(parents=True)
    Image.fromarray(png).save(folder / "a b.png")
    (root / part).mkdir()
    Image.new("RGB", png.shape[1::-1]).save(root / part / "a b.jpg")
    images = [{"id": "x", "file_name": "a b.jpg", "height": png.shape[0], "width": png.shape[1]}]
    annotations = [{"image_id": "x", "file_name": "a b.png", "segments_info": segments}]
    data = {"categories": CATEGORIES, "images": images, "annotations": annotations}
    folder.with_suffix(".json").write_text(json.dumps(data))


@pytest.fixture
def panoptic(tmp_path):
    segments = [{"id": 70_000, "category_id": 17}, {"id": 300, "category_id": 3, "iscrowd": 1}]
    for part in ("train", "val"):
        write_panoptic(tmp_path, part, [[0, 300, 70_000]], segments)
    names = {f"{part}_images": part for part in ("train", "val")}
    names |= {part: f"annotations/panoptic_{part}.json" for part in ("train", "val")}
    return {"path": str(tmp_path), **names}


def test_panoptic_pngs_are_looked_up_in_their_json(panoptic, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocotools", None)  # they do not need it
    splits = CocoConfig(**panoptic).build()
    assert list(splits.train.names) == ["a b"]
    assert splits.train.mask(0).tolist() == [[0, 1, 2]]
    assert splits.train.class_presence() == [{1, 2}]
    assert CocoConfig(**panoptic, crowd="ignore").build().train.mask(0).tolist() == [[0, 255, 2]]


def test_a_panoptic_json_that_changes_while_the_data_is_open_is_told(tmp_path, panoptic):
    train = CocoConfig(**panoptic).build().train
    os.utime(tmp_path / "annotations" / "panoptic_train.json", ns=(1, 1))
    with pytest.raises(UserError, match=r"panoptic_train\.json has changed since the data was opened"):
        train.mask(0)


def test_a_segment_that_the_json_does_not_know_is_named(tmp_path, panoptic):
    Image.new("RGB", (3, 1), (7, 0, 0)).save(tmp_path / "annotations" / "panoptic_train" / "a b.png")
    with pytest.raises(UserError, match=r"a b\.png holds the segment 7, which .*panoptic_train\.json does not list"):
        CocoConfig(**panoptic).build().train.mask(0)


def test_without_pycocotools_the_extra_is_named(coco, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    with pytest.raises(UserError, match=r"pip install 'ipseg\[coco\]'"):
        CocoConfig(path=str(coco)).build().train.mask(0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"categories": [{"id": i, "name": f"c{i}"} for i in range(255)]}, r"1 to 253 .* it has 255\. A mask's byte"),
        ({"categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "cat"}]}, "different categories"),
        ({"annotations": [thing(0, 99, WHOLE)]}, "an annotation with category_id 99, which is not listed"),
        ({"annotations": [thing(9, 3, WHOLE)]}, "an annotation with image_id 9, which is not listed"),
        ({"annotations": [{"image_id": 0, "category_id": 3}]}, "is not what COCO calls annotations"),
        ({"images": [{"id": 0}]}, "is not what COCO calls annotations"),
        ({"images": "none"}, "is not what COCO calls annotations"),
        ({"images": [], "annotations": []}, "names no images"),
        ({"images": [{"id": 0, "file_name": "../x.jpg", "height": 6, "width": 8}]}, "must stay inside the folder"),
        ({"images": [{"id": 0, "file_name": "a.jpg", "height": 10**9, "width": 10**9}]}, "a.jpg has 1000000000 x"),
        ({"images": [{"id": 0, "file_name": "a.jpg", "height": 0, "width": 8}]}, "a.jpg has 8 x 0 pixels"),
        ({"images": [{"id": 0, "file_name": "a.jpg", "height": 1e999, "width": 8}]}, "is not what COCO calls"),
        ({"images": [{"id": i, "file_name": "a.jpg", "height": 6, "width": 8} for i in (0, 1)]}, "twice"),
    ],
)
def test_annotations_that_cannot_be_meant_are_refused(coco, changes, message):
    write_instances(coco, "train", [], **changes)
    with pytest.raises(UserError, match=message):
        CocoConfig(path=str(coco)).build()


@pytest.mark.parametrize(
    "shape",
    [
        {"size": [4, 4], "counts": [16]},
        {"size": [HEIGHT, WIDTH], "counts": [1000]},
        {"size": [HEIGHT, WIDTH], "counts": "no run lengths"},
        {"size": [HEIGHT, WIDTH], "counts": [10, 5]},
        {"size": [HEIGHT, WIDTH], "counts": ""},
        {"size": [HEIGHT, WIDTH], "counts": [HEIGHT * WIDTH + 5, -5]},
        {"size": [HEIGHT, WIDTH], "counts": [10, 10**12]},
        {"counts": [1]},
        [[0, 0, 1e12, 0, 1e12, 1e12]],
        [[0, 0, float("nan"), 0, 4, 4]],
        [[0, 0, float("inf"), 0, 4, 4]],
        [["a", "b", "c", "d", "e", "f"]],
        [[1, 2, 3, 4, 5, 6, 7]],
        7,
        None,
    ],
    ids=str,
)
def test_a_region_that_cannot_be_drawn_is_named(coco, shape):
    write_instances(coco, "train", [thing(0, 17, shape)])
    with pytest.raises(UserError, match=r"instances_train2017\.json has a region of 000\.jpg that cannot be drawn"):
        CocoConfig(path=str(coco)).build().train.mask(0)


@given(seed=st.integers(0, 10_000), share=st.floats(0, 1))
def test_run_lengths_packed_by_pycocotools_are_unpacked_to_the_same_mask(seed, share):
    pycocotools = pytest.importorskip("pycocotools.mask", reason="needs the extra coco")
    rng = np.random.default_rng(seed)
    mask = np.asfortranarray(rng.random(rng.integers(1, 90, 2)) < share)
    counts = _unpack(pycocotools.encode(mask.astype(np.uint8))["counts"].decode())
    assert np.array_equal(np.repeat(np.arange(len(counts)) % 2 == 1, counts), mask.ravel(order="F"))


def test_a_region_without_area_is_nothing(coco):
    write_instances(coco, "train", [thing(0, 17, []), thing(0, 17, [[1, 1, 5, 5]])])
    assert not CocoConfig(path=str(coco)).build().train.mask(0).any()


def test_a_json_that_is_none_or_is_not_there_is_named(coco):
    path = coco / "annotations" / "instances_val2017.json"
    path.write_text("{")
    with pytest.raises(UserError, match=r"instances_val2017\.json is not a readable JSON file"):
        CocoConfig(path=str(coco)).build()
    path.unlink()
    with pytest.raises(UserError, match=r"(?s)instances_val2017\.json is missing.*Expected:.*train2017/"):
        CocoConfig(path=str(coco)).build()


def test_both_splits_must_have_the_same_categories(coco):
    write_instances(coco, "val", [], categories=[*CATEGORIES, {"id": 20, "name": "sheep"}])
    with pytest.raises(UserError, match="have different categories: sheep"):
        CocoConfig(path=str(coco)).build()


@pytest.mark.parametrize("name", [None, "", " ", "a\nb"])
def test_a_category_s_name_is_one_line_of_text(coco, name):
    write_instances(coco, "train", [], categories=[*CATEGORIES, {"id": 20, "name": name}])
    with pytest.raises(UserError, match=r"category 20 is called .*; a name is one line of text"):
        CocoConfig(path=str(coco)).build()


@pytest.mark.parametrize(("name", "why"), [("\ud800", "half a character"), ("a\0b", "a NUL")])
def test_a_category_s_name_can_be_written_down(coco, name, why):
    write_instances(coco, "train", [], categories=[*CATEGORIES, {"id": 20, "name": name}])
    with pytest.raises(UserError, match=rf"category 20 cannot be called so: .*{why}.* Rename it"):
        CocoConfig(path=str(coco)).build()


def test_a_crowd_of_zero_in_quotes_is_none(coco):
    write_instances(coco, "train", [thing(0, 17, WHOLE) | {"iscrowd": "0"}])
    assert CocoConfig(path=str(coco), crowd="ignore").build().train.class_presence() == [{2}, frozenset()]


@pytest.mark.parametrize("name", ["background", "Background", "_background_", " BACKGROUND "])
def test_a_category_that_is_the_background_is_named(coco, name):
    write_instances(coco, "train", [], categories=[*CATEGORIES, {"id": 0, "name": name}])
    with pytest.raises(UserError, match=f'category 0 is called "{name}". Take it out'):
        CocoConfig(path=str(coco)).build()


def test_a_category_is_one_however_its_letters_are_written(coco):
    written = [{"id": i, "name": unicodedata.normalize(form, "vélo")} for i, form in ((17, "NFD"), (3, "NFC"))]
    for part in ("train", "val"):
        write_instances(coco, part, [], categories=written[:1])
    assert CocoConfig(path=str(coco)).build().classes == ("vélo",)
    write_instances(coco, "train", [], categories=written)
    with pytest.raises(UserError, match="1 to 253 different categories"):
        CocoConfig(path=str(coco)).build()


@pytest.mark.parametrize(("listed", "used"), [(str, str), (str, int), (int, str)])
def test_numbers_of_categories_may_stand_in_quotes(coco, listed, used):
    categories = [one | {"id": listed(one["id"])} for one in CATEGORIES]
    write_instances(coco, "train", [thing(0, used(17), WHOLE)], categories=categories)
    splits = CocoConfig(path=str(coco)).build()
    assert splits.classes == ("car", "cat")
    assert splits.train.class_presence() == [{2}, frozenset()]


def test_a_json_that_is_a_link_out_of_the_tree_is_refused(coco, tmp_path_factory):
    path, outside = coco / "annotations" / "instances_val2017.json", tmp_path_factory.mktemp("outside") / "val.json"
    path.rename(outside)
    path.symlink_to(outside)
    with pytest.raises(UserError, match=r"instances_val2017\.json leads to .*val\.json, outside of"):
        CocoConfig(path=str(coco)).build()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_maps_lie_in_a_folder_for_each_folder_of_images(coco, tmp_path_factory, elsewhere):
    maps = tmp_path_factory.mktemp("maps") if elsewhere else coco / "saliency_map"
    (maps / "train2017").mkdir(parents=True)
    for name in ("000", "001"):
        Image.new("L", (WIDTH, HEIGHT), 255).save(maps / "train2017" / f"{name}.png")
    train = CocoConfig(path=str(coco), saliency=str(maps) if elsewhere else "auto").build().train
    assert train.saliency_source.files.path("001") == maps / "train2017" / "001.png"
    assert train.saliency(1).all()


# ---- many instances -------------------------------------------------------------------------------------------------


def painted(things: list[dict], size: tuple[int, int]) -> np.ndarray:
    """Smaller over larger, of equal ones the later over the earlier: all decoded first."""
    from pycocotools import mask as coding

    shapes = []
    for one in things:
        packed = coding.frPyObjects(one["segmentation"], *size)
        shapes.append(coding.decode(coding.merge(packed) if isinstance(packed, list) else packed).astype(bool))
    expected = np.zeros(size, dtype=np.uint8)
    for place in sorted(range(len(things)), key=lambda place: -shapes[place].sum()):
        expected[shapes[place]] = 1 + [3, 17].index(things[place]["category_id"])
    return expected


@pytest.mark.parametrize("seed", range(5))
def test_instances_lie_over_each_other_by_the_area_that_is_drawn_of_them(coco, seed):
    rng, things = np.random.default_rng(seed), []
    for _ in range(40):  # triangles that reach out of the image, and run lengths; many of the same size
        polygon = [rng.integers(-2, 9, 6).tolist(), rng.integers(-2, 9, 8).tolist()][: rng.integers(1, 3)]
        start, length = rng.integers(0, HEIGHT * WIDTH - 9), rng.integers(1, 9)
        runs = {"size": [HEIGHT, WIDTH], "counts": [int(start), int(length), int(HEIGHT * WIDTH - start - length)]}
        things.append(thing(0, int(rng.choice([3, 17])), polygon if rng.random() < 0.5 else runs))
    for count in (3, 10, 40):
        write_instances(coco, "train", things[:count])
        mask = CocoConfig(path=str(coco)).build().train.mask(0)
        assert np.array_equal(mask, painted(things[:count], (HEIGHT, WIDTH)))


def test_instances_are_drawn_one_at_a_time(coco):
    """An image from the air has thousands: all at once they would take gigabytes."""
    side, count = 400, 50
    images = [{"id": 0, "file_name": "000.jpg", "height": side, "width": side}]
    write_instances(coco, "train", [thing(0, 17, box(i, i, i + 9, i + 9)) for i in range(count)], images=images)
    train = CocoConfig(path=str(coco)).build().train
    tracemalloc.start()
    assert (train.mask(0) == 2).any()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < count / 4 * side**2
