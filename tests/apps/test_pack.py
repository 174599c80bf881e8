"""A pack upgrades a copy of its base to the same bits, and nothing but its base."""

from __future__ import annotations

import shutil
import zipfile

import numpy as np
import pytest
from packs import refused

import ipseg
from commands import call, extension, fails
from ipseg.apps.extend import extend
from ipseg.apps.pack import apply_pack, pack
from ipseg.errors import UserError
from ipseg.files import TEMPORARIES, lock
from ipseg.training.experiment import run
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import make_recipe
from ipseg.training.tensors import digest, load_tensors, save_tensors

pytestmark = pytest.mark.slow


# ---- what a pack is for -----------------------------------------------------------------------------------------


def test_the_upgraded_copy_predicts_what_the_new_run_predicts_bit_for_bit(extended, packed, tmp_path):
    shutil.copytree(extended / "base", tmp_path / "elsewhere")
    apply_pack(packed, tmp_path / "elsewhere", tmp_path / "upgraded")
    upgraded, original = ipseg.load(tmp_path / "upgraded"), ipseg.load(extended / "run")
    assert upgraded.classes == original.classes
    for image in (extended / "new" / "images").iterdir():
        one, other = upgraded.predict(image), original.predict(image)
        assert np.array_equal(one.scores, other.scores)
        assert one.posterior == other.posterior


def test_a_posterior_of_sums_learns_one_more_class_and_travels(extended, make_folder_data, tmp_path):
    settings = RunFolder.open(extended / "base").settings() | {"method": {"name": "ipseg_lda"}}
    settings["data"]["path"] = str(make_folder_data("old", classes=("red", "green"), count=10))
    run(make_recipe(settings), tmp_path / "base", quiet=True)
    new = make_folder_data("new", classes=("goat", "sheep", "red"), count=9)
    extend(tmp_path / "base", new, ["sheep"], tmp_path / "run", quiet=True)
    apply_pack(pack(tmp_path / "run", 2, tmp_path / "sheep.zip").path, tmp_path / "base", tmp_path / "upgraded")
    upgraded, original = ipseg.load(tmp_path / "upgraded"), ipseg.load(tmp_path / "run")
    for image in (new / "images").iterdir():
        result = upgraded.predict(image)
        assert np.array_equal(result.scores, original.predict(image).scores)
        assert result.posterior.keys() == {"red", "green", "sheep"}


def test_the_upgraded_copy_is_a_whole_run(extended, packed, tmp_path):
    done = call("apply", packed, extended / "base", "--out", tmp_path / "upgraded")
    assert done.exit_code == 0, done.output
    assert "knows red, green, sheep" in done.output
    assert RunFolder.open(tmp_path / "upgraded").finished() == 3
    again = call(*extension(tmp_path / "upgraded", extended / "new", "goat", tmp_path / "more", "--quiet"))
    assert again.exit_code == 0, again.output


def test_the_size_is_said_and_the_pack_is_far_smaller_than_the_run(extended, tmp_path):
    message = call("pack", extended / "run", "--step", 2, "--out", tmp_path / "a.zip")
    assert message.exit_code == 0, message.output
    assert "kB" in message.output or "MB" in message.output
    base = (extended / "run" / "step_00" / "weights.safetensors").stat().st_size
    assert (tmp_path / "a.zip").stat().st_size < base / 10


def test_equal_steps_give_equal_packs(extended, packed, tmp_path):
    assert pack(extended / "run", None, tmp_path / "again.zip").path.read_bytes() == packed.read_bytes()


def test_a_pack_names_no_folder_of_the_machine_it_comes_from(extended, packed):
    with zipfile.ZipFile(packed) as archive:
        assert str(extended) not in archive.read("manifest.json").decode()


def test_the_memory_stays_at_home_on_request(extended, tmp_path):
    path = pack(extended / "run", 2, tmp_path / "bare.zip", memory=False).path
    with zipfile.ZipFile(path) as archive:
        assert sorted(archive.namelist()) == ["manifest.json", "step.json", "weights.safetensors"]
    apply_pack(path, extended / "base", tmp_path / "upgraded")
    assert ipseg.load(tmp_path / "upgraded").classes[-1] == "sheep"
    words = extension(tmp_path / "upgraded", extended / "new", "goat", tmp_path / "more")
    assert "--no-memory" in call(*words).stderr


def test_an_old_step_can_be_packed_too(extended, tmp_path):
    path = pack(extended / "base", 1, tmp_path / "green.zip").path
    shutil.copytree(extended / "base", tmp_path / "first")
    shutil.rmtree(tmp_path / "first" / "step_01")
    apply_pack(path, tmp_path / "first", tmp_path / "both")
    assert ipseg.load(tmp_path / "both").classes == ("background", "red", "green")


@pytest.mark.parametrize(("step", "message"), [("0", "base itself"), ("7", "no step 7")])
def test_a_step_that_upgrades_nothing_is_not_packed(extended, tmp_path, step, message):
    result = call("pack", extended / "run", "--step", step, "--out", tmp_path / "a.zip")
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_pack_overwrites_nothing(extended, packed, tmp_path):
    for out in (packed, extended / "run" / "pack.zip", tmp_path / "no" / "where.zip"):
        assert call("pack", extended / "run", "--out", out).exit_code == 2


