"""Methods by name, or by `module:Class` for one of your own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ipseg.config import build, find_class
from ipseg.methods.base import MethodConfig
from ipseg.methods.finetune import FinetuneConfig
from ipseg.methods.ipseg_config import IPSegConfig

METHODS: dict[str, type] = {"ipseg": IPSegConfig, "finetune": FinetuneConfig}


def method_config(values: Mapping[str, Any]) -> MethodConfig:
    """The settings of the method that `name` names."""
    cls = find_class(str(values.get("name", "ipseg")), METHODS, "method")
    return cast(MethodConfig, build(cls, values, "method"))
