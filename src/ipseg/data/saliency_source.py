"""Where the saliency of images in files comes from, by the setting `data.saliency`: S(x) of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from ipseg.data.file_tree import Files
from ipseg.errors import UserError

SaliencyMode: TypeAlias = Literal["given", "fallback", "all", "none", "oracle"]
SaliencyName: TypeAlias = Literal["auto", "given", "fallback", "all", "none", "oracle"]
SaliencySetting: TypeAlias = SaliencyName | str
"""A name, or the path of a folder of maps."""


@dataclass(frozen=True)
class SaliencySource:
    """How a split gets its saliency, and the folder where its maps are or would be."""

    mode: SaliencyMode
    folder: Path
    root: Path
    """Links in the folder must stay inside of this one."""

    @classmethod
    def choose(cls, setting: SaliencySetting, root: Path, maps: str, part: str = "") -> SaliencySource:
        """By the setting. `maps` is the folder of maps in the tree `root`, `part` the split's folder in it."""
        if not is_map_folder(setting):
            folder = root / maps / part
            auto: SaliencyMode = "given" if folder.is_dir() else "fallback"
            return cls(auto if setting == "auto" else cast(SaliencyMode, setting), folder, root)
        elsewhere = Path(setting).expanduser()
        if not elsewhere.is_dir():
            names = get_args(SaliencyName)
            near = get_close_matches(setting, names, n=1)
            guess = f" Did you mean {near[0]}?" if near else ""
            raise UserError(
                f'data.saliency: "{setting}" is no folder of maps.{guess} Valid: {", ".join(names)}, or such a folder.'
            )
        return cls("given", elsewhere / part, elsewhere)

    def __str__(self) -> str:
        texts = {
            "given": f"the maps in {self.folder}",
            "fallback": f"computed while reading, without a model (there are no maps in {self.folder})",
            "all": "everything is salient",
            "none": "nothing is salient",
            "oracle": "the objects of the masks, of all classes",
        }
        return texts[self.mode]

    @cached_property
    def files(self) -> Files:
        """The maps in the folder, also where the mode does not use them."""
        return Files.below(self.folder, self.root, (".png",))

    def require(self, names: Sequence[str]) -> None:
        """Raise at once, rather than in the middle of a run, if a map that would be read is missing."""
        missing = [name for name in names if name not in self.files.paths] if self.mode == "given" else []
        if missing:
            raise UserError(
                f"{self.folder / missing[0]}.png is missing ({len(missing)} of {len(names)} saliency maps are). "
                "Write maps with `ipseg saliency` (--model FILE.onnx, or --fallback), or set data.saliency: fallback "
                "(computed while reading), all (everything not annotated is unknown) or none (all of it is background)."
            )


def is_map_folder(setting: SaliencySetting) -> bool:
    """Whether `data.saliency` is the path of a folder of maps, not a mode."""
    return setting not in get_args(SaliencyName)
