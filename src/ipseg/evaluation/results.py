"""What a run found out: plain values, read and written as `results.json` (fractions of 1, no torch here)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Any

from ipseg.files import read_json, write_json
from ipseg.scenario import EXTENDED

VERSION = 2
"""Of results.json and step.json. 2 has `confusion`; files of version 1 are read as ever."""


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """How good the model is after one step, on everything it should know by then."""

    step: int
    new: tuple[str, ...]
    """Classes learned in this step."""
    iou: dict[str, float | None]
    """IoU of background and every seen class, in the order of learning; null where the images say nothing of it."""
    miou: dict[str, float | None]
    """all, base (with background), new (null at step 0), harmonic, background, base_foreground, new_foreground."""
    image_accuracy: dict[str, dict[str, float | None]] | None = None
    """base|all -> posterior|pixel|both: share of images whose set of classes is exactly right."""
    image_f1: dict[str, dict[str, float | None]] | None = None
    """The same groups and readings as macro-F1."""
    images: int = 0
    """Images counted."""
    confusion: dict[str, dict[str, int]] | None = None
    """True class -> predicted class -> pixels, where there are any; null in files of version 1."""

    def __post_init__(self) -> None:
        """Raise TypeError where a file says something else: whoever draws or compares the numbers would stumble."""
        _require_kinds(vars(self), STEP_KINDS)
        _require_all("images", [self.images], _is_count)
        for name in ("iou", "miou"):
            _require_all(name, getattr(self, name).values(), _is_share)
        for name, valid in (("image_accuracy", _is_share), ("image_f1", _is_share), ("confusion", _is_count)):
            rows = (getattr(self, name) or {}).values()
            _require_all(name, rows, lambda row: isinstance(row, dict))
            _require_all(name, chain(*(row.values() for row in rows)), valid)

    def to_json(self) -> dict[str, Any]:
        """The layout of a step in results.json."""
        return vars(self) | {"new": list(self.new)}

    @property
    def measured(self) -> frozenset[str]:
        """The classes that have an IoU."""
        return frozenset(name for name, value in self.iou.items() if value is not None)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """A whole run. `name` is what tables call it; `oracle` lists settings that saw labels a step must not see."""

    name: str
    method: str
    scenario: str
    setting: str
    seed: int
    steps: tuple[StepResult, ...]
    oracle: tuple[str, ...] = ()
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every step of the scenario has been measured."""
        return bool(len(self.steps) == self.info.get("steps", len(self.steps)))

    @property
    def extended(self) -> bool:
        """Whether `ipseg extend` made it, with other data than that of the steps before."""
        return self.scenario.rpartition("/")[2] == EXTENDED

    @property
    def measured_alike(self) -> bool:
        """Whether numbers of its steps belong together; in an extended run images and classes may differ."""
        if not self.extended or not self.steps:
            return True
        last = self.steps[-1]
        return all(
            step.images == last.images and step.measured == last.measured & step.iou.keys() for step in self.steps
        )

    def final(self) -> dict[str, Any]:
        """The last step's mIoU, the average over steps, and the forgetting of each class."""
        if not self.steps:
            return {}
        averaged = [step.miou["all"] for step in self.steps if step.miou["all"] is not None]
        lost = forgetting(self.steps)
        if not self.measured_alike:
            averaged, lost = [], dict.fromkeys(lost)
        known = [value for value in lost.values() if value is not None]
        return {
            "miou": dict(self.steps[-1].miou),
            "average": sum(averaged) / len(averaged) if averaged else None,
            "forgetting": lost,
            "forgetting_mean": sum(known) / len(known) if known else None,
        }

    def to_json(self) -> dict[str, Any]:
        """The layout of results.json."""
        return {
            "version": VERSION,
            "name": self.name,
            "method": self.method,
            "scenario": self.scenario,
            "setting": self.setting,
            "seed": self.seed,
            "oracle": list(self.oracle),
            "complete": self.complete,
            "final": self.final(),
            "steps": [step.to_json() for step in self.steps],
            "info": self.info,
        }

    def write(self, path: Path) -> None:
        """Write results.json atomically."""
        write_json(path, self.to_json())

    @classmethod
    def read(cls, path: Path) -> RunResult:
        """Read results.json, checked."""
        return cls.from_json(read_json(path, "the file of results", VERSION))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunResult:
        """The other way round of to_json; what else stands there is passed over."""
        _require_kinds(data, RUN_KINDS)
        _require_all("oracle", data["oracle"], lambda setting: isinstance(setting, str))
        for step in data["steps"]:
            _require_kinds(step, {"miou": dict})
            _require_kinds(step["miou"], {"all": (int, float, NoneType)})
        steps = tuple(StepResult(**step | {"new": tuple(step["new"])}) for step in data["steps"])
        return cls(**{key: data[key] for key in RUN_KINDS}, oracle=tuple(data["oracle"]), steps=steps)


RUN_KINDS = {"name": str, "method": str, "scenario": str, "setting": str, "seed": int, "info": dict}
STEP_KINDS = {
    "step": int,
    "new": tuple,
    "iou": dict,
    "miou": dict,
    "image_accuracy": (dict, NoneType),
    "image_f1": (dict, NoneType),
    "images": int,
    "confusion": (dict, NoneType),
}


def _require_kinds(data: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    for key, kind in kinds.items():
        if not isinstance(data[key], kind):
            raise TypeError(f"{key} is {data[key]!r}")


def _require_all(key: str, values: Iterable[Any], valid: Callable[[Any], bool]) -> None:
    for value in values:
        if not valid(value):
            raise TypeError(f"{key} has {value!r}")


def _is_share(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def forgetting(steps: tuple[StepResult, ...]) -> dict[str, float | None]:
    """Best IoU after any earlier step minus the last one, for each class that had an earlier step."""
    lost: dict[str, float | None] = {}
    for name, last in steps[-1].iou.items():
        earlier = [value for step in steps[:-1] if (value := step.iou.get(name)) is not None]
        if earlier:
            lost[name] = None if last is None else max(earlier) - last
    return lost
