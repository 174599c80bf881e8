"""Every method computes the numbers that it computed before (golden_curves.py), and what guards that does so."""

from __future__ import annotations

import copy
import json

import golden_curves
import pytest
import regenerate
import torch
from golden_adapter import CASES, ENGINE
from golden_curves import HERE, changes, compute, double_precision, fix_drawn, flat, moved, store, stored, without_case
from torch import nn

RECORD = {
    "steps": [
        {"losses": {"pixels": [3.0, 2.0], "images": [1.0, 0.5]}, "sums": {"2x2": [0.0, 4.0]}},
        {"losses": {"pixels": [2.5, 1.5]}, "sums": {"2": [5.0]}},
    ],
    "scores": [0.25],
    "mIoU": 0.5,
}


def assert_unmoved(case: str) -> None:
    old, new = stored(case), compute(case)
    assert not moved(old, new), f"{regenerate.largest_changes(old, new)}\nIf that is meant: {command(case)}"


def command(case: str) -> str:
    return f"python tests/golden/regenerate.py --only {case}"


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_method_computes_what_it_computed_when_its_curve_was_stored(case):
    assert_unmoved(case)


@pytest.mark.slow
def test_a_run_through_the_whole_engine_logs_the_stored_losses_and_ends_with_the_stored_miou():
    assert_unmoved(ENGINE)


def test_every_stored_curve_is_of_a_method_or_variant_that_exists():
    assert not without_case()


def test_inputs_and_curves_are_small():
    assert sum(path.stat().st_size for path in HERE.rglob("*") if path.suffix in (".json", ".npz")) < 400_000


# ---- a method without a curve, and numbers that move ----------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Curves are stored in an empty folder, and computing one takes no time."""
    monkeypatch.setattr(golden_curves, "CURVES", tmp_path)
    monkeypatch.setattr(regenerate, "compute", lambda _case, **_: copy.deepcopy(RECORD))
    return tmp_path


def test_a_method_without_a_curve_fails_with_the_command_that_makes_one(elsewhere):
    with pytest.raises(FileNotFoundError, match=command("mib")):
        stored("mib")


def test_a_stored_curve_is_read_as_it_was_but_for_digits_beyond_the_tenth(elsewhere):
    store("mib", RECORD | {"scores": [1 / 3]})
    assert stored("mib") == RECORD | {"scores": [0.3333333333]}
    assert not moved(RECORD | {"scores": [1 / 3]}, stored("mib"))


def test_numbers_are_listed_in_the_order_of_computing():
    assert list(flat(RECORD))[:6] == [
        "step 0, iteration 1, pixels",
        "step 0, iteration 1, images",
        "step 0, iteration 2, pixels",
        "step 0, iteration 2, images",
        "step 0, sum 1 of shape 2x2",
        "step 0, sum 2 of shape 2x2",
    ]


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [(2.0, 2.0, 0.0), (2.0, 1.0, 0.5), (1e-9, 0.0, 1e-6), (1.0, float("nan"), float("inf")), (1.0, None, float("inf"))],
)
def test_a_change_is_relative_except_for_tiny_numbers_and_infinite_for_what_is_no_number_or_is_missing(
    old, new, change
):
    records = ({"steps": [], "scores": [] if value is None else [value]} for value in (old, new))
    assert changes(*records) == {"score 1": pytest.approx(change)}


@pytest.mark.parametrize(("miou", "label"), [(0.519, []), (0.521, ["mIoU"])])
def test_miou_may_change_by_two_points(miou, label):
    assert list(moved(RECORD, RECORD | {"mIoU": miou})) == label


def test_regenerating_prints_what_moved_in_each_step_and_stores_it(elsewhere, capsys):
    old = copy.deepcopy(RECORD)
    old["steps"][1]["losses"]["pixels"][1] = 1.2
    store("mib", old)
    assert regenerate.main(["--only", "mib"]) == 0
    line = "step 0 0.0e+00; step 1 2.0e-01; score 0.0e+00; mIoU 0.0e+00; MOVED, first step 1, iteration 2, pixels"
    assert capsys.readouterr().out.split(maxsplit=1) == ["mib", f"{line}\n"]
    assert stored("mib") == RECORD


def test_checking_stores_nothing_and_fails_for_what_moved_or_is_new(elsewhere):
    assert regenerate.main(["--only", "mib", "--check"]) == 1
    assert not list(elsewhere.iterdir())
    regenerate.main(["--only", "mib"])
    assert regenerate.main(["--only", "mib", "--check"]) == 0


def test_regenerating_everything_removes_curves_of_methods_that_are_gone(elsewhere):
    store("forgotten", RECORD)
    regenerate.main([])
    assert {path.stem for path in elsewhere.iterdir()} == {*CASES, ENGINE}


def test_all_bits_of_numbers_are_written_for_comparing_commits(elsewhere):
    regenerate.main(["--only", "mib", "--bits", str(elsewhere / "bits")])
    found = json.loads((elsewhere / "bits").read_text())
    assert {label: float.fromhex(value) for label, value in found["mib"].items()} == flat(RECORD)


# ---- what makes a curve independent of names, of initialization and of the machine ----------------------------------


def network(seed: int, *, renamed: bool = False) -> nn.Module:
    torch.manual_seed(seed)
    layers = {"convolution": nn.Conv2d(3, 4, 3), "norm": nn.BatchNorm2d(4), "linear": nn.Linear(4, 2)}
    if renamed:
        layers = {f"a_{name}": layer for name, layer in reversed(layers.items())}
    return nn.ModuleDict(layers)


def test_weights_depend_on_nothing_but_their_shape_and_what_was_not_drawn_stays():
    found = []
    for first, renamed in ((0, False), (7, True)):
        mine = network(first, renamed=renamed)
        fix_drawn(mine, network(first + 1, renamed=renamed))
        found.append({tuple(weights.shape): weights for weights in mine.state_dict().values()})
        norm = next(layer for layer in mine.modules() if isinstance(layer, nn.BatchNorm2d))
        assert torch.equal(norm.weight, torch.ones(4))
    assert all(torch.equal(found[0][shape], found[1][shape]) for shape in [(4, 3, 3, 3), (2, 4), (2,)])


def test_double_precision_ends_with_the_block():
    with double_precision():
        assert torch.zeros(1).float().dtype == torch.float64
    assert torch.zeros(1).double().float().dtype == torch.float32
