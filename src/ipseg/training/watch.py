"""What must not go unnoticed while a step is learned: a loss that is not finite, pictures that teach nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from ipseg.errors import UserError
from ipseg.training.distributed import DistributedContext
from ipseg.training.iteration import Outcome

_KEPT = "The run stops here; the last good state is kept."


class Watch:
    """Notices a loss that is not finite, or that nothing counts, without always waiting for the device.

    A crop may show nothing but 255, so a batch without a counted pixel is no mistake; a whole pass of them is.
    """

    def __init__(self, start: int, dist: DistributedContext, one_pass: int) -> None:
        self._losses: dict[str, Tensor] = {}
        self._good, self._dist = start, dist
        self._one_pass, self._blank = one_pass, 0
        """Batches that show every picture once; how many in a row had nothing to count."""
        self._finite: Tensor | None = None
        self._counted: list[Tensor] = []
        """Of every batch since the last reading: in our share of it."""

    def look(self, outcome: Outcome) -> None:
        """Take note of an iteration; nothing is waited for."""
        self._losses = outcome.losses
        self._finite = outcome.finite.clone() if self._finite is None else self._finite & outcome.finite
        self._counted.append(outcome.counted.clone())

    def read(self, iteration: int, step: int) -> dict[str, float]:
        """The latest losses; raises, in all processes, if something went wrong since the last reading."""
        losses = {name: float(value) for name, value in self._losses.items()}
        where = f"step {step}, between iterations {self._good} and {iteration}"
        if not self._counted:
            return losses
        counted = self._dist.any_rank(*torch.stack(self._counted).tolist())
        self._counted.clear()
        for any_pixel in counted:
            self._blank = 0 if any_pixel else self._blank + 1
            if self._blank >= self._one_pass:
                raise UserError(
                    f"{where}: {self._blank} batches in a row, a whole pass over the pictures, have no counted pixel: "
                    f"all that they show is 255. {_KEPT} Check the masks, or take a larger training.crop."
                )
        if self._dist.any_rank(self._finite is not None and not bool(self._finite))[0]:
            rate = "training.later_lr" if step else "training.lr"
            raise UserError(f"{where}: the loss is not finite ({losses}). {_KEPT} A lower {rate} usually helps.")
        self._good = iteration
        return losses
