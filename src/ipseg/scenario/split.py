"""The steps of a scenario, and which classes of a mask each step may see."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ipseg.config import scoped
from ipseg.errors import UserError, require_at_least, require_one_of, unknown
from ipseg.parsing import require_text
from ipseg.scenario.names import SUBSETS, step_sizes

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
                Step(index=index, new=order[start:end], old=order[:start], future=order[end:])
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
