"""A run as one object: steps, models and data of the same run agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ipseg.apps.run import Run, require_disjoint, require_outside
from ipseg.errors import UserError


def test_the_models_of_several_steps_are_those_of_each_step(tiny_run):
    run, cpu = Run.open(tiny_run), torch.device("cpu")
    steps = [run.scenario.steps[index] for index in (0, 2)]
    for step, method in run.methods(steps, cpu):
        weights = run.method(step, cpu).network.state_dict()
        assert weights.keys() == method.network.state_dict().keys()
        assert all(torch.equal(value, weights[name]) for name, value in method.network.state_dict().items())


@pytest.mark.parametrize(("index", "expected"), [(None, 2), (0, 0), (np.int64(1), 1)])
def test_a_step_is_the_last_finished_one_or_named_by_its_number(tiny_run, index, expected):
    assert Run.open(tiny_run).step(index).index == expected


@pytest.mark.parametrize("index", [-1, 3, 1.0, "1"])
def test_a_step_that_is_not_finished_is_refused(tiny_run, index):
    with pytest.raises(UserError, match="steps 0 to 2 are finished"):
        Run.open(tiny_run).step(index)


def test_an_output_is_outside_of_a_run_and_a_new_run_apart_from_the_old_one(tiny_run, tmp_path):
    require_outside(tmp_path / "out", tiny_run)
    require_disjoint(tmp_path / "out", tiny_run)
    for out in (tiny_run, tiny_run / "out"):
        with pytest.raises(UserError, match="--out"):
            require_outside(out, tiny_run)
        with pytest.raises(UserError, match="--out"):
            require_disjoint(out, tiny_run)
    with pytest.raises(UserError, match="--out"):
        require_disjoint(tiny_run.parent, tiny_run)
