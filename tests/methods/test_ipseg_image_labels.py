"""What the image posterior is taught: which classes are in a picture, by whom, and from which pictures it learns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from ipseg.data.batch import StepBatch, join
from ipseg.methods.ipseg import _first_and_wholes
from ipseg.methods.ipseg_config import IPSegConfig
from ipseg.scenario.split import IGNORE


def image_labels(method, pictures) -> torch.Tensor:
    """The targets of L_IP, row by row."""
    with torch.no_grad():
        features = method.network.eval().encoder(pictures.images, pictures.boxes)
    return method._image_labels(pictures, method._past_scores(features, method._past(features)))


def test_part_knows_the_steps_own_classes_only(make_method, hand_made):
    method = make_method(image_labels="part")
    labels = image_labels(method, hand_made([0, 3]))
    assert labels.tolist() == [[False, False, True]] * 2


def test_pseudo_adds_the_classes_that_the_previous_heads_see_in_the_very_picture(make_method, hand_made):
    method = make_method(image_labels="pseudo", pseudo_min_share=0.2)
    pictures = hand_made([0, 3], count=12)
    labels = image_labels(method, pictures)
    assert labels[:, 2].all()
    assert 0 < labels[:, :2].sum() < 24  # some do and some do not, or the next lines prove nothing
    for row in range(12):
        one = replace(pictures, **{n: getattr(pictures, n)[row : row + 1] for n in ("images", "boxes", "labels")})
        one = replace(one, salient=pictures.salient[row : row + 1], stored=pictures.stored[row : row + 1])
        assert torch.equal(image_labels(method, one)[0], labels[row])
    order = torch.arange(11, -1, -1)
    turned = replace(
        pictures, **{n: getattr(pictures, n)[order] for n in ("images", "boxes", "labels", "salient", "stored")}
    )
    assert torch.equal(image_labels(method, turned), labels[order])


def test_pseudo_labels_do_not_ask_the_posterior(make_method, hand_made):
    method = make_method(pseudo_min_share=0.2)
    pictures = hand_made([0, 3], count=6)
    before = image_labels(method, pictures)
    with torch.no_grad():
        for posterior in (method.network.posterior, method._previous.posterior):
            for classifier in posterior.classifiers:
                classifier.bias.fill_(-100.0)  # it now sees nothing anywhere
    assert before[:, :2].any()
    assert torch.equal(image_labels(method, pictures), before)


def test_pseudo_labels_by_the_model_are_its_answer(make_method, hand_made):
    method = make_method(pseudo_min_share=0.2, pseudo_labels_by="model")
    pictures = hand_made([0, 3], count=6)
    answered = method.previous_classes(pictures.images, pictures.boxes).where(pictures.labels != 3, 0)
    seen = method.image_classes(answered.where(pictures.labels != IGNORE, IGNORE))[:, :2]
    assert seen.any()
    assert torch.equal(image_labels(method, pictures)[:, :2], seen)
    with torch.no_grad():
        for classifier in method._previous.posterior.classifiers:
            classifier.bias.fill_(-100.0)
    assert not image_labels(method, pictures)[:, :2].any()


@pytest.mark.parametrize("parts", [{}, {"gate": "exact"}, {"decoupling": False, "noise_filtering": False}])
def test_the_model_gives_pseudo_labels_to_pictures_that_it_was_not_asked_about_yet(make_method, hand_made, parts):
    method = make_method(pseudo_labels_by="model", pseudo_labels_on="everywhere", **parts)
    pictures = hand_made([0], count=4)
    with torch.no_grad():
        features = method.network.eval().encoder(pictures.images, pictures.boxes)
    whole, first = method._past(features), method._past(features[:2])
    assert torch.equal(method._past_scores(features, first).max(1).indices, whole.labels)


@pytest.mark.parametrize("where", ["unlabelled", "everywhere"])
def test_padding_has_no_classes(make_method, hand_made, where):
    method = make_method(pseudo_min_share=0.0, pseudo_labels_on=where)
    pictures = hand_made([0], count=2)
    hidden = replace(pictures, labels=torch.full_like(pictures.labels, IGNORE))
    assert image_labels(method, pictures)[:, :2].any()
    assert not image_labels(method, hidden).any()


def test_what_is_annotated_as_a_new_class_is_never_its_old_look_alike(make_method, hand_made):
    pictures = hand_made([3], count=6)  # all of it
    assert not image_labels(make_method(pseudo_min_share=0.2), pictures)[:, :2].any()
    literal = make_method(pseudo_min_share=0.2, pseudo_labels_on="everywhere")
    assert image_labels(literal, pictures)[:, :2].any()


def test_remembered_pictures_have_their_stored_label_alone_unless_asked_otherwise(make_method, hand_made):
    crops, wholes = hand_made([0, 3], count=2, seed=1), hand_made([0], count=6, seed=2)
    pictures = join([crops, wholes])
    for where, added in (("unlabelled", False), ("everywhere", True)):
        method = make_method(pseudo_min_share=0.2, pseudo_labels_on=where)
        targets = {}
        method.network.posterior.register_forward_hook(lambda _m, _x, logits, kept=targets: kept.update(logits=logits))
        loss = method.loss(StepBatch(crops, 2, wholes, image_level=1))["image"]
        logits = targets["logits"]
        current = image_labels(method, pictures)[: len(logits) - 6]
        stored_alone = torch.cat([current, wholes.stored]).float()
        alone = F.binary_cross_entropy_with_logits(logits, stored_alone)
        assert torch.allclose(loss, alone, atol=1e-5) is not added


def test_stored_labels_are_united_with_the_others(make_method, hand_made):
    method = make_method(image_labels="part")
    pictures = hand_made([0])
    pictures = replace(pictures, stored=torch.tensor([[True, False, False], [False, True, False]]))
    assert image_labels(method, pictures).tolist() == [[True, False, False], [False, True, False]]


def test_full_reads_the_oracles_labels_and_is_named_as_an_oracle(make_method, hand_made):
    method = make_method(image_labels="full")
    pictures = hand_made([0, 3])
    full = torch.zeros_like(pictures.labels)
    full[0, 0, 0], full[1, 0, 0] = 1, 2
    assert image_labels(method, replace(pictures, full=full)).tolist() == [[True, False, False], [False, True, False]]
    assert IPSegConfig(image_labels="full").oracle() == ["method.image_labels=full"]
    assert IPSegConfig().oracle() == []
    assert IPSegConfig(image_labels="full", image_posterior=False).oracle() == []  # nothing sees them then


def test_the_posterior_learns_from_some_current_crops_and_all_whole_pictures_never_from_rehearsed_crops(hand_made):
    def rows(current: int, rehearsed: int, wholes: int, image_level: int) -> list[int]:
        more = hand_made([0], count=wholes) if wholes else None
        batch = StepBatch(hand_made([0, 3], count=current + rehearsed), current, more, image_level)
        return _first_and_wholes(torch.arange(current + rehearsed + wholes), batch).tolist()

    assert rows(3, 3, 4, 2) == [0, 1, 6, 7, 8, 9]
    assert rows(1, 5, 4, 1) == [0, 6, 7, 8, 9]
    assert rows(4, 0, 0, 4) == [0, 1, 2, 3]
    assert rows(2, 2, 0, 2) == [0, 1]


def test_the_image_loss_pairs_each_picture_with_its_own_label(make_method, hand_made):
    method = make_method(image_labels="part")
    crops, wholes = hand_made([0, 3], count=3, seed=1), hand_made([0], count=4, seed=2)
    wholes = replace(wholes, stored=torch.tensor([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]]).bool())
    loss = method.loss(StepBatch(crops, 3, wholes, image_level=1))["image"]
    network = method.network
    with torch.no_grad():
        features = network.encoder(torch.cat([crops.images[:1], wholes.images]))
        logits = network.posterior(features.pooled)
    targets = torch.cat([torch.tensor([[False, False, True]]), wholes.stored]).float()
    assert torch.allclose(loss, F.binary_cross_entropy_with_logits(logits, targets), atol=1e-5)
