"""Data that does not stay: the old step's images are deleted and the run goes on; all of it moves elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from ipseg.apps.evaluate import evaluate_again
from ipseg.training.experiment import run
from ipseg.training.recipe import make_recipe


class PowerCutError(Exception):
    pass


def test_a_run_goes_on_when_the_images_of_earlier_steps_are_gone(tiny_settings, make_folder_data, tmp_path):
    data = make_folder_data(count=18)
    recipe = make_recipe(
        tiny_settings
        | {
            "data": {"name": "folder", "path": str(data)},
            "scenario": {"name": "2-1"},
            "memory": {"size": 4, "store": "copy"},
        }
    )

    def cut(*_: object) -> None:
        raise PowerCutError

    with pytest.raises(PowerCutError):
        run(recipe, tmp_path / "run", quiet=True, after_step=cut)
    for mask in (data / "masks").iterdir():  # only images with the class of the next step are left
        if 3 not in np.array(Image.open(mask)):
            mask.unlink()
            (data / "images" / mask.name).unlink()
    result = run(recipe, tmp_path / "run", resume=True, quiet=True)
    assert [step.new for step in result.steps] == [("red", "green"), ("blue",)]


def test_a_run_is_measured_on_data_that_has_moved(tiny_settings, make_folder_data, tmp_path):
    data = make_folder_data(count=18)
    settings = tiny_settings | {"data": {"name": "folder", "path": str(data)}, "scenario": {"name": "2-1"}}
    result = run(make_recipe(settings), tmp_path / "run", quiet=True)
    moved = data.rename(tmp_path / "elsewhere")
    again = evaluate_again(tmp_path / "run", None, [f"data.path={moved}"], quiet=True)
    assert again.iou == result.steps[-1].iou
