"""Methods by name: ours, those of installed packages, or `module:Class` for one that lies anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract
from typing import Any

from ipseg.config import build, find_class
from ipseg.errors import UserError
from ipseg.methods.adapter import AdapterConfig
from ipseg.methods.awt import MibAwtConfig
from ipseg.methods.bam import BamConfig
from ipseg.methods.base import MethodConfig
from ipseg.methods.coinseg import CoinSegConfig, CoinSegMConfig
from ipseg.methods.dft import DftConfig
from ipseg.methods.dkd import DkdConfig, DkdMConfig
from ipseg.methods.finetune import FinetuneConfig, JointConfig
from ipseg.methods.ilt import IltConfig
from ipseg.methods.ipseg import IPSegConfig
from ipseg.methods.ipseg_lda import IPSegLDAConfig
from ipseg.methods.lwf import LwfConfig, LwfMcConfig
from ipseg.methods.mib import MibConfig
from ipseg.methods.microseg import MicroSegConfig, MicroSegMConfig
from ipseg.methods.nest import MibNestConfig, PlopNestConfig
from ipseg.methods.plop import PlopConfig, PlopMConfig
from ipseg.methods.rcil import RcilConfig
from ipseg.methods.reminder import ReminderConfig
from ipseg.methods.sdr import SdrConfig
from ipseg.methods.ssul import SsulConfig, SsulMConfig
from ipseg.methods.star import StarConfig

METHODS: dict[str, type[MethodConfig]] = {
    "ipseg": IPSegConfig,
    "ipseg_lda": IPSegLDAConfig,
    "finetune": FinetuneConfig,
    "joint": JointConfig,
    "lwf": LwfConfig,
    "lwf_mc": LwfMcConfig,
    "ilt": IltConfig,
    "mib": MibConfig,
    "mib_awt": MibAwtConfig,
    "plop": PlopConfig,
    "plop_m": PlopMConfig,
    "mib_nest": MibNestConfig,
    "plop_nest": PlopNestConfig,
    "reminder": ReminderConfig,
    "sdr": SdrConfig,
    "dft": DftConfig,
    "ssul": SsulConfig,
    "ssul_m": SsulMConfig,
    "microseg": MicroSegConfig,
    "microseg_m": MicroSegMConfig,
    "coinseg": CoinSegConfig,
    "coinseg_m": CoinSegMConfig,
    "bam": BamConfig,
    "dkd": DkdConfig,
    "dkd_m": DkdMConfig,
    "star": StarConfig,
    "adapter": AdapterConfig,
    "rcil": RcilConfig,
}
GROUP = "ipseg.methods"
"""The group of entry points in which a package names its methods: `name = "module:Class"` of the settings."""


def method_config(values: Mapping[str, Any]) -> MethodConfig:
    """The settings of the method that `name` names."""
    return build(find_method(str(values.get("name", "ipseg"))), values, "method")


def find_method(name: str) -> type[MethodConfig]:
    """The class of a method's settings. A package cannot take the name of one of ours."""
    if name in METHODS:
        return METHODS[name]
    installed = {point.name: point for point in entry_points(group=GROUP)}
    if name in installed:
        return _checked(name, _load(installed[name]))
    known: dict[str, type] = METHODS | dict.fromkeys(installed, object)  # the nearest name may be an installed one
    return _checked(name, find_class(name, known, "method"))


def _checked(name: str, found: type) -> type[MethodConfig]:
    if not issubclass(found, MethodConfig) or isabstract(found):
        raise UserError(
            f"method {name}: {found.__name__} is not a class of settings. It must be a dataclass that inherits from "
            "ipseg.methods.base.MethodConfig and has a method `build`."
        )
    return found


def _load(point: EntryPoint) -> type:
    package = point.dist.name if point.dist else "a package"
    try:
        found = point.load()
    except (ImportError, AttributeError) as error:
        raise UserError(f"method {point.name} of {package} cannot be imported: {error}.") from error
    if not isinstance(found, type):
        raise UserError(f"method {point.name} of {package} is not a class: {point.value}.")
    return found
