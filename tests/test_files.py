"""Writes are whole or not there; reads say what is wrong."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ipseg.config import read_yaml
from ipseg.errors import UserError
from ipseg.files import (
    TEMPORARIES,
    explaining_full_disk,
    missing,
    read_json,
    read_plain,
    replacing,
    whole_or_nothing,
    write_json,
    write_text,
)
from rights import where_rights_count


def full(*_args: object, **_options: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("where", ["write_text", "replace", "open"])
def test_on_a_full_disk_the_old_file_stays_and_the_message_says_what_to_do(tmp_path, monkeypatch, where):
    path = tmp_path / "notes.txt"
    write_text(path, "old")
    with monkeypatch.context() as patched:
        patched.setattr(Path, where, full)
        with pytest.raises(UserError, match=r"the disk is full: .*notes\.txt.*--resume"):
            write_text(path, "new")
    assert path.read_text() == "old"
    assert left_over(tmp_path) == ["notes.txt"]


def test_a_disk_too_full_for_a_temporary_file_is_explained_too(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(UserError, match="the disk is full"):
        write_text(tmp_path / "notes.txt", "new")


def test_a_real_full_disk_is_explained():
    device = Path("/dev/full")
    if not device.is_char_device():
        pytest.skip("this system has no /dev/full")
    with pytest.raises(UserError, match="the disk is full"), explaining_full_disk(device):
        device.write_text("x")


def test_another_error_is_left_as_it_is(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_text(tmp_path / "nowhere" / "notes.txt", "new")


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "notes.txt"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text(f"half of the ne{1 // 0}")
    assert path.read_text() == "old"
    assert left_over(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("name", ["n" * 255, "ä" * 127, "." + "n" * 254])
def test_a_name_may_be_as_long_as_names_can_be(tmp_path, name):
    write_text(tmp_path / name, "old")
    write_text(tmp_path / name, "new")
    assert (tmp_path / name).read_text() == "new"
    assert left_over(tmp_path) == [name]


def test_a_file_without_its_name_is_known_as_one(tmp_path):
    with replacing(tmp_path / "image.png") as temporary:
        assert list(tmp_path.glob(TEMPORARIES)) == [temporary]
        assert temporary.suffix != ".png"  # nobody takes half an image for an image


@pytest.mark.parametrize("kind", ["fifo", "folder", "link to a fifo", "link to a folder"])
def test_what_is_no_file_is_not_replaced(tmp_path, kind):
    path, real = tmp_path / "target", tmp_path / ("real" if "link" in kind else "target")
    if "fifo" in kind:
        os.mkfifo(real)
    else:
        real.mkdir()
    if path != real:
        path.symlink_to(real)
    before = left_over(tmp_path), path.lstat()
    with pytest.raises(UserError, match=r"target exists and is not a plain file.* Choose another name"):
        write_text(path, "new")
    assert (left_over(tmp_path), path.lstat()) == before


def test_a_device_is_not_replaced():
    device = Path("/dev/null")
    if not device.is_char_device():
        pytest.skip("this system has no /dev/null")
    with pytest.raises(UserError, match="/dev/null exists and is not a plain file"):
        replacing(device).__enter__()  # not to the end: who may write there would have no /dev/null any more


@pytest.mark.parametrize("there", [True, False])
def test_a_link_gives_way_to_the_file_and_what_it_led_to_stays(tmp_path, there):
    if there:
        (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_text(tmp_path / "link", "new")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "link").read_text() == "new"
    assert (tmp_path / "real").exists() == there


def test_files_have_the_permissions_that_a_plain_write_would_give(tmp_path):
    write_text(tmp_path / "ours", "x")
    (tmp_path / "plain").write_text("x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_json_comes_back_as_it_was_written(tmp_path):
    value = {"version": 1, "name": "Ä", "values": [0.1, None, True]}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json", "the thing", 1) == value


def test_what_is_no_json_is_not_written(tmp_path):
    write_json(tmp_path / "a.json", {"loss": 1.0})
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert read_json(tmp_path / "a.json", "the thing") == {"loss": 1.0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"version": 1', r"the thing is damaged: .* \(not JSON"),
        (b"\xff\xfe", "the thing is damaged"),
        (b"[1, 2]", "gives its version as None; valid: 1 to 2"),
        (b'{"version": true}', "gives its version as True"),
        (b'{"version": 0}', "valid: 1 to 2"),
        (b'{"version": 3}', "is of format 3, this ipseg reads up to 2: .* Update ipseg"),
    ],
)
def test_json_that_cannot_be_read_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        read_json(path, "the thing", 2)
    assert str(path) in str(caught.value)


def test_of_what_is_missing_the_nearest_name_beside_it_is_offered(tmp_path):
    (tmp_path / "mine.yaml").touch()
    assert str(missing("the recipe", tmp_path / "mine.yml")).endswith(f"Did you mean {tmp_path / 'mine.yaml'}?")
    assert str(missing("the recipe", tmp_path / "other")) == f"the recipe is missing: {tmp_path / 'other'}."
    gone = tmp_path / "gone"
    assert str(missing("the run", gone / "one")) == f"the run is missing: {gone / 'one'}. There is no folder {gone}."


def test_json_that_is_missing_is_said_to_be(tmp_path):
    with pytest.raises(UserError, match=r"the thing is missing: .*a\.json"):
        read_json(tmp_path / "a.json", "the thing")


@pytest.mark.parametrize("there", [False, True], ids=["new", "empty"])
def test_a_new_folder_has_its_name_once_it_is_whole(tmp_path, there):
    out = tmp_path / "runs" / "new"
    if there:
        out.mkdir(parents=True)
    with whole_or_nothing(out) as made:
        (made / "a").mkdir(parents=True)
        assert not out.exists() or not list(out.iterdir())
    assert [path.name for path in out.iterdir()] == ["a"]
    assert list(out.parent.iterdir()) == [out]


def test_of_a_new_folder_that_fails_nothing_is_left(tmp_path):
    def fail() -> None:
        with whole_or_nothing(tmp_path / "new") as made:
            (made / "a").mkdir(parents=True)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not list(tmp_path.iterdir())


def test_what_a_kill_left_of_a_new_folder_is_not_in_the_next_one(tmp_path):
    with whole_or_nothing(tmp_path / "new") as killed:
        (killed / "a").mkdir(parents=True)
    (tmp_path / "new").rename(killed)
    with whole_or_nothing(tmp_path / "new") as made:
        (made / "b").mkdir(parents=True)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["b"]


def test_what_cannot_be_removed_is_not_taken_for_a_new_folder(tmp_path):
    with where_rights_count(tmp_path):
        with whole_or_nothing(Path("new")) as closed:
            (closed / "a").mkdir(parents=True)
        Path("new").chmod(0o555)
        Path("new").rename(closed)
        with pytest.raises(PermissionError), whole_or_nothing(Path("new")):
            pytest.fail("what nobody asked for is there")
        assert not Path("new").exists()
        closed.chmod(0o755)


def test_devices_and_pipes_are_not_read_for_they_may_have_no_end(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    for name in ("pipe.json", "zero.json"):
        with pytest.raises(UserError, match=f"the thing is damaged: .*{name} is no plain file"):
            read_json(tmp_path / name, "the thing")
        with pytest.raises(UserError, match=f"{name} is no plain file"):
            read_yaml(tmp_path / name, "the recipe")
    (tmp_path / "five").write_text("12345")
    with pytest.raises(UserError, match="it has 5 bytes; at most 4 are read"):
        read_plain(tmp_path / "five", 4)
