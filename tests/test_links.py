"""What is written goes where it seems to go: a link in a stranger's folder leads nothing elsewhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml
from PIL import Image

from commands import call, fails
from ipseg import files
from ipseg.errors import UserError
from ipseg.files import appending, copy_folder, require_no_links, whole_or_nothing

LINKS = {
    "log.jsonl": "victim.txt",
    "results.json": "victim.txt",
    "step_02": "elsewhere",
    "step_01/checkpoint.safetensors": "victim.txt",
    "step_01/memory": "elsewhere",
    "tensorboard": "elsewhere",
    "extend.json": "missing.txt",
}


@pytest.fixture
def outside(tmp_path):
    """A file and a folder that nobody named."""
    folder = tmp_path / "outside"
    (folder / "elsewhere").mkdir(parents=True)
    (folder / "victim.txt").write_text("mine")
    yield folder
    assert sorted(path.name for path in folder.rglob("*")) == ["elsewhere", "victim.txt"]
    assert (folder / "victim.txt").read_text() == "mine"


@pytest.fixture
def stopped_run(tiny_run, tmp_path):
    """A run that has finished its first step."""
    shutil.copytree(tiny_run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "step_01")
    shutil.rmtree(tmp_path / "run" / "step_02")
    return tmp_path / "run"


@pytest.mark.parametrize(("name", "target"), LINKS.items())
def test_a_run_is_not_gone_on_with_through_a_link(stopped_run, outside, name, target):
    (stopped_run / name).parent.mkdir(exist_ok=True)
    (stopped_run / name).unlink(missing_ok=True)
    (stopped_run / name).symlink_to(outside / target)
    error = fails("train", stopped_run, "--resume")
    assert f"{name} is a link" in error
    assert not (stopped_run / "step_01" / "step.json").exists()


def test_what_a_run_adds_to_has_no_second_name_elsewhere(stopped_run, outside):
    (stopped_run / "log.jsonl").unlink()
    (stopped_run / "log.jsonl").hardlink_to(outside / "victim.txt")
    assert "log.jsonl is a hard link" in fails("train", stopped_run, "--resume")
    assert not (stopped_run / "step_01").exists()


def test_what_a_run_writes_anew_takes_the_place_of_a_hard_link(stopped_run, outside):
    results = stopped_run / "results.json"
    results.unlink()
    results.hardlink_to(outside / "victim.txt")
    assert call("train", stopped_run, "--resume").exit_code == 0
    assert results.stat().st_nlink == 1


def test_a_run_does_not_wait_for_a_pipe_in_place_of_its_log(stopped_run):
    (stopped_run / "log.jsonl").unlink()
    os.mkfifo(stopped_run / "log.jsonl")
    assert "no plain file" in fails("train", stopped_run, "--resume")


@pytest.mark.parametrize("become", [Path.symlink_to, Path.hardlink_to])
def test_a_link_made_after_the_first_check_is_not_followed(tmp_path, outside, monkeypatch, become):
    """Another process may put a link there between check and writing."""
    path, check = tmp_path / "log.jsonl", files.require_single

    def replaced(path, status=None):
        if status is None:
            become(path, outside / "victim.txt")
        else:
            check(path, status)

    monkeypatch.setattr(files, "require_single", replaced)
    with pytest.raises((UserError, OSError)):
        appending(path)
    (tmp_path / "from").mkdir()
    monkeypatch.setattr(files, "require_no_link", lambda _: None)
    (tmp_path / "from" / "link").symlink_to(outside / "victim.txt")
    copy_folder(tmp_path / "from", tmp_path / "to")
    assert (tmp_path / "to" / "link").is_symlink()  # not what it leads to


def test_a_run_may_lie_behind_a_link_that_the_user_names(tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "far" / "run")
    (tmp_path / "near").symlink_to(tmp_path / "far")
    assert call("train", tmp_path / "near" / "run", "--resume").exit_code == 0
    (tmp_path / "run").symlink_to(tmp_path / "far" / "run")
    assert call("train", tmp_path / "run", "--resume").exit_code == 0


@pytest.mark.parametrize("name", ["runs", "recipes", "logs", "slurm", "runs/tiny_2-1_s0"])
def test_a_sweep_writes_through_no_link(tiny_settings, tmp_path, outside, name):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_settings))
    (tmp_path / "grid.yaml").write_text("base: tiny.yaml\n")
    out = tmp_path / "swept"
    (out / name).parent.mkdir(parents=True)
    (out / "sweep.json").write_text('{"version": 1, "runs": []}')
    (out / name).symlink_to(outside / "elsewhere")
    assert "is a link" in fails("sweep", tmp_path / "grid.yaml", "--out", out)


def test_predictions_reports_and_figures_take_the_place_of_links(tiny_run, tmp_path, outside):
    Image.new("RGB", (64, 64)).save(tmp_path / "photo.png")
    (tmp_path / "out").mkdir()
    places = {
        "out/classes.txt": ("predict", tiny_run, tmp_path / "photo.png", "--out", tmp_path / "out"),
        "out/photo_overlay.png": ("predict", tiny_run, tmp_path / "photo.png", "--out", tmp_path / "out"),
        "page.html": ("report", tiny_run, "--out", tmp_path / "page.html"),
        "why.png": ("explain", tiny_run, tmp_path / "photo.png", "--out", tmp_path / "why.png"),
        "it.json": ("evaluate", tiny_run, "--out", tmp_path / "it.json"),
    }
    for place, words in places.items():
        (tmp_path / place).unlink(missing_ok=True)
        (tmp_path / place).symlink_to(outside / "missing.txt")
        result = call(*words)
        assert result.exit_code == 0, result.output
        assert not (tmp_path / place).is_symlink()


def test_maps_are_not_written_out_of_the_data(make_folder_data, outside):
    data = make_folder_data(saliency=False)
    (data / "saliency").symlink_to(outside / "elsewhere")
    assert "leads to" in fails("saliency", data, "--fallback")


def test_nothing_is_added_or_copied_through_a_link(tmp_path, outside):
    (tmp_path / "folder").mkdir()
    link = tmp_path / "folder" / "link"
    link.symlink_to(outside / "victim.txt")
    with pytest.raises(UserError, match="is a link"):
        appending(link)
    with pytest.raises(UserError, match="is a link"):
        copy_folder(tmp_path / "folder", tmp_path / "copy")
    (tmp_path / ".out.partial").symlink_to(outside / "elsewhere")
    with pytest.raises(UserError, match="is a link"), whole_or_nothing(tmp_path / "out"):
        pass


def test_links_are_found_at_any_depth_and_not_followed(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    require_no_links(tmp_path)
    (tmp_path / "a" / "b" / "loop").symlink_to(tmp_path)
    with pytest.raises(UserError, match="loop is a link"):
        require_no_links(tmp_path)
