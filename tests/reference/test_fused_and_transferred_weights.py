"""EWF's fused weights and AWT's transferred ones beside the numbers of the authors' code (vectors/README.md)."""

from __future__ import annotations

import pytest
import torch
from given_network import assert_close, load_cases
from torch import Tensor, nn

from ipseg.methods.awt import attribution_sums, most_attributed
from ipseg.methods.ewf import fuse_weights, new_share
from ipseg.methods.labels import nearest_labels
from ipseg.methods.prototypes import class_masks

FUSED = [v for v in load_cases("ewf_fusion") if not v["threshold_choice"]]  # what no published run uses is not here
TRANSFERRED = [*load_cases("awt_joint_mask"), *load_cases("awt_mask_per_class")]


class Stored(nn.Module):
    """Nothing but a state."""

    def __init__(self, v: dict[str, Tensor], prefix: str) -> None:
        super().__init__()
        for name, tensor in v.items():
            if name.startswith(prefix) and "." in name:
                self.register_buffer(name.removeprefix(prefix).replace(".", "_"), tensor.clone())


@pytest.mark.parametrize("v", FUSED)
def test_weights_are_fused_as_the_authors_do(v):
    share = new_share(int(v["n_new"]), int(v["n_old_with_bg"] + v["n_new"] - 1))
    assert share == pytest.approx(v["out_factor"].item())
    network = Stored(v, "new_")
    fuse_weights(network, Stored(v, "old_"), share)
    fused = Stored(v, "out_fused_").state_dict()
    assert fused
    for name, tensor in network.state_dict().items():
        assert_close(tensor, fused[name])


@pytest.mark.parametrize("v", TRANSFERRED)
def test_channels_are_chosen_and_weights_transferred_as_the_authors_do_but_for_images_of_other_classes(v):
    """With a mask per class their list of attributions is never emptied: class j has the images of classes 1..j."""
    left, right = v["features_left"], v["features_right"].repeat_interleave(4, 2).repeat_interleave(4, 3)
    features = torch.einsum("kcr,krhw->kchw", left, right).relu()
    new = v["new_classes"].tolist()
    masks = class_masks(nearest_labels(v["label"], (32, 32)), range(new[0], new[-1] + 1))
    if not v["per_class_masks"]:
        masks = masks.sum(1, keepdim=True)
    sums, counts = attribution_sums(features[1:], features[:1], v["bg_weight"], masks)
    assert (len(v["label"]) - counts).sum() == v["out_missed"]
    cell = v["out_cell_weight"][0, 0]  # the same in every cell
    means = sums.cumsum(0) / counts.cumsum(0)[:, None, None, None]
    assert_close(cell * means.flatten(2).amax(2), v["out_score"])
    mask = most_attributed(sums.cumsum(0), counts.cumsum(0), 64)
    assert_close(mask, v["out_mask"])
    assert_close(v["new_weight_random"] + v["bg_weight"] * mask, v["out_new_weight"])
    assert_close(most_attributed(sums, counts, 64)[:1], v["out_mask"][:1])


def test_a_class_without_images_takes_nothing_over():
    assert most_attributed(torch.ones(2, 4, 1, 1), torch.tensor([0.0, 3.0]), 2).sum(1).tolist() == [0, 2]
