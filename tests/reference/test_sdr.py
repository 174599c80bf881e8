"""SDR beside the numbers of its authors' code on one image (vectors/README.md)."""

from __future__ import annotations

import pytest
import torch
from given_network import assert_close, load_cases

from ipseg.methods.labels import nearest_labels
from ipseg.methods.prototypes import class_masks, class_means, class_sums
from ipseg.methods.sdr import distance_to, mean_where, repulsion, sparsity

CASES = load_cases("sdr_batch1")


@pytest.fixture(params=CASES)
def v(request):
    """A case, and what every test asks of it: cells, the prototypes after the batch, and the classes that are there."""
    found = dict(request.param)
    found["feature"] = found["feature"].clone().requires_grad_()
    found["cells"] = nearest_labels(found["label"], found["feature"].shape[-2:])
    found["masks"] = class_masks(found["cells"], range(len(found["count"])))
    found["there"] = [k for k, mask in enumerate(found["masks"].sum((0, 2, 3)).tolist()) if mask]
    return found


def assert_same(v, loss, name: str) -> None:
    assert_close(loss, v[f"out_{name}"])
    gradient = torch.autograd.grad(loss, v["feature"])[0]
    assert_close(gradient, v[f"out_grad_{name}"])


def test_prototypes_are_the_authors_but_for_the_class_that_they_take_for_background(v):
    """They leave the smallest label out, whatever it is."""
    sums, counts = class_sums(v["feature"].detach(), v["masks"])
    skipped = v["there"][0]
    sums[skipped], counts[skipped] = 0, 0
    total = v["count"] + counts
    prototypes = (v["prototype"] * v["count"][:, None] + sums) / total.clamp(min=1)[:, None]
    assert_close(total, v["out_count"].to(total.dtype))
    assert_close(prototypes, v["out_prototype"])


def test_attraction_is_the_authors_but_for_a_division_inside_their_loop(v):
    """Theirs is (((l_1 / n) + l_2) / n + ...) / n, and the background counts; ours the mean over the classes alone."""
    own = torch.einsum("bkhw,kc->bchw", v["masks"], v["out_prototype"])
    apart, _ = class_means((v["feature"] - own).square().mean(1, keepdim=True), v["masks"])
    theirs = torch.zeros(())
    for k in v["there"]:
        theirs = (theirs + apart[k, 0]) / len(v["there"])
    assert_same(v, theirs, "attraction")
    classes = [k for k in v["there"] if k]
    ours = distance_to(v["out_prototype"][1:], v["feature"], v["masks"][:, 1:])
    assert_close(ours, apart[classes, 0].mean().detach())


def test_repulsion_is_the_authors(v):
    assert_same(v, repulsion(v["feature"], v["masks"]), "repulsion")


def test_sparsity_is_the_authors_where_every_cell_is_labeled(v):
    """To them void is one more class."""
    masks = torch.cat([v["masks"], (v["cells"] == 255)[:, None].float()], dim=1)
    assert_same(v, sparsity(v["feature"], masks), "sparsity")


def test_matching_is_the_authors_where_they_do_not_mix_cells_with_channels(v):
    """A class with several cells is reshaped so that their mean is over other numbers."""
    old = nearest_labels(v["old_logit"].argmax(1), v["feature"].shape[-2:]).where(v["cells"] == 0, 0)
    means, counts = class_means(v["feature"], class_masks(old, range(1, int(v["n_old"]))))
    loss = mean_where((means - v["out_prototype"][1 : int(v["n_old"])]).square().mean(1), counts > 0)
    if v["matching_harmless"] and counts.any():
        assert_same(v, loss, "matching")
    elif not counts.any():
        assert loss == v["out_matching"] == 0
    else:
        assert loss != v["out_matching"]
