"""Pascal VOC 2012, with the masks of SBD (SegmentationClassAug) where they are there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ipseg.data.dataset import DatasetSplits
from ipseg.data.file_dataset import FileDataConfig, FileDataset
from ipseg.data.file_tree import Files, read_names, require_folders, require_names
from ipseg.data.image_io import IndexMasks
from ipseg.data.saliency_source import SaliencySource
from ipseg.scenario import VOC

AUG = "SegmentationClassAug"
LISTS = "ImageSets/Segmentation"


@dataclass(frozen=True, kw_only=True)
class VocConfig(FileDataConfig):
    """Pascal VOC 2012: 20 classes."""

    tree: ClassVar[str] = f"""\
    PATH/                        VOCdevkit/VOC2012
      JPEGImages/                NAME.jpg
      {AUG}/      NAME.png, a palette: classes 1 to 20, 0 background, 255 not labeled
                                 (VOC's masks and those of SBD; or SegmentationClass/, VOC's alone)
      {LISTS}/   train_aug.txt or train.txt, and val.txt: one name a line, without suffix
      saliency_map/              NAME.png, not zero where something is salient (optional)"""

    name: str = "voc"
    """The data set."""

    masks: str | None = None
    """Folder of the masks. null: SegmentationClassAug (VOC and SBD) where it is there, otherwise SegmentationClass."""

    train: str | None = None
    """List of the training images. null: train_aug where it is there and goes with the masks, otherwise train."""

    val: str = "val"
    """List of the validation images."""

    def _open(self) -> DatasetSplits:
        root = self.root
        folder = self.masks or next((name for name in (AUG, "SegmentationClass") if (root / name).is_dir()), AUG)
        require_folders(root, [folder])
        masks = Files.below(root / folder, root, (".png",))
        names, val = self._names(masks)
        saliency = SaliencySource.choose(self.saliency, root, "saliency_map")
        images = Files.below(root / "JPEGImages", root)
        train = FileDataset(names, images, masks, IndexMasks(len(VOC)), saliency, self.region_maps())
        return DatasetSplits(self.name, VOC, train, replace(train, names=val))

    def _names(self, masks: Files) -> tuple[list[str], list[str]]:
        """The lists of the splits. Without any, all masks are of training images."""
        root, lists = self.root, self.root / LISTS
        if not lists.is_dir():
            return require_names(sorted(masks.paths), masks.folder), []
        augmented = masks.folder == root / AUG and (lists / "train_aug.txt").is_file()
        train = self.train or ("train_aug" if augmented else "train")
        has_val = self.val != "val" or (lists / "val.txt").is_file()  # one that is asked for must be there
        val = read_names(lists / f"{self.val}.txt", root) if has_val else []
        return read_names(lists / f"{train}.txt", root), val
