"""The index of masks: every answer as if read anew, and read anew only where a mask has changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ipseg.data import mask_index, parallel
from ipseg.data.dataset import present_classes
from ipseg.data.image_io import IndexMasks, read_labels
from ipseg.data.mask_index import cache_folder, class_presence_of, scan_masks
from ipseg.errors import UserError


@dataclass(frozen=True)
class Counting:
    """Reads a mask and notes that it did, in a file: workers have no other way to tell."""

    log: Path
    add: int = 0

    def __call__(self, path: Path) -> np.ndarray:
        with self.log.open("a") as log:
            log.write(f"{path.name}\n")
        return read_labels(path) + np.uint8(self.add)

    def reads(self) -> list[str]:
        """What was read since the last time."""
        names = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.write_text("")
        return sorted(names)


def save_mask(path: Path, *values: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.resize(np.array(values, dtype=np.uint8), (6, 8))).save(path)
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("IPSEG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def masks(tmp_path) -> list[Path]:
    return [save_mask(tmp_path / "masks" / f"{number}.png", 0, number + 1, 255) for number in range(5)]


@pytest.fixture
def read(tmp_path) -> Counting:
    return Counting(tmp_path / "log")


# ---- what is kept, and when it is read again --------------------------------------------------------------------


def test_masks_are_read_once(masks, read):
    assert class_presence_of(masks, read) == [{1}, {2}, {3}, {4}, {5}]
    assert len(read.reads()) == 5
    assert class_presence_of(masks[::-1], read) == [{5}, {4}, {3}, {2}, {1}]
    assert read.reads() == []


def test_only_a_mask_that_changed_is_read_again(masks, read):
    class_presence_of(masks, read)
    read.reads()
    before = masks[3].stat()
    save_mask(masks[3], 0, 9, 255)
    os.utime(masks[3], ns=(before.st_atime_ns, before.st_mtime_ns + 1))  # of one size, and as soon as can be told
    assert class_presence_of(masks, read)[3] == {9}
    assert read.reads() == ["3.png"]


def test_new_masks_are_added_and_those_that_are_gone_forgotten(masks, read, cache):
    class_presence_of(masks[:3], read)
    class_presence_of(masks[3:], read)  # another split of the same folder
    read.reads()
    masks[0].unlink()
    more = [*masks[1:], save_mask(masks[0].with_name("new.png"), 7)]
    assert class_presence_of(more, read)[-1] == {7}
    assert read.reads() == ["new.png"]
    (file,) = cache.iterdir()
    assert len(json.loads(file.read_text())) == 5


def test_another_reader_has_other_answers(masks, tmp_path):
    one, other = Counting(tmp_path / "log", add=0), Counting(tmp_path / "log", add=100)
    assert class_presence_of(masks[:1], one) == [{1}]
    assert class_presence_of(masks[:1], other) == [{100, 101, 99}]  # 255 + 100 as bytes
    assert class_presence_of(masks[:1], one) == [{1}]


def test_another_version_reads_anew(masks, read, monkeypatch):
    class_presence_of(masks, read)
    read.reads()
    monkeypatch.setattr("ipseg.__version__", "99.0")
    class_presence_of(masks, read)
    assert len(read.reads()) == 5


def test_a_reader_that_cannot_be_told_from_others_is_asked_every_time(masks, cache):
    unnamed = lambda path: read_labels(path) * 2  # noqa: E731
    assert class_presence_of(masks, unnamed)[0] == {2, 254}
    assert not cache.exists()


def test_a_mask_named_twice_counts_twice(masks, read):
    assert class_presence_of([masks[0], masks[1], masks[0]], read) == [{1}, {2}, {1}]
    assert read.reads() == ["0.png", "1.png"]


def test_no_masks_have_no_classes(read):
    assert class_presence_of([], read) == []


def test_sizes_are_kept_too(masks, read):
    for _ in range(2):
        assert {info.size for info in scan_masks(masks, read)} == {(6, 8)}


# ---- masks that cannot be read ----------------------------------------------------------------------------------


def test_a_broken_mask_is_named_and_the_others_are_kept(masks, read):
    masks[1].write_text("this is no image")
    with pytest.raises(UserError, match=r"1\.png is not a readable mask"):
        class_presence_of(masks, read)
    read.reads()
    save_mask(masks[1], 3)
    assert class_presence_of(masks, read)[1] == {3}
    assert read.reads() == ["1.png"]


def test_a_missing_mask_is_named(masks, read):
    class_presence_of(masks, read)
    masks[2].unlink()
    with pytest.raises(UserError, match=r"2\.png is missing"):
        class_presence_of(masks, read)


# ---- the cache's folder -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff\xfe nothing",
        b"[]",
        b'{"masks": 1}',
        b"[" * 100_000,
        lambda cached: {name: ["a", "b", "c", "d", "e"] for name in cached},
        lambda cached: {name: [1] for name in cached},
        lambda cached: {name: [*entry, 999] for name, entry in cached.items()},
        lambda cached: dict.fromkeys(cached, 7),
    ],
)
def test_a_damaged_cache_is_made_anew(masks, read, cache, damage, capsys):
    expected = class_presence_of(masks, read)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage if isinstance(damage, bytes) else json.dumps(damage(json.loads(whole))).encode())
    assert class_presence_of(masks, read) == expected
    assert file.read_bytes() == whole
    assert capsys.readouterr() == ("", "")


def test_a_cache_that_cannot_be_written_only_means_no_cache(masks, read, cache):
    cache.write_text("a file where the folder should be")
    for _ in range(2):
        assert class_presence_of(masks, read)[0] == {1}
    assert len(read.reads()) == 10


def test_a_full_disk_only_means_no_cache(masks, read, monkeypatch):
    def full(*_):
        raise UserError("the disk is full")

    monkeypatch.setattr(mask_index, "write_text", full)
    assert class_presence_of(masks, read)[0] == {1}


def test_nothing_is_written_beside_the_masks(masks, read):
    before = sorted(masks[0].parent.parent.rglob("*.png"))
    class_presence_of(masks, read)
    assert sorted(masks[0].parent.iterdir()) == before


def test_the_cache_stands_where_the_platform_keeps_such_things(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.setenv("IPSEG_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "ipseg"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "ipseg"


@given(values=st.lists(st.sets(st.integers(0, 255), min_size=1, max_size=8), min_size=1, max_size=5))
def test_what_is_read_back_is_what_was_read(values, tmp_path_factory):
    folder = tmp_path_factory.mktemp("masks")
    paths = [save_mask(folder / f"ü {number}.png", *found) for number, found in enumerate(values)]
    first, second = class_presence_of(paths, IndexMasks(255)), class_presence_of(paths, IndexMasks(255))
    assert first == second == [present_classes(read_labels(path)) for path in paths]


# ---- all cores --------------------------------------------------------------------------------------------------


def test_many_masks_are_shared_out_and_come_back_in_order(tmp_path, read):
    count = 3 * parallel.FEW
    paths = [save_mask(tmp_path / "many" / f"{number}.png", number % 250 + 1) for number in range(count)]
    assert class_presence_of(paths, read) == [{number % 250 + 1} for number in range(count)]
    assert len(read.reads()) == count


def test_work_is_done_by_other_processes_and_need_not_be_sent_to_them():
    pids = parallel.parallel_map(lambda _: os.getpid(), range(200), "counting", workers=2)
    assert os.getpid() not in pids
    assert {os.getpid()} == set(parallel.parallel_map(lambda _: os.getpid(), range(5), "counting", workers=2))


def test_threads_do_the_same_where_processes_cannot_be_forked(monkeypatch):
    monkeypatch.setattr(parallel, "FORKS", False)
    assert parallel.parallel_map(lambda number: number + 1, range(200), "counting", workers=2) == list(range(1, 201))


def test_a_mistake_in_the_work_comes_through():
    with pytest.raises(ZeroDivisionError):
        parallel.parallel_map(lambda number: 1 // (number - 150), range(200), "counting", workers=2)


def test_a_process_that_was_killed_is_no_traceback():
    with pytest.raises(UserError, match="counting: a process that read files was killed"):
        parallel.parallel_map(lambda number: os._exit(9) if number == 150 else 1, range(200), "counting", workers=2)


KILLED = r"""
import os, signal, time
from ipseg.data.parallel import parallel_map
signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite that runs in the background starts without one
def work(number):
    os.write(1, f"{os.getpid()}\n".encode())  # whole lines, whoever else writes
    time.sleep(0.05)
parallel_map(work, range(100_000), "sleeping", workers=2)
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_stays_behind(how):
    code = [sys.executable, "-c", KILLED]
    with subprocess.Popen(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = {int(parent.stdout.readline()) for _ in range(8)}
        parent.send_signal(how)
        parent.communicate(timeout=20)
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    assert not left
