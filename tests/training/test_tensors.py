"""Weights in files: the same bits back, and damage is found."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import save_file

from ipseg.errors import UserError, format_path_error
from ipseg.files import TEMPORARIES, write_text
from ipseg.training import tensors
from ipseg.training.experiment import run
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import make_recipe
from ipseg.training.tensors import load_tensors, save_tensors
from rights import where_rights_count

TENSORS = {
    "weight": torch.arange(12.0).view(3, 4).t(),  # not contiguous
    "count": torch.tensor(7),
    "half": torch.full((2,), 0.5, dtype=torch.bfloat16),
    "empty": torch.zeros(0, 3),
}
FACTS = {"iteration": 12, "note": "ä"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "a.safetensors"
    save_tensors(path, TENSORS, FACTS)
    return path.read_bytes()


def same(found: dict[str, torch.Tensor]) -> bool:
    return found.keys() == TENSORS.keys() and all(
        torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in TENSORS.items()
    )


def test_tensors_and_facts_come_back_as_they_were(tmp_path, whole):
    path = tmp_path / "a.safetensors"
    path.write_bytes(whole)
    found, facts = load_tensors(path, "the weights")
    assert same(found)
    assert facts == FACTS


@given(share=st.floats(0, 0.999))
def test_a_file_that_was_cut_off_is_refused_by_name(tmp_path_factory, whole, share):
    path = tmp_path_factory.mktemp("cut") / "a.safetensors"
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(UserError, match="the weights is damaged") as caught:
        load_tensors(path, "the weights")
    assert str(path) in str(caught.value)


def test_one_flipped_bit_is_refused_or_changes_nothing(tmp_path, whole):
    path = tmp_path / "a.safetensors"
    refused = 0
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        try:
            found, facts = load_tensors(path, "the weights")
        except UserError:
            refused += 1
            continue
        assert same(found), at
        assert facts == FACTS, at
    assert refused > 0.9 * len(whole)


@pytest.mark.parametrize("header", [None, {"facts": "5", "checksum": "0"}, {"facts": "{", "checksum": "0"}])
def test_a_file_of_another_program_is_refused(tmp_path, header):
    path = tmp_path / "a.safetensors"
    save_file({"weight": torch.zeros(2)}, path, metadata=header)
    with pytest.raises(UserError, match="damaged"):
        load_tensors(path, "the weights")


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(UserError, match="the weights is missing"):
        load_tensors(tmp_path / "a.safetensors", "the weights")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_the_old_weights_stay(tmp_path, whole, monkeypatch, number):
    path = tmp_path / "a.safetensors"
    path.write_bytes(whole)

    def full(*_args: object, **_options: object) -> None:
        raise SafetensorError(f"I/O error: {os.strerror(number)} (os error {number})")

    monkeypatch.setattr(tensors, "save_file", full)
    with pytest.raises(UserError, match=r"the disk is full: .*a\.safetensors"):
        save_tensors(path, {"weight": torch.zeros(3)}, {})
    assert path.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [path]


# ---- files among others ---------------------------------------------------------------------------------------------


@pytest.fixture(params=[0o022, 0o027, 0o077], ids=oct)
def umask(request) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_who_may_read_other_new_files_may_read_weights(tmp_path):
    save_tensors(tmp_path / "a.safetensors", TENSORS, FACTS)
    write_text(tmp_path / "a.txt", "a")
    weights, text = (path.stat().st_mode for path in (tmp_path / "a.safetensors", tmp_path / "a.txt"))
    assert oct(weights) == oct(text)


def test_whatever_a_kill_leaves_of_weights_is_called_a_temporary(tmp_path, monkeypatch):
    beside: list[Path] = []

    def slow(plain: dict[str, torch.Tensor], file: Path, metadata: dict[str, str]) -> None:
        save_file(plain, file, metadata=metadata)
        file.with_name(".tmpAbC123").touch()  # where it writes before its file has a name
        beside.extend(tmp_path.iterdir())

    monkeypatch.setattr(tensors, "save_file", slow)
    save_tensors(tmp_path / "a.safetensors", TENSORS, FACTS)
    assert beside
    assert all(path.match(TEMPORARIES) for path in beside)
    assert list(tmp_path.iterdir()) == [tmp_path / "a.safetensors"]


def test_weights_that_one_may_not_read_are_not_called_damaged(tmp_path, whole):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(whole)
    path.chmod(0)
    with where_rights_count(tmp_path), pytest.raises(PermissionError) as caught:
        load_tensors(Path(path.name), "the weights")
    assert str(format_path_error(caught.value)).startswith(
        f"{path.name} cannot be used (Permission denied). Get the right"
    )


# ---- what to do about damage ----------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_may_be_deleted_and_weights_of_a_step_not_alone(tmp_path):
    for name in ("checkpoint.safetensors", "weights.safetensors"):
        (tmp_path / name).write_bytes(b"half a fil")
    with pytest.raises(UserError, match="Move it out of the run's folder: --resume then begins this step anew"):
        load_tensors(tmp_path / "checkpoint.safetensors", "the checkpoint")
    with pytest.raises(UserError, match="move the folder of this step and those of all later ones elsewhere"):
        load_tensors(tmp_path / "weights.safetensors", "the weights file of step 1")


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_doing_what_is_advised_about_damaged_weights_gives_the_same_run(tiny_run, tiny_settings, tmp_path, damage):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    file = mine / "step_01" / "weights.safetensors"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-9])
    else:
        file.unlink()
    recipe = make_recipe(tiny_settings)
    with pytest.raises(UserError, match="move the folder of this step and those of all later ones elsewhere"):
        RunFolder.open(mine).weights(2)
    for index in (1, 2):
        shutil.rmtree(mine / f"step_0{index}")
    assert RunFolder.open(mine).finished() == 1
    run(recipe, mine, resume=True, quiet=True)
    ours, theirs = (RunFolder.open(path).weights(2) for path in (mine, tiny_run))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
