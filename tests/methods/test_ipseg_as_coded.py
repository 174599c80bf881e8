"""With four settings IPSeg's segmentation is taught as the authors' code does it, written out here a second time."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ipseg.model.network import logits_of

CODED = {"image_posterior": False, "noise_filtering": False, "known_classes": "negative", "confidence": 0.7}


def bce(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Summed over channels, the mean over annotated pixels."""
    target = F.one_hot(labels.masked_fill(labels == 255, 0), logits.shape[1]).permute(0, 3, 1, 2).float()
    each = F.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(1)
    return each[labels != 255].mean()


def as_coded(method, crops) -> torch.Tensor:
    """One loss over the permanent channels and all classes, one over the newest head's own two and all classes."""
    network = method.network
    with torch.no_grad():
        features = network.encoder(crops.images)
        known = method.previous_classes(crops.images)
        method.train_mode()
    heads = [logits_of(head, features) for head in network.temporary]
    classes = torch.cat([logits[:, 2:] for logits in heads], 1)
    overall = torch.cat([logits_of(network.permanent, features), classes], 1)
    current = torch.cat([heads[-1][:, :2], classes], 1)
    labels = torch.where(crops.salient, 0, 1)
    labels = torch.where(crops.labels > 0, crops.labels + 1, labels).masked_fill(crops.labels == 255, 255)
    pseudo = torch.where((crops.labels == 0) & (known > 0), known + 1, labels)
    assert (pseudo != labels).any()
    return 0.5 * bce(overall, pseudo) + 0.5 * bce(current, labels)


def gradients(method, loss: torch.Tensor) -> list[torch.Tensor]:
    learning = [parameter for group in method.parameter_groups() for parameter in group.parameters]
    return list(torch.autograd.grad(loss, learning))


@pytest.mark.parametrize("count", ["once", "twice"])
def test_what_learns_is_moved_as_by_the_authors_two_losses_if_classes_stand_in_both(make_method, batch, count):
    method = make_method(step=1, class_loss=count, **CODED)
    theirs = gradients(method, as_coded(method, batch.crops))
    method.train_mode()
    ours = gradients(method, sum(method.loss(batch).values()))
    same = all(torch.allclose(one, other, rtol=1e-3, atol=1e-6) for one, other in zip(ours, theirs, strict=True))
    assert same == (count == "twice")


def test_classes_that_stand_in_both_losses_weigh_both_lambdas(make_method, batch):
    once, twice, more = (
        make_method(step=1, class_loss=count, lambda_permanent=weight).loss(batch)
        for count, weight in (("once", 0.5), ("twice", 0.5), ("twice", 1.0))
    )
    assert torch.equal(once["current"], twice["current"])
    assert twice["permanent"] > once["permanent"]
    assert more["permanent"].item() == pytest.approx(2 * twice["permanent"].item())


def test_classes_are_their_own_channels_and_everything_else_is_none_of_them():
    from ipseg.methods.labels import NEITHER, class_labels

    assert class_labels(torch.tensor([0, 4, 6, 255]), first=4).tolist() == [NEITHER, 0, 2, 255]
