"""ADE20K as its scene parsing challenge gives it: 150 classes, and 0 for all other things."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from ipseg.data.dataset import DatasetSplits
from ipseg.data.file_dataset import FileDataConfig, FileDataset
from ipseg.data.file_tree import Files, require_folders, require_names
from ipseg.data.image_io import IndexMasks
from ipseg.data.saliency_source import SaliencySource
from ipseg.scenario import ADE


@dataclass(frozen=True, kw_only=True)
class AdeConfig(FileDataConfig):
    """ADE20K (ADEChallengeData2016): 150 classes."""

    tree: ClassVar[str] = """\
    PATH/                          ADEChallengeData2016
      images/training/             NAME.jpg
      images/validation/
      annotations/training/        NAME.png, gray: classes 1 to 150, 0 all other things
      annotations/validation/
      saliency_map/training/       NAME.png, not zero where something is salient (optional)"""

    name: str = "ade"
    """The data set."""

    other: Literal["background", "ignore"] = "background"
    """What mask value 0, all other things, is. background: trained and counted as a class (as SSUL and PLOP do).
    ignore: neither trained on nor counted (as MiB measures)."""

    def _open(self) -> DatasetSplits:
        require_folders(self.root, ["annotations/training"])
        train = self._split("training")
        has_val = (self.root / "annotations" / "validation").is_dir()
        return DatasetSplits(self.name, ADE, train, self._split("validation") if has_val else replace(train, names=[]))

    def _split(self, part: str) -> FileDataset:
        root = self.root
        masks = Files.below(root / "annotations" / part, root, (".png",))
        return FileDataset(
            require_names(sorted(masks.paths), masks.folder),
            images=Files.below(root / "images" / part, root),
            masks=masks,
            read_mask=IndexMasks(len(ADE), ignore_zero=self.other == "ignore"),
            saliency_source=SaliencySource.choose(self.saliency, root, "saliency_map", part),
            region_maps=self.region_maps(part),
        )
