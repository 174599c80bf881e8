"""What a dist does to a network and how it watches its losses, without starting one."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ipseg.errors import UserError
from ipseg.methods.ssul import SsulConfig
from ipseg.models._torchvision import ensure_torchvision
from ipseg.models.backbone import BackboneConfig
from ipseg.models.network import ModelConfig
from ipseg.scenario import describe
from ipseg.training import experiment
from ipseg.training.distributed import DistributedContext, sync_batch_norm
from ipseg.training.iteration import Outcome
from ipseg.training.recipe import make_recipe
from ipseg.training.trainer import LossGuard

GPU, CPU = torch.device("cuda"), torch.device("cpu")


def test_batch_norms_of_a_gpu_team_keep_their_activations_in_every_step():
    ensure_torchvision()
    from timm.layers import BatchNormAct2d

    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 1), BatchNormAct2d(8), nn.Conv2d(8, 4, 1), nn.BatchNorm2d(4)).eval()
    images = torch.randn(2, 3, 5, 5)
    alone = network(images)
    for _step in range(3):
        sync_batch_norm(network, GPU)
        assert torch.allclose(network(images), alone, atol=1e-6)
    assert all(isinstance(network[place], nn.SyncBatchNorm) for place in (1, 3))


@pytest.mark.parametrize(("device", "size", "refused"), [(GPU, 2, True), (GPU, 1, False), (CPU, 2, False)])
def test_what_several_processes_do_on_gpus_is_not_recorded(tiny_settings, device, size, refused):
    tiny_settings["training"]["graphs"] = True
    recipe = make_recipe(tiny_settings)
    with pytest.raises(UserError, match="and there are 2") if refused else nullcontext():
        experiment.require_alone(recipe, DistributedContext(device, size=size))


def test_ssul_freezes_the_batch_norms_of_a_gpu_team_too():
    scenario = describe("voc/15-1")
    model = ModelConfig(backbone=BackboneConfig(name="test_resnet", weights="none"), width=8, rates=(1,))
    method = SsulConfig().build(model)
    method.begin_step(scenario.steps[0])
    sync_batch_norm(method.network, GPU)
    method.begin_step(scenario.steps[1])
    norms = [module for module in method.network.modules() if isinstance(module, _BatchNorm)]
    assert any(isinstance(norm, nn.SyncBatchNorm) for norm in norms)
    assert not any(parameter.requires_grad for norm in norms for parameter in norm.parameters())


@pytest.fixture
def lone_team():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.usefixtures("lone_team")
def test_batch_statistics_on_cpus_are_torchs_in_mixed_precision_too(kind):
    torch.manual_seed(0)
    images = (10 + torch.randn(8, 4, 16, 16)).to(kind)
    ours, theirs = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
    sync_batch_norm(ours, CPU)
    told, expected = ours(images), theirs(images)
    assert told.dtype == expected.dtype
    assert torch.allclose(told.float(), expected.float(), atol=0.05 if kind is torch.bfloat16 else 1e-4)
    assert torch.allclose(ours.running_var, theirs.running_var, atol=1e-3)


class Others(DistributedContext):
    """A dist whose other processes saw these."""

    wishes: tuple[bool, ...] = ()

    def any_rank(self, *wishes: bool) -> list[bool]:
        theirs = self.wishes if len(wishes) == len(self.wishes) else (False,) * len(wishes)
        return [ours or other for ours, other in zip(wishes, theirs, strict=True)]


def outcome(*, labeled: bool = True, finite: bool = True) -> Outcome:
    return Outcome({"image": torch.tensor(1.0)}, torch.tensor(finite), torch.tensor(labeled))


def test_a_batch_counts_if_any_process_has_a_labeled_pixel_of_it():
    dist = Others(CPU)
    guard = LossGuard(0, dist, batches_per_epoch=1)
    guard.update(outcome())
    guard.update(outcome(labeled=False))
    object.__setattr__(dist, "wishes", (False, True))
    assert guard.check(2, 0) == {"image": 1.0}
    guard.update(outcome())
    guard.update(outcome(labeled=False))
    object.__setattr__(dist, "wishes", (True, False))
    with pytest.raises(UserError, match=r"between iterations 2 and 4: 1 batches in a row, .* have no labeled pixel"):
        guard.check(4, 0)


def test_a_crop_that_shows_nothing_but_255_is_no_mistake_and_a_whole_pass_of_them_is():
    guard = LossGuard(0, DistributedContext(CPU), batches_per_epoch=3)
    for place, labeled in enumerate([False, False, True, False, False], start=1):
        guard.update(outcome(labeled=labeled))
        guard.check(place, 0)
    guard.update(outcome(labeled=False))
    with pytest.raises(UserError, match="3 batches in a row, a whole epoch, have no labeled pixel"):
        guard.check(6, 0)


def test_a_loss_that_is_not_finite_in_one_process_stops_all():
    dist = Others(CPU)
    guard = LossGuard(0, dist, batches_per_epoch=1)
    guard.update(outcome())
    object.__setattr__(dist, "wishes", (True,))
    with pytest.raises(UserError, match="the loss is not finite"):
        guard.check(1, 0)


# ---- who writes -----------------------------------------------------------------------------------------------------


class Writer:
    """TensorBoard's, as far as a run knows it."""

    def __init__(self, folder: str) -> None:
        Path(folder).mkdir()
        self.file = (Path(folder) / "events").open("a", encoding="utf-8")

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def add_scalar(self, name: str, value: float, iteration: int) -> None:
        self.file.write(f"{name} {iteration} {value:.3f}\n")

    def flush(self) -> None:
        self.file.flush()


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_process_of_a_team_writes_and_no_other_does(rank, tiny_settings, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    monkeypatch.setattr(
        experiment, "distributed", lambda *_: nullcontext(DistributedContext(CPU, rank))
    )  # and has nobody to wait for
    tiny_settings["training"] |= {"tensorboard": True, "checkpoint_seconds": 0}
    folder = tmp_path / "run"
    folder.mkdir()
    experiment.run(make_recipe(tiny_settings | {"scenario": {"name": "joint"}}), folder, quiet=True)
    written = {path.name for path in folder.rglob("*") if path.is_file()}
    if rank:
        assert not written
    else:
        assert {"recipe.yaml", "run.json", "log.jsonl", "results.json", "weights.safetensors", "events"} <= written
        assert "step_0/permanent 6" in (folder / "tensorboard" / "events").read_text()
