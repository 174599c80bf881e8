"""The paper's numbers: all of them, as printed, with their places, and those of a recipe."""

from __future__ import annotations

from collections import Counter

import pytest

from ipseg.config import override, to_dict
from ipseg.methods.registry import METHODS
from ipseg.report.paper import paper_numbers, published, published_for
from ipseg.scenario import VOC, describe
from ipseg.training.recipe import load_recipe, make_recipe

MAIN = ("tab:voc_res", "tab:ade_res", "tab:voc_res_disjoint")


def triple(**wanted: str) -> tuple[float, ...]:
    found = {number.group: number.value for number in published(measure="miou", **wanted)}
    return found["base"], found["new"], found["all"]


def test_every_table_and_curve_has_all_its_numbers():
    assert Counter(number.where for number in paper_numbers()) == {
        "tab:voc_res": 23 * 12 - 21,  # 21 are "-" in the paper
        "tab:ade_res": 21 * 12,
        "tab:voc_res_disjoint": 9 * 6,
        "fig:performance_voc(a)": 4 * 4,
        "fig:performance_voc(b)": 4 * 10,
        "fig:performance_voc(c)": 4 * 6,
        "tab:impact_image-level_pseudo_label": 3 * 9,
        "tab:abs_overall": 5 * 3,
        "tab:IP_base_acc": 3 * 6,
        "tab:IP_all_acc": 3 * 6,
        "tab:para_costs": 3 * 11,
        "tab:impact_mem": 4 * 12,
        "tab:loss_weight": 5 * 5,
        "tab:ablation_hyperpara(a)": 8 * 3,
        "tab:ablation_hyperpara(b)": 7 * 3,
        "tab:overall_results_of_KD": 2 * 4,
        "tab:detailed_results_of_KD": 2 * 22,
        "tab:detailed_results": 4 * 22,
        "text:detailed_results": 2,
    }


def test_some_numbers_as_a_reader_finds_them_in_the_paper():
    own = {"row": "IPSeg (ours)", "backbone": "swin-b"}
    assert triple(where="tab:voc_res", scenario="2-2", **own) == (73.1, 72.3, 72.4)
    assert triple(where="tab:ade_res", scenario="50-50", **own) == (51.1, 34.8, 40.3)
    assert triple(where="tab:voc_res", scenario="10-1", row="IPSeg w/o M (ours)", backbone="resnet-101") == (
        74.9,
        52.9,
        64.4,
    )
    assert triple(where="tab:voc_res", scenario="15-1", row="MicroSeg-M†") == (82.0, 47.3, 73.3)
    assert triple(where="tab:ade_res", scenario="100-5", row="Adapter*") == (42.6, 18.0, 34.5)
    assert triple(where="tab:voc_res_disjoint", scenario="15-1", row="CoinSeg-M") == (82.0, 49.6, 74.3)
    assert triple(where="tab:abs_overall", row="SD") == (83.1, 65.1, 78.8)
    assert triple(where="tab:ablation_hyperpara(b)", row="alpha_BC 0") == (80.6, 66.6, 77.3)
    (value,) = published(where="tab:loss_weight", row="lambda_1 0.1, lambda_2 1.0")
    assert (value.value, value.changes) == (78.0, "method.lambda_temporary=0.1 method.lambda_permanent=1.0")
    curve = published(where="fig:performance_voc(b)", row="CoinSeg-M")
    assert [number.value for number in curve] == [78.8, 71.6, 77.0, 79.2, 73.7, 70.4, 68.5, 68.6, 66.3, 66.0]
    assert [number.value for number in published(where="tab:IP_all_acc", row="Pixel+IP")][-1] == 88.03
    assert [number.value for number in published(group="training_minutes")] == [9 * 60 + 14, 7 * 60 + 13]
    (sofa,) = published(where="tab:detailed_results", scenario="15-5", group="sofa")
    assert sofa.value == 46.4


def test_every_number_is_of_something_that_exists():
    for number in paper_numbers():
        assert number.step is None or 0 <= number.step < len(describe(f"{number.data}/{number.scenario}").steps)
        assert number.setting in ("overlap", "disjoint")
        assert number.backbone in ("resnet-101", "swin-b", "")
        assert number.memory in ("yes", "no", "")
        assert number.measure in ("miou", "iou", "image_accuracy", "cost")
        assert 0 < number.value <= (1000 if number.measure == "cost" else 100)
        assert number.measure != "iou" or number.group in ("background", *VOC)


def test_what_departs_from_the_papers_settings_can_be_set():
    recipe = to_dict(load_recipe("voc_15-1_ipseg_swin-b"))
    for changes in {number.changes for number in paper_numbers()}:
        assert make_recipe(override(recipe, changes.split()))


# ---- recipes ------------------------------------------------------------------------------------------------------


def test_a_run_finds_the_papers_numbers_for_its_settings_and_no_others():
    recipe = to_dict(load_recipe("voc_15-1_ipseg_swin-b"))

    def everything(*changes: str) -> set[float]:
        found = published_for(override(recipe, changes))
        return {number.value for number in published(found, measure="miou", group="all") if number.last}

    assert everything() == {81.5, 81.6}
    assert everything("memory.size=0") == {75.4}
    assert everything("memory.size=50") == {80.8}
    assert everything("method.alpha_nf=1") == {81.3}
    assert everything("method.alpha_nf=0.5") == set()
    assert everything("scenario.name=voc/10-1", "method.image_labels=full") == {79.2}
    assert everything("scenario.setting=disjoint") == {80.2}
    assert everything("model.backbone.name=resnet101.tv_in1k") == {74.7}
    assert everything("model.backbone.name=resnet50.tv_in1k") == set()
    assert everything("method={name: finetune}") == set()
    assert everything("method={name: ssul_m}") == {71.7, 71.9}  # the curve's end, and the table
    assert everything("method={name: ssul_m}", "memory.size=0") == {67.5}
    assert everything("method={name: ssul, replay_share: 0}", "scenario.name=voc/2-2") == {44.0}  # whatever is stored
    assert everything("scenario.name=voc/joint", "method={name: finetune}") == {82.7}


