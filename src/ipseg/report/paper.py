"""The paper's numbers, each with its table or figure: paper_numbers.csv, one number a line."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ipseg.scenario import describe

FILE = Path(__file__).with_name("paper_numbers.csv")
BACKBONES = {"resnet101.": "resnet-101", "swin_base_patch4_window12_384.": "swin-b"}
"""timm's names and the paper's."""
MEMORY = {"voc": 100, "ade": 300}
"""The paper's |M|."""
PROTOTYPES = {"adapter", "sdr"}
"""Listed as replay methods, but they store prototypes and no image."""
VARIED = {
    "image_posterior": True,
    "decoupling": True,
    "alpha_bc": 0.9,
    "alpha_nf": 0.4,
    "lambda_temporary": 0.5,
    "lambda_permanent": 0.5,
    "image_labels": "pseudo",
}
"""Settings of the method that the paper varies, as they usually are."""
PARTS = {"image_posterior": ("alpha_bc", "image_labels"), "decoupling": ("alpha_nf",)}
"""The parts of IPSeg that its ablation switches off, and the varied settings that mean nothing without them."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """One number of the paper, as printed."""

    where: str
    """The label of its table or figure in the paper's source: tab:voc_res."""
    row: str
    """What its row or curve is called there. † reproduced by the authors; * 100 epochs instead of 60."""
    data: str
    """voc or ade."""
    scenario: str
    """15-1."""
    setting: str
    """overlap or disjoint."""
    method: str
    """As its settings name it, without _m, for which there is `memory`: ipseg, ssul, coinseg, ..., joint."""
    backbone: str
    """resnet-101 or swin-b; empty where the paper does not state it (see `likely_backbone`)."""
    memory: str
    """yes (the paper's replay methods), no (its data-free ones), or empty (joint)."""
    changes: str
    """What departs from the paper's own settings, as `--set` takes it, with spaces between."""
    step: int | None
    """After which step it was measured; none: at the end, or no matter of steps."""
    measure: str
    """miou, iou (of a class), image_accuracy (all three in percent) or cost."""
    group: str
    """base, new and all of results.json and their like; a class; a posterior or pixel reading; a kind of cost."""
    value: float

    @property
    def last(self) -> bool:
        """Whether it is of the final model."""
        return self.step in (None, len(describe(f"{self.data}/{self.scenario}").steps) - 1)


@cache
def paper_numbers() -> tuple[Number, ...]:
    """Every number of the paper's tables of results and of its curves."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(_number(line) for line in csv.DictReader(file))


def _number(line: dict[str, str]) -> Number:
    words = {key: text for key, text in line.items() if key not in ("step", "value")}
    return Number(**words, step=int(line["step"]) if line["step"] else None, value=float(line["value"]))


def published(numbers: Iterable[Number] | None = None, /, **wanted: str | int | None) -> list[Number]:
    """The numbers that have these values in these fields.

    >>> sorted({number.value for number in published(scenario="15-1", setting="overlap", method="ipseg", memory="yes",
    ...     backbone="swin-b", changes="", measure="miou", group="all")})
    [81.5, 81.6]
    """
    among = paper_numbers() if numbers is None else numbers
    return [number for number in among if all(getattr(number, key) == value for key, value in wanted.items())]


def published_for(recipe: Mapping[str, Any]) -> list[Number]:
    """All numbers of the paper for a run of this recipe (its plain values).

    Data, scenario, method, backbone, memory and the settings that the paper varies must be the paper's; how long and on
    what crops a run trains does not matter. Joint training is one run and has a number beside every scenario.
    """
    scenario, setting = recipe["scenario"]["name"].rpartition("/")[2], recipe["scenario"]["setting"]
    joint = scenario == "joint"
    wanted: dict[str, str | int | None] = {"data": recipe["data"]["name"]}
    wanted |= (
        {"method": "joint"}
        if joint
        else {"method": recipe["method"]["name"].removesuffix("_m"), "scenario": scenario, "setting": setting}
    )
    name = recipe["model"]["backbone"]["name"]
    own = next((paper for timm, paper in BACKBONES.items() if name.startswith(timm)), None)
    found = [number for number in published(**wanted) if likely_backbone(number) == own]
    return found if joint else [number for number in found if _same_settings(number, recipe)]


def likely_backbone(number: Number) -> str:
    """The backbone of a number; where the paper names none, the one whose numbers in its other tables are nearest."""
    if number.backbone:
        return number.backbone
    if number.method in ("ipseg", "coinseg") or (number.where, number.method) == ("fig:performance_voc(c)", "ssul"):
        return "swin-b"
    return "resnet-101"  # that of the systems' own publications; MiB's numbers are those of its rows with overlap


def _same_settings(number: Number, recipe: Mapping[str, Any]) -> bool:
    method = recipe["method"]
    replays = method["name"] == "ipseg" or method.get("replay_share", 1) > 0  # IPSeg's posterior has it in any case
    own = {f"method.{key}": method.get(key, value) for key, value in VARIED.items()}
    own |= {"memory.size": recipe["memory"]["size"] if replays else 0}
    usual = {f"method.{key}": value for key, value in VARIED.items()}
    usual["memory.size"] = MEMORY[number.data] if number.memory == "yes" and number.method not in PROTOTYPES else 0
    changed = dict(change.split("=") for change in number.changes.split())
    papers = usual | {key: yaml.safe_load(text) for key, text in changed.items()}
    # Decoupling has large heads (section 3.4). The paper does not state the heads of its ablation without it.
    other_heads = method["name"] == "ipseg" and own["method.decoupling"] and method.get("head", "large") != "large"
    return _effective(own) == _effective(papers) and not other_heads


def _effective(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Without the settings of parts that are switched off."""
    idle = {f"method.{key}" for part, keys in PARTS.items() if not settings[f"method.{part}"] for key in keys}
    return {key: value for key, value in settings.items() if key not in idle}
