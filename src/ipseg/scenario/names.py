"""How scenarios are called: DATASET/BASE-INCREMENT or DATASET/joint."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from ipseg.errors import UserError

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
