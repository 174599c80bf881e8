from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import call, fails
from ipseg.apps.evaluate import evaluate_again
from ipseg.data.scenes.dataset import ScenesConfig
from ipseg.errors import UserError
from ipseg.evaluation.results import RunResult


def files(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.fixture
def scenes_folder(tmp_path):
    """The run's validation images as a folder, with the classes in another order and one class more."""

    def write(names: tuple[str, ...]) -> Path:
        root = tmp_path / "data"
        splits = ScenesConfig(size=(64, 64), classes=4, train=24, val=8).build()
        values = np.zeros(256, np.uint8)
        for value, name in enumerate(splits.classes, start=1):
            values[value] = names.index(name) + 1 if name in names else 0
        for folder in ("images", "masks"):
            (root / folder).mkdir(parents=True)
        (root / "classes.txt").write_text("\n".join(names))
        for index, name in enumerate(splits.val.names):
            Image.fromarray(splits.val.image(index)).save(root / "images" / f"{name}.png")
            Image.fromarray(values[splits.val.mask(index)]).save(root / "masks" / f"{name}.png")
        return root

    return write


def test_evaluating_again_gives_the_recorded_numbers_and_changes_nothing(tiny_run):
    before = files(tiny_run)
    recorded = RunResult.read(tiny_run / "results.json")
    for step in range(3):
        assert evaluate_again(tiny_run, step, quiet=True) == recorded.steps[step]
    assert evaluate_again(tiny_run, quiet=True) == recorded.steps[2]
    assert files(tiny_run) == before


def test_the_json_is_a_step_of_the_results(tiny_run):
    result = call("evaluate", tiny_run, "--step", 1, "--json")
    assert json.loads(result.stdout) == json.loads((tiny_run / "results.json").read_text())["steps"][1]


def test_the_tables_name_every_class_and_group(tiny_run):
    output = call("evaluate", tiny_run).output
    assert all(word in output for word in ("background", "horse", "mIoU all", "posterior", "8 images"))


def test_the_result_is_written_on_request_but_never_into_the_run(tiny_run, tmp_path):
    assert call("evaluate", tiny_run, "--out", tmp_path / "again.json").exit_code == 0
    assert json.loads((tmp_path / "again.json").read_text())["step"] == 2
    before = files(tiny_run)
    refused = call("evaluate", tiny_run, "--out", tiny_run / "results.json")
    assert refused.exit_code == 2
    assert "inside the run directory" in refused.stderr
    assert call("evaluate", tiny_run, "--out", tmp_path / "no" / "where.json").exit_code == 2
    assert files(tiny_run) == before


@pytest.mark.parametrize(
    "change",
    ["method.alpha_nf=1", "method.alpha_bc=0.5", "method.gate=exact", "evaluation.absent=zero"],
)
def test_settings_of_inference_may_change(tiny_run, change):
    assert evaluate_again(tiny_run, assignments=[change], quiet=True).images == 8


def test_training_images_cannot_be_called_held_out_afterwards(tiny_run):
    with pytest.raises(UserError, match=r"held_out is 0\.3, but .* was trained with 0\.0: it has learned from such"):
        evaluate_again(tiny_run, assignments=["evaluation.held_out=0.3"], quiet=True)


@pytest.mark.parametrize(
    "change",
    [
        "training.lr=1",
        "model.width=8",
        "scenario.name=joint",
        "method.decoupling=false",
        "method.lambda_temporary=1",
        "seed=3",
        "data.val=2",
        "method={name: ipseg, lambda_temporary: 1}",
    ],
)
def test_what_the_run_was_trained_with_may_not_change(tiny_run, change):
    result = call("evaluate", tiny_run, "--set", change)
    assert result.exit_code == 2
    assert result.stderr.startswith("ipseg: ")
    assert "method.alpha_nf" in result.stderr


def test_an_unknown_setting_is_told_with_the_nearest(tiny_run):
    assert "Did you mean alpha_nf?" in call("evaluate", tiny_run, "--set", "method.alpha_n=1").stderr


def test_other_data_is_read_by_its_own_class_values(tiny_run, scenes_folder):
    recorded = RunResult.read(tiny_run / "results.json").steps[2]
    elsewhere = evaluate_again(tiny_run, data=scenes_folder(("tree", "car", "cow", "horse", "bus")), quiet=True)
    assert elsewhere.iou == pytest.approx(recorded.iou)
    assert elsewhere.images == 8


def test_a_class_that_the_data_does_not_annotate_is_not_measured(tiny_run, scenes_folder):
    folder = scenes_folder(("bus", "cow"))
    assert evaluate_again(tiny_run, 0, data=folder, quiet=True).measured == {"background", "cow", "bus"}
    after = evaluate_again(tiny_run, data=folder, quiet=True)
    assert (after.iou["horse"], after.iou["car"]) == (None, None)
    assert after.measured == {"background", "cow", "bus"}
    result = call("evaluate", tiny_run, "--data", folder)
    assert result.exit_code == 0, result.output
    assert "Not in their masks, so not measured: horse, car." in " ".join(result.output.split())


def test_data_of_later_classes_alone_is_refused(tiny_run, scenes_folder):
    """Background would be right everywhere: wherever the model says a class, nobody knows."""
    result = call("evaluate", tiny_run, "--step", 0, "--data", scenes_folder(("horse", "car")))
    assert result.exit_code == 2
    assert "annotates none of the classes that step 0 knows (cow, bus)" in result.stderr
    assert "Its classes: horse, car." in result.stderr


def test_data_without_any_class_of_the_run_is_refused(tiny_run, scenes_folder):
    result = call("evaluate", tiny_run, "--data", scenes_folder(("cup", "spoon")))
    assert result.exit_code == 2
    assert "none of the classes cow, bus, horse, car" in result.stderr


def test_other_data_with_a_val_list_is_measured_on_that(tiny_run, scenes_folder):
    folder = scenes_folder(("cow", "bus", "horse", "car"))
    (folder / "train.txt").write_text("000000\n")
    (folder / "val.txt").write_text("000001\n000002\n")
    assert evaluate_again(tiny_run, data=folder, quiet=True).images == 2


def test_of_the_runs_own_folder_its_validation_images_are_measured(names_only, tmp_path):
    """Two of the ten images; the other eight it has learned from."""
    own = evaluate_again(names_only, quiet=True)
    assert own.images == 2
    (tmp_path / "link").symlink_to(tmp_path / "old", target_is_directory=True)
    for path in (tmp_path / "old", tmp_path / "base" / ".." / "old", tmp_path / "link"):
        assert evaluate_again(names_only, data=path, quiet=True) == own
    moved = (tmp_path / "old").rename(tmp_path / "moved")
    assert evaluate_again(names_only, data=moved, quiet=True).images == 10


def test_held_out_images_of_the_own_folder_are_measured_not_those_of_its_list(names_only, tmp_path):
    names = sorted(path.stem for path in (tmp_path / "old" / "masks").iterdir())
    (tmp_path / "old" / "train.txt").write_text("\n".join(names[:7]))
    (tmp_path / "old" / "val.txt").write_text("\n".join(names[7:]))
    assert evaluate_again(names_only, data=tmp_path / "old", quiet=True).images == 3
    recipe = names_only / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("held_out: 0.0", "held_out: 0.8"))  # as if it had been trained so
    held_out = evaluate_again(names_only, quiet=True)
    assert evaluate_again(names_only, data=tmp_path / "old", quiet=True) == held_out
    assert held_out.images > 3


