"""Where saliency comes from: given maps, the fallback, everything, nothing, the masks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from ipseg.data.dataset import DatasetSplits
from ipseg.data.folder import FolderConfig
from ipseg.errors import UserError
from ipseg.methods.labels import coupled_labels, permanent_labels, temporary_labels
from ipseg.models.heads import OTHER_FOREGROUND, UNKNOWN
from ipseg.saliency.fallback import salient


def opened(root, **settings) -> DatasetSplits:
    return FolderConfig(path=str(root), **settings).build()


@pytest.mark.parametrize("setting", ["auto", "given"])
def test_maps_that_are_there_are_read(make_folder_data, setting):
    train = opened(make_folder_data(), saliency=setting).train
    assert np.array_equal(train.saliency(0), train.mask(0) > 0)
    assert train.saliency_source.files.path(train.names[0]).name == f"{train.names[0]}.png"


@pytest.mark.parametrize(("setting", "maps"), [("auto", False), ("fallback", False), ("fallback", True)])
def test_without_maps_or_by_choice_they_are_made_while_reading(make_folder_data, setting, maps):
    train = opened(make_folder_data(saliency=maps), saliency=setting).train
    assert np.array_equal(train.saliency(0), salient(train.image(0)))
    assert train.saliency_source.mode == "fallback"


@pytest.mark.parametrize(("setting", "everywhere"), [("all", True), ("none", False)])
def test_everything_or_nothing_stands_out_by_choice(make_folder_data, setting, everywhere):
    train = opened(make_folder_data(), saliency=setting).train
    assert train.saliency(0).shape == train.mask(0).shape
    assert (train.saliency(0) == everywhere).all()


def test_an_oracle_knows_every_object_of_the_masks_and_says_that_it_is_one(make_folder_data):
    train = opened(make_folder_data(), saliency="oracle").train
    for index in range(3):
        mask = train.mask(index)
        assert np.array_equal(train.saliency(index), (mask > 0) & (mask < 255))
    assert train.saliency(0).any()
    assert FolderConfig(path="x", saliency="oracle").oracle() == ["data.saliency=oracle"]
    assert FolderConfig(path="x", saliency="given").oracle() == []


def test_maps_may_lie_elsewhere(make_folder_data, tmp_path):
    root = make_folder_data()
    (root / "saliency").rename(tmp_path / "other maps")
    splits = opened(root, saliency=str(tmp_path / "other maps"))
    assert np.array_equal(splits.val.saliency(1), splits.val.mask(1) > 0)


def test_a_name_that_is_no_way_and_no_folder_is_answered_with_the_nearest(make_folder_data):
    with pytest.raises(UserError, match=r'data\.saliency: "falback" is no folder.*Did you mean fallback\?.*or such'):
        opened(make_folder_data(), saliency="falback")


def test_maps_that_are_asked_for_and_not_there_are_answered_with_the_ways_out(make_folder_data):
    with pytest.raises(UserError, match=r"(?s)missing \(10 of 10.*`ipseg saliency`.*fallback.*all.*none"):
        opened(make_folder_data(saliency=False), saliency="given")


def test_a_map_that_is_missing_among_others_is_said_before_anything_is_learned(make_folder_data):
    root = make_folder_data()
    (root / "saliency" / "image_02.png").unlink()
    with pytest.raises(UserError, match=r"image_02\.png is missing \(1 of 10 saliency maps are\)"):
        opened(root)


def test_a_map_of_a_validation_image_is_missed_only_by_who_asks_for_it(make_folder_data):
    root = make_folder_data()
    splits = opened(root)
    (root / "saliency" / f"{splits.val.names[0]}.png").unlink()
    with pytest.raises(UserError, match="1 of 1 saliency maps are"):
        opened(root).val.saliency(0)


def test_maps_that_are_links_out_of_the_data_are_refused(make_folder_data, tmp_path):
    root = make_folder_data()
    Image.new("1", (64, 48)).save(tmp_path / "secret.png")
    (root / "saliency" / "image_02.png").unlink()
    (root / "saliency" / "image_02.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(UserError, match="outside of"):
        opened(root)


def test_all_means_that_all_background_is_unknown():
    y = torch.tensor([[0, 0, 3, 255]])
    old = torch.tensor([[False, True, False, False]])
    everywhere = torch.ones_like(y, dtype=torch.bool)
    assert permanent_labels(y, old, everywhere).tolist() == [[UNKNOWN, 255, 255, 255]]
    assert temporary_labels(y, everywhere, first=3).tolist() == [[OTHER_FOREGROUND, OTHER_FOREGROUND, 2, 255]]
    assert coupled_labels(y, old.long(), everywhere).tolist() == [[UNKNOWN, 2, 4, 255]]


# ---- the files of maps ----------------------------------------------------------------------------------------------

VALUES = np.array([[0, 0, 3], [0, 255, 0]], dtype=np.uint8)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_a_map_stands_out_where_any_color_is_not_zero_whatever_its_mode(make_folder_data, mode):
    root = make_folder_data()
    gray = Image.fromarray(VALUES)
    written = gray.point(lambda value: 255 * (value > 0)).convert("1") if mode == "1" else gray.convert(mode)
    if mode == "P":
        written = gray.copy()
        written.putpalette([7] * 768)  # its indices count
    written.save(root / "saliency" / "image_00.png")
    with Image.open(root / "saliency" / "image_00.png") as file:
        assert file.mode == mode
    assert np.array_equal(opened(root).train.saliency(0), VALUES > 0)


@pytest.mark.parametrize(("channel", "counts"), [(0, True), (1, True), (2, True), (3, False)])
def test_each_color_of_a_map_counts_and_its_transparency_does_not(make_folder_data, channel, counts):
    root, pixels = make_folder_data(), np.zeros((1, 2, 4), dtype=np.uint8)
    pixels[0, 1, channel] = 1
    Image.fromarray(pixels).save(root / "saliency" / "image_00.png")
    assert opened(root).train.saliency(0).tolist() == [[False, counts]]


@pytest.mark.parametrize(("dtype", "mode"), [(np.uint16, "I;16"), (np.float32, "F")])
def test_a_map_of_more_than_bytes_is_refused_as_a_map(make_folder_data, dtype, mode):
    path = make_folder_data() / "saliency" / "image_00.png"
    Image.fromarray(VALUES.astype(dtype)).save(path, format="TIFF" if mode == "F" else "PNG")
    with pytest.raises(UserError, match=rf"image_00\.png has mode {mode}; a saliency map has .*8 bits") as caught:
        opened(path.parents[1]).train.saliency(0)
    assert "class" not in str(caught.value)


def test_a_map_that_cannot_be_read_or_is_a_jpeg_is_named(make_folder_data):
    path = make_folder_data() / "saliency" / "image_00.png"
    path.write_text("no map")
    with pytest.raises(UserError, match=r"image_00\.png is not a readable saliency map"):
        opened(path.parents[1]).train.saliency(0)
    Image.new("L", (64, 48)).save(path, format="JPEG")
    with pytest.raises(UserError, match="is a JPEG, which mixes the values of neighbors"):
        opened(path.parents[1]).train.saliency(0)
