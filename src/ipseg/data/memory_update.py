"""What is remembered after a step: old entries and the step's pictures compete for the places of the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from ipseg.data.batch import Sample
from ipseg.data.memory import Entry, MemoryConfig, ReplayMemory
from ipseg.data.step_dataset import StepDataset


def select_exemplars(
    entries: Iterable[Entry], classes: Sequence[str], size: int, rng: np.random.Generator
) -> list[Entry]:
    """Class-balanced sampling (section 3.5): at least size // |classes| pictures of each class, if there are so many.

    If there are more classes than places, one of each of as many as there are places.

    Annotated ones count: a class that the model takes for others would have its places filled with these. Then the
    memory is filled at random. No picture is taken twice.
    """
    pool = {entry.name: entry for entry in entries}
    shuffled = [pool[name] for name in rng.permutation(sorted(pool))]
    quota = max(1, size // len(classes))
    chosen: dict[str, Entry] = {}
    for wanted in rng.permutation(list(classes)):
        having = sum(wanted in entry.annotated for entry in chosen.values())
        more = [entry for entry in shuffled if wanted in entry.annotated and entry.name not in chosen]
        chosen |= {entry.name: entry for entry in more[: max(0, min(quota - having, size - len(chosen)))]}
    rest = [entry for entry in shuffled if entry.name not in chosen]
    return [*chosen.values(), *rest[: size - len(chosen)]]


def update(
    memory: ReplayMemory,
    view: StepDataset,
    config: MemoryConfig,
    seed: int,
    old_classes: Callable[[Sample], Iterable[str]],
) -> ReplayMemory:
    """The memory after a step: old entries and the step's pictures compete for its places.

    `old_classes` tells which classes of earlier steps the model sees in a picture: their annotations are not there.
    """
    step, order = view.step, view.step.seen
    at = {view.name(i): i for i in range(len(view))}
    candidates = {name: Entry(name, view.classes_in(i), step.index) for name, i in at.items()}
    for entry in memory.entries:  # one that this step shows again has its new classes annotated now
        own = candidates[entry.name].classes if entry.name in candidates else ()
        candidates[entry.name] = replace(entry, classes=(*entry.classes, *own))
    rng = np.random.default_rng([seed, step.index])
    chosen = select_exemplars(candidates.values(), order, config.size, rng) if config.size else []
    for i, entry in enumerate(chosen):
        if entry.folder is None:
            seen = set(old_classes(view.sample(at[entry.name])))
            classes = tuple(name for name in order if name in seen or name in entry.classes)
            chosen[i] = replace(entry, classes=classes, guessed=tuple(name for name in classes if name in seen))
    return ReplayMemory(chosen, memory.split, order)
