"""What a run found out: plain values, read and written as `results.json` (fractions of 1, no torch here)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

from ipseg.files import read_json, write_json
from ipseg.scenario import EXTENDED

VERSION = 2
"""Of results.json and step.json. 2 has `confusion`; files of version 1 are read as ever."""


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The evaluation after one step, on all classes seen by then."""

    step: int
    new: tuple[str, ...]
    """Classes learned in this step."""
    iou: dict[str, float | None]
    """IoU of background and every seen class, in the order of learning; null where the images do not annotate it."""
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
        """Raise TypeError where a file holds other types: code that draws or compares the numbers would fail."""
        _require_types(vars(self), STEP_TYPES)
        tables = {"image_accuracy": self.image_accuracy, "image_f1": self.image_f1, "confusion": self.confusion}
        rows: list[tuple[str, Any]] = [("iou", self.iou), ("miou", self.miou)]
        rows += [(name, row) for name, table in tables.items() for row in (table or {}).values()]
        for name, row in rows:
            valid = _is_count if name == "confusion" else _is_share
            if not isinstance(row, dict) or not all(map(valid, row.values())):
                raise TypeError(f"{name} has {row!r}")
        if not _is_count(self.images):
            raise TypeError(f"images is {self.images!r}")

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"new": list(self.new)}

    @property
    def measured(self) -> frozenset[str]:
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
        """Whether every step of the scenario has been evaluated."""
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
        write_json(path, self.to_json())

    @classmethod
    def read(cls, path: Path) -> RunResult:
        return cls.from_json(read_json(path, "the file of results", VERSION))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunResult:
        """The inverse of to_json; other keys are ignored."""
        _require_types(data, RUN_TYPES)
        if not all(isinstance(setting, str) for setting in data["oracle"]):
            raise TypeError(f"oracle has {data['oracle']!r}")
        for step in data["steps"]:
            _require_types(step, {"miou": dict})
            _require_types(step["miou"], {"all": (int, float, NoneType)})
        steps = tuple(StepResult(**step | {"new": tuple(step["new"])}) for step in data["steps"])
        return cls(**{key: data[key] for key in RUN_TYPES}, oracle=tuple(data["oracle"]), steps=steps)


RUN_TYPES = {"name": str, "method": str, "scenario": str, "setting": str, "seed": int, "info": dict}
STEP_TYPES = {
    "step": int,
    "new": tuple,
    "iou": dict,
    "miou": dict,
    "image_accuracy": (dict, NoneType),
    "image_f1": (dict, NoneType),
    "images": int,
    "confusion": (dict, NoneType),
}


def _require_types(data: Mapping[Any, Any], types: Mapping[Any, Any]) -> None:
    for key, kind in types.items():
        if not isinstance(data[key], kind):
            raise TypeError(f"{key} is {data[key]!r}")


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
