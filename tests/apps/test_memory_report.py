"""What a run remembers is counted in bytes as they lie on the disk."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from commands import call
from ipseg.apps.memory_report import memory_lines, memory_report, privacy
from ipseg.data.memory import MemoryConfig, ReplayMemory, save_memory, update_memory
from ipseg.data.scenes.dataset import ScenesConfig
from ipseg.data.step_dataset import StepDataset
from ipseg.errors import UserError
from ipseg.scenario import ScenarioConfig


def test_the_report_counts_what_lies_there(extended):
    report = memory_report(extended / "run")
    place = extended / "run" / "step_02" / "memory"
    assert report["images"] == report["copies"] == 4
    assert report["store"] == "copy"
    assert report["uint8_bytes"] == 4 * 48 * 64
    assert report["packed_bytes"] == 4 * 48 * 64 / 8
    assert report["mask_bytes"] == sum(path.stat().st_size for path in (place / "saliency").rglob("*.png"))
    assert report["copy_bytes"] == sum(path.stat().st_size for path in (place / "images").rglob("*.png"))
    assert set(report["classes"]) == {"red", "green", "sheep"}


def test_names_alone_are_told_from_copies(tiny_run, extended):
    named, copied = (" ".join(memory_lines(memory_report(run))) for run in (tiny_run, extended / "run"))
    assert "stored by name" in named
    assert "the images themselves are not" in named
    assert "4 whole images are stored here" in copied


def test_the_command_prints_a_table_or_json(tiny_run):
    printed = call("memory", tiny_run)
    assert printed.exit_code == 0
    assert all(word in printed.output for word in ("cow", "at one bit a pixel", "privacy:"))
    assert json.loads(call("memory", tiny_run, "--step", 0, "--json").output)["step"] == 0


def test_a_memory_that_is_not_there_is_told(tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "run")
    (tmp_path / "run" / "step_02" / "memory" / "saliency").rename(tmp_path / "gone")
    with pytest.raises(UserError, match="saliency map is missing"):
        memory_report(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "step_02" / "memory")
    with pytest.raises(UserError, match="no memory after step 2"):
        memory_report(tmp_path / "run")


def test_a_manifest_that_leaves_its_folder_is_refused(tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "run")
    path = tmp_path / "run" / "step_02" / "memory" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["entries"][0]["name"] = "../../../secret"
    path.write_text(json.dumps(manifest))
    assert "leaves its folder" in call("memory", tmp_path / "run").stderr


def test_a_manifest_without_its_size_is_still_counted_and_a_map_beyond_all_sizes_refused(
    tiny_run, tmp_path, monkeypatch
):
    shutil.copytree(tiny_run, tmp_path / "run")
    path = tmp_path / "run" / "step_02" / "memory" / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["size"]
    path.write_text(json.dumps(manifest))
    assert memory_report(tmp_path / "run")["size"] is None
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(UserError, match="saliency map is missing or damaged"):
        memory_report(tmp_path / "run")


def test_a_map_that_is_no_png_is_damaged(tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "run")
    path = next((tmp_path / "run" / "step_02" / "memory" / "saliency").rglob("*.png"))
    Image.new("L", (64, 64)).save(path, format="EPS")
    with pytest.raises(UserError, match="saliency map is missing or damaged"):
        memory_report(tmp_path / "run")


def test_pixel_labels_are_said_among_what_is_kept():
    assert "image and pixel labels" in privacy({"images": 1, "copies": 0, "labels": 1})
    assert "pixel labels" not in privacy({"images": 1, "copies": 0, "labels": 0})


@pytest.mark.slow
def test_a_hundred_masks_of_the_size_of_photographs_take_an_eighth_of_their_bytes_at_most(tmp_path):
    """Drawn scenes, whose imperfect saliency maps are more ragged than a detector's; and noise, which packs worst."""
    splits = ScenesConfig(classes=4, size=(375, 500), train=100, val=1).build()
    scenario = ScenarioConfig(name="joint").build("scenes", splits.classes)
    view = StepDataset(splits.train, scenario, scenario.steps[0])
    config = MemoryConfig(size=len(view))
    kept = update_memory(ReplayMemory([], splits.train, ()), view, config, 0, lambda _: [])
    save_memory(kept, tmp_path / "memory", view, config)
    files = list((tmp_path / "memory" / "saliency").glob("*.png"))
    assert len(files) == 100
    assert sum(path.stat().st_size for path in files) <= 100 * 375 * 500 / 8
    Image.fromarray(np.random.default_rng(0).random((375, 500)) < 0.5).save(tmp_path / "noise.png")
    assert (tmp_path / "noise.png").stat().st_size <= 1.1 * 375 * 500 / 8  # no map looks like this
