"""One's own images: what a folder must look like, and what is said when it does not."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from ipseg.data.dataset import DatasetSplits
from ipseg.data.folder import FolderConfig
from ipseg.data.image_io import find_images, read_image
from ipseg.data.registry import data_config
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import UserError
from ipseg.scenario import ScenarioConfig


def opened(root, **settings) -> DatasetSplits:
    return FolderConfig(path=str(root), **settings).build()


def test_a_folder_is_read_as_it_lies_there(make_folder_data):
    splits = opened(make_folder_data(count=10))
    assert splits.classes == ("red", "green", "blue")
    assert (len(splits.train.names), len(splits.val.names)) == (8, 2)
    assert list(splits.val.names) == ["image_04", "image_09"]  # one in five, spread over the names
    for index, found in enumerate(splits.train.class_presence()):
        mask = splits.train.mask(index)
        assert found == {int(value) for value in np.unique(mask)} - {0}
        assert splits.train.image(index).shape == (*mask.shape, 3)
        assert np.array_equal(splits.train.saliency(index), mask > 0)


@pytest.mark.parametrize(("share", "count"), [(0.1, 2), (0.3, 6), (0.4, 8), (0.5, 10), (0.75, 15), (0.9, 18)])
def test_the_share_that_validates_is_the_one_asked_for(make_folder_data, share, count):
    splits = opened(make_folder_data(count=20), val_share=share)
    assert len(splits.val.names) == count
    assert set(splits.train.names).isdisjoint(splits.val.names)


def test_split_files_say_which_images_train_and_which_validate(make_folder_data):
    root = make_folder_data()
    (root / "train.txt").write_text("\ufeffimage_03\n\nimage_01\n", encoding="utf-8")
    (root / "val.txt").write_text("image_00\n")
    splits = opened(root)
    assert list(splits.train.names) == ["image_03", "image_01"]
    assert list(splits.val.names) == ["image_00"]


@pytest.mark.parametrize("missing", ["images", "masks", "classes.txt", None])
def test_a_wrong_folder_is_answered_with_the_tree_that_is_expected(make_folder_data, missing):
    root = make_folder_data()
    if missing:
        (root / missing).rename(root / "elsewhere")
    with pytest.raises(UserError, match=r"(?s)Expected:.*classes\.txt.*images/.*masks/"):
        opened(root if missing else root / "nowhere")


def test_a_folder_without_images_is_answered_with_the_tree(make_folder_data):
    with pytest.raises(UserError, match=r"(?s)data/masks holds no \.png\. Expected"):
        opened(make_folder_data(count=0))


def test_too_few_images_to_share_out_are_answered_with_what_to_do(make_folder_data):
    root = make_folder_data(count=4)
    with pytest.raises(UserError, match=r"4 training and 0 validation images, with data\.val_share=0\.2"):
        opened(root)
    assert len(FolderConfig(path=str(root), val_share=0.5).build().val.names) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"must name 1 to 253 classes, one a line; it names 0\.$"),
        ("\n".join(map(str, range(255))), r"must name 1 to 253 classes, .* names 255\. A mask's byte has no room"),
        ("cat\ndog\n\ncat\n", 'names "cat" more than once, as classes 1 and 3'),
        ("background\ncat\n", 'names "background" as class 1. Take that line out'),
        ("Background\ncat\n", 'names "Background" as class 1. Take that line out'),
        ("__ignore__\n_background_\ncat\n", 'names "__ignore__" as class 1. Take that line out'),
        ("_background_\ncat\n", 'names "_background_" as class 1. Take that line out'),
    ],
)
def test_class_names_must_be_1_to_253_different_ones_without_the_background(make_folder_data, text, message):
    root = make_folder_data()
    (root / "classes.txt").write_text(text)
    with pytest.raises(UserError, match=rf"classes\.txt {message}"):
        opened(root)


@pytest.mark.parametrize("text", [b"caf\xe9\n", b"red\nb\0us\n", "red\nbus\n".encode("utf-16-le")])
def test_a_class_list_that_is_no_text_is_refused_by_name(make_folder_data, text):
    root = make_folder_data()
    (root / "classes.txt").write_bytes(text)
    with pytest.raises(UserError, match=r"classes\.txt is not a text file in UTF-8"):
        opened(root)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b"])
def test_names_in_split_files_must_stay_inside_the_folder(make_folder_data, name):
    root = make_folder_data()
    (root / "train.txt").write_text(name)
    (root / "val.txt").write_text("image_00")
    with pytest.raises(UserError, match="stay inside"):
        opened(root)


def first_view(root) -> StepDataset:
    splits = opened(root)
    scenario = ScenarioConfig(name="joint").build("folder", splits.classes)
    return StepDataset(splits.train, scenario, scenario.steps[0])


def test_a_mask_with_a_value_beyond_the_classes_is_named_with_the_value(make_folder_data):
    root = make_folder_data()
    Image.fromarray(np.full((48, 64), 7, dtype=np.uint8)).save(root / "masks" / "image_00.png")
    with pytest.raises(UserError, match=r"image_00\.png holds the values \[7\].*0 to 3 and 255"):
        first_view(root)


def test_a_mask_in_colors_is_refused(make_folder_data):
    root = make_folder_data()
    Image.fromarray(np.zeros((48, 64, 3), dtype=np.uint8)).save(root / "masks" / "image_00.png")
    with pytest.raises(UserError, match=r"image_00\.png has mode RGB; a mask has one byte a pixel"):
        first_view(root)


def test_a_palette_mask_is_read_by_its_indices(make_folder_data):
    root = make_folder_data()
    mask = Image.fromarray(np.full((48, 64), 2, dtype=np.uint8), mode=None)
    mask.putpalette([0, 0, 0, 9, 9, 9, 200, 100, 50])
    mask.save(root / "masks" / "image_00.png")
    assert set(np.unique(opened(root).train.mask(0))) == {2}


def test_an_image_and_a_mask_of_different_sizes_are_named(make_folder_data):
    root = make_folder_data()
    Image.new("RGB", (30, 20)).save(root / "images" / "image_00.png")
    with pytest.raises(UserError, match="image_00: its image 30x20, its mask 64x48"):
        first_view(root).sample(0)


def test_a_saliency_map_of_another_size_is_named(make_folder_data):
    root = make_folder_data()
    Image.new("L", (30, 20)).save(root / "saliency" / "image_00.png")
    with pytest.raises(UserError, match="its saliency map 30x20"):
        first_view(root).sample(0)


@pytest.mark.parametrize("kind", ["images", "masks"])
def test_a_broken_file_is_named(make_folder_data, kind):
    root = make_folder_data()
    path = root / kind / "image_00.png"
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(UserError, match=r"image_00\.png is not a readable"):
        first_view(root).sample(0)
    path.write_text("this is no image")
    with pytest.raises(UserError, match=r"image_00\.png is not a readable"):
        first_view(root).sample(0)


def test_a_missing_image_is_named_with_the_suffixes_looked_for(make_folder_data):
    root = make_folder_data()
    (root / "images" / "image_00.png").unlink()
    with pytest.raises(UserError, match=r"image_00 is missing \(looked for .jpg"):
        first_view(root).sample(0)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "CMYK"])
def test_images_of_every_mode_become_rgb(tmp_path, mode):
    path = tmp_path / ("image.tif" if mode == "CMYK" else "image.png")
    Image.new(mode, (5, 4)).save(path)
    assert read_image(path).shape == (4, 5, 3)


def test_find_images_takes_files_and_the_images_of_folders(tmp_path):
    (tmp_path / "some").mkdir()
    for name in ("b.png", "a.JPG", "notes.txt", "._b.png"):
        (tmp_path / "some" / name).touch()
    (tmp_path / "one.webp").touch()
    found = find_images([tmp_path / "one.webp", tmp_path / "some"])
    assert [path.name for path in found] == ["one.webp", "a.JPG", "b.png"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty holds no images"):
        find_images([tmp_path / "empty"])
    with pytest.raises(UserError, match="neither an image nor a folder"):
        find_images([tmp_path / "nothing.png"])


def test_find_images_says_what_it_leaves_out_in_folders_below(tmp_path):
    for name in ("some/a.jpg", "some/day 1/b.jpg", "some/day 1/late/c.png", "some/.cache/d.jpg", "some/day 1/e.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    some, said = tmp_path / "some", []
    assert find_images([some], said.append) == [some / "a.jpg"]
    left = f"in folders below it: 2, the first in {some / 'day 1'}."
    assert said == [f"{some}: left out are images {left} Name such folders too."]
    (some / "a.jpg").unlink()
    with pytest.raises(UserError, match=r"holds no images .* There are some in folders below it: 2, the first in"):
        find_images([some])


def test_an_unknown_data_set_is_answered_with_the_nearest_one():
    with pytest.raises(UserError, match=r'no data set "scene"\. Did you mean scenes\?'):
        data_config({"name": "scene"})


def test_training_and_validation_scenes_are_never_the_same_image():
    splits = data_config({"name": "scenes", "classes": 4, "size": [32, 32], "train": 6, "val": 6}).build()
    train, val = ([split.image(i).tobytes() for i in range(6)] for split in (splits.train, splits.val))
    assert not set(train) & set(val)
