"""Data sets by name, or by `module:Class` for one of your own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ipseg.config import build, find_class
from ipseg.data.ade import AdeConfig
from ipseg.data.coco import CocoConfig
from ipseg.data.dataset import DataConfig
from ipseg.data.folder import FolderConfig
from ipseg.data.scenes.dataset import ScenesConfig
from ipseg.data.voc import VocConfig

DATA_SETS: dict[str, type] = {
    "scenes": ScenesConfig,
    "folder": FolderConfig,
    "voc": VocConfig,
    "ade": AdeConfig,
    "coco": CocoConfig,
}


def data_config(values: Mapping[str, Any]) -> DataConfig:
    """The settings of the data set that `name` names."""
    cls = find_class(str(values.get("name", "scenes")), DATA_SETS, "data set")
    return cast(DataConfig, build(cls, values, "data"))
