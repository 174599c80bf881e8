"""The scenarios that have a name, and the class lists of the public data sets they stand on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipseg.errors import UserError, unknown
from ipseg.scenario.names import NAMED, SUBSETS, no_such_scenario
from ipseg.scenario.split import Scenario, ScenarioConfig, Setting


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
    return SUBSETS[data][0] if data in SUBSETS else data
