"""Measure a model on validation images: pixels by a confusion matrix, images by their sets of classes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ipseg.config import scoped
from ipseg.data.batch import Batch, Sample
from ipseg.data.dataset import Dataset, require_same_size
from ipseg.data.loader import read_ahead
from ipseg.data.step_dataset import with_regions
from ipseg.data.transforms import CropTransform, apply_transform, pack
from ipseg.errors import require_at_least, require_between
from ipseg.evaluation.confusion import ConfusionMatrix
from ipseg.evaluation.image_level import ImageLevel, Sets
from ipseg.evaluation.metrics import iou, miou_groups
from ipseg.evaluation.results import StepResult
from ipseg.methods.base import Method, Prediction
from ipseg.methods.labels import classes_present
from ipseg.models.compiled import compiling
from ipseg.models.cuda_graphs import cuda_recorder
from ipseg.scenario import BACKGROUND, IGNORE, Scenario, Step
from ipseg.training.distributed import DistributedContext
from ipseg.training.system import no_cudnn_benchmark

MULTIPLE = 32
"""Images of different sizes share a batch when they pad to the same canvas."""
WAITING = 8
"""Batches' worth of images that may wait for others of their canvas. Without a limit, of many sizes all would."""


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """How a model is measured."""

    view: Literal["whole", "center_crop"] = scoped("whole", "inference")
    """Whole images at their own size, or, as published code, the shorter side resized to `crop` and the center cut
    out."""

    crop: int = scoped(513, "inference")
    """Side of the center crop."""

    absent: Literal["skip", "zero"] = scoped("skip", "inference")
    """A class without a validation pixel: left out of the mean, or counted as zero (as SSUL and the authors' code)."""

    batch_size: int = scoped(16, "runtime")
    """Images at a time; it does not change the labels."""

    held_out: float = 0.0
    """Measure on this share of the training images, the same in every run, which is then not learned from: to choose
    settings without a look at the validation images. 0: measure on those."""

    precision: Literal["float32", "bf16"] = scoped("float32", "inference")
    """bf16: mixed precision by autocast. A few labels at borders change."""

    compile: bool = scoped(False, "inference")
    """Fuse operations with torch.compile, anew for every size of images: for data of one size, or center crops."""

    graphs: bool = scoped(False, "inference")
    """On a GPU: record the network as CUDA graphs and replay them, for every size of images. Pays where there are
    many images of few sizes, most with small batches or gated heads."""

    workers: int = scoped(2, "runtime")
    """Threads that read the next images meanwhile; 0: none. The numbers are the same with any value."""

    def __post_init__(self) -> None:
        require_at_least("evaluation.crop", self.crop, 32)
        require_at_least("evaluation.batch_size", self.batch_size, 1)
        require_at_least("evaluation.workers", self.workers, 0)
        require_between("evaluation.held_out", self.held_out, 0, 0.9)


def evaluate(
    method: Method,
    split: Dataset,
    scenario: Scenario,
    step: Step,
    config: EvaluationConfig,
    dist: DistributedContext,
    advance: Callable[[int], None] = lambda _: None,
    regions: bool = False,
) -> StepResult:
    """Measure on every image of the split what the model should know after a step."""
    seen = len(step.seen)
    confusion = ConfusionMatrix(1 + seen, dist.device)
    image_level = ImageLevel()
    mixed = torch.autocast(dist.device.type, torch.bfloat16, enabled=config.precision == "bf16")
    sizes = no_cudnn_benchmark() if config.view == "whole" else nullcontext()
    method.recorder = cuda_recorder() if config.graphs and dist.device.type == "cuda" else None
    try:
        with sizes:
            for batch in batches(split, scenario, step, config, dist, regions=regions):
                with mixed, compiling(enabled=config.compile):
                    prediction = method.predict_batch(batch)
                confusion.update(batch.labels, prediction.labels)
                truth, readings = _image_sets(batch, prediction, seen)
                image_level.update(truth, **readings)
                advance(len(batch))
    finally:
        method.recorder = None
    return _result(*_together(confusion, image_level, dist), scenario, step, config, images=len(split.names))


def _result(
    confusion: ConfusionMatrix,
    image_level: ImageLevel,
    scenario: Scenario,
    step: Step,
    config: EvaluationConfig,
    images: int,
) -> StepResult:
    names = [BACKGROUND, *step.seen]
    annotated = [i for i, name in enumerate(step.seen) if name in scenario.data_classes]
    counts = _known(confusion.counts, annotated)
    values = dict(zip(names, iou(counts, config.absent), strict=True))
    values |= {name: None for i, name in enumerate(step.seen) if i not in annotated}
    base = scenario.steps[0].new
    groups = {"base": [i for i in annotated if i < len(base)], "all": annotated}
    return StepResult(
        step=step.index,
        new=step.new,
        iou=values,
        miou=_groups(values, scenario, step),
        image_accuracy={name: image_level.accuracy(columns) for name, columns in groups.items()},
        image_f1={name: image_level.f1(columns) for name, columns in groups.items()},
        images=images,
        confusion=_named(counts, names),
    )


