from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ipseg.errors import UserError
from ipseg.report.palette import IGNORE, colors, indexed_image


def test_no_two_labels_share_a_color():
    assert len(np.unique(colors(256), axis=0)) == 256


def test_background_is_black_and_ignored_is_light_gray():
    assert colors(256)[0].tolist() == [0, 0, 0]
    red, green, blue = colors(256)[IGNORE].tolist()
    assert red == green == blue > 180


@pytest.mark.parametrize("n", [1, 2, 21, 151])
def test_a_class_keeps_its_color_however_many_others_there_are(n):
    assert np.array_equal(colors(n), colors(256)[:n])


def test_colors_never_change_from_release_to_release():
    chosen = ["".join(f"{part:02x}" for part in color) for color in colors(256)[[1, 2, 13, 14, 20, 100, 254]]]
    assert chosen == ["56b4e9", "e69f00", "3b2c9a", "0000ff", "00f0ff", "8778c3", "b4f0b4"]


def test_a_palette_cannot_hold_more_colors_than_a_byte_counts():
    with pytest.raises(UserError, match="257"):
        colors(257)


def test_a_png_gives_back_every_label_that_was_written(tmp_path: Path):
    labels = np.arange(256, dtype=np.uint8).reshape(8, 32)
    indexed_image(labels).save(tmp_path / "labels.png")
    with Image.open(tmp_path / "labels.png") as image:
        assert image.mode == "P"
        assert np.array_equal(np.asarray(image), labels)
        assert np.array_equal(np.asarray(image.convert("RGB")).reshape(256, 3), colors(256))


@pytest.mark.parametrize(
    "labels", [np.zeros((2, 2)), np.zeros((2, 2, 3), int), np.full((2, 2), 256), np.full((2, 2), -1)]
)
def test_what_is_no_label_map_is_refused(labels, tmp_path: Path):
    with pytest.raises(UserError, match="label"):
        indexed_image(labels).save(tmp_path / "labels.png")
    assert list(tmp_path.iterdir()) == []
