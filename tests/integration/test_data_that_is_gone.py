"""What copies in memory are for: the old step's pictures are deleted, and the run goes on."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from ipseg.engine.experiment import run
from ipseg.engine.recipe import make_recipe


class PowerCutError(Exception):
    pass


def test_a_run_goes_on_when_the_pictures_of_earlier_steps_are_gone(tiny_settings, make_folder_data, tmp_path):
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
    for mask in (data / "masks").iterdir():  # only pictures with the class of the next step are left
        if 3 not in np.array(Image.open(mask)):
            mask.unlink()
            (data / "images" / mask.name).unlink()
    result = run(recipe, tmp_path / "run", resume=True, quiet=True)
    assert [step.new for step in result.steps] == [("red", "green"), ("blue",)]