# ---- another base -----------------------------------------------------------------------------------------------


def test_a_pack_for_another_base_is_refused(extended, packed, tmp_path):
    shutil.copytree(extended / "base", tmp_path / "other")
    path = tmp_path / "other" / "step_01" / "weights.safetensors"
    tensors, facts = load_tensors(path, "w")
    name = next(iter(tensors))
    save_tensors(path, tensors | {name: tensors[name] + 1}, facts)
    result = call("apply", packed, tmp_path / "other", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "made for another base: its weights" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_base_of_other_classes_or_another_network_is_told_apart(extended, tiny_run, repack, packed, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "scenes")
    shutil.rmtree(tmp_path / "scenes" / "step_02")
    with pytest.raises(UserError, match="its classes"):
        apply_pack(packed, tmp_path / "scenes", tmp_path / "out")
    wider = repack(lambda _, manifest: manifest["base"]["network"].update(rates=[3]))
    refused(wider, extended, tmp_path, "its network")


def test_a_run_that_has_the_step_already_is_not_upgraded(extended, packed, tmp_path):
    with pytest.raises(UserError, match="has finished 3"):
        apply_pack(packed, extended / "run", tmp_path / "out")


def test_equal_tensors_have_equal_digests_and_others_do_not():
    import torch

    one = {"a": torch.zeros(2), "b": torch.ones(1)}
    assert digest(one) == digest(dict(reversed(one.items())))
    others = [{"a": torch.zeros(2)}, one | {"b": torch.zeros(1)}, one | {"a": torch.zeros(1, 2)}]
    assert len({digest(tensors) for tensors in [one, *others]}) == 4


# ---- runs that cannot be packed -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["weights.safetensors", "step.json"])
@pytest.mark.parametrize("cut", [slice(0), slice(-9)], ids=["empty", "cut"])
def test_a_step_whose_files_are_damaged_is_not_packed(extended, tmp_path, name, cut):
    run = shutil.copytree(extended / "run", tmp_path / "run")
    damaged = run / "step_02" / name
    damaged.write_bytes(damaged.read_bytes()[cut])
    assert str(damaged) in fails("pack", run, "--out", tmp_path / "out.zip")
    assert list(tmp_path.iterdir()) == [run]


def test_a_run_whose_memory_is_damaged_is_not_packed(extended, tmp_path):
    shutil.copytree(extended / "run", tmp_path / "run")
    (tmp_path / "run" / "step_02" / "memory" / "manifest.json").write_text('{"version": 1}')
    with pytest.raises(UserError, match="memory's manifest is damaged"):
        pack(tmp_path / "run", 2, tmp_path / "out.zip")


@pytest.mark.parametrize("left", [None, b"no image"], ids=["missing", "damaged"])
def test_a_run_whose_memory_cannot_be_replayed_is_packed_without_the_memory_only(extended, tmp_path, left):
    shutil.copytree(extended / "run", tmp_path / "run")
    lost = next(iter((tmp_path / "run" / "step_02" / "memory" / "saliency").rglob("*.png")))
    lost.unlink()
    if left is not None:
        lost.write_bytes(left)
    words = ["pack", tmp_path / "run", "--out", tmp_path / "out.zip"]
    error = fails(*words)
    assert lost.stem in error
    assert "--no-memory" in error
    assert not (tmp_path / "out.zip").exists()
    assert call(*words, "--no-memory").exit_code == 0


# ---- what a kill leaves ---------------------------------------------------------------------------------------------


def test_a_pack_removes_what_a_killed_one_left_and_nothing_else(extended, packed, tmp_path):
    foreign = tmp_path / ".ipseg-mine.tmp"
    other = tmp_path / ".ipseg-0123456789abcdef.tmp"
    dead, alive = tmp_path / ".ipseg-00000000000000aa.tmp", tmp_path / ".ipseg-00000000000000bb.tmp"
    foreign.write_bytes(packed.read_bytes())
    other.write_text("of another command, which may still be writing")
    for path in (dead, alive):
        path.write_bytes(packed.read_bytes()[:1000])
    (tmp_path / ".ipseg-00000000000000cc.tmp").touch()  # killed before its first byte
    with alive.open("rb") as file:
        assert lock(file)
        pack(extended / "run", 2, tmp_path / "a.zip")
        assert {path.name for path in tmp_path.iterdir()} == {"a.zip", foreign.name, other.name, alive.name}
    pack(extended / "run", 2, tmp_path / "b.zip")
    assert not alive.exists()


def test_a_pack_is_locked_while_it_is_written(extended, tmp_path, monkeypatch):
    copied, free = zipfile.ZipFile.writestr, []

    def look(archive, *arguments):
        copied(archive, *arguments)
        (temporary,) = tmp_path.glob(TEMPORARIES)
        with temporary.open("rb") as file:
            free.append(lock(file))

    monkeypatch.setattr(zipfile.ZipFile, "writestr", look)
    pack(extended / "run", 2, tmp_path / "a.zip")
    assert free == [False]
