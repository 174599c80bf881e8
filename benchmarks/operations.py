"""What an iteration computes, counted on tensors that have a shape but no values: no GPU is needed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from speed import CASES, recipe_for
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ipseg.apps.cost import made_up
from ipseg.data.scenes.objects import class_names

BATCH, MEMORY = 16, 100


@cache
def teraflop(name: str) -> float:
    """10^12 operations of one iteration: products, convolutions and attention, forward and backward."""
    case, device = CASES[name], torch.device("cpu")
    recipe = recipe_for(case["backbone"], case["scenario"], case["side"], Path("none"), [])
    steps = recipe.scenario.build("scenes", class_names(20)).steps
    method = recipe.method.build(recipe.model)
    for step in steps[: case["step"] % len(steps) + 1]:
        method.begin_step(step)
    memory = MEMORY if step.index else 0
    batch = made_up(method.plan(BATCH, memory), recipe.training.crop, step, device)
    parameters = [parameter for group in method.parameter_groups() for parameter in group.parameters]
    method.train_mode()
    plain = sdpa_kernel(SDPBackend.MATH)  # the fused form is not counted on the CPU
    with plain, FakeTensorMode(allow_non_fake_inputs=True), FlopCounterMode(display=False) as counter:
        loss = torch.stack(list(method.loss(batch).values())).sum()
        torch.autograd.grad(loss, parameters, allow_unused=True)
    return counter.get_total_flops() / 1e12
