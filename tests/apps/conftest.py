"""Packs for the tests of `ipseg pack` and `ipseg apply`: one that is good, and ways to spoil it."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from packs import Change

from ipseg.apps.pack import pack


@pytest.fixture(scope="session")
def packed(grown, tmp_path_factory) -> Path:
    return pack(grown / "run", 2, tmp_path_factory.mktemp("packs") / "sheep.zip").path


@pytest.fixture
def repack(packed, tmp_path):
    """Writes a pack anew, its files and manifest changed; the manifest's sizes and hashes are made right again."""

    def write(change: Change, *, honest: bool = True) -> Path:
        with zipfile.ZipFile(packed) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        manifest = json.loads(files.pop("manifest.json"))
        change(files, manifest)
        if honest:
            manifest["files"] = {
                name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
            }
        path = tmp_path / "changed.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("manifest.json", json.dumps(manifest))
            for name, data in files.items():
                archive.writestr(name, data)
        return path

    return write
