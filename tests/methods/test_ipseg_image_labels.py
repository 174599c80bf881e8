"""What the image posterior is taught: which classes are in an image, by whom, and from which images it learns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from ipseg.data.batch import StepBatch
from ipseg.methods.ipseg import IPSegConfig
from ipseg.models.network import logits_of
from ipseg.scenario import IGNORE


def image_labels(method, images) -> torch.Tensor:
    """The targets of L_IP, row by row."""
    with torch.no_grad():
        features = method.network.eval().encoder(images.images, images.boxes)
        old = [method._classes(logits_of(head, features)) for head in method.network.temporary[:-1]]
        return method.image_labels(images, method._teacher_labels(features, old, images.labels))


def rows_of(images, rows):
    """Some of the images."""
    fields = ("images", "boxes", "labels", "salient", "stored")
    return replace(images, **{name: getattr(images, name)[rows] for name in fields})


def test_part_knows_the_steps_own_classes_only(make_method, hand_made):
    method = make_method(image_labels="part")
    labels = image_labels(method, hand_made([0, 3]))
    assert labels.tolist() == [[False, False, True]] * 2


def test_pseudo_adds_the_classes_that_the_teacher_is_sure_of_in_the_very_image(make_method, hand_made):
    method = make_method(image_labels="pseudo", min_class_area=0.05)
    images = hand_made([0, 3], count=12)
    labels = image_labels(method, images)
    assert labels[:, 2].all()
    assert 0 < labels[:, :2].sum() < 24  # some do and some do not, or the next lines prove nothing
    for row in range(12):
        assert torch.equal(image_labels(method, rows_of(images, [row]))[0], labels[row])
    order = list(range(11, -1, -1))
    assert torch.equal(image_labels(method, rows_of(images, order)), labels[order])


@pytest.mark.parametrize("variant", ["paper", "official"])
def test_pseudo_labels_do_not_ask_the_posterior(make_method, hand_made, variant):
    method = make_method(variant=variant, min_class_area=0.05)
    images = hand_made([0, 3], count=6)
    before = image_labels(method, images)
    with torch.no_grad():
        for classifier in method.network.posterior.classifiers:
            classifier.bias.fill_(-100.0)  # it now sees nothing anywhere
    assert before[:, :2].any()
    assert torch.equal(image_labels(method, images), before)


def test_padding_has_no_classes_and_counts_in_the_area(make_method, hand_made):
    method = make_method(min_class_area=0.0)
    images = hand_made([0], count=2)
    hidden = replace(images, labels=torch.full_like(images.labels, IGNORE))
    assert image_labels(method, images)[:, :2].any()
    assert not image_labels(method, hidden).any()
    labels = torch.zeros(1, 10, 10, dtype=torch.long)
    labels[0, :1], labels[0, 5:] = 1, IGNORE  # a tenth of the whole, a fifth of what is not padding
    assert not make_method(min_class_area=0.1).image_classes(labels)[0, 0]
    assert make_method(min_class_area=0.09).image_classes(labels)[0, 0]


def test_what_is_annotated_as_a_new_class_is_never_its_old_look_alike(make_method, hand_made):
    images = hand_made([3], count=6)  # all of it
    assert not image_labels(make_method(min_class_area=0.0), images)[:, :2].any()


def test_stored_labels_are_united_with_the_others(make_method, hand_made):
    method = make_method(image_labels="part")
    images = hand_made([0])
    images = replace(images, stored=torch.tensor([[True, False, False], [False, True, False]]))
    assert image_labels(method, images).tolist() == [[True, False, False], [False, True, False]]


def test_full_reads_the_oracles_labels_and_is_named_as_an_oracle(make_method, hand_made):
    method = make_method(image_labels="full")
    images = hand_made([0, 3])
    full = torch.zeros_like(images.labels)
    full[0, 0, 0], full[1, 0, 0] = 1, 2
    assert image_labels(method, replace(images, full=full)).tolist() == [[True, False, False], [False, True, False]]
    assert IPSegConfig(image_labels="full").oracle() == ["method.image_labels=full"]
    assert IPSegConfig().oracle() == []
    assert IPSegConfig(image_labels="full", image_posterior=False).oracle() == []  # nothing sees them then


def test_the_posterior_learns_from_some_new_crops_and_all_images_beside_never_from_replayed_crops(
    make_method, hand_made
):
    """Each image has its own label, and stored ones no other."""
    method = make_method(min_class_area=0.05)
    crops, wholes = hand_made([0, 3], count=5, seed=1), hand_made([0], count=4, seed=2)
    wholes = replace(wholes, stored=torch.tensor([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]]).bool())
    loss = method.loss(StepBatch(crops, 3, wholes, num_posterior=2))["posterior"]
    with torch.no_grad():
        images = torch.cat([crops.images[:2], wholes.images])
        logits = method.network.posterior(method.network.encoder(images).pooled)
    targets = torch.cat([image_labels(method, crops)[:2], wholes.stored]).float()
    assert targets[:2, :2].any()
    assert torch.allclose(loss, F.binary_cross_entropy_with_logits(logits, targets), atol=1e-5)