def test_the_own_folders_list_is_measured_when_what_was_learned_from_is_gone(names_only, tmp_path):
    names = sorted(path.stem for path in (tmp_path / "old" / "masks").iterdir())
    (tmp_path / "old" / "train.txt").write_text("\n".join(names[:7]))
    (tmp_path / "old" / "val.txt").write_text("\n".join(names[7:]))
    for name in names[:7]:
        for folder in ("images", "masks"):
            (tmp_path / "old" / folder / f"{name}.png").unlink()
    assert evaluate_again(names_only, data=tmp_path / "old", quiet=True).images == 3


def test_one_image_is_enough_to_measure_on(tiny_run, scenes_folder):
    folder = scenes_folder(("cow", "bus", "horse", "car"))
    for path in [*(folder / "images").iterdir(), *(folder / "masks").iterdir()]:
        if path.stem != "000003":
            path.unlink()
    assert evaluate_again(tiny_run, data=folder, quiet=True).images == 1


@pytest.mark.parametrize("lists", [False, True])
def test_maps_are_not_needed_to_measure(tiny_run, scenes_folder, lists):
    folder = scenes_folder(("cow", "bus", "horse", "car"))
    (folder / "saliency").mkdir()
    Image.new("1", (64, 64)).save(folder / "saliency" / "000000.png")  # of the others there is none
    if lists:
        (folder / "train.txt").write_text("000001\n")
        (folder / "val.txt").write_text("000002\n000003\n")
    assert evaluate_again(tiny_run, data=folder, quiet=True).images == (2 if lists else 8)


def test_an_image_without_its_image_cannot_be_measured_on(tiny_run, scenes_folder):
    folder = scenes_folder(("cow", "bus", "horse", "car"))
    (folder / "images" / "000003.png").unlink()
    result = call("evaluate", tiny_run, "--data", folder)
    assert result.exit_code == 2
    assert f"{folder / 'images' / '000003'} is missing" in result.stderr
    assert "val_share" not in result.stderr


def test_a_folder_without_any_mask_cannot_be_measured_on(tiny_run, scenes_folder):
    folder = scenes_folder(("cow", "bus", "horse", "car"))
    for path in (folder / "masks").iterdir():
        path.unlink()
    result = call("evaluate", tiny_run, "--data", folder)
    assert result.exit_code == 2
    assert "holds no .png" in result.stderr
    assert "val_share" not in result.stderr


def test_missing_data_shows_the_expected_tree(tiny_run, tmp_path):
    result = call("evaluate", tiny_run, "--data", tmp_path / "gone")
    assert result.exit_code == 2
    assert "classes.txt" in result.stderr


def test_the_device_is_an_option(tiny_run):
    assert call("evaluate", tiny_run, "--device", "cpu", "--json").exit_code == 0
    assert "quantum" in fails("evaluate", tiny_run, "--device", "quantum")