def _named(counts: NDArray[np.int64], names: list[str]) -> dict[str, dict[str, int]]:
    """The counts by names, zeros left out: most of a matrix of many classes is zeros."""
    return {
        true: {name: int(count) for name, count in zip(names, row, strict=True) if count}
        for true, row in zip(names, counts, strict=True)
    }


def _together(
    confusion: ConfusionMatrix, image_level: ImageLevel, dist: DistributedContext
) -> tuple[ConfusionMatrix, ImageLevel]:
    """What all processes counted: every image once."""
    if dist.size == 1:
        return confusion, image_level
    whole, level = ConfusionMatrix(confusion.classes), ImageLevel()
    confusion.matrix = confusion.matrix.cpu()  # a GPU's would come out of its parcel on that GPU again
    for theirs, sets in dist.gather((confusion, image_level)):
        whole.merge(theirs)
        level.merge(sets)
    return whole, level


def _known(counts: NDArray[np.int64], annotated: list[int]) -> NDArray[np.int64]:
    """Drop what data that does not annotate every seen class (an extended run's) cannot decide.

    Where it says background and the model says a class that it does not annotate, the model may well be right.
    """
    columns = [1 + i for i in range(len(counts) - 1) if i not in annotated]
    kept = counts.copy()
    kept[0, columns] = 0
    return kept


def _groups(values: dict[str, float | None], scenario: Scenario, step: Step) -> dict[str, float | None]:
    base = scenario.steps[0].new
    groups = miou_groups(values, base, step.seen[len(base) :])
    if not set(base) & set(scenario.data_classes):  # background alone does not stand for base classes
        groups |= {"base": None, "harmonic": None}
    return groups


def batches(
    split: Dataset,
    scenario: Scenario,
    step: Step,
    config: EvaluationConfig,
    dist: DistributedContext,
    *,
    regions: bool = False,
) -> Iterator[Batch]:
    """Our share of the validation images with the labels to measure against. A batch is of images of one canvas."""
    table = scenario.evaluation_table(step)
    waiting: dict[tuple[int, int], list[tuple[Sample, CropTransform]]] = defaultdict(list)

    def read(index: int) -> Sample:
        image, mask = split.image(index), split.mask(index)
        require_same_size(split.names[index], image=image.shape, mask=mask.shape)
        sample = Sample(image, table[mask], np.zeros(mask.shape, dtype=bool))
        return with_regions(sample, split, index) if regions else sample

    indices, size = dist.shard(len(split.names)), config.batch_size
    groups = (indices[start : start + size] for start in range(0, len(indices), size))
    with read_ahead(read, groups, workers=config.workers, ahead=2) as samples:
        for sample in chain.from_iterable(samples):
            transform, canvas = _layout(sample.labels.shape, config)
            waiting[canvas].append((sample, transform))
            crowded = sum(map(len, waiting.values())) > WAITING * size
            if crowded or len(waiting[canvas]) == size:
                fullest = max(waiting, key=lambda one: len(waiting[one]))
                yield _batch(waiting.pop(fullest), fullest, len(step.seen), dist.device)
    for canvas, rest in waiting.items():
        yield _batch(rest, canvas, len(step.seen), dist.device)


def _layout(size: tuple[int, ...], config: EvaluationConfig) -> tuple[CropTransform, tuple[int, int]]:
    height, width = size
    if config.view == "whole":
        canvas = (height + -height % MULTIPLE, width + -width % MULTIPLE)
        return CropTransform(1.0, 0.0, 0.0, flip=False), canvas
    scale = config.crop / min(height, width)
    top, left = (height * scale - config.crop) / 2, (width * scale - config.crop) / 2
    return CropTransform(scale, top, left, flip=False), (config.crop, config.crop)


def _batch(
    waiting: list[tuple[Sample, CropTransform]], canvas: tuple[int, int], classes: int, device: torch.device
) -> Batch:
    samples, transforms = zip(*waiting, strict=True)
    return apply_transform(pack(samples, classes, device), range(len(samples)), transforms, canvas)


def _image_sets(batch: Batch, prediction: Prediction, seen: int) -> tuple[Sets, dict[str, Sets | None]]:
    """Which classes are in each image: in truth, by the posterior, by the pixels alone, by both together."""
    counted = batch.labels != IGNORE  # as for the IoU; outside of an image it is not

    def found(labels: torch.Tensor) -> Sets:
        return np.asarray(classes_present(labels.where(counted, IGNORE), seen).cpu())

    posterior = prediction.posterior
    return found(batch.labels), {
        "posterior": None if posterior is None else np.asarray((posterior > 0.5).cpu()),
        "pixel": None if prediction.pixel is None else found(prediction.pixel.max(1).indices),
        "both": found(prediction.labels),
    }
