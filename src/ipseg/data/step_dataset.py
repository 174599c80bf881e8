"""A step's view of a dataset: its images, with the labels of this step and nothing else."""

from __future__ import annotations

from ipseg.data.batch import Sample
from ipseg.data.dataset import Dataset, require_same_size
from ipseg.errors import UserError
from ipseg.scenario import Scenario, Step


class StepDataset:
    """The images that a step learns from. Masks labels of old and future classes as background.

    `oracle` keeps old ones beside the step's own, for upper bounds that say so in their results.
    """

    def __init__(self, split: Dataset, scenario: Scenario, step: Step, *, oracle: bool = False) -> None:
        self.split, self.scenario, self.step = split, scenario, step
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
        return Sample(image, self._labels[mask], salient, full=full)

    def name(self, position: int) -> str:
        """The image's name in the data set."""
        return self.split.names[self.indices[position]]

    def classes_in(self, position: int) -> tuple[str, ...]:
        """Which of the step's classes the image holds."""
        present = self._presence[self.indices[position]]
        return tuple(name for name in self.step.new if self.scenario.data_classes.index(name) + 1 in present)
