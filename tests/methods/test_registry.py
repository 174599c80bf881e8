"""Methods by name: ours, those of other packages, and any class."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from ipseg.errors import UserError
from ipseg.methods.registry import GROUP, METHODS, find_method, method_config
from ipseg.training.experiment import run
from ipseg.training.recipe import make_recipe

EXAMPLE = Path(__file__).parents[2] / "examples" / "anchored"


@pytest.fixture
def example(monkeypatch):
    """In the example's folder, as its text says."""
    monkeypatch.chdir(EXAMPLE)
    yield
    sys.modules.pop("anchored", None)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Makes Python believe that a package with this entry point is installed."""

    def installed(name: str, value: str) -> None:
        about = tmp_path / "some_package-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: some-package\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {value}\n")
        monkeypatch.syspath_prepend(tmp_path)

    return installed


def test_every_method_knows_its_own_name():
    for name, cls in METHODS.items():
        assert method_config({"name": name}).name == name
        assert find_method(name) is cls


def test_an_unknown_method_is_answered_with_the_nearest_one(install):
    with pytest.raises(UserError, match=r'no method "finetun"\. Did you mean finetune\?'):
        method_config({"name": "finetun"})
    install("anchored", "anchored:AnchoredConfig")
    with pytest.raises(UserError, match=r"Did you mean anchored\?"):
        method_config({"name": "anchord"})


def test_a_method_of_ones_own_is_named_by_module_and_class():
    assert method_config({"name": "ipseg.methods.finetune:FinetuneConfig"}).later_lr == 0.1
    with pytest.raises(UserError, match="cannot be imported"):
        method_config({"name": "ipseg.methods.finetune:Nothing"})


@pytest.mark.parametrize(
    "name",
    ["ipseg.methods.finetune:Finetune", "ipseg.data.memory:MemoryConfig", "ipseg.methods.replay:ReplayConfig"],
    ids=["the method itself", "settings of something else", "settings that build nothing"],
)
def test_what_is_not_a_class_of_a_methods_settings_is_refused_by_name(name):
    with pytest.raises(UserError, match=f"method {name}: .* must be a dataclass that inherits from .*MethodConfig"):
        method_config({"name": name})


@pytest.mark.usefixtures("example")
def test_a_method_of_another_package_is_found_by_its_entry_point(install, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE)  # as pip has it
    points = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
    (name, value), *_ = points.items()
    install(name, value)
    config = method_config({"name": name, "pull": 3})
    assert (type(config).__name__, config.name, config.pull) == ("AnchoredConfig", name, 3.0)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nowhere:Config", "method other of some-package cannot be imported: No module named 'nowhere'"),
        ("ipseg.methods.mib:Nothing", "method other of some-package cannot be imported"),
        ("ipseg.methods.registry:GROUP", "is not a class: ipseg.methods.registry:GROUP"),
    ],
)
def test_a_package_that_is_broken_is_named(install, value, message):
    install("other", value)
    with pytest.raises(UserError, match=message):
        method_config({"name": "other"})


def test_a_package_cannot_take_the_name_of_one_of_ours(install):
    install("mib", "ipseg.methods.plop:PlopConfig")
    assert find_method("mib") is METHODS["mib"]


@pytest.mark.usefixtures("example")
def test_the_example_trains_from_a_recipe_like_ours(tiny_settings, tmp_path):
    tiny_settings["model"]["backbone"]["name"] = "test_resnet"
    tiny_settings["method"] = {"name": "anchored:AnchoredConfig", "pull": 0.5}
    result = run(make_recipe(tiny_settings), tmp_path / "run", quiet=True)
    assert result.complete
    assert result.method == "anchored:AnchoredConfig"
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    parts = {line["step"]: set(line["loss"]) for line in lines if line["event"] == "train"}
    assert parts == {0: {"segmentation"}, 1: {"segmentation", "anchor"}, 2: {"segmentation", "anchor"}}


@pytest.mark.usefixtures("example")
def test_a_strong_anchor_keeps_the_weights_where_they_were(scenario, batch):
    import torch

    from ipseg.models.backbone import BackboneConfig
    from ipseg.models.network import ModelConfig

    method = method_config({"name": "anchored:AnchoredConfig"}).build(
        ModelConfig(backbone=BackboneConfig(name="test_resnet"), width=8, rates=(1,))
    )
    for step in scenario.steps[:2]:
        method.begin_step(step)
    assert method.distance().item() == 0
    with torch.no_grad():
        method.network.classifiers[0].bias += 2
    assert method.distance().item() == pytest.approx(3 * 4)  # background, cat and cow moved by 2 each
    assert method.loss(batch)["anchor"].item() == pytest.approx(12)


def test_the_example_is_short_enough_to_read_at_once():
    assert len((EXAMPLE / "anchored.py").read_text().splitlines()) < 70
