"""Learning rates of the parts, schedules and how a batch is made up, beside the authors'."""

from __future__ import annotations

import pytest
import torch
from given_network import GivenNetwork, assert_close, load, names, step_of
from torch import nn

from ipseg.methods.ipseg import IPSeg, IPSegConfig
from ipseg.methods.registry import method_config
from ipseg.models.backbone import BackboneConfig
from ipseg.models.network import ModelConfig
from ipseg.training.recipe import TrainingConfig

VARIANTS = ["paper", "official"]
MODEL = ModelConfig(backbone=BackboneConfig(name="resnet10t"), width=8, posterior_width=16, rates=(1, 2))
IPSEG = [(name, {"name": "ipseg", "variant": variant}) for name in names("ipseg_rates_") for variant in VARIANTS]
SSUL = [(name, {"name": "ssul"}) for name in names("ssul_rates_")]


@pytest.mark.parametrize(("name", "method"), [*IPSEG, *SSUL], ids=str)
def test_every_part_learns_at_the_authors_rate(name, method):
    """In the base step the authors' rates do not depend on the option (a slip); it has their value in the case."""
    v = load(name)
    made = method_config(method).build(MODEL, pretrained=False)
    for index in range(1 + min(1, int(name[-1]))):
        made.begin_step(step_of([3, 2][: index + 1], index))
    rate = {id(p): group.factor * v["recipe_lr"] for group in made.parameter_groups() for p in group.parameters}
    for part, module in parts_of(made.network).items():
        layers = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
        (found,) = {float(rate.get(id(p), 0)) for layer in layers for p in layer.parameters()}
        assert found == pytest.approx(float(v[part])), part
    assert set(parts_of(made.network)) | {"recipe_lr"} == set(v)


def parts_of(network: nn.Module) -> dict[str, nn.Module]:
    """By the names that the cases have for them."""
    parts = {"backbone": network.encoder.backbone, "aspp": network.encoder.decoder}
    first, last, posterior = network.temporary[0], network.temporary[-1], network.posterior
    if posterior is None:
        unknown, background = network.persistent_heads()
        return parts | {"unknown": unknown, "background": background, "first": first, "last": last}
    parts |= {"permanent": network.permanent, "temporary_first": first, "temporary_last": last}
    classifiers = posterior.classifiers
    return parts | {
        "posterior_shared": posterior.shared,
        "posterior_first": classifiers[0],
        "posterior_last": classifiers[-1],
    }


@pytest.mark.parametrize("name", names("ipseg_schedule_"))
def test_schedules_are_the_authors(name):
    """Their poly ends at 1e-6 at the lowest, which no rate of the case reaches; ours has no floor."""
    v = load(name)
    config, total = TrainingConfig(schedule=name.removeprefix("ipseg_schedule_")), int(v["total"])
    ours = torch.tensor([config.rate(i, total) for i in range(total)])[:, None] * v["base"]
    assert_close(ours, v["lr"])


@pytest.mark.parametrize("name", names("ipseg_batch_mixing"))
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_batch_is_made_up_as_the_authors(name, variant):
    for size, new, seen, current, replayed in load(name)["table"].tolist():
        method = IPSeg(IPSegConfig(variant=variant), GivenNetwork(torch.zeros(1, 2, 1, 1), [], None, (1, 1)))
        method.step, method.teacher = step_of([seen - new, new], 1), method.network.permanent
        plan = method.plan(size, memory=100)
        assert (plan.num_posterior, plan.num_replayed) == (current, replayed)
        assert plan.num_posterior + plan.num_replay_images == size
