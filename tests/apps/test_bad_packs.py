"""A pack whose files are as listed and say what cannot be: refused, and nothing is left of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from packs import Change, refused

from commands import fails
from ipseg.apps.pack import apply_pack
from ipseg.errors import UserError
from ipseg.training.tensors import load_tensors, save_tensors

pytestmark = pytest.mark.slow


def test_a_memory_that_names_a_file_elsewhere_is_refused(extended, repack, tmp_path):
    def escape(files: dict[str, bytes], _: dict[str, Any]) -> None:
        memory = json.loads(files["memory/manifest.json"])
        memory["entries"][0]["name"] = "../../../secret"
        files["memory/manifest.json"] = json.dumps(memory).encode()

    refused(repack(escape), extended, tmp_path, "leaves its folder")


def test_a_pack_imports_no_code_by_name(extended, repack, tmp_path):
    swap = repack(lambda _, manifest: manifest["settings"]["method"].update(name="antigravity:fly"))
    refused(swap, extended, tmp_path, "contradicts itself about its method")


def test_weights_of_another_step_are_refused(extended, repack, tmp_path):
    def swap(files: dict[str, bytes], _: dict[str, Any]) -> None:
        files["weights.safetensors"] = (extended / "base" / "step_01" / "weights.safetensors").read_bytes()

    refused(repack(swap), extended, tmp_path, "is of step 1, not 2")


def test_weights_that_do_not_fit_are_refused(extended, repack, tmp_path, tmp_path_factory):
    path = tmp_path_factory.mktemp("spoiled") / "weights.safetensors"

    def widen(files: dict[str, bytes], _: dict[str, Any]) -> None:
        path.write_bytes(files["weights.safetensors"])
        tensors, facts = load_tensors(path, "weights")
        name = next(name for name in tensors if name.endswith("classifier.weight"))
        save_tensors(path, tensors | {name: torch.cat([tensors[name]] * 2)}, facts)
        files["weights.safetensors"] = path.read_bytes()

    refused(repack(widen), extended, tmp_path, "do not fit")


def test_a_memory_without_its_maps_is_refused(extended, repack, tmp_path):
    def take_away(files, _):
        del files[next(name for name in files if name.startswith("memory/saliency/"))]

    refused(repack(take_away), extended, tmp_path, "saliency map of .* is not in its memory")


def change_memory(change: Callable[[dict[str, Any]], None]) -> Change:
    def spoil(files: dict[str, bytes], _: dict[str, Any]) -> None:
        memory = json.loads(files["memory/manifest.json"])
        change(memory)
        files["memory/manifest.json"] = json.dumps(memory).encode()

    return spoil


def test_a_memory_of_other_classes_is_refused(extended, repack, tmp_path):
    def forget(memory: dict[str, Any]) -> None:
        memory["order"] = ["red", "green"]
        for entry in memory["entries"]:
            classes = [name for name in entry["classes"] if name != "sheep"]
            hot = [int(name in classes) for name in memory["order"]]
            entry.update(classes=classes, multi_hot=hot, guessed=[])

    refused(
        repack(change_memory(forget)), extended, tmp_path, "memory is of the classes red, green, not red, green, sheep"
    )


def test_an_image_that_is_remembered_twice_is_refused(extended, repack, tmp_path):
    twice = repack(change_memory(lambda memory: memory["entries"].append(memory["entries"][0])))
    refused(twice, extended, tmp_path, "more than once")


@pytest.mark.parametrize("kind", ["saliency", "images"])
def test_a_memory_whose_images_are_none_is_refused(extended, repack, tmp_path, kind):
    def spoil(files, _):
        files[next(name for name in files if name.startswith(f"memory/{kind}/"))] = b"no image"

    refused(repack(spoil), extended, tmp_path, f"in its memory cannot be used: memory/{kind}/.* is not a readable")


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
def test_measurements_that_are_none_are_refused(extended, repack, tmp_path, change):
    def spoil(files, _):
        files["step.json"] = json.dumps(json.loads(files["step.json"]) | change).encode()

    refused(repack(spoil), extended, tmp_path, "cannot be applied")


@pytest.mark.parametrize("name", ["weights.safetensors", "step.json", "memory/manifest.json"])
def test_a_damaged_file_in_a_pack_is_told_of_the_pack_without_advice_for_runs(extended, repack, tmp_path, name):
    emptied = repack(lambda files, _: files.update({name: b""}))
    refused(emptied, extended, tmp_path, rf"is damaged: {emptied}/{name} [^\n]*\. Nothing was written\.$")
    with pytest.raises(UserError) as caught:
        apply_pack(emptied, extended / "base", tmp_path / "out")
    assert "--resume" not in str(caught.value)


def test_a_damaged_result_of_the_run_is_not_told_of_the_pack(extended, packed, tmp_path):
    base = shutil.copytree(extended / "base", tmp_path / "base")
    (base / "step_00" / "step.json").write_text("")
    error = fails("apply", packed, base, "--out", tmp_path / "out")
    assert str(base / "step_00" / "step.json") in error
    assert packed.name not in error
    assert list(tmp_path.iterdir()) == [base]
