"""Regions: proposals without a model, the command that writes them, and maps on their way through data and memory."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import commands
from ipseg.apps.maps import plan_maps, write_maps
from ipseg.data.dataset import DataError
from ipseg.data.file_dataset import region_mode
from ipseg.data.folder import FolderConfig
from ipseg.data.image_io import read_regions
from ipseg.data.memory import (
    LabelPolicy,
    MemoryConfig,
    ReplayMemory,
    load_memory,
    move_memory,
    save_memory,
    update_memory,
)
from ipseg.data.step_dataset import StepDataset
from ipseg.data.transforms import CropTransform, apply_transform, pack
from ipseg.errors import UserError
from ipseg.scenario import ScenarioConfig
from ipseg.training.experiment import run
from ipseg.training.recipe import make_recipe

pytest.importorskip("skimage", reason="needs the extra regions")

from ipseg.saliency.regions import MAX_REGIONS, NO_REGION, cut, propose_regions

CPU = torch.device("cpu")


def call(*words: object):
    return commands.call("regions", *words)


@pytest.fixture
def data(make_folder_data):
    return make_folder_data()


def dataset(path, **settings) -> StepDataset:
    """Of the base step, with regions."""
    splits = FolderConfig(path=str(path), **settings).build()
    scenario = ScenarioConfig(name="1-1").build("folder", splits.classes)
    return StepDataset(splits.train, scenario, scenario.steps[0], regions=True)


# ---- proposals ------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(0, 2**16))
def test_every_pixel_of_any_image_has_one_of_at_most_100_regions(height, width, seed):
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    regions = propose_regions(image)
    assert regions.shape == (height, width)
    assert regions.dtype == np.uint8
    assert sorted(np.unique(regions)) == list(range(regions.max() + 1))
    assert regions.max() < MAX_REGIONS
    assert np.array_equal(regions, propose_regions(image))


def test_objects_of_one_color_are_regions():
    image = np.full((60, 80, 3), 200, np.uint8)
    image[20:40, 10:30], image[30:50, 50:70] = (200, 0, 0), (0, 0, 200)
    regions = propose_regions(image)
    for rows, columns in ((slice(22, 38), slice(12, 28)), (slice(32, 48), slice(52, 68))):
        (own,) = np.unique(regions[rows, columns])
        assert (regions == own).sum() < 1.5 * 400


def test_a_segment_is_cut_where_saliency_ends_unless_hardly_a_pixel_is_on_the_other_side():
    segments, inside = np.zeros((10, 20), int), np.zeros((10, 20), bool)
    inside[:, :10] = True
    assert len(np.unique(cut(segments, inside))) == 2
    inside[:] = False
    inside[0, :15] = True
    assert len(np.unique(cut(segments, inside))) == 1


# ---- the command ----------------------------------------------------------------------------------------------------


def test_the_command_writes_what_is_computed_while_reading_and_keeps_what_exists(data):
    computed = dataset(data).sample(0).regions
    Image.new("L", (64, 48)).save(data / "regions.png")
    result = call(data)
    assert result.exit_code == 0, result.output
    assert f"12 maps written: {data / 'regions'}" in result.output
    assert np.array_equal(dataset(data).sample(0).regions, computed)
    assert region_mode(FolderConfig(path=str(data)).build().train) == "given"
    assert "0 maps written, 12 " in call(data).output


def test_maps_elsewhere_are_used_by_their_setting(data, tmp_path):
    result = call(data, "--out", tmp_path / "maps")
    assert f"--set data.regions={tmp_path / 'maps'}" in result.output
    assert not (data / "regions").exists()
    assert region_mode(FolderConfig(path=str(data), regions=str(tmp_path / "maps")).build().train) == "given"
    with pytest.raises(UserError, match=r'data\.regions: ".*" is no folder'):
        FolderConfig(path=str(data), regions=str(tmp_path / "none")).build()


def test_a_proposer_of_one_s_own_is_checked(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "halves.py").write_text(
        "import numpy as np\n"
        "class Halves:\n"
        "    def __call__(self, image):\n"
        "        regions = np.zeros(image.shape[:2], np.uint8)\n"
        "        regions[:, image.shape[1] // 2 :] = 255\n"
        "        return regions\n"
        "class Many(Halves):\n"
        "    def __call__(self, image):\n"
        "        return super().__call__(image) // 2\n"
    )
    assert call(data, "--by", "halves:Halves").exit_code == 0
    regions = dataset(data).sample(0).regions
    assert set(np.unique(regions)) == {0, NO_REGION}
    said = commands.fails("regions", data, "--by", "halves:Many", "--out", tmp_path / "maps")
    assert "halves:Many must give an array of uint8" in said
    assert "with other values" in said


# ---- on the way to a batch ------------------------------------------------------------------------------------------


def test_a_map_of_another_size_or_with_other_values_is_named(data):
    write_maps(plan_maps(data, "folder", what="regions"), propose_regions, quiet=True)
    name = dataset(data).name(0)
    path = data / "regions" / f"{name}.png"
    Image.new("L", (5, 5)).save(path)
    with pytest.raises(DataError, match=rf"{name}: its image 64x48, its region map 5x5"):
        dataset(data).sample(0)
    Image.new("L", (64, 48), 100).save(path)
    with pytest.raises(DataError, match="holds the region 100; valid are 0 to 99, and 255 for none"):
        read_regions(path)


def test_a_run_over_regions_wants_every_map_or_none(data, tiny_settings, tmp_path):
    call(data)
    next((data / "regions").iterdir()).unlink()
    recipe = make_recipe(
        tiny_settings | {"data": {"name": "folder", "path": str(data)}, "method": {"name": "microseg_m"}}
    )
    with pytest.raises(UserError, match=r"\.png is missing \(1 of \d+ maps of regions are\)"):
        run(recipe, tmp_path / "run", quiet=True)


def test_regions_are_scaled_to_the_nearest_pixel_and_padding_is_of_none(data):
    sample = dataset(data).sample(0)
    transform = CropTransform(2.0, -4.0, -6.0, flip=False)
    batch = apply_transform(pack([sample], 1, CPU), [0], [transform], (120, 160))
    assert np.array_equal(batch.regions[0, 4:100:2, 6:134:2], sample.regions)
    assert (batch.regions[0, :4] == NO_REGION).all()


def test_memory_keeps_the_regions_of_its_images(data, tmp_path):
    view, config = dataset(data), MemoryConfig(size=3, store="copy")
    memory = update_memory(ReplayMemory([], view.split, ()), view, config, 0, lambda _: [])
    save_memory(memory, tmp_path / "memory", view, config)
    stored = load_memory(tmp_path / "memory", view.split, LabelPolicy(None, view))
    move_memory(stored, tmp_path / "moved", [])
    moved = load_memory(tmp_path / "moved", view.split, LabelPolicy(None, view))
    for index, exemplar in enumerate(stored.exemplars):
        regions = view.split.regions(view.split.names.index(exemplar.name))
        assert np.array_equal(stored.sample(index).regions, regions)
        assert np.array_equal(moved.sample(index).regions, regions)
    (tmp_path / "moved" / "regions" / f"{moved.exemplars[0].name}.png").unlink()
    with pytest.raises(UserError, match="was stored without its regions"):
        load_memory(tmp_path / "moved", view.split, LabelPolicy(None, view)).sample(0)


def test_a_run_over_regions_is_not_exported_and_does_not_go_on_with_others(data, tiny_settings, tmp_path):
    settings = tiny_settings | {"data": {"name": "folder", "path": str(data)}, "method": {"name": "microseg"}}
    run(make_recipe(settings), tmp_path / "run", quiet=True, steps=1)
    if find_spec("onnx") and find_spec("onnxruntime"):
        said = commands.fails("export", tmp_path / "run", tmp_path / "model.onnx")
        assert "microseg needs a map of regions for every image" in said
    call(data)
    with pytest.raises(UserError, match="began with regions: fallback; as the data is now, that would be given"):
        run(make_recipe(settings), tmp_path / "run", quiet=True, resume=True)
