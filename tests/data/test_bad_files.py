"""Files as people have them: deep, gray, turned, cut off, twice, strangely named, or links to somewhere else."""

from __future__ import annotations

import struct
import sys
import unicodedata
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from commands import call
from ipseg.data.dataset import DatasetSplits
from ipseg.data.file_tree import normalize_name
from ipseg.data.folder import FolderConfig
from ipseg.data.image_io import read_colors, read_image, read_labels
from ipseg.errors import UserError


def opened(root) -> DatasetSplits:
    return FolderConfig(path=str(root)).build()


# ---- images -------------------------------------------------------------------------------------------------------


def test_a_jpeg_that_is_cut_off_is_refused_by_name(tmp_path):
    path = tmp_path / "half.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(UserError, match=r"half\.jpg is not a readable image \(.*truncated"):
        read_image(path)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_scaled_not_cut_off(tmp_path, suffix):
    path = tmp_path / f"deep.{suffix}"
    Image.fromarray(np.array([[0, 256, 32768, 65535]], dtype=np.uint16)).save(path)
    assert read_image(path).tolist() == [[[value] * 3 for value in (0, 1, 128, 255)]]


def test_numbers_with_a_point_are_read_from_0_to_1_and_refused_beyond(tmp_path):
    path = tmp_path / "float.tif"
    Image.fromarray(np.array([[0, 0.5, 1]], dtype=np.float32)).save(path)
    assert read_image(path)[0, :, 0].tolist() == [0, 128, 255]
    Image.fromarray(np.array([[-1, 700]], dtype=np.float32)).save(path)
    with pytest.raises(UserError, match=r"float\.tif is not a readable image \(values from -1\.0 to 700\.0"):
        read_image(path)


@pytest.mark.parametrize("kind", ["gray", "CMYK"])
def test_gray_and_cmyk_photographs_keep_their_brightness(tmp_path, kind):
    path = tmp_path / "photo.jpg"
    color = (120, 120, 120) if kind == "gray" else (200, 60, 30)
    Image.new("RGB", (16, 16), color).convert("L" if kind == "gray" else "CMYK").save(path, quality=95)
    with Image.open(path) as image:
        assert image.mode == ("L" if kind == "gray" else "CMYK")
    assert np.abs(read_image(path).astype(int) - color).max() <= 6


def test_a_sixteen_bit_photograph_is_turned_too(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.array([[65535, 0, 0], [0, 0, 0]], dtype=np.uint16)).save(tmp_path / "turned.png", exif=exif)
    read = read_image(tmp_path / "turned.png")
    assert read.shape == (3, 2, 3)
    assert read[0, 1].tolist() == [255, 255, 255]


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_an_image_is_turned_as_pillow_turns_it(tmp_path, suffix, orientation):
    exif, path = Image.Exif(), tmp_path / f"turned.{suffix}"
    exif[0x0112] = orientation
    Image.fromarray(np.arange(18, dtype=np.uint8).reshape(2, 3, 3)).save(path, exif=exif)
    with Image.open(path) as image:
        assert (read_image(path) == np.asarray(ImageOps.exif_transpose(image))).all()


def test_an_odd_tag_beside_the_orientation_spoils_no_image(tmp_path):
    tags = struct.pack("<HHIHH", 0x0112, 3, 1, 6, 0) + struct.pack("<HHII", 0x011A, 7, 4, 0)  # XResolution, undefined
    Image.new("RGB", (3, 2)).save(tmp_path / "odd.jpg", exif=b"Exif\0\0II*\0\x08\0\0\0\x02\0" + tags + bytes(4))
    assert read_image(tmp_path / "odd.jpg").shape == (3, 2, 3)


@pytest.mark.parametrize("read", [read_labels, read_colors])
def test_masks_are_no_jpegs_whatever_their_suffix_says(tmp_path, read):
    Image.new("L", (8, 8)).save(tmp_path / "mask.png", format="JPEG")
    with pytest.raises(UserError, match=r"mask\.png is a JPEG, which mixes the values of neighbors"):
        read(tmp_path / "mask.png")


def test_deep_masks_in_colors_are_refused_not_cut_off(tmp_path):
    Image.fromarray(np.array([[0, 300, 900]], dtype=np.uint16)).save(tmp_path / "mask.png")
    with pytest.raises(UserError, match=r"mask\.png has mode I;16; a mask in colors has one byte for each of"):
        read_colors(tmp_path / "mask.png")


@pytest.mark.parametrize(("name", "why"), [("p\udcff.jpg", "is not in UTF-8"), ("a\0b.png", "has a zero byte")])
def test_names_that_cannot_be_written_down_are_refused(name, why):
    with pytest.raises(UserError, match=why):
        normalize_name(name)


@pytest.mark.parametrize("kind", ["EPS", "JPEG2000", "GIF"])
def test_other_kinds_of_files_are_refused_whatever_their_suffix_says(tmp_path, kind):
    path = tmp_path / "trap.png"  # EPS would look for Ghostscript, a damaged JPEG 2000 ends in a MemoryError
    Image.new("RGB", (8, 6)).save(path, format=kind)
    with pytest.raises(UserError, match=r"trap\.png is not a readable image \(cannot identify"):
        read_image(path)


@pytest.mark.parametrize("kind", ["JPEG", "MPO", "PNG", "WEBP", "BMP", "TIFF"])
def test_the_known_kinds_are_read_whatever_their_suffix_says(tmp_path, kind):
    several = {"save_all": True, "append_images": [Image.new("RGB", (8, 6))]} if kind == "MPO" else {}
    path = tmp_path / "photo.jpg"
    Image.new("RGB", (8, 6), (120, 120, 120)).save(path, format=kind, **several)
    with Image.open(path) as image:
        assert image.format == kind
    assert np.abs(read_image(path).astype(int) - 120).max() <= 2


# ---- masks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_a_mask_in_colors_is_refused_with_what_to_do(tmp_path, mode):
    Image.new(mode, (4, 4)).save(tmp_path / "mask.png")
    with pytest.raises(UserError, match=rf"mask\.png has mode {mode}; .* classes\.txt with the color"):
        read_labels(tmp_path / "mask.png")


def gray_png(bits: int, row: bytes) -> bytes:
    """Four gray pixels of few bits each, as some tools save small numbers; Pillow itself writes no such file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 4, 1, bits, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" + row)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("bits", "row", "values"), [(1, b"\xa0", [1, 0, 1, 0]), (2, b"\x1b", [0, 1, 2, 3]), (4, b"\x01\x2f", [0, 1, 2, 15])]
)
def test_a_mask_of_few_bits_keeps_its_values(tmp_path, bits, row, values):
    (tmp_path / "mask.png").write_bytes(gray_png(bits, row))
    assert read_labels(tmp_path / "mask.png").tolist() == [values]


# ---- masks in colors -----------------------------------------------------------------------------------------------


def color_data(make_folder_data, classes: str, mask, mode="RGB"):
    """A folder with a list of colors, in which every mask is this one."""
    root = make_folder_data()
    (root / "classes.txt").write_text(classes)
    for path in (root / "masks").iterdir():
        Image.fromarray(np.array(mask, dtype=np.uint8)).convert(mode, palette=Image.Palette.ADAPTIVE).save(path)
    return root


COW, SHEEP, GRAY, BLACK, WHITE = (64, 128, 0), (128, 64, 0), (9, 9, 9), (0, 0, 0), (224, 224, 192)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P"])
def test_colors_in_the_list_of_classes_are_read_as_these_classes(make_folder_data, mode):
    root = color_data(make_folder_data, "cow 64 128 0\nmountain sheep #804000\n", [[BLACK, COW, SHEEP]], mode)
    splits = opened(root)
    assert splits.classes == ("cow", "mountain sheep")
    assert splits.train.mask(0).tolist() == [[0, 1, 2]]
    assert splits.train.class_presence()[0] == {1, 2}


def test_background_and_what_is_ignored_can_have_colors_of_their_own(make_folder_data):
    text = "ignore 224, 224, 192\nbackground #090909\ncow 64 128 0\nignore 1 2 3\n"
    splits = opened(color_data(make_folder_data, text, [[GRAY, COW, WHITE, (1, 2, 3)]]))
    assert splits.classes == ("cow",)
    assert splits.train.mask(0).tolist() == [[0, 1, 255, 255]]


@pytest.mark.parametrize("background", ["_background_", "Background", "BACKGROUND"])
def test_the_background_of_a_list_of_colors_may_be_written_as_other_tools_do(make_folder_data, background):
    text = f"__ignore__ 224 224 192\n{background} #090909\ncow 64 128 0\n"
    splits = opened(color_data(make_folder_data, text, [[GRAY, COW, WHITE]]))
    assert splits.classes == ("cow",)
    assert splits.train.mask(0).tolist() == [[0, 1, 255]]


def test_a_color_that_is_not_in_the_list_is_named_with_its_place(make_folder_data):
    root = color_data(make_folder_data, "cow 64 128 0\n", [[BLACK, COW], [BLACK, SHEEP]])
    with pytest.raises(UserError, match=r"image_00\.png holds the color 128 64 0 \(#804000\) in row 1, column 1"):
        opened(root).train.mask(0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cow 64 128 0\nsheep\n", '"sheep" has no color, but "cow" has one'),
        ("cow 64 128 0\nsheep #408000\n", r"cow and sheep have the same color \(64, 128, 0\)"),
        ("cow 0 0 0\n", "cow and background have the same color"),
        ("cow 64 128 256\n", "0 to 255"),
        ("cow 1 2 3\ncow 4 5 6\n", 'names "cow" more than once, as classes 1 and 2'),
        ("background 1 2 3\n", "1 to 253 classes, one a line; it names 0"),
    ],
)
def test_a_list_of_colors_that_cannot_be_meant_is_refused(make_folder_data, text, message):
    root = make_folder_data()
    (root / "classes.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        opened(root)


# ---- names ----------------------------------------------------------------------------------------------------------


def rename(root, old: str, new: str) -> None:
    for folder in ("images", "masks", "saliency"):
        (root / folder / f"{old}.png").rename(root / folder / f"{new}.png")


def test_names_may_have_spaces_points_and_any_letters(make_folder_data):
    root = make_folder_data(count=4)
    names = ["Kühe auf der Weide", "牛 1.2", "été", "#3"]
    for index, name in enumerate(names):
        rename(root, f"image_{index:02d}", name)
    (root / "train.txt").write_text("\n".join(names[:3]) + "\n", encoding="utf-8")
    (root / "val.txt").write_text("#3\n", encoding="utf-8")
    splits = opened(root)
    assert list(splits.train.names) == names[:3]
    assert all(splits.train.image(i).shape[:2] == splits.train.mask(i).shape for i in range(3))


@pytest.mark.parametrize(("file", "listed"), [("NFD", "NFC"), ("NFC", "NFD")])
def test_a_letter_with_an_accent_is_one_letter_however_it_is_written(make_folder_data, file, listed):
    root = make_folder_data(count=4)
    rename(root, "image_00", unicodedata.normalize(file, "été"))
    (root / "train.txt").write_text(unicodedata.normalize(listed, "été"), encoding="utf-8")
    (root / "val.txt").write_text("image_01")
    assert opened(root).train.image(0).shape == (48, 64, 3)


def test_the_name_of_a_class_is_the_same_however_its_letters_are_written(make_folder_data):
    root, composed = make_folder_data(), "vélo"
    taken_apart = unicodedata.normalize("NFD", composed)
    (root / "classes.txt").write_text(f"{taken_apart}\nchat\nchien\n", encoding="utf-8")
    assert opened(root).classes == (composed, "chat", "chien")
    (root / "classes.txt").write_text(f"{taken_apart}\nchat\n{composed}\n", encoding="utf-8")
    with pytest.raises(UserError, match='names "vélo" more than once, as classes 1 and 3'):
        opened(root)


def test_suffixes_may_be_in_capitals_as_cameras_write_them(make_folder_data):
    root = make_folder_data(count=5, saliency=False)
    Image.new("RGB", (64, 48)).save(root / "images" / "IMG_0001.JPG")
    Image.new("L", (64, 48)).save(root / "masks" / "IMG_0001.PNG")
    train = opened(root).train
    assert train.image(train.names.index("IMG_0001")).shape == (48, 64, 3)
    assert not train.mask(train.names.index("IMG_0001")).any()


def test_images_may_lie_in_folders_of_their_own(make_folder_data):
    root = make_folder_data(count=5)
    for folder in ("images", "masks", "saliency"):
        (root / folder / "farm").mkdir()
    rename(root, "image_00", "farm/cow")
    splits = opened(root)
    assert "farm/cow" in splits.train.names
    assert splits.train.image(splits.train.names.index("farm/cow")).shape == (48, 64, 3)


@pytest.mark.parametrize("folder", ["images", "masks"])
def test_a_split_that_names_a_missing_file_is_refused_at_once(make_folder_data, folder):
    root = make_folder_data()
    (root / "train.txt").write_text("image_00\nimage_01\n")
    (root / "val.txt").write_text("image_02\n")
    (root / folder / "image_01.png").unlink()
    with pytest.raises(UserError, match=rf"the split train: .*{folder}/image_01 is missing"):
        opened(root)


@pytest.mark.parametrize(("given", "bare"), [("image_00.png", "image_00"), ("farm/cow 1.2.PNG", "farm/cow 1.2")])
def test_a_list_that_names_files_is_told_to_leave_their_suffixes_out(make_folder_data, given, bare):
    root = make_folder_data()
    for folder in ("images", "masks", "saliency"):
        (root / folder / "farm").mkdir()
    rename(root, "image_01", "farm/cow 1.2")
    (root / "train.txt").write_text(f"{given}\nimage_03.png\n")
    (root / "val.txt").write_text("image_02\n")
    with pytest.raises(
        UserError, match=rf"(?s)the split train: .*{given} is missing.* Write names without suffix: {bare}\..*Expected:"
    ) as e:
        opened(root)
    assert "one a line, without suffix" in str(e.value)
    assert f"Write names without suffix: {bare}." in call("data", "check", root, "--format", "folder").output


def test_a_file_that_is_missing_with_and_without_its_suffix_is_missing(make_folder_data):
    root = make_folder_data()
    (root / "train.txt").write_text("image_77.png\n")
    (root / "val.txt").write_text("image_02\n")
    with pytest.raises(UserError, match=r"images/image_77\.png is missing \(looked for"):
        opened(root)


@pytest.mark.parametrize("given", ["train.txt", "val.txt"])
def test_one_split_file_without_the_other_is_no_split(make_folder_data, given):
    root = make_folder_data()
    (root / given).write_text("image_00\n")
    with pytest.raises(UserError, match=r"train\.txt and val\.txt go together"):
        opened(root)


def test_a_name_that_a_split_has_twice_is_refused(make_folder_data):
    root = make_folder_data()
    (root / "train.txt").write_text("image_00\nimage_01\nimage_00\n")
    (root / "val.txt").write_text("image_02\n")
    with pytest.raises(UserError, match=r"train\.txt names image_00 more than once"):
        opened(root)


def test_two_images_of_one_name_are_refused(make_folder_data):
    root = make_folder_data()
    Image.new("RGB", (64, 48)).save(root / "images" / "image_03.jpg")
    with pytest.raises(UserError, match=r"images holds image_03\.jpg and image_03\.png: two files of one name"):
        opened(root)


def test_hidden_files_of_other_systems_are_no_images(make_folder_data):
    root = make_folder_data()
    (root / "masks" / "._image_00.png").write_bytes(b"\0\5\x16\7")
    assert len(opened(root).train.names) + len(opened(root).val.names) == 12


# ---- links ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["images/image_00.png", "masks/image_00.png", "images", "classes.txt"])
def test_a_link_out_of_the_tree_is_refused(make_folder_data, tmp_path, what):
    root = make_folder_data()
    outside = tmp_path / "outside"
    (root / what).rename(outside)
    (root / what).symlink_to(outside)
    with pytest.raises(UserError, match=rf"{what} leads to .*outside, outside of .*Links must stay inside"):
        opened(root)


def test_links_inside_the_tree_and_a_link_to_the_tree_itself_are_followed(make_folder_data, tmp_path):
    root = make_folder_data()
    (root / "images").rename(root / "photographs")
    (root / "images").symlink_to("photographs")
    (tmp_path / "link").symlink_to(root)
    assert opened(tmp_path / "link").train.image(0).shape == (48, 64, 3)


def test_a_link_in_a_circle_ends(make_folder_data):
    root = make_folder_data()
    (root / "images" / "again").symlink_to("..", target_is_directory=True)
    assert opened(root).train.image(0).shape == (48, 64, 3)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="such a link is like one to nothing there: no file")
def test_a_link_to_itself_is_refused_by_name(make_folder_data):
    root = make_folder_data()
    (root / "images" / "loop.png").symlink_to("loop.png")
    with pytest.raises(UserError, match=r"loop\.png is a link that leads back to itself"):
        opened(root)


def test_a_link_to_another_folder_of_images_is_told_not_passed_over(make_folder_data):
    root = make_folder_data()
    (root / "more").mkdir()
    (root / "masks" / "more").symlink_to(root / "more", target_is_directory=True)
    with pytest.raises(UserError, match="more is a link to a folder, and those are not followed"):
        opened(root)
