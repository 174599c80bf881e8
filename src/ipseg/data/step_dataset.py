"""A step's view of a dataset: its images, with the labels of this step and nothing else."""

from __future__ import annotations

from dataclasses import replace

from ipseg.data.batch import Sample
from ipseg.data.dataset import Dataset, Mask, require_same_size
from ipseg.errors import UserError
from ipseg.scenario import Scenario, Step


def with_regions(sample: Sample, split: Dataset, index: int) -> Sample:
    """The sample with its image's regions."""
    regions = split.regions(index)
    require_same_size(split.names[index], image=sample.image.shape, region_map=regions.shape)
    return replace(sample, regions=regions)


class StepDataset:
    """The images that a step learns from. Masks labels of old and future classes as background.

    `oracle` keeps old ones beside the step's own, for upper bounds that say so in their results. `regions` reads them.
    """

    def __init__(
        self, split: Dataset, scenario: Scenario, step: Step, *, oracle: bool = False, regions: bool = False
    ) -> None:
        self.split, self.scenario, self.step, self.regions = split, scenario, step, regions
        missing = [name for name in step.new if name not in scenario.data_classes]
        if missing:
            raise UserError(
                f"step {step.index} of {scenario.name} learns {', '.join(missing)}, which the data does not have; "
                f"its classes are {', '.join(scenario.data_classes)}."
            )
        self._presence = split.class_presence()
        self.indices = [i for i, present in enumerate(self._presence) if scenario.selects(step, present)]
        if not self.indices:
            raise UserError(
                f"step {step.index} of {scenario.name} ({scenario.setting}) has no image: "
                f"none of the {len(split.names)} training images holds {', '.join(step.new)}"
                + (" without a future class." if scenario.setting == "disjoint" else ".")
            )
        self._labels = scenario.training_table(step)
        self._oracle = scenario.oracle_table(step) if oracle else None

    def __len__(self) -> int:
        return len(self.indices)

    def sample(self, position: int) -> Sample:
        """The image at a position of this dataset, with the step's labels."""
        index = self.indices[position]
        image, mask, salient = self.split.image(index), self.split.mask(index), self.split.saliency(index)
        require_same_size(self.split.names[index], image=image.shape, mask=mask.shape, saliency_map=salient.shape)
        full = None if self._oracle is None else self._oracle[mask]
        sample = Sample(image, self._labels[mask], salient, full=full)
        return with_regions(sample, self.split, index) if self.regions else sample

    def labels(self, position: int) -> Mask:
        """The step's labels of an image alone."""
        return self._labels[self.split.mask(self.indices[position])]

    def name(self, position: int) -> str:
        """The image's name in the data set."""
        return self.split.names[self.indices[position]]

    def classes_in(self, position: int) -> tuple[str, ...]:
        """Which of the step's classes the image holds."""
        present = self._presence[self.indices[position]]
        return tuple(name for name in self.step.new if self.scenario.data_classes.index(name) + 1 in present)
