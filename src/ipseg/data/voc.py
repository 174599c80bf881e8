"""Pascal VOC 2012, with the masks of SBD (SegmentationClassAug) where they are there."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from ipseg.config import scoped
from ipseg.data.dataset import DatasetSplits
from ipseg.data.file_dataset import FileDataset, Files, checked_names, read_names, require_complete, require_folders
from ipseg.data.image_io import IndexMasks
from ipseg.data.saliency_source import SaliencySetting, SaliencySource
from ipseg.scenario.catalog import VOC

AUG = "SegmentationClassAug"
LISTS = "ImageSets/Segmentation"
TREE = f"""\
    PATH/                        VOCdevkit/VOC2012
      JPEGImages/                NAME.jpg
      {AUG}/      NAME.png, a palette: classes 1 to 20, 0 background, 255 not labeled
                                 (VOC's masks and those of SBD; or SegmentationClass/, VOC's alone)
      {LISTS}/   train_aug.txt or train.txt, and val.txt: one name a line, without suffix
      saliency_map/              NAME.png, not zero where something stands out (optional)"""


@dataclass(frozen=True, kw_only=True)
class VocConfig(SaliencySetting):
    """Pascal VOC 2012: 20 classes."""

    path: str = scoped(MISSING, "place")
    """The folder that holds JPEGImages/."""

    name: str = "voc"
    """The data set."""

    masks: str | None = None
    """Folder of the masks. null: SegmentationClassAug (VOC and SBD) where it is there, otherwise SegmentationClass."""

    train: str | None = None
    """List of the training pictures. null: train_aug where it is there and goes with the masks, otherwise train."""

    val: str = "val"
    """List of the validation pictures."""

    def build(self) -> DatasetSplits:
        """The data set, every file in its place. Pixels are read when they are needed."""
        require_folders(Path(self.path).expanduser(), (self._masks, LISTS), "voc", TREE)
        return require_complete(self.open(), TREE)

    def open(self) -> DatasetSplits:
        """The same with pictures and lists missing: masks alone tell which classes are where."""
        root = Path(self.path).expanduser()
        require_folders(root, (self._masks,), "voc", TREE)
        masks = Files.below(root / self._masks, root, (".png",))
        names, val = self._names(root, masks)
        split = FileDataset(
            names,
            VOC,
            images=Files.below(root / "JPEGImages", root),
            masks=masks,
            read_mask=IndexMasks(len(VOC)),
            saliency_source=SaliencySource.chosen(self.saliency, root, "saliency_map"),
        )
        return DatasetSplits(self.name, VOC, split, split.having(val))

    def _names(self, root: Path, masks: Files) -> tuple[list[str], list[str]]:
        lists, train = root / LISTS, self.train
        if not lists.is_dir():
            return checked_names(sorted(masks.paths), str(masks.folder), TREE), []
        if train is None:
            augmented = root / self._masks == root / AUG  # as paths: one may be written in several ways
            train = "train_aug" if augmented and (lists / "train_aug.txt").is_file() else "train"
        has_val = self.val != "val" or (lists / "val.txt").is_file()  # one that is asked for must be there
        return (
            read_names(lists / f"{train}.txt", root, TREE),
            read_names(lists / f"{self.val}.txt", root, TREE) if has_val else [],
        )

    @property
    def _masks(self) -> str:
        if self.masks is not None:
            return self.masks
        return next(
            (name for name in (AUG, "SegmentationClass") if (Path(self.path).expanduser() / name).is_dir()), AUG
        )
