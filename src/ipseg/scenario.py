"""What is learned when: classes, their order, the steps, and which classes of a mask each step may see."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate, chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ipseg.config import scoped
from ipseg.errors import UserError, require_at_least, require_one_of, unknown
from ipseg.parsing import require_text

IGNORE = 255
"""The mask value that is neither trained on nor counted."""
BACKGROUND = "background"
MAX_CLASSES = 253
"""Masks hold bytes: 0 is background and 255 is ignored. So do labels of branches, which are one higher."""
EXTENDED = "grown"
"""The name of a scenario whose steps are listed: no BASE-INCREMENT says them."""

Setting = Literal["overlap", "disjoint"]
Unseen = Literal["background", "ignore"]
Table = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class ScenarioConfig:
    """What is learned in which step, and which images and labels a step gets."""

    name: str
    """BASE-INCREMENT ("15-1": 15 classes, then one a step) or "joint" (all at once); "voc/15-1" names the data too."""

    setting: Setting = "overlap"
    """Images of a step. overlap: all that hold a new class. disjoint: of these, those without a later step's class."""

    order: int | tuple[str, ...] | None = None
    """Order of learning. null: the data set's; a whole number: shuffled with this seed; or a list of class names."""

    classes: tuple[str, ...] | None = None
    """The classes to learn; the others of the data set are background. null: all. `order` says in which order."""

    unseen: Unseen = scoped("background", "inference")
    """What a class that is not learned yet counts as at evaluation. It does not matter at the last step."""

    steps: tuple[tuple[str, ...], ...] | None = None
    """The classes of each step, with `name: grown`: `ipseg extend` writes it. The data may lack classes of steps that
    are learned already. null: as `name` says."""

    def __post_init__(self) -> None:
        require_one_of("scenario.setting", self.setting, ("overlap", "disjoint"))
        require_one_of("scenario.unseen", self.unseen, ("background", "ignore"))
        if isinstance(self.order, int):
            require_at_least("scenario.order", self.order, 0)
        if self.steps is not None or self.name.rpartition("/")[2] == EXTENDED:
            _require_extended(self)

    def build(self, data_name: str, classes: Sequence[str]) -> Scenario:
        """The scenario on a data set with these foreground classes (mask value 1, 2, ...)."""
        _require_usable(data_name, classes)
        data, slash, split = self.name.rpartition("/")
        whole, subset = SUBSETS.get(data, (data, None))
        if slash and data_name not in (data, whole):  # a finished run knows a subset by its own name alone
            raise UserError(
                f'scenario.name is "{self.name}", but the data set is {data_name}. '
                f"Write {data_name}/{split}, or change the data set."
            )
        _require_names(f"the subset {data}", subset or (), classes)
        name = f"{data if subset else data_name}/{split}"
        if self.steps is None:
            order = self._ordered(self._learned(subset or classes))
            sizes = step_sizes(name, len(order))
        else:
            order, sizes = tuple(chain(*self.steps)), [len(new) for new in self.steps]
        ends = list(accumulate(sizes))
        return Scenario(
            name=name,
            setting=self.setting,
            data_classes=tuple(classes),
            order=order,
            steps=tuple(
                Step(
                    index=index,
                    new=order[start:end],
                    old=order[:start],
                    future=order[end:],
                    overlap=self.setting == "overlap",
                )
                for index, (start, end) in enumerate(zip([0, *ends], ends, strict=False))
            ),
            unseen=self.unseen,
        )

    def _learned(self, classes: Sequence[str]) -> tuple[str, ...]:
        if self.classes is None:
            return tuple(classes)
        if not self.classes:
            raise UserError("scenario.classes is empty; name the classes to learn, or null for all.")
        _require_names("scenario.classes", self.classes, classes)
        return tuple(name for name in classes if name in self.classes)

    def _ordered(self, learned: tuple[str, ...]) -> tuple[str, ...]:
        if self.order is None:
            return learned
        if isinstance(self.order, int):
            # Of Python's generator only random() is promised to stay the same in later versions; shuffle() is not.
            draw = random.Random(self.order).random
            return tuple(sorted(learned, key=lambda _: draw()))
        _require_names("scenario.order", self.order, learned)
        missing = [name for name in learned if name not in self.order]
        if missing:
            raise UserError(f"scenario.order leaves out {', '.join(missing)}; it must name every class to learn once.")
        return self.order


