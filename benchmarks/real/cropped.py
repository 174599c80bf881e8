"""IPSeg by the text, but replayed images are cropped for its posterior like new ones, as in the authors' code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ipseg.methods.ipseg import IPSegConfig, Rules


@dataclass(frozen=True, kw_only=True)
class Cropped(IPSegConfig):
    """Named in a recipe as `cropped:Cropped`."""

    name: str = "cropped:Cropped"
    """The method."""

    @property
    def rules(self) -> Rules:
        """The variant's, but for the images of the posterior."""
        return replace(super().rules, posterior_sees_crops=True)

    def base_settings(self) -> dict[str, Any]:
        """As in ipseg: the base step replays nothing."""
        return super().base_settings() | {"name": "ipseg"}
