"""One more class: what becomes of the memory."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from commands import call, extension, fails
from ipseg.apps.extend import extend
from ipseg.data.dataset import EmptyDataset
from ipseg.data.memory import load_memory
from ipseg.errors import UserError

pytestmark = pytest.mark.slow


def test_a_memory_of_names_is_copied_while_the_old_data_is_there(names_only, make_folder_data, tmp_path):
    new = make_folder_data("new", classes=("sheep",), count=6)
    extend(names_only, new, ["sheep"], tmp_path / "run", quiet=True)
    assert not load_memory(tmp_path / "run" / "step_02" / "memory", EmptyDataset()).without_copy()
    assert not (names_only / "step_01" / "memory" / "images").exists()


def test_a_memory_of_names_whose_data_is_gone_is_told_and_can_be_left(names_only, make_folder_data, tmp_path):
    shutil.rmtree(tmp_path / "old")
    new = make_folder_data("new", classes=("sheep",), count=6)
    words = extension(names_only, new, "sheep", tmp_path / "run", "--quiet")
    refused = call(*words)
    assert refused.exit_code == 2
    assert "memory.store: path" in refused.stderr
    assert "--no-memory" in refused.stderr
    assert not (tmp_path / "run").exists()
    done = call(*words, "--no-memory")
    assert done.exit_code == 0, done.output
    assert "no image in the memory" in done.output
    assert json.loads((tmp_path / "run" / "extend.json").read_text())["memory"] is None


def test_a_memory_that_was_deleted_is_told_as_such_and_can_be_left(extended, tmp_path):
    """The data is not to blame: this memory had copies."""
    shutil.copytree(extended / "base", tmp_path / "base")
    for memory in (tmp_path / "base").glob("step_*/memory"):
        shutil.rmtree(memory)
    words = extension(tmp_path / "base", extended / "new", "sheep", tmp_path / "run")
    refused = call(*words, "--quiet")
    assert refused.exit_code == 2
    message = " ".join(refused.stderr.split())
    assert "has no memory after step 1" in message
    assert "deleted, or left out of a pack" in message
    assert "--no-memory" in message
    assert "memory.store" not in message
    done = call(*words, "--quiet", "--no-memory")
    assert done.exit_code == 0, done.output


def test_a_damaged_memory_is_not_put_down_to_the_data(extended, tmp_path):
    shutil.copytree(extended / "base", tmp_path / "base")
    (tmp_path / "base" / "step_01" / "memory" / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"damaged(.|\n)*Put a whole copy of it in its place, or .*--no-memory"):
        extend(tmp_path / "base", extended / "new", ["sheep"], tmp_path / "run")


def test_a_memory_that_has_lost_a_map_can_be_left_too(extended, tmp_path):
    base = shutil.copytree(extended / "base", tmp_path / "base")
    lost = next((base / "step_01" / "memory" / "saliency").iterdir())
    lost.unlink()
    error = fails(*extension(base, extended / "new", "sheep", tmp_path / "run"))
    assert lost.name in error
    assert "--no-memory" in error
    assert list(tmp_path.iterdir()) == [base]


def test_the_own_folder_with_one_more_class_annotated_says_so_of_remembered_images(names_only, tmp_path):
    """The new class stands in a corner of every image: none that is remembered may be taught that it is absent."""
    (tmp_path / "old" / "classes.txt").write_text("red\ngreen\nblue\n")
    for path in (tmp_path / "old" / "masks").iterdir():
        mask = np.array(Image.open(path))
        mask[:8, :8] = 3
        Image.fromarray(mask).save(path)
    extend(names_only, tmp_path / "old", ["blue"], tmp_path / "run", quiet=True)
    base, before, after = (
        load_memory(path / "memory", EmptyDataset()).exemplars
        for path in (names_only / "step_01", tmp_path / "run" / "step_01", tmp_path / "run" / "step_02")
    )
    assert [exemplar.name for exemplar in before] == [exemplar.name for exemplar in base]
    old = [exemplar for exemplar in after if exemplar.step < 2]
    assert old
    assert all("blue" in exemplar.classes for exemplar in old)
