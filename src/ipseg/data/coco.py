"""COCO: annotations as instances (polygons and run lengths) or panoptic, any pictures that are annotated that way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ipseg.data.coco_annotations import CocoMasks, read_annotations
from ipseg.data.filed import Files, FileSplit, checked_names, complete, require_exists, require_inside
from ipseg.data.maps import Maps, SaliencySetting
from ipseg.data.source import Source
from ipseg.errors import UserError

TREE = """\
    PATH/
      train2017/, val2017/                     the pictures (data.train_images, data.val_images)
      annotations/instances_train2017.json     polygons and run lengths (data.train), or panoptic_train2017.json
      annotations/instances_val2017.json       (data.val)
      annotations/panoptic_train2017/          with panoptic JSON: its PNGs, in the folder of the JSON's name
      saliency_map/train2017/                  NAME.png, not zero where something stands out (optional)"""


@dataclass(frozen=True, kw_only=True)
class CocoConfig(SaliencySetting):
    """COCO annotations: instances or panoptic. Polygons and run lengths need the extra `coco`."""

    path: str
    """The folder that the others are in."""

    name: str = "coco"
    """The data set."""

    train: str = "annotations/instances_train2017.json"
    """Annotations of the training pictures."""

    val: str = "annotations/instances_val2017.json"
    """Annotations of the validation pictures."""

    train_images: str = "train2017"
    """Folder of the training pictures."""

    val_images: str = "val2017"
    """Folder of the validation pictures."""

    crowd: Literal["label", "ignore"] = "label"
    """Regions marked as crowds. label: of their class, as any other. ignore: neither trained on nor counted."""

    def build(self) -> Source:
        """The data set, every file in its place. Pixels are read when they are needed."""
        return complete(self.open(), TREE)

    def open(self) -> Source:
        """The same with pictures missing: annotations alone tell which classes are where."""
        root = Path(self.path).expanduser()
        require_exists(root, f" Expected:\n{TREE}")
        train, classes = self._split(root, self.train, self.train_images)
        val, others = self._split(root, self.val, self.val_images)
        if classes != others:
            differ = sorted(set(classes) ^ set(others))
            raise UserError(
                f"data.train and data.val of {root} have different categories"
                f"{': ' + ', '.join(differ[:5]) if differ else ' (in another order)'}; they must be the same."
            )
        return Source(self.name, classes, train, val)

    def _split(self, root: Path, json: str, folder: str) -> tuple[FileSplit, tuple[str, ...]]:
        path = root / json
        require_inside(path, root)
        annotations = read_annotations(path, TREE)
        names = checked_names(list(annotations.pictures), str(path), TREE)
        images, maps = Files.below(root / folder, root), Maps.chosen(self.saliency, root, "saliency_map", folder)
        if annotations.panoptic:
            masks = Files.below(path.with_suffix(""), root, (".png",))
        else:  # drawn from the JSON: the image's path says which
            paths = {name: images.folder / image.file for name, image in annotations.pictures.items()}
            masks = Files(images.folder, (), paths)
        reader = CocoMasks(path, annotations.stamp, masks.folder, self.crowd)
        split = FileSplit(names, annotations.classes, images=images, masks=masks, read_mask=reader, maps=maps)
        return split, annotations.classes
