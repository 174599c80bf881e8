from __future__ import annotations

import json
import shutil

import pytest
import torch

import ipseg
from commands import call, fails
from ipseg import UserError
from ipseg.apps import cost as costs
from ipseg.apps.cost import cost, scenario_of
from ipseg.apps.train import resolve
from ipseg.models.network import count_parameters
from ipseg.scenario import VOC

CPU = torch.device("cpu")


def test_the_json_has_the_documented_keys_for_every_step(tiny_run):
    report = json.loads(call("cost", tiny_run, "--size", 64, "--json").output)
    assert list(report) == ["recipe", "size", "device", "steps"]
    assert (report["size"], report["device"]) == (64, "cpu")
    assert [step["step"] for step in report["steps"]] == [0, 1, 2]
    for step in report["steps"]:
        assert list(step) == [
            "step", "parameters", "trainable", "macs",
            "fps", "inference_memory", "training_images_a_second", "training_memory",
        ]  # fmt: skip
        assert step["fps"] is step["inference_memory"] is step["training_memory"] is None


def test_parameters_are_those_of_the_network_and_only_new_parts_learn(tiny_settings):
    recipe = resolve(tiny_settings)
    steps = cost(recipe, 64, CPU)["steps"]
    method = recipe.method.build(recipe.model, pretrained=False)
    for step, counted in zip(scenario_of(recipe).steps, steps, strict=True):
        method.begin_step(step)
        assert counted["parameters"] == count_parameters(method.network)
    assert steps[0]["trainable"] == steps[0]["parameters"]
    assert steps[1]["trainable"] < steps[1]["parameters"]


def test_multiply_adds_are_those_that_torch_counts_when_it_computes(tiny_settings):
    from torch.utils.flop_counter import FlopCounterMode

    recipe = resolve(tiny_settings)
    method = recipe.method.build(recipe.model, pretrained=False)
    method.begin_step(scenario_of(recipe).steps[0])
    with FlopCounterMode(display=False) as counter:
        method.predict(torch.zeros(1, 3, 64, 64))
    assert cost(recipe, 64, CPU)["steps"][0]["macs"] == counter.get_total_flops() // 2


def test_fine_tuning_has_costs_too(tiny_settings):
    steps = cost(resolve(tiny_settings | {"method": {"name": "finetune"}}), 64, CPU)["steps"]
    assert all(step["trainable"] == step["parameters"] for step in steps)


@pytest.mark.slow
def test_swin_b_on_voc_has_the_costs_of_the_paper():
    report = json.loads(call("cost", "voc_15-1_ipseg_swin-b", "--json", "--set", "device=cpu").output)
    first, last = report["steps"][0], report["steps"][5]
    assert first["parameters"] == pytest.approx(135.92e6, rel=0.01)
    assert last["parameters"] == pytest.approx(155.12e6, rel=0.01)
    assert first["macs"] == pytest.approx(137.1e9, rel=0.01)


def test_classes_come_from_the_recipe_where_the_data_is_not_here(tiny_settings, tmp_path):
    gone = tiny_settings | {"data": {"name": "folder", "path": str(tmp_path / "gone")}}
    named = scenario_of(resolve(gone | {"scenario": {"name": "voc/15-1"}}))
    listed = scenario_of(resolve(gone | {"scenario": {"name": "15-1", "order": list(VOC)}}))
    assert [step.new for step in named.steps] == [step.new for step in listed.steps]
    with pytest.raises(UserError, match="is not a data folder"):
        scenario_of(resolve(gone))


def test_a_run_is_counted_when_its_data_is_gone(make_folder_data, tiny_settings, tmp_path):
    data, run = make_folder_data(), tmp_path / "run"
    ipseg.train(tiny_settings | {"data": {"name": "folder", "path": str(data)}}, run, quiet=True)
    there = call("cost", run, "--size", 64, "--json").output
    shutil.rmtree(data)
    assert call("cost", run, "--size", 64, "--json").output == there
    assert len(json.loads(there)["steps"]) == 2
    assert "is not a data folder" in fails("cost", run / "recipe.yaml", "--size", 64)


def test_the_classes_of_a_run_are_not_those_of_other_data(tiny_run):
    other = json.loads(call("cost", tiny_run, "--size", 64, "--json", "--set", "data.classes=3").output)
    assert len(other["steps"]) == 2


def test_listed_steps_need_no_data(tiny_settings, tmp_path):
    gone = tiny_settings | {"data": {"name": "folder", "path": str(tmp_path / "gone")}}
    listed = scenario_of(resolve(gone | {"scenario": {"name": "grown", "steps": [["cow", "bus"], ["car"]]}}))
    assert [step.new for step in listed.steps] == [("cow", "bus"), ("car",)]


def test_speed_is_measured_on_batches_as_the_method_plans_them(tiny_settings, monkeypatch):
    monkeypatch.setattr(costs, "WARM_UP", 1)
    monkeypatch.setattr(costs, "TIMED", 1)
    for method in ({"name": "ipseg"}, {"name": "ipseg", "image_labels": "full"}, {"name": "finetune"}):
        recipe = resolve(tiny_settings | {"method": method})
        made = recipe.method.build(recipe.model, pretrained=False)
        for step in scenario_of(recipe).steps:
            made.begin_step(step)
            inference, training = costs.measure(made, recipe, step, 64, CPU)
            assert inference.rate > 0
            assert training.rate > 0


def test_a_size_that_cannot_be_is_told(tiny_run):
    result = call("cost", tiny_run, "--size", 3)
    assert result.exit_code == 2
    assert "--size is 3" in result.stderr


def test_the_table_shows_every_step(tiny_run):
    output = call("cost", tiny_run, "--size", 64).output
    assert "multiply-adds" in output
    assert " G " in output