@dataclass(frozen=True)
class Step:
    """One step: the classes it learns, those learned before and those of later steps, in the order of learning."""

    index: int
    new: tuple[str, ...]
    old: tuple[str, ...]
    future: tuple[str, ...]
    overlap: bool = True
    """Whether images of earlier steps may come again."""

    @property
    def seen(self) -> tuple[str, ...]:
        """Every class learned once this step is over."""
        return self.old + self.new


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A data set's classes dealt out to steps.

    The model's index of a class is 1 + its place in `order`; 0 is background.
    """

    name: str
    setting: Setting
    data_classes: tuple[str, ...]
    """The data set's foreground classes; class i has mask value i + 1. An extended run's data may lack old ones."""
    order: tuple[str, ...]
    """The classes to learn, in the order of learning."""
    steps: tuple[Step, ...]
    unseen: Unseen = "background"

    def training_table(self, step: Step) -> Table:
        """Mask value -> label that the step may see: its new classes; all other classes are background."""
        return self._table(step.new)

    def evaluation_table(self, step: Step) -> Table:
        """Mask value -> label to measure against after the step: every seen class; later ones as `unseen` says."""
        return self._table(step.seen, ignored=step.future if self.unseen == "ignore" else ())

    def oracle_table(self, step: Step) -> Table:
        """Mask value -> what bounds may see in a step beside its new classes: every seen one, the rest background."""
        return self._table(step.seen)

    def _table(self, shown: Collection[str], ignored: Collection[str] = ()) -> Table:
        # Readers refuse masks with values beyond the classes; should one come through, it is ignored, not learned.
        table = np.full(256, IGNORE, dtype=np.uint8)
        table[0] = 0
        for value, name in enumerate(self.data_classes, start=1):
            table[value] = 1 + self.order.index(name) if name in shown else IGNORE if name in ignored else 0
        return table

    def selects(self, step: Step, present: Collection[int]) -> bool:
        """Whether an image whose mask holds these values belongs to the step's training images."""
        names = {self.data_classes[value - 1] for value in present if 1 <= value <= len(self.data_classes)}
        if names.isdisjoint(step.new):
            return False
        return self.setting == "overlap" or names.isdisjoint(step.future)

    def images_per_step(self, presence: Sequence[Collection[int]]) -> list[int]:
        """How many of the images, each given by the mask values in it, every step trains on."""
        return [sum(self.selects(step, present) for present in presence) for step in self.steps]

    def to_json(self) -> dict[str, Any]:
        """Plain values for people and programs that ask what a scenario is."""
        steps = [{"new": list(step.new), "old": list(step.old), "future": list(step.future)} for step in self.steps]
        return {"name": self.name, "setting": self.setting, "steps": steps}


def is_background(name: str) -> bool:
    """Whether a name in a list of classes means the background, however its tool writes it.

    >>> [is_background(name) for name in ("background", "_background_", "Background", "back")]
    [True, True, True, False]
    """
    return name.strip("_ ").casefold() == BACKGROUND


def _require_usable(data_name: str, classes: Sequence[str]) -> None:
    if not 1 <= len(classes) <= MAX_CLASSES:
        raise UserError(
            f"the data set {data_name} has {len(classes)} classes; valid: 1 to {MAX_CLASSES} "
            "(masks hold bytes: 0 is background and 255 is ignored)."
        )
    named = next(filter(is_background, classes), None)
    if named is not None:
        raise UserError(f'the data set {data_name} has a class "{named}"; background is mask value 0 and not listed.')
    _require_names(f"the class list of {data_name}", classes, classes)


def _require_extended(config: ScenarioConfig) -> None:
    """Raise unless the listed steps are whole and nothing else says what is learned when."""
    if not config.steps or config.name.rpartition("/")[2] != EXTENDED or config.order is not None or config.classes:
        raise UserError(
            f'scenario.steps goes with scenario.name: {EXTENDED}, and without order and classes; got "{config.name}" '
            f"and {'no steps' if not config.steps else f'{len(config.steps)} steps'}. `ipseg extend` writes it right."
        )
    names = list(chain(*config.steps))
    _require_names("scenario.steps", names, names)
    if not all(config.steps) or any(map(is_background, names)) or len(names) > MAX_CLASSES:
        raise UserError(
            f"scenario.steps must give every step a class, {MAX_CLASSES} in all at most, and never {BACKGROUND}."
        )


def _require_names(where: str, names: Sequence[str], valid: Sequence[str]) -> None:
    for name in names:
        require_text(name)
        if name not in valid:
            raise unknown("class", name, valid, f"{where} takes classes to learn.")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"{where} names {', '.join(twice)} more than once.")


# ---- the scenarios of public data sets, by name ---------------------------------------------------------------------


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


VOC = _listed(
    """aeroplane, bicycle, bird, boat, bottle, bus, car, cat, chair, cow, diningtable, dog, horse, motorbike, person,
    pottedplant, sheep, sofa, train, tvmonitor"""
)
"""Pascal VOC, mask values 1 to 20."""

ADE = _listed(
    """wall, building, sky, floor, tree, ceiling, road, bed, windowpane, grass, cabinet, sidewalk, person, earth, door,
    table, mountain, plant, curtain, chair, car, water, painting, sofa, shelf, house, sea, mirror, rug, field,
    armchair, seat, fence, desk, rock, wardrobe, lamp, bathtub, railing, cushion, base, box, column, signboard,
    chest of drawers, counter, sand, sink, skyscraper, fireplace, refrigerator, grandstand, path, stairs, runway, case,
    pool table, pillow, screen door, stairway, river, bridge, bookcase, blind, coffee table, toilet, flower, book,
    hill, bench, countertop, stove, palm, kitchen island, computer, swivel chair, boat, bar, arcade machine, hovel,
    bus, towel, light, truck, tower, chandelier, awning, streetlight, booth, television receiver, airplane, dirt track,
    apparel, pole, land, bannister, escalator, ottoman, bottle, buffet, poster, stage, van, ship, fountain,
    conveyer belt, canopy, washer, plaything, swimming pool, stool, barrel, basket, waterfall, tent, bag, minibike,
    cradle, oven, ball, food, step, tank, trade name, microwave, pot, animal, bicycle, lake, dishwasher, screen,
    blanket, sculpture, hood, sconce, vase, traffic light, tray, ashcan, fan, pier, crt screen, plate, monitor,
    bulletin board, shower, radiator, glass, clock, flag"""
)
"""ADE20K (objectInfo150), mask values 1 to 150, each class by a short name of its own."""