SWIN, RESNET = "swin_base_patch4_window12_384.ms_in1k", "resnet101.tv_in1k"


@pytest.mark.parametrize(
    ("method", "memory", "backbone", "means"),
    [
        ("lwf_mc", 0, RESNET, {60.7, 5.2}),
        ("ilt", 0, RESNET, {57.3, 4.2}),
        ("mib", 0, RESNET, {64.7, 37.9}),
        ("ssul_m", 100, RESNET, {69.8, 68.6}),
        ("ipseg", 100, SWIN, {80.1, 80.2}),
    ],
)
def test_every_method_of_the_disjoint_table_finds_its_numbers_on_its_likely_backbone(method, memory, backbone, means):
    """The paper names none there: older systems were published with ResNet-101, IPSeg is near its Swin-B's numbers."""
    found: dict[str, set[float]] = {SWIN: set(), RESNET: set()}
    for name, values in found.items():
        for scenario in ("voc/15-5", "voc/15-1"):
            recipe = {
                "data": {"name": "voc"},
                "scenario": {"name": scenario, "setting": "disjoint"},
                "model": {"backbone": {"name": name}},
                "method": {"name": method},
                "memory": {"size": memory},
            }
            values.update(number.value for number in published(published_for(recipe), group="all"))
    assert found.pop(backbone) == means
    assert found.popitem()[1] == set()


@pytest.mark.parametrize(
    ("changes", "row", "mean"),
    [
        ("method.image_posterior=false method.decoupling=false", "none", 71.9),
        ("method.image_posterior=false method.decoupling=false method.head=small", "none", 71.9),
        ("method.image_posterior=false method.decoupling=false method.alpha_nf=1", "none", 71.9),
        ("method.decoupling=false", "IP", 77.0),
        ("method.decoupling=false method.head=small", "IP", 77.0),
        ("method.image_posterior=false method.alpha_nf=1", "SD", 78.8),
        ("method.image_posterior=false method.alpha_nf=1 method.alpha_bc=0.3", "SD", 78.8),  # means nothing here
        ("method.alpha_nf=1", "IP, SD", 81.3),
        ("", "IP, SD, NF", 81.6),
    ],
)
def test_each_row_of_the_ablation_is_found_by_its_settings_on_either_head_without_decoupling(changes, row, mean):
    found = published_for(override(to_dict(load_recipe("voc_15-1_ipseg_swin-b")), changes.split()))
    assert {n.row: n.value for n in published(found, where="tab:abs_overall", group="all")} == {row: mean}


@pytest.mark.parametrize("changes", ["", "method.image_posterior=false method.alpha_nf=1", "method.alpha_nf=1"])
def test_decoupling_on_small_heads_has_no_row_in_the_paper(changes):
    recipe = to_dict(load_recipe("voc_15-1_ipseg_swin-b"))
    assert published_for(override(recipe, changes.split()))
    assert not published_for(override(recipe, [*changes.split(), "method.head=small"]))


def test_every_method_of_the_paper_that_is_implemented_is_found_by_its_name():
    implemented = {name.removesuffix("_m") for name in METHODS}
    named = {number.method for number in paper_numbers()}
    assert implemented & named == {
        "ipseg",
        "joint",
        "microseg",
        "lwf_mc",
        "ilt",
        "adapter",
        "bam",
        "coinseg",
        "mib",
        "mib_awt",
        "plop",
        "plop_nest",
        "rcil",
        "sdr",
        "ssul",
    }
    assert not {number.row for number in paper_numbers() if number.method not in implemented} & {"LwF-MC", "PLOP-M"}


# ---- what the paper says twice ------------------------------------------------------------------------------------


def test_the_curves_over_scenarios_mix_backbones():
    for method, backbone in (
        ("ipseg", "swin-b"),
        ("coinseg", "swin-b"),
        ("microseg", "resnet-101"),
        ("ssul", "resnet-101"),
    ):
        curve = [number.value for number in published(where="fig:performance_voc(a)", method=method)]
        table = published(where="tab:voc_res", method=method, backbone=backbone, memory="yes", group="all")
        assert curve == [number.value for number in table]


def test_the_numbers_of_mib_are_the_same_with_overlap_and_disjoint():
    overlap, disjoint = (published(where=where, row="MiB") for where in ("tab:voc_res", "tab:voc_res_disjoint"))
    assert [number.value for number in overlap][:6] == [number.value for number in disjoint]


def test_the_classes_of_each_row_make_its_mean():
    for where in ("tab:detailed_results", "tab:detailed_results_of_KD"):
        for row in {number.row for number in published(where=where)}:
            classes = [number.value for number in published(where=where, row=row, measure="iou")]
            (mean,) = published(where=where, row=row, measure="miou")
            assert len(classes) == 21
            assert sum(classes) / 21 == pytest.approx(mean.value, abs=0.06)
