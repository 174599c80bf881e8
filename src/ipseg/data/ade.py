"""ADE20K as its scene parsing challenge gives it: 150 classes, and 0 for all other things."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from ipseg.config import scoped
from ipseg.data.dataset import DatasetSplits
from ipseg.data.file_dataset import FileDataset, Files, checked_names, require_complete, require_folders
from ipseg.data.image_io import IndexMasks
from ipseg.data.saliency_source import SaliencySetting, SaliencySource
from ipseg.scenario.catalog import ADE

TREE = """\
    PATH/                          ADEChallengeData2016
      images/training/             NAME.jpg
      images/validation/
      annotations/training/        NAME.png, gray: classes 1 to 150, 0 all other things
      annotations/validation/
      saliency_map/training/       NAME.png, not zero where something stands out (optional)"""


@dataclass(frozen=True, kw_only=True)
class AdeConfig(SaliencySetting):
    """ADE20K (ADEChallengeData2016): 150 classes."""

    path: str = scoped(MISSING, "place")
    """The folder that holds images/ and annotations/."""

    name: str = "ade"
    """The data set."""

    other: Literal["background", "ignore"] = "background"
    """What mask value 0, all other things, is. background: trained and counted as a class (as SSUL and PLOP do).
    ignore: neither trained on nor counted (as MiB measures)."""

    def build(self) -> DatasetSplits:
        """The data set, every file in its place. Pixels are read when they are needed."""
        require_folders(Path(self.path).expanduser(), ("annotations/training", "annotations/validation"), "ade", TREE)
        return require_complete(self.open(), TREE)

    def open(self) -> DatasetSplits:
        """The same with pictures or the validation part missing: masks alone tell which classes are where."""
        root = Path(self.path).expanduser()
        require_folders(root, ("annotations/training",), "ade", TREE)
        train, val = self._split(root, "training"), root / "annotations" / "validation"
        return DatasetSplits(
            self.name, ADE, train, self._split(root, "validation") if val.is_dir() else train.having([])
        )

    def _split(self, root: Path, part: str) -> FileDataset:
        masks = Files.below(root / "annotations" / part, root, (".png",))
        return FileDataset(
            checked_names(sorted(masks.paths), str(masks.folder), TREE),
            ADE,
            images=Files.below(root / "images" / part, root),
            masks=masks,
            read_mask=IndexMasks(len(ADE), zero_ignored=self.other == "ignore"),
            saliency_source=SaliencySource.chosen(self.saliency, root, "saliency_map", part),
        )
