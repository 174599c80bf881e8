"""The stand-in for torchvision's compiled operators helps where it must and is not there where it need not."""

from __future__ import annotations

import subprocess
import sys


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_timm_can_be_imported_afterwards_whatever_torchvision_is_installed():
    code = "from ipseg.models._torchvision import ensure_torchvision; ensure_torchvision(); import timm, torchvision;"
    assert python(code + "print(timm.is_model('resnet50'), hasattr(torchvision, 'models'))") == "True True"


IMITATION = """
import sys, types, importlib.abc, importlib.util
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    tries = 0
    def find_spec(self, name, path, target=None):
        return importlib.util.spec_from_loader(name, self) if name == "torchvision" else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        Finder.tries += 1
        {behavior}
sys.meta_path.insert(0, Finder())
from ipseg.models._torchvision import ensure_torchvision
import torch
"""


def test_nothing_is_declared_where_torchvision_imports_by_itself():
    code = IMITATION.format(behavior="pass")
    assert python(code + "print(ensure_torchvision(), hasattr(torch.ops.torchvision, 'nms'))") == "False False"


def test_another_error_of_torchvision_is_not_hidden():
    code = IMITATION.format(behavior="raise RuntimeError('another')")
    code += "try: ensure_torchvision()\nexcept RuntimeError as error: print(error, Finder.tries)"
    assert python(code) == "another 1"


def test_the_missing_operators_are_declared_and_torchvision_is_tried_again():
    code = IMITATION.format(
        behavior="if Finder.tries == 1: raise RuntimeError('operator torchvision::nms does not exist')"
    )
    code += "print(ensure_torchvision(), Finder.tries, hasattr(torch.ops.torchvision, 'nms'))"
    assert python(code) == "True 2 True"
