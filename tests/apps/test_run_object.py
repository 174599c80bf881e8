"""A run as one object: steps, models and data of the same run agree."""

from __future__ import annotations

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
