"""Where a sweep writes: into its own folder, and nowhere else."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml

from commands import fails
from ipseg.apps.sweep import Sweep
from ipseg.errors import UserError


@pytest.fixture
def grid(tmp_path, tiny_settings):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_settings))
    (tmp_path / "grid.yaml").write_text("base: tiny.yaml\nruns: {ipseg: {}}\n")
    return tmp_path / "grid.yaml"


@pytest.mark.parametrize("name", ["comparison.md", "sweep.json"])
def test_a_folder_with_somebody_elses_files_is_refused(grid, tmp_path, name):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text('{"my": "own"}')
    with pytest.raises(UserError, match="mine holds other files and no sweep"):
        Sweep(grid, tmp_path / "mine")
    assert (tmp_path / "mine" / name).read_text() == '{"my": "own"}'


def test_a_runs_own_folder_is_refused(grid, tiny_run):
    with pytest.raises(UserError, match="holds other files and no sweep"):
        Sweep(grid, tiny_run)


def test_its_own_folder_and_an_empty_one_are_taken(grid, tmp_path):
    (tmp_path / "empty").mkdir()
    assert Sweep(grid, tmp_path / "empty").plan
    (tmp_path / "empty" / "sweep.json").write_text(json.dumps({"version": 1, "runs": []}))
    assert Sweep(grid, tmp_path / "empty").plan


def test_the_folder_of_another_grid_is_refused_unless_nothing_of_it_is_lost(grid, tmp_path):
    other = grid.with_name("other.yaml")
    other.write_text("base: tiny.yaml\nruns: {finetune: {method: {name: finetune}}}\n")
    (tmp_path / "out").mkdir()
    error = json.dumps({"version": 1, "grid": str(other), "runs": [{"name": "finetune_2-1_s0"}]})
    (tmp_path / "out" / "sweep.json").write_text(error)
    with pytest.raises(UserError, match=r"sweep of another grid, .*other.yaml, .*finetune_2-1_s0, for example"):
        Sweep(grid, tmp_path / "out")
    assert (tmp_path / "out" / "sweep.json").read_text() == error
    assert Sweep(other, tmp_path / "out").plan
    shutil.copy(other, grid)  # the same runs in a file elsewhere
    assert Sweep(grid, tmp_path / "out").plan


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--jobs 0", "--jobs is 0"),
        ("--jobs-per-gpu 0", "--jobs-per-gpu is 0"),
        ("--processes-per-run 0", "--processes-per-run is 0"),
        ("--jobs-per-gpu 2 --processes-per-run 2", "several runs share a GPU, or one has several"),
        ("--engine slurm --processes-per-run 2", "with SLURM use --slurm tasks_per_node=N"),
        ("--detach", "--detach submits all jobs at once"),
        ("--detach --engine slurm --jobs 2", "no --jobs"),
        ("--slurm foo=[", "--slurm foo=[: not YAML"),
        ("--slurm gpu", "--slurm takes KEY=VALUE"),
        ("--engine slurm", "there is no squeue here"),
    ],
)
def test_options_that_cannot_be_met_are_refused_and_leave_nothing(grid, tmp_path, monkeypatch, options, message):
    monkeypatch.setenv("PATH", "")  # no SLURM
    assert message in fails("sweep", grid, "--out", tmp_path / "out", *options.split())
    assert not (tmp_path / "out").exists()
