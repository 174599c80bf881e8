"""Places that cannot be used, and files that a command must not replace: one sentence, and nothing is lost."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from PIL import Image

from commands import call, fails
from ipseg.apps.explain import require_writable, save_sheet
from ipseg.errors import UserError, format_path_error
from ipseg.files import require_output, write_text
from ipseg.report.page import render

LONG = "n" * 300
"""More than any file system takes."""


def trouble(number: int, *names: str) -> OSError:
    return OSError(number, os.strerror(number), *names)


@pytest.fixture
def doctor_meets(monkeypatch):
    """Makes `ipseg doctor` end with an error."""

    def meet(error: Exception) -> None:
        def examine() -> None:
            raise error

        monkeypatch.setattr("ipseg.apps.doctor.examine", examine)

    return meet


# ---- places that cannot be used -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EROFS, "choose another place"),
        (errno.EACCES, "Get the right to read and write there"),
        (errno.EPERM, "Get the right to read and write there"),
        (errno.ENAMETOOLONG, "Choose a shorter name"),
        (errno.EINVAL, "takes no such name"),
        (errno.ENOTDIR, "a file and no folder"),
        (errno.EISDIR, "choose another name"),
        (errno.EEXIST, "choose another name"),
        (errno.ELOOP, "choose another place"),
        (errno.ENOSPC, "the disk is full: /some/where could not be written"),
        (errno.EDQUOT, "free some space"),
    ],
)
def test_a_place_that_cannot_be_used_is_named_with_what_to_do(doctor_meets, number, advice):
    doctor_meets(trouble(number, "/some/where"))
    message = fails("doctor")
    assert "/some/where" in message
    assert advice in message
    assert len(message.splitlines()) == 1


def test_copying_onto_a_full_disk_names_what_was_written():
    assert "full: b could not be written" in str(format_path_error(trouble(errno.ENOSPC, "a", None, "b")))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [trouble(errno.ENOENT, "gone"), trouble(errno.EACCES), OSError("odd")],
    ids=repr,
)
def test_what_is_not_format_path_error_keeps_its_traceback(doctor_meets, error):
    doctor_meets(error)
    assert call("doctor").exception is error


def test_a_full_disk_is_told_also_where_nobody_knows_the_file(doctor_meets):
    doctor_meets(trouble(errno.ENOSPC))
    assert "ipseg: the disk is full. What was written before is whole; free some space" in fails("doctor")


def test_the_advice_about_a_full_disk_fits_every_command(doctor_meets):
    doctor_meets(trouble(errno.ENOSPC, "x"))
    message = fails("doctor")
    assert "start the same command again" in message
    assert message.endswith("(`train` and `extend`: with --resume).\n")  # the others have no such option


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOENT])
def test_an_error_about_a_temporary_file_names_the_file_that_it_was_to_be(tmp_path, monkeypatch, number):
    def refuse(temporary: Path, *_options: object) -> None:
        raise trouble(number, str(temporary))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(OSError, match=r"notes\.txt") as caught:
        write_text(tmp_path / "notes.txt", "new")
    assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / "notes.txt"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["predict", "RUN", "IMAGE", "--out", LONG],
        ["predict", "RUN", "IMAGE", "--out", "photo.png/below"],
        ["report", "RUN", "--out", f"{LONG}.html"],
        ["pack", "RUN", "--out", LONG],
        ["explain", "RUN", "IMAGE", "--out", f"{LONG}.png"],
        ["explain", "RUN", "IMAGE", "--out", "photo.png/below/why.png"],
        ["evaluate", "RUN", "--out", f"{LONG}.json"],
        ["train", "RUN", "--out", LONG],
        ["train", "RUN", "--out", "photo.png/below"],
    ],
    ids=lambda words: f"{words[0]} {words[-1][:9]}",
)
def test_no_command_ends_with_a_traceback_because_of_a_name(tiny_run, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (64, 64)).save("photo.png")
    message = fails(*({"RUN": tiny_run, "IMAGE": "photo.png"}.get(word, word) for word in words))
    assert "Choose a shorter name" in message or "a file and no folder" in message
    assert [path.name for path in tmp_path.iterdir()] == ["photo.png"]


# ---- files that stay ------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_ours_stays(tmp_path):
    for name in ("ours.txt", "empty.txt", "new.txt"):
        require_output(tmp_path / name, (".txt",), b"mark")
    (tmp_path / "ours.txt").write_bytes(b"begins, then a mark")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "theirs.txt").write_bytes(b"x" * 3000 + b"mark")  # a word far inside says nothing
    for name in ("ours.txt", "empty.txt", "new.txt", "NEW.TXT"):
        require_output(tmp_path / name, (".txt", ".text"), b"mark")
    with pytest.raises(UserError, match=r"--out .*theirs\.txt exists and is not an earlier output of this command"):
        require_output(tmp_path / "theirs.txt", (".txt",), b"mark")
    with pytest.raises(UserError, match=r"let the name end with \.txt or \.text"):
        require_output(tmp_path / "y.yaml", (".txt", ".text"), b"mark")
    with pytest.raises(UserError, match=r"is a folder; name a file, for example .*name\.txt"):
        require_output(tmp_path, (".txt",), b"mark")


def test_a_page_is_known_as_one_of_ours(tmp_path):
    from ipseg.apps.report import require_page

    page = tmp_path / "report.html"
    page.write_text(render("A" * 5000, [], {}))
    require_page(page)
    page.write_text('<!doctype html>\n<html lang="en">\n<head>\n<title>My thesis</title>')
    with pytest.raises(UserError, match="is not an earlier output of this command"):
        require_page(page)


def test_a_sheet_replaces_sheets_alone(tmp_path):
    sheet, photo = tmp_path / "new" / "why.png", tmp_path / "photo.png"
    save_sheet(Figure(), sheet)
    require_writable(sheet, photo)
    with pytest.raises(UserError, match="would overwrite the image that is read"):
        require_writable(sheet, tmp_path / "new" / ".." / "new" / "why.png")
    Image.new("RGB", (9, 9)).save(photo)
    with pytest.raises(UserError, match="is not an earlier output of this command"):
        require_writable(photo, tmp_path / "other.png")


@pytest.mark.slow
@pytest.mark.parametrize("out", ["run/results.json", "run/recipe.yaml", "photo.jpg", "thesis.html"])
def test_a_report_replaces_nothing_but_reports(tiny_run, tmp_path, out):
    shutil.copytree(tiny_run, tmp_path / "run")
    (tmp_path / "photo.jpg").write_bytes(b"a photograph")
    (tmp_path / "thesis.html").write_bytes(b"<!doctype html>\n<html>")
    before = (tmp_path / out).read_bytes()
    fails("report", tmp_path / "run", "--out", tmp_path / out, "--gallery", 0)
    assert (tmp_path / out).read_bytes() == before


@pytest.mark.slow
def test_what_was_written_before_is_written_again(tiny_run, tmp_path):
    for words in (
        ["report", tiny_run, "--gallery", 0, "--out", tmp_path / "report.html"],
        ["explain", tiny_run, "val/000001", "--out", tmp_path / "why.png"],
        ["evaluate", tiny_run, "--out", tmp_path / "again.json"],
    ):
        for _ in range(2):
            result = call(*words)
            assert result.exit_code == 0, result.output


@pytest.mark.slow
def test_the_mask_that_is_explained_stays(make_folder_data, tiny_settings, tmp_path):
    import ipseg

    data = make_folder_data()
    settings = {"data": {"name": "folder", "path": str(data)}, "scenario": {"name": "joint"}}
    ipseg.train(tiny_settings | settings, tmp_path / "run", quiet=True)
    mask: Path = data / "masks" / "image_04.png"
    before = mask.read_bytes()
    assert "is not an earlier output of this command" in fails("explain", tmp_path / "run", "image_04", "--out", mask)
    assert mask.read_bytes() == before


@pytest.mark.slow
def test_measuring_again_leaves_the_results_of_another_run(tiny_run, tmp_path):
    other = shutil.copytree(tiny_run, tmp_path / "other")
    for name in ("results.json", "step_01/step.json", "run.json", "recipe.yaml"):
        before = (other / name).read_bytes()
        fails("evaluate", tiny_run, "--out", other / name)
        assert (other / name).read_bytes() == before
