"""Where the saliency of pictures in files comes from: S(x) of the paper, by the setting `data.saliency`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

import numpy as np

from ipseg.data.dataset import Saliency, Subset
from ipseg.data.file_dataset import Files
from ipseg.data.image_io import read_salient
from ipseg.errors import UserError
from ipseg.saliency.fallback import salient
from ipseg.scenario.split import IGNORE

if TYPE_CHECKING:
    from ipseg.data.dataset import Dataset
    from ipseg.data.file_dataset import FileDataset

SaliencyMode: TypeAlias = Literal["given", "fallback", "all", "none", "oracle"]
SaliencyName: TypeAlias = Literal["auto", "given", "fallback", "all", "none", "oracle"]
SaliencyFrom: TypeAlias = SaliencyName | str
"""What the setting takes: a name, or the path of a folder of maps."""

WAYS_OUT = (
    "Write maps with `ipseg saliency` (--model FILE.onnx, or --fallback), or set data.saliency: fallback (made while "
    "reading), all (all that is not annotated is unknown) or none (all of it is background)."
)


@dataclass(frozen=True, kw_only=True)
class SaliencySetting:
    """What every data set in files has."""

    saliency: SaliencyFrom = "auto"
    """What stands out in a picture. given: the tree's own maps. fallback: found without a model, while reading.
    all: everything, so that all that is not annotated is unknown (SSUL's on ADE20K). none: nothing, so that all of it
    is background. With either, ipseg needs variant: official. oracle: every object that the masks have, of classes of
    later steps too, which no step may know. auto: given where the tree has maps, otherwise fallback. Or the path of a
    folder of maps."""

    def oracle(self) -> list[str]:
        """Settings that see labels a step must not see."""
        return ["data.saliency=oracle"] if self.saliency == "oracle" else []


def is_path(setting: object) -> bool:
    """Whether `data.saliency` names a folder of maps, and none of the ways."""
    return isinstance(setting, str) and setting not in get_args(SaliencyName)


def saliency_mode(split: Dataset) -> SaliencyMode | None:
    """How a split's pictures get their saliency: what `auto` came to. None where no setting says it."""
    whole = split.whole if isinstance(split, Subset) else split
    maps = getattr(whole, "saliency_source", None)
    return maps.mode if isinstance(maps, SaliencySource) else None


@dataclass(frozen=True)
class SaliencySource:
    """How a split's pictures get their saliency, and the folder where their maps lie or would lie."""

    mode: SaliencyMode
    folder: Path
    root: Path
    """Links in the folder must stay inside of this one."""

    @classmethod
    def chosen(cls, setting: SaliencyFrom, root: Path, own: str, part: str = "") -> SaliencySource:
        """By the setting. `own` is the folder of maps in the tree `root`, `part` the split's folder in it."""
        if setting in get_args(SaliencyName):
            folder = root / own / part
            found: SaliencyMode = "given" if folder.is_dir() else "fallback"
            return cls(found if setting == "auto" else cast(SaliencyMode, setting), folder, root)
        elsewhere = Path(setting).expanduser()
        if not elsewhere.is_dir():
            near = get_close_matches(setting, get_args(SaliencyName), n=1)
            raise UserError(
                f'data.saliency: "{setting}" is no folder of maps.{f" Did you mean {near[0]}?" if near else ""} '
                f"Valid: {', '.join(get_args(SaliencyName))}, or such a folder."
            )
        return cls("given", elsewhere / part, elsewhere)

    def __str__(self) -> str:
        said = {"given": f"the maps in {self.folder}", "all": "all stands out", "none": "nothing stands out"}
        said["oracle"] = "the objects of the masks, of all classes"
        return said.get(self.mode, f"made while reading, without a model (there are no maps in {self.folder})")

    @cached_property
    def files(self) -> Files:
        """The maps that are there, also where they are not asked for."""
        return Files.below(self.folder, self.root, (".png",))

    def path(self, name: str) -> Path | None:
        """The file of a picture's map; none where maps are not read from files."""
        if self.mode != "given":
            return None
        self.require([name])
        return self.files.path(name)

    def require(self, names: Sequence[str]) -> None:
        """Raise if a map that would be read is not there: at once, rather than in the middle of a run."""
        missing = [name for name in names if name not in self.files.paths] if self.mode == "given" else []
        if missing:
            which = f"{self.folder / missing[0]}.png is missing"
            raise UserError(f"{which} ({len(missing)} of {len(names)} saliency maps are). {WAYS_OUT}")

    def of(self, split: FileDataset, index: int) -> Saliency:
        """Where something stands out of a picture."""
        path = self.path(split.names[index])
        if path is not None:
            return read_salient(path)
        if self.mode == "fallback":
            return salient(split.image(index))
        mask = split.mask(index)
        return (mask != 0) & (mask != IGNORE) if self.mode == "oracle" else np.full(mask.shape, self.mode == "all")
