"""A pack upgrades a copy of its base to the same bits, and nothing but its base; what is wrong is found first."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import call, fails
from ipseg.apps.apply import apply_pack
from ipseg.apps.learn import learn
from ipseg.apps.model import load_model
from ipseg.apps.pack import pack
from ipseg.engine.experiment import run
from ipseg.engine.folder import RunFolder
from ipseg.engine.recipe import make_recipe
from ipseg.engine.tensors import digest, load_tensors, save_tensors
from ipseg.errors import UserError

pytestmark = pytest.mark.slow

Change = Callable[[dict[str, bytes], dict[str, Any]], None]


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


def refused(path: Path, grown: Path, tmp_path: Path, said: str) -> None:
    """By name, without a trace on the disk, or of a folder that nobody will find there."""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=said) as caught:
        apply_pack(path, grown / "base", tmp_path / "out")
    assert ".partial" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert not list(grown.glob(".*"))


# ---- what a pack is for -----------------------------------------------------------------------------------------


def test_the_upgraded_copy_predicts_what_the_new_run_predicts_bit_for_bit(grown, packed, tmp_path):
    shutil.copytree(grown / "base", tmp_path / "elsewhere")
    apply_pack(packed, tmp_path / "elsewhere", tmp_path / "upgraded")
    ours, theirs = load_model(tmp_path / "upgraded"), load_model(grown / "run")
    assert ours.classes == theirs.classes
    for picture in (grown / "new" / "images").iterdir():
        one, other = ours.predict(picture), theirs.predict(picture)
        assert np.array_equal(one.scores, other.scores)
        assert one.posterior == other.posterior


def test_a_posterior_of_sums_learns_one_more_class_and_travels(grown, make_folder_data, tmp_path):
    settings = RunFolder.open(grown / "base").settings() | {"method": {"name": "ipseg_moments"}}
    settings["data"]["path"] = str(make_folder_data("old", classes=("red", "green"), count=10))
    run(make_recipe(settings), tmp_path / "base", quiet=True)
    new = make_folder_data("new", classes=("goat", "sheep", "red"), count=9)
    learn(tmp_path / "base", new, ["sheep"], tmp_path / "run", quiet=True)
    apply_pack(pack(tmp_path / "run", 2, tmp_path / "sheep.zip").path, tmp_path / "base", tmp_path / "upgraded")
    ours, theirs = load_model(tmp_path / "upgraded"), load_model(tmp_path / "run")
    for picture in (new / "images").iterdir():
        said = ours.predict(picture)
        assert np.array_equal(said.scores, theirs.predict(picture).scores)
        assert said.posterior.keys() == {"red", "green", "sheep"}


def test_the_upgraded_copy_is_a_whole_run(grown, packed, tmp_path):
    done = call("apply", packed, grown / "base", "--out", tmp_path / "upgraded")
    assert done.exit_code == 0, done.output
    assert "knows red, green, sheep" in done.output
    assert RunFolder.open(tmp_path / "upgraded").finished() == 3
    again = call(
        "learn",
        tmp_path / "upgraded",
        "--data",
        grown / "new",
        "--classes",
        "goat",
        "--out",
        tmp_path / "more",
        "--quiet",
    )
    assert again.exit_code == 0, again.output


def test_the_size_is_said_and_the_pack_is_far_smaller_than_the_run(grown, tmp_path):
    said = call("pack", grown / "run", "--step", 2, "--out", tmp_path / "a.zip")
    assert said.exit_code == 0, said.output
    assert "kB" in said.output or "MB" in said.output
    base = (grown / "run" / "step_00" / "weights.safetensors").stat().st_size
    assert (tmp_path / "a.zip").stat().st_size < base / 10


def test_equal_steps_give_equal_packs(grown, packed, tmp_path):
    assert pack(grown / "run", None, tmp_path / "again.zip").path.read_bytes() == packed.read_bytes()


def test_a_pack_names_no_folder_of_the_machine_it_comes_from(grown, packed):
    with zipfile.ZipFile(packed) as archive:
        assert str(grown) not in archive.read("manifest.json").decode()


def test_the_memory_stays_at_home_on_request(grown, tmp_path):
    path = pack(grown / "run", 2, tmp_path / "bare.zip", memory=False).path
    with zipfile.ZipFile(path) as archive:
        assert sorted(archive.namelist()) == ["manifest.json", "step.json", "weights.safetensors"]
    apply_pack(path, grown / "base", tmp_path / "upgraded")
    assert load_model(tmp_path / "upgraded").classes[-1] == "sheep"
    words = ["learn", tmp_path / "upgraded", "--data", grown / "new", "--classes", "goat", "--out", tmp_path / "more"]
    assert "--no-memory" in call(*words).stderr


def test_an_old_step_can_be_packed_too(grown, tmp_path):
    path = pack(grown / "base", 1, tmp_path / "green.zip").path
    shutil.copytree(grown / "base", tmp_path / "first")
    shutil.rmtree(tmp_path / "first" / "step_01")
    apply_pack(path, tmp_path / "first", tmp_path / "both")
    assert load_model(tmp_path / "both").classes == ("background", "red", "green")


@pytest.mark.parametrize(("step", "said"), [("0", "base itself"), ("7", "no step 7")])
def test_a_step_that_upgrades_nothing_is_not_packed(grown, tmp_path, step, said):
    result = call("pack", grown / "run", "--step", step, "--out", tmp_path / "a.zip")
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_pack_overwrites_nothing(grown, packed, tmp_path):
    for out in (packed, grown / "run" / "pack.zip", tmp_path / "no" / "where.zip"):
        assert call("pack", grown / "run", "--out", out).exit_code == 2


# ---- another base -----------------------------------------------------------------------------------------------


def test_a_pack_for_another_base_is_refused(grown, packed, tmp_path):
    shutil.copytree(grown / "base", tmp_path / "other")
    path = tmp_path / "other" / "step_01" / "weights.safetensors"
    tensors, facts = load_tensors(path, "w")
    name = next(iter(tensors))
    save_tensors(path, tensors | {name: tensors[name] + 1}, facts)
    result = call("apply", packed, tmp_path / "other", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "made for another base: its weights" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_base_of_other_classes_or_another_network_is_told_apart(grown, tiny_run, repack, packed, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "scenes")
    shutil.rmtree(tmp_path / "scenes" / "step_02")
    with pytest.raises(UserError, match="its classes"):
        apply_pack(packed, tmp_path / "scenes", tmp_path / "out")
    wider = repack(lambda _, manifest: manifest["base"]["network"].update(rates=[3]))
    refused(wider, grown, tmp_path, "its network")


def test_a_run_that_has_the_step_already_is_not_upgraded(grown, packed, tmp_path):
    with pytest.raises(UserError, match="has finished 3"):
        apply_pack(packed, grown / "run", tmp_path / "out")


def test_equal_tensors_have_equal_digests_and_others_do_not():
    import torch

    one = {"a": torch.zeros(2), "b": torch.ones(1)}
    assert digest(one) == digest(dict(reversed(one.items())))
    others = [{"a": torch.zeros(2)}, one | {"b": torch.zeros(1)}, one | {"a": torch.zeros(1, 2)}]
    assert len({digest(tensors) for tensors in [one, *others]}) == 4


# ---- bad packs --------------------------------------------------------------------------------------------------


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
def test_a_path_that_leaves_the_folder_is_refused(grown, repack, tmp_path, name):
    refused(repack(lambda files, _: files.update({name: b"x"})), grown, tmp_path, "leaves its folder")


def test_a_surplus_file_is_refused_whether_it_is_listed_or_not(grown, repack, tmp_path):
    refused(repack(lambda files, _: files.update({"run.py": b"x"})), grown, tmp_path, "belongs to no pack")
    unlisted = repack(lambda files, _: files.update({"memory/images/extra.png": b"x"}), honest=False)
    refused(unlisted, grown, tmp_path, "disagree about memory/images/extra.png")


def test_a_missing_file_is_refused(grown, repack, tmp_path):
    refused(repack(lambda files, _: files.pop("step.json")), grown, tmp_path, "disagree")


def test_a_changed_file_is_refused(grown, repack, tmp_path):
    def spoil(files: dict[str, bytes], _: dict[str, Any]) -> None:
        files["weights.safetensors"] = files["weights.safetensors"][:-1] + b"x"

    refused(repack(spoil, honest=False), grown, tmp_path, "SHA-256")


def test_a_file_of_another_size_than_listed_is_refused(grown, repack, tmp_path):
    refused(repack(lambda files, _: files.update({"step.json": b"{}"}), honest=False), grown, tmp_path, "size")


@pytest.mark.parametrize(("version", "said"), [(99, "Update ipseg"), (None, "damaged"), ("1", "damaged")])
def test_another_version_is_refused(grown, repack, tmp_path, version, said):
    refused(repack(lambda _, manifest: manifest.update(version=version)), grown, tmp_path, said)


def test_a_link_is_refused(grown, packed, tmp_path):
    path = shutil.copy(packed, tmp_path / "link.zip")
    with zipfile.ZipFile(path, "a") as archive:
        info = zipfile.ZipInfo("memory/images/link.png")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    refused(path, grown, tmp_path, "is a link")


def test_a_file_that_swells_is_refused(grown, packed, tmp_path):
    path = shutil.copy(packed, tmp_path / "bomb.zip")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("memory/images/bomb.png", bytes(1 << 20))
    refused(path, grown, tmp_path, "compressed")


def test_a_pack_that_is_too_large_is_refused(grown, packed, tmp_path, monkeypatch):
    monkeypatch.setattr("ipseg.apps.pack_checks.PACK_BYTES", 1000)
    refused(packed, grown, tmp_path, "too large")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_comes_twice_is_refused(grown, packed, tmp_path):
    path = shutil.copy(packed, tmp_path / "twice.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("step.json", "{}")
    refused(path, grown, tmp_path, "twice")


def test_what_is_no_pack_is_refused(grown, tmp_path):
    (tmp_path / "a.zip").write_bytes(b"no zip")
    refused(tmp_path / "a.zip", grown, tmp_path, "no pack")
    refused(tmp_path / "none.zip", grown, tmp_path, "missing")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("manifest.json", "[]")
    refused(tmp_path / "b.zip", grown, tmp_path, "no pack")


def test_half_a_pack_is_refused(grown, packed, tmp_path):
    (tmp_path / "half.zip").write_bytes(packed.read_bytes()[: packed.stat().st_size // 2])
    refused(tmp_path / "half.zip", grown, tmp_path, "damaged")


def test_a_memory_that_names_a_file_elsewhere_is_refused(grown, repack, tmp_path):
    def escape(files: dict[str, bytes], _: dict[str, Any]) -> None:
        memory = json.loads(files["memory/manifest.json"])
        memory["entries"][0]["name"] = "../../../secret"
        files["memory/manifest.json"] = json.dumps(memory).encode()

    refused(repack(escape), grown, tmp_path, "leaves its folder")


def test_a_pack_imports_no_code_by_name(grown, repack, tmp_path):
    swap = repack(lambda _, manifest: manifest["settings"]["method"].update(name="antigravity:fly"))
    refused(swap, grown, tmp_path, "contradicts itself about its method")


def test_weights_that_do_not_fit_are_refused(grown, repack, tmp_path):
    def swap(files: dict[str, bytes], _: dict[str, Any]) -> None:
        files["weights.safetensors"] = (grown / "base" / "step_01" / "weights.safetensors").read_bytes()

    refused(repack(swap), grown, tmp_path, "do not fit")


def test_a_memory_without_its_maps_is_refused(grown, repack, tmp_path):
    def take_away(files, _):
        del files[next(name for name in files if name.startswith("memory/saliency/"))]

    refused(repack(take_away), grown, tmp_path, "saliency map of .* is not in its memory")


def change_memory(change: Callable[[dict[str, Any]], None]) -> Change:
    def spoil(files: dict[str, bytes], _: dict[str, Any]) -> None:
        memory = json.loads(files["memory/manifest.json"])
        change(memory)
        files["memory/manifest.json"] = json.dumps(memory).encode()

    return spoil


def test_a_memory_of_other_classes_is_refused(grown, repack, tmp_path):
    def forget(memory: dict[str, Any]) -> None:
        memory["order"] = ["red", "green"]
        for entry in memory["entries"]:
            classes = [name for name in entry["classes"] if name != "sheep"]
            hot = [int(name in classes) for name in memory["order"]]
            entry.update(classes=classes, multi_hot=hot, guessed=[])

    refused(
        repack(change_memory(forget)), grown, tmp_path, "memory is of the classes red, green, not red, green, sheep"
    )


def test_a_picture_that_is_remembered_twice_is_refused(grown, repack, tmp_path):
    twice = repack(change_memory(lambda memory: memory["entries"].append(memory["entries"][0])))
    refused(twice, grown, tmp_path, "more than once")


@pytest.mark.parametrize("kind", ["saliency", "images"])
def test_a_memory_whose_pictures_are_none_is_refused(grown, repack, tmp_path, kind):
    def spoil(files, _):
        files[next(name for name in files if name.startswith(f"memory/{kind}/"))] = b"no picture"

    refused(repack(spoil), grown, tmp_path, f"in its memory cannot be used: memory/{kind}/.* is not a readable")


@pytest.mark.parametrize(
    "change",
    [
        {"miou": "good"},
        {"iou": None},
        {"iou": {"background": "good"}},
        {"image_f1": float("nan")},
        {"images": "\ud800"},
        {"images": "x"},
        {"images": -1},
        {"image_accuracy": "x"},
        {"image_accuracy": {"all": "x"}},
        {"image_f1": {"all": {"both": "x"}}},
        {"confusion": "x"},
        {"confusion": {"red": {"red": -1}}},
        {"iou": {"background": 0.5}},
    ],
    ids=str,
)
def test_measurements_that_are_none_are_refused(grown, repack, tmp_path, change):
    def spoil(files, _):
        files["step.json"] = json.dumps(json.loads(files["step.json"]) | change).encode()

    refused(repack(spoil), grown, tmp_path, "cannot be applied")


@pytest.mark.parametrize("name", ["weights.safetensors", "step.json", "memory/manifest.json"])
def test_a_damaged_file_in_a_pack_is_told_of_the_pack_without_advice_for_runs(grown, repack, tmp_path, name):
    emptied = repack(lambda files, _: files.update({name: b""}))
    refused(emptied, grown, tmp_path, rf"is damaged: {emptied}/{name} [^\n]*\. Nothing was written\.$")
    with pytest.raises(UserError) as caught:
        apply_pack(emptied, grown / "base", tmp_path / "out")
    assert "--resume" not in str(caught.value)


def test_a_damaged_result_of_the_run_is_not_told_of_the_pack(grown, packed, tmp_path):
    base = shutil.copytree(grown / "base", tmp_path / "base")
    (base / "step_00" / "step.json").write_text("")
    told = fails("apply", packed, base, "--out", tmp_path / "out")
    assert str(base / "step_00" / "step.json") in told
    assert packed.name not in told
    assert list(tmp_path.iterdir()) == [base]


def test_a_manifest_that_cannot_be_read_or_written_is_refused(grown, repack, packed, tmp_path):
    refused(repack(lambda _, manifest: manifest["settings"].update(name="\ud800")), grown, tmp_path, "is not JSON")
    endless = repack(lambda _, manifest: manifest["files"]["step.json"].update(bytes=1e999), honest=False)
    refused(endless, grown, tmp_path, "is damaged")
    with zipfile.ZipFile(tmp_path / "deep.zip", "w") as archive:
        archive.writestr("manifest.json", "[" * 100_000)
    refused(tmp_path / "deep.zip", grown, tmp_path, "is not JSON")


def test_a_name_that_no_disk_takes_is_refused(grown, repack, tmp_path):
    name = f"memory/saliency/{'a' * 300}.png"
    refused(repack(lambda files, _: files.update({name: b""})), grown, tmp_path, "belongs to no pack")


def test_a_file_that_begins_before_the_archive_does_is_refused(grown, packed, tmp_path):
    whole = bytearray(packed.read_bytes())
    end = whole.rindex(b"PK\x05\x06")
    start = int.from_bytes(whole[end + 16 : end + 20], "little")
    whole[end + 16 : end + 20] = (start + 1000).to_bytes(4, "little")  # where the list of files is said to begin
    (tmp_path / "moved.zip").write_bytes(whole)
    refused(tmp_path / "moved.zip", grown, tmp_path, "damaged")


@pytest.mark.parametrize("name", ["weights.safetensors", "step.json"])
@pytest.mark.parametrize("cut", [slice(0), slice(-9)], ids=["empty", "cut"])
def test_a_step_whose_files_are_damaged_is_not_packed(grown, tmp_path, name, cut):
    run = shutil.copytree(grown / "run", tmp_path / "run")
    damaged = run / "step_02" / name
    damaged.write_bytes(damaged.read_bytes()[cut])
    assert str(damaged) in fails("pack", run, "--out", tmp_path / "out.zip")
    assert list(tmp_path.iterdir()) == [run]


def test_a_run_whose_memory_is_damaged_is_not_packed(grown, tmp_path):
    shutil.copytree(grown / "run", tmp_path / "run")
    (tmp_path / "run" / "step_02" / "memory" / "manifest.json").write_text('{"version": 1}')
    with pytest.raises(UserError, match="memory's manifest is damaged"):
        pack(tmp_path / "run", 2, tmp_path / "out.zip")


@pytest.mark.parametrize("left", [None, b"no picture"], ids=["missing", "damaged"])
def test_a_run_whose_memory_cannot_be_replayed_is_packed_without_the_memory_only(grown, tmp_path, left):
    shutil.copytree(grown / "run", tmp_path / "run")
    lost = next(iter((tmp_path / "run" / "step_02" / "memory" / "saliency").rglob("*.png")))
    lost.unlink()
    if left is not None:
        lost.write_bytes(left)
    words = ["pack", tmp_path / "run", "--out", tmp_path / "out.zip"]
    told = fails(*words)
    assert lost.stem in told
    assert "--no-memory" in told
    assert not (tmp_path / "out.zip").exists()
    assert call(*words, "--no-memory").exit_code == 0
