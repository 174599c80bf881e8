"""A step's view of a data set: its pictures, with its labels and nothing else."""

from __future__ import annotations

from ipseg.data.batch import Sample
from ipseg.data.dataset import Dataset, require_same_size
from ipseg.errors import UserError
from ipseg.scenario.split import Scenario, Step


class StepDataset:
    """The pictures that a step learns from. Labels of old and future classes do not pass.

    `oracle` lets old ones through beside the step's own, for upper bounds that say so in their results.
    """

    def __init__(self, split: Dataset, scenario: Scenario, step: Step, *, oracle: bool = False) -> None:
        self.split, self.scenario, self.step = split, scenario, step
        missing = [name for name in step.new if name not in scenario.data_classes]
        if missing:
            raise UserError(
                f"step {step.index} of {scenario.name} learns {', '.join(missing)}, which the data does not have; "
                f"its classes are {', '.join(scenario.data_classes)}."
            )
        self._present = split.class_presence()
        self.indices = [i for i, found in enumerate(self._present) if scenario.selects(step, found)]
        if not self.indices:
            raise UserError(
                f"step {step.index} of {scenario.name} ({scenario.setting}) has no picture: "
                f"none of the {len(split.names)} training pictures holds {', '.join(step.new)}"
                + (" without a future class." if scenario.setting == "disjoint" else ".")
            )
        self._labels = scenario.training_table(step)
        self._oracle = scenario.oracle_table(step) if oracle else None

    def __len__(self) -> int:
        return len(self.indices)

    def sample(self, position: int) -> Sample:
        """The picture at a position of the view, with this step's labels."""
        index = self.indices[position]
        image, mask, salient = self.split.image(index), self.split.mask(index), self.split.saliency(index)
        require_same_size(self.split.names[index], image=image, mask=mask, saliency_map=salient)
        full = None if self._oracle is None else self._oracle[mask]
        return Sample(image, self._labels[mask], salient, full=full)

    def name(self, position: int) -> str:
        """The picture's name in the data set."""
        return self.split.names[self.indices[position]]

    def classes_in(self, position: int) -> tuple[str, ...]:
        """Which of the step's classes the picture holds."""
        found = self._present[self.indices[position]]
        values = {name: self.scenario.data_classes.index(name) + 1 for name in self.step.new}
        return tuple(name for name in self.step.new if values[name] in found)
