"""An archive that is no pack, or that reaches out of its folder, is refused before anything is written."""

from __future__ import annotations

import shutil
import stat
import zipfile
from typing import Any

import pytest
from packs import refused

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../outside.png",
        "memory/images/../../../../outside.png",
        "memory\\images\\a.png",
        "C:/a.png",
        "memory/images/..\\..\\a.png",
        "memory//images/a.png",
        "./step.json",
    ],
)
def test_a_path_that_leaves_the_folder_is_refused(extended, repack, tmp_path, name):
    refused(repack(lambda files, _: files.update({name: b"x"})), extended, tmp_path, "leaves its folder")


def test_a_surplus_file_is_refused_whether_it_is_listed_or_not(extended, repack, tmp_path):
    refused(repack(lambda files, _: files.update({"run.py": b"x"})), extended, tmp_path, "belongs to no pack")
    unlisted = repack(lambda files, _: files.update({"memory/images/extra.png": b"x"}), honest=False)
    refused(unlisted, extended, tmp_path, "disagree about memory/images/extra.png")


def test_a_missing_file_is_refused(extended, repack, tmp_path):
    refused(repack(lambda files, _: files.pop("step.json")), extended, tmp_path, "disagree")


def test_a_changed_file_is_refused(extended, repack, tmp_path):
    def spoil(files: dict[str, bytes], _: dict[str, Any]) -> None:
        files["weights.safetensors"] = files["weights.safetensors"][:-1] + b"x"

    refused(repack(spoil, honest=False), extended, tmp_path, "SHA-256")


def test_a_file_of_another_size_than_listed_is_refused(extended, repack, tmp_path):
    refused(repack(lambda files, _: files.update({"step.json": b"{}"}), honest=False), extended, tmp_path, "size")


@pytest.mark.parametrize(("version", "message"), [(99, "Update ipseg"), (None, "damaged"), ("1", "damaged")])
def test_another_version_is_refused(extended, repack, tmp_path, version, message):
    refused(repack(lambda _, manifest: manifest.update(version=version)), extended, tmp_path, message)


def test_a_link_is_refused(extended, packed, tmp_path):
    path = shutil.copy(packed, tmp_path / "link.zip")
    with zipfile.ZipFile(path, "a") as archive:
        info = zipfile.ZipInfo("memory/images/link.png")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    refused(path, extended, tmp_path, "is a link")


def test_a_file_that_swells_is_refused(extended, packed, tmp_path):
    path = shutil.copy(packed, tmp_path / "bomb.zip")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("memory/images/bomb.png", bytes(1 << 20))
    refused(path, extended, tmp_path, "compressed")


def test_a_pack_that_is_too_large_is_refused(extended, packed, tmp_path, monkeypatch):
    monkeypatch.setattr("ipseg.apps.pack_checks.PACK_BYTES", 1000)
    refused(packed, extended, tmp_path, "too large")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_comes_twice_is_refused(extended, packed, tmp_path):
    path = shutil.copy(packed, tmp_path / "twice.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("step.json", "{}")
    refused(path, extended, tmp_path, "twice")


def test_what_is_no_pack_is_refused(extended, tmp_path):
    (tmp_path / "a.zip").write_bytes(b"no zip")
    refused(tmp_path / "a.zip", extended, tmp_path, "no pack")
    refused(tmp_path / "none.zip", extended, tmp_path, "missing")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("manifest.json", "[]")
    refused(tmp_path / "b.zip", extended, tmp_path, "no pack")


def test_half_a_pack_is_refused(extended, packed, tmp_path):
    (tmp_path / "half.zip").write_bytes(packed.read_bytes()[: packed.stat().st_size // 2])
    refused(tmp_path / "half.zip", extended, tmp_path, "damaged")


def test_a_manifest_that_cannot_be_read_or_written_is_refused(extended, repack, packed, tmp_path):
    refused(
        repack(lambda _, manifest: manifest["settings"].update(name="\ud800")), extended, tmp_path, "half a character"
    )
    endless = repack(lambda _, manifest: manifest["files"]["step.json"].update(bytes=1e999), honest=False)
    refused(endless, extended, tmp_path, "is damaged")
    with zipfile.ZipFile(tmp_path / "deep.zip", "w") as archive:
        archive.writestr("manifest.json", "[" * 100_000)
    refused(tmp_path / "deep.zip", extended, tmp_path, "not JSON")


def test_a_name_that_no_disk_takes_is_refused(extended, repack, tmp_path):
    name = f"memory/saliency/{'a' * 300}.png"
    refused(repack(lambda files, _: files.update({name: b""})), extended, tmp_path, "belongs to no pack")


def test_a_file_that_begins_before_the_archive_does_is_refused(extended, packed, tmp_path):
    whole = bytearray(packed.read_bytes())
    end = whole.rindex(b"PK\x05\x06")
    start = int.from_bytes(whole[end + 16 : end + 20], "little")
    whole[end + 16 : end + 20] = (start + 1000).to_bytes(4, "little")  # where the list of files is said to begin
    (tmp_path / "moved.zip").write_bytes(whole)
    refused(tmp_path / "moved.zip", extended, tmp_path, "damaged")
