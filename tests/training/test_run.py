"""A run from beginning to end: what it measures, what it writes, and that it is the same every time."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ipseg.apps.memory_report import memory_report
from ipseg.errors import UserError
from ipseg.evaluation.results import RunResult
from ipseg.methods.ipseg import IPSeg
from ipseg.training import experiment
from ipseg.training.experiment import run
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import make_recipe
from ipseg.training.system import choose_device
from ipseg.training.tensors import load_tensors


def learned(settings, path: Path, **options) -> RunResult:
    return run(make_recipe(settings), path, quiet=True, **options)


def weights(path: Path) -> dict[str, torch.Tensor]:
    steps = sorted(path.glob("step_*/weights.safetensors"))
    return {
        f"{file.parent.name}/{name}": tensor
        for file in steps
        for name, tensor in load_tensors(file, "weights")[0].items()
    }


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- what it writes -------------------------------------------------------------------------------------------------


def test_results_have_the_shape_that_others_read(tiny_run):
    results = json.loads((tiny_run / "results.json").read_text())
    assert results["version"] == 2
    assert results["complete"] is True
    assert (results["method"], results["scenario"], results["setting"]) == ("ipseg", "scenes/2-1", "overlap")
    assert results["oracle"] == []
    final = results["final"]
    assert {"all", "base", "new", "harmonic"} <= set(final["miou"])
    assert 0 <= final["average"] <= 1
    assert set(final["forgetting"]) == {"background", "cow", "bus", "horse"}
    assert len(results["steps"]) == 3
    for index, step in enumerate(results["steps"]):
        assert set(step["iou"]) == {"background", "cow", "bus", "horse", "car"} - set(["horse", "car"][index:])
        assert (step["miou"]["new"] is None) == (index == 0)
        assert all(value is None or 0 <= value <= 1 for value in (*step["iou"].values(), *step["miou"].values()))
        for group in ("base", "all"):
            assert set(step["image_accuracy"][group]) == {"posterior", "pixel", "both"}
            assert all(0 <= value <= 1 for value in step["image_accuracy"][group].values())
    known = [value for value in results["steps"][-1]["iou"].values() if value is not None]
    assert final["miou"]["all"] == pytest.approx(sum(known) / len(known))


def test_a_run_leaves_what_it_says_in_its_folder(tiny_run):
    found = {path.split("/saliency/")[0] for path in files(tiny_run)}
    steps = {
        f"step_{i:02d}/{name}"
        for i in range(3)
        for name in ("weights.safetensors", "step.json", "memory/manifest.json", "memory")
    }
    assert found == {"recipe.yaml", "run.json", "log.jsonl", "results.json"} | steps
    about = json.loads((tiny_run / "run.json").read_text())
    assert {"python", "versions", "git", "started"} <= set(about)
    lines = [json.loads(line) for line in (tiny_run / "log.jsonl").read_text().splitlines()]
    assert {line["step"] for line in lines if line["event"] == "train"} == {0, 1, 2}
    (parts,) = {tuple(line["seconds"]) for line in lines if line["event"] == "step"}
    assert parts == ("load", "train", "save", "memory", "evaluate")
    assert all(
        set(line["loss"]) == {"temporary", "permanent", "posterior"} for line in lines if line["event"] == "train"
    )


def test_a_run_writes_only_into_its_own_folder(tiny_settings, tmp_path, monkeypatch, make_folder_data):
    data = make_folder_data()
    before = files(tmp_path)
    monkeypatch.chdir(tmp_path)
    tiny_settings["data"] = {"name": "folder", "path": str(data)}
    learned(tiny_settings, tmp_path / "runs" / "mine")
    after = files(tmp_path)
    assert {name: after[name] for name in before} == before
    assert all(name.startswith("runs/mine/") for name in after.keys() - before.keys())


def test_a_steps_file_holds_only_what_the_step_made_or_changed(tiny_run):
    base, later = (set(load_tensors(tiny_run / f"step_0{i}" / "weights.safetensors", "w")[0]) for i in (0, 1))
    assert any(name.startswith("encoder.backbone") for name in base)
    assert {name.split(".")[0] for name in later} == {"permanent", "temporary", "posterior"}
    assert not any(name.startswith("temporary.0") for name in later)
    assert any(name.startswith("temporary.1") for name in later)


# ---- the same every time --------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(tiny_settings, tiny_run, tmp_path):
    learned(tiny_settings, tmp_path / "again")
    assert same(weights(tmp_path / "again"), weights(tiny_run))
    assert (tmp_path / "again" / "results.json").read_bytes() == (tiny_run / "results.json").read_bytes()
    learned(tiny_settings | {"seed": 1}, tmp_path / "other")
    assert not same(weights(tmp_path / "other"), weights(tiny_run))


def test_a_base_step_can_be_shared(tiny_settings, tiny_run, tmp_path):
    learned(tiny_settings | {"init": f"{tiny_run}@0"}, tmp_path / "later")
    assert same(weights(tmp_path / "later"), weights(tiny_run))
    theirs, ours = (json.loads((path / "results.json").read_text()) for path in (tiny_run, tmp_path / "later"))
    assert ours["final"] == theirs["final"]


def test_a_run_that_had_begun_a_step_itself_can_go_on_with_that_of_another(tiny_settings, tiny_run, tmp_path):
    begun = tmp_path / "begun"
    shutil.copytree(tiny_run, begun)
    for file in [*begun.glob("step_*/weights.safetensors"), *begun.glob("step_*/step.json"), begun / "results.json"]:
        file.unlink()
    run(make_recipe(tiny_settings | {"init": f"{tiny_run}@0"}), begun, resume=True, quiet=True)
    assert same(weights(begun), weights(tiny_run))


@pytest.mark.parametrize(
    ("init", "message"),
    [("{run}", "must be RUN@STEP"), ("{run}@x", "must be RUN@STEP"), ("{run}@²", "must be RUN@STEP"),
     ("nowhere@0", "is not a run's folder"), ("{run}@7", "step 7 is not among them")],
)  # fmt: skip
def test_a_beginning_that_is_not_there_is_explained(tiny_settings, tiny_run, tmp_path, init, message):
    with pytest.raises(UserError, match=message):
        learned(tiny_settings | {"init": init.format(run=tiny_run)}, tmp_path / "later")


def test_a_beginning_of_another_network_is_refused(tiny_settings, tiny_run, tmp_path):
    tiny_settings["model"]["width"] = 8
    with pytest.raises(UserError, match="has other network in its steps 0 to 0"):
        learned(tiny_settings | {"init": f"{tiny_run}@0"}, tmp_path / "later")


# ---- going on, and what is refused ----------------------------------------------------------------------------------


def test_a_finished_run_goes_on_with_nothing_to_do(tiny_settings, tiny_run, tmp_path):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    before = files(mine)
    result = learned(tiny_settings | {"name": "another name"}, mine, resume=True)
    assert len(result.steps) == 3
    assert {k: v for k, v in files(mine).items() if k.startswith("step")} == {
        k: v for k, v in before.items() if k.startswith("step")
    }


def test_a_run_that_lost_its_last_step_learns_it_again_to_the_same_bits(tiny_settings, tiny_run, tmp_path):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    shutil.rmtree(mine / "step_02")
    learned(tiny_settings, mine, resume=True)
    assert same(weights(mine), weights(tiny_run))
    assert (mine / "results.json").read_bytes() == (tiny_run / "results.json").read_bytes()


def test_a_run_stopped_between_learning_and_measuring_does_not_learn_again(tiny_settings, tiny_run, tmp_path):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    (mine / "step_02" / "step.json").unlink()
    shutil.rmtree(mine / "step_02" / "memory")
    log = (mine / "log.jsonl").read_text()
    learned(tiny_settings, mine, resume=True)
    added = (mine / "log.jsonl").read_text().removeprefix(log)
    assert json.loads(added)["seconds"].keys() == {"memory", "evaluate"}
    assert (mine / "results.json").read_bytes() == (tiny_run / "results.json").read_bytes()


def test_an_existing_run_is_not_overwritten(tiny_settings, tiny_run):
    before = files(tiny_run)
    with pytest.raises(UserError, match=r"holds a run already\. Resume it with --resume"):
        learned(tiny_settings, tiny_run)
    assert files(tiny_run) == before


def test_a_folder_of_something_else_is_not_overwritten(tiny_settings, tmp_path):
    (tmp_path / "letters.txt").write_text("dear")
    for resume in (False, True):
        with pytest.raises(UserError, match="is not a run's folder"):
            learned(tiny_settings, tmp_path, resume=resume)
    assert files(tmp_path) == {"letters.txt": b"dear"}


def test_a_run_of_another_recipe_does_not_go_on_and_the_change_is_named(tiny_settings, tiny_run):
    before = files(tiny_run)
    tiny_settings["training"]["lr"] = 0.5
    with pytest.raises(UserError, match=r"another recipe \(training\.lr was 0\.01, is 0\.5\)"):
        learned(tiny_settings, tiny_run, resume=True)
    assert files(tiny_run) == before


def test_a_run_that_began_before_a_setting_existed_goes_on_with_its_default(tiny_settings, tiny_run, tmp_path):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    shutil.rmtree(mine / "step_02")
    recipe = (mine / "recipe.yaml").read_text().splitlines(keepends=True)
    (mine / "recipe.yaml").write_text("".join(line for line in recipe if not line.startswith("  head:")))
    learned(tiny_settings, mine, resume=True)
    assert same(weights(mine), weights(tiny_run))
    other = tiny_settings | {"method": {"name": "ipseg", "head": "small"}}
    with pytest.raises(UserError, match=r"another recipe \(method\.head was large, is small\)"):
        learned(other, mine, resume=True)


def test_a_run_of_a_newer_format_is_refused(tiny_settings, tiny_run, tmp_path):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    about = json.loads((mine / "run.json").read_text()) | {"version": 2}
    (mine / "run.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match=r"is of format 2, this ipseg reads up to 1: .*mine"):
        learned(tiny_settings, mine, resume=True)
    with pytest.raises(UserError, match="is of format 2"):
        RunFolder.open(mine)


def test_damaged_weights_are_refused_by_name(tiny_settings, tiny_run, tmp_path):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    shutil.rmtree(mine / "step_02")
    path = mine / "step_01" / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UserError, match=r"the weights file of step 1 is damaged: .*step_01/weights\.safetensors"):
        learned(tiny_settings, mine, resume=True)


def test_a_damaged_checkpoint_is_refused_by_name(tiny_settings, tiny_run, tmp_path):
    mine = shutil.copytree(tiny_run, tmp_path / "mine")
    shutil.rmtree(mine / "step_02")
    (mine / "step_02").mkdir()
    (mine / "step_02" / "checkpoint.safetensors").write_bytes(b"half a checkpo")
    with pytest.raises(UserError, match=r"the checkpoint is damaged: .*step_02/checkpoint\.safetensors"):
        learned(tiny_settings, mine, resume=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_gpu_that_is_not_there_is_refused_before_anything_is_written(tiny_settings, tmp_path, device):
    with pytest.raises(UserError, match=r"torch sees no GPU here\. Choose the device cpu or auto; see `ipseg doctor`"):
        learned(tiny_settings | {"device": device}, tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("name", ["gpu", "xpu", "meta"])
def test_a_device_that_nobody_has_or_that_runs_do_not_know_is_refused(name):
    with pytest.raises(UserError, match=f'no device "{name}"; valid: auto, cpu, cuda'):
        choose_device(name)


# ---- what stops a run -----------------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_stops_the_run_and_the_last_state_stays(tiny_settings, tiny_run, tmp_path):
    mine = tmp_path / "mine"
    tiny_settings["training"] |= {"lr": 1e30, "checkpoint_seconds": 0}
    with pytest.raises(UserError, match=r"step 0.*the loss is not finite.*last checkpoint is kept.*training\.lr"):
        learned(tiny_settings, mine)
    tensors, facts = load_tensors(mine / "step_00" / "checkpoint.safetensors", "the checkpoint")
    assert facts["iteration"] >= 1
    assert not (mine / "step_00" / "weights.safetensors").exists()
    assert (mine / "recipe.yaml").exists()
    assert tensors


def test_a_pass_in_which_nothing_is_labeled_stops_the_run(tiny_settings, tmp_path, make_folder_data):
    data = make_folder_data(count=10)
    for path in (data / "masks").glob("*.png"):
        mask = np.full((48, 64), 255, dtype=np.uint8)
        mask[0, :3] = 1, 2, 3  # an image that no crop of 16 pixels is likely to show this corner of
        Image.fromarray(mask).save(path)
    tiny_settings["data"] = {"name": "folder", "path": str(data)}
    tiny_settings["training"] |= {"crop": [16, 16], "scale": [2, 2], "epochs": 4, "batch_size": 1}
    with pytest.raises(UserError, match="a whole epoch, have no labeled pixel"):
        learned(tiny_settings, tmp_path / "mine")


def test_an_empty_step_is_said_before_it_is_learned(tiny_settings, tmp_path, make_folder_data):
    data = make_folder_data()
    (data / "classes.txt").write_text("red\ngreen\nblue\nunicorn\n")
    tiny_settings["data"] = {"name": "folder", "path": str(data)}
    tiny_settings["scenario"] = {"name": "3-1"}
    with pytest.raises(UserError, match=r"step 1 of folder/3-1 \(overlap\) has no image: .* unicorn"):
        learned(tiny_settings, tmp_path / "mine")


# ---- other ways to learn --------------------------------------------------------------------------------------------


def test_fine_tuning_runs_and_grows(tiny_settings, tmp_path):
    tiny_settings["method"] = {"name": "finetune"}
    result = learned(tiny_settings, tmp_path / "mine")
    assert [len(step.iou) for step in result.steps] == [3, 4, 5]
    assert result.steps[0].image_accuracy["all"]["posterior"] is None
    last = load_tensors(tmp_path / "mine" / "step_02" / "weights.safetensors", "w")[0]
    assert {name for name in last if name.startswith("classifiers") and name.endswith("weight")} == {
        f"classifiers.{i}.weight" for i in range(3)
    }


def test_joint_learning_is_one_step_of_everything(tiny_settings, tmp_path):
    tiny_settings["scenario"] = {"name": "joint"}
    result = learned(tiny_settings, tmp_path / "mine")
    assert len(result.steps) == 1
    assert len(result.steps[0].iou) == 5
    assert result.steps[0].miou["new"] is None


@pytest.mark.parametrize(
    "method",
    [
        {"image_posterior": False, "decoupling": False, "head": "small"},
        {"replay_share": 0, "image_labels": "part", "alpha_nf": 1},
        {"variant": "official"},
    ],
    ids=["everything off", "options", "official"],
)
def test_every_part_can_be_switched(tiny_settings, tmp_path, method):
    tiny_settings["method"] |= method
    assert learned(tiny_settings, tmp_path / "mine").complete


@pytest.mark.parametrize("method", [{"name": "finetune"}, {"name": "ipseg_lda", "replay_share": 0}], ids=str)
def test_a_method_that_reads_no_memory_stores_no_image(tiny_settings, tmp_path, method):
    tiny_settings |= {"method": method, "memory": {"size": 6, "store": "copy"}, "scenario": {"name": "2-2"}}
    recipe = make_recipe(tiny_settings)
    assert any("memory.store is copy and changes nothing" in note for note in recipe.unused_settings())
    assert run(recipe, tmp_path / "run", quiet=True).info["memory"] == 0
    assert not list((tmp_path / "run").rglob("*.png"))
    assert not memory_report(tmp_path / "run")["images"]


def test_without_memory_nothing_is_kept(tiny_settings, tmp_path):
    tiny_settings["memory"] = {"size": 0}
    assert learned(tiny_settings, tmp_path / "mine").complete
    assert not list((tmp_path / "mine").rglob("*.png"))


def test_an_oracle_is_stamped_into_its_results(tiny_settings, tmp_path):
    tiny_settings["method"]["image_labels"] = "full"
    result = learned(tiny_settings, tmp_path / "mine")
    assert result.oracle == ("method.image_labels=full",)
    assert json.loads((tmp_path / "mine" / "results.json").read_text())["oracle"] == ["method.image_labels=full"]
    folder = {"data": {"name": "folder", "path": "x", "saliency": "oracle"}}
    assert make_recipe(tiny_settings | folder).oracle() == ["method.image_labels=full", "data.saliency=oracle"]


@pytest.fixture
def _bf16() -> None:
    """Some virtual machines name instructions for bf16 that they then refuse: torch itself dies of it there."""
    code = "import torch; torch.bmm(*[torch.rand(4, 64, 64).bfloat16()] * 2)"
    if subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode:
        pytest.skip("torch cannot multiply in bf16 here")


@pytest.mark.usefixtures("_bf16")
def test_mixed_precision_runs_and_gives_other_bits(tiny_settings, tiny_run, tmp_path):
    tiny_settings["training"] |= {"precision": "bf16"}
    assert learned(tiny_settings, tmp_path / "mine").complete
    assert not same(weights(tmp_path / "mine"), weights(tiny_run))


def test_another_optimizer_schedule_and_view_of_the_images_can_be_chosen(tiny_settings, tmp_path):
    tiny_settings["training"] |= {"optimizer": "adamw", "lr": 0.001, "schedule": "warm_poly"}
    tiny_settings["evaluation"] = {"view": "center_crop", "crop": 48, "absent": "zero"}
    result = learned(tiny_settings, tmp_path / "mine")
    assert result.complete
    assert None not in result.steps[-1].iou.values()


@pytest.mark.parametrize(("flip", "low", "high"), [(True, 0.3, 0.7), (False, 0, 0)])
def test_every_batch_is_augmented_as_the_recipe_says(tiny_settings, tmp_path, monkeypatch, flip, low, high):
    loaders = []
    monkeypatch.setattr(experiment, "train_step", lambda _method, loader, *_, **__: loaders.append(loader))
    tiny_settings["training"] |= {"flip": flip, "scale": [0.7, 0.9], "crop": [48, 32]}
    run(make_recipe(tiny_settings), tmp_path / "run", quiet=True)
    assert len(loaders) == 3
    for loader in loaders:
        batches = [loader.sampler[iteration] for iteration in range(20)]
        for rows in ([row for batch in batches for row in part(batch)] for part in PARTS):
            flipped = [params.flip for _, params in rows]
            assert not flipped or low <= sum(flipped) / len(flipped) <= high
            assert all(0.7 <= params.scale <= 1 for _, params in rows)
        assert all(params.scale <= 0.9 for batch in batches for _, params in batch.inputs)
        assert loader[0].inputs.images.shape[-2:] == (48, 32)


PARTS = (
    lambda batch: batch.inputs[: batch.num_new],
    lambda batch: batch.inputs[batch.num_new :],
    lambda batch: batch.replay_images,
)
"""Of a batch: new images, replayed ones, and those that are replayed for the posterior."""


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_what_is_prepared_has_the_number_format_of_what_is_learned(tiny_settings, tmp_path, monkeypatch, precision):
    mixed = []
    monkeypatch.setattr(IPSeg, "prepare", lambda _self, _batches: mixed.append(torch.is_autocast_enabled("cpu")))
    monkeypatch.setattr(experiment, "train_step", lambda *_, **__: None)
    tiny_settings["training"] |= {"precision": precision}
    run(make_recipe(tiny_settings), tmp_path / "run", quiet=True)
    assert mixed == [precision == "bf16"] * 3


def test_a_run_that_is_to_end_after_some_steps_is_the_same_run_once_it_is_resumed(tiny_settings, tiny_run, tmp_path):
    recipe = make_recipe(tiny_settings)
    assert len(run(recipe, tmp_path / "run", steps=1, quiet=True).steps) == 1
    assert len(run(recipe, tmp_path / "run", steps=1, resume=True, quiet=True).steps) == 1
    assert not (tmp_path / "run" / "step_01").exists()
    run(recipe, tmp_path / "run", resume=True, quiet=True)
    ours, theirs = (json.loads((folder / "results.json").read_text()) for folder in (tmp_path / "run", tiny_run))
    assert ours["steps"] == theirs["steps"]
    with pytest.raises(UserError, match="--steps is 0; it must be at least 1"):
        run(recipe, tmp_path / "other", steps=0)