DATASETS: dict[str, tuple[str, ...]] = {"voc": VOC, "ade": ADE}
"""The data sets whose classes are known without their files. Others are added by whoever asks."""

IN_FILES = {"folder": ("its classes.txt", "data/mine"), "coco": ("its annotations", "coco")}
"""Data sets whose classes stand in files of theirs: where, and a path to show how to name one."""

NAMED: dict[str, tuple[str, ...]] = {
    "voc": ("15-1", "15-5", "19-1", "10-1", "5-3", "5-1", "2-2", "2-1", "joint"),
    "voc_animals": ("2-1", "3-1", "3-3", "5-1", "joint"),
    "ade": ("100-50", "100-10", "100-5", "50-50", "50-20", "joint"),
    "scenes": ("6-2", "6-1", "4-2", "2-2", "joint"),
}
"""The scenarios that papers and this project report on; any other BASE-INCREMENT that fits works as well."""

SUBSETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "voc_animals": ("voc", ("cat", "cow", "dog", "horse", "person", "sheep")),
}
"""Some classes of a data set under a name of their own: the data set, and the classes. Its others are background."""

_SPLIT = re.compile(r"([0-9]{1,6})-([0-9]{1,6})")


def step_sizes(name: str, classes: int) -> list[int]:
    """How many classes each step of DATASET/BASE-INCREMENT learns; the last step takes what is left.

    >>> step_sizes("voc/15-2", 20)
    [15, 2, 2, 1]
    """
    split = name.rpartition("/")[2]
    if split == "joint":
        return [classes]
    found = _SPLIT.fullmatch(split)
    if found is None:
        raise no_such_scenario(name)
    base, increment = int(found[1]), int(found[2])
    if not 1 <= base <= classes or increment < 1:
        raise UserError(
            f'scenario "{name}" does not fit: the number of classes to learn is {classes}. '
            f"BASE must be 1 to {classes} and INCREMENT at least 1."
        )
    return [base, *(min(increment, classes - done) for done in range(base, classes, increment))]


def no_such_scenario(name: str) -> UserError:
    """The error for a name that says no scenario, with the nearest named one of its data set."""
    data, slash, _ = name.rpartition("/")
    valid = [f"{key}/{split}" for key, splits in NAMED.items() for split in splits if not slash or key == data]
    alike = {full: SequenceMatcher(None, name, full).ratio() for full in valid}
    near = max(alike, key=alike.__getitem__, default="")
    guess = f" Did you mean {near}?" if alike.get(near, 0) >= 0.5 else ""
    return UserError(
        f'no scenario "{name}".{guess} A scenario is DATASET/BASE-INCREMENT: voc/15-1, ade/100-10, scenes/6-2. '
        "`ipseg scenarios` lists the named ones."
    )


def named_scenarios(datasets: Mapping[str, Sequence[str]] = DATASETS) -> dict[str, Scenario]:
    """Every named scenario of these data sets, by name."""
    names = [f"{data}/{split}" for data in NAMED if _whole(data) in datasets for split in NAMED[data]]
    return {name: describe(name, datasets=datasets) for name in names}


def describe(name: str, setting: Setting = "overlap", datasets: Mapping[str, Sequence[str]] = DATASETS) -> Scenario:
    """The scenario of a name such as voc/15-1: any BASE-INCREMENT that fits a known data set.

    >>> [len(step.new) for step in describe("voc/15-1").steps]
    [15, 1, 1, 1, 1, 1]
    """
    data, slash, _ = name.rpartition("/")
    if not slash:
        raise no_such_scenario(name)
    whole = _whole(data)
    if whole in IN_FILES.keys() - datasets.keys():
        where, path = IN_FILES[whole]
        raise UserError(
            f'the classes of "{whole}" stand in {where}, so the steps of {name} cannot be shown without the data. '
            f"With it: `ipseg data check {path} --format {whole} --scenario {name}`."
        )
    if whole not in datasets:
        known = [*datasets, *(subset for subset in SUBSETS if _whole(subset) in datasets)]
        raise unknown("data set", data, known, f'It stands in the scenario "{name}".')
    return ScenarioConfig(name=name, setting=setting).build(whole, datasets[whole])


def known_classes(data: str) -> tuple[str, ...] | None:
    """The classes of a data set that is known without its files, also by the name of a subset."""
    return DATASETS.get(_whole(data))


def _whole(data: str) -> str:
    """The data set that a subset is of; any other is its own."""
    return SUBSETS.get(data, (data,))[0]
