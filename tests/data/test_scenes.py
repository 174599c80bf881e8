"""The drawn scenes: what must hold of every image, and of many."""

import numpy as np
import pytest

from ipseg.data.scenes.dataset import ScenesConfig
from ipseg.data.scenes.objects import KINDS, class_names, kinds_of
from ipseg.data.scenes.rendering import Palette, render
from ipseg.data.scenes.scene import INSIDE, VISIBLE, Scene, Stage, draw
from ipseg.data.scenes.shapes import posed
from ipseg.errors import UserError


@pytest.fixture(scope="module")
def many() -> list[Scene]:
    return [draw(5, index, (96, 96), 20) for index in range(260)]


def same(one: Scene, other: Scene) -> bool:
    pairs = ((one.image, other.image), (one.mask, other.mask), (one.saliency, other.saliency))
    return all(np.array_equal(a, b) for a, b in pairs)


def test_the_same_arguments_draw_the_same_image_in_any_order():
    forward = [draw(3, index, (48, 48), 12) for index in range(4)]
    np.random.seed(1)  # numpy's global state must not matter
    backward = [draw(3, index, (48, 48), 12) for index in reversed(range(4))]
    assert all(same(a, b) for a, b in zip(forward, reversed(backward), strict=True))


def test_seed_index_and_number_of_classes_each_change_the_image():
    first = draw(0, 0, (48, 48), 12)
    assert not any(same(first, other) for other in (draw(1, 0, (48, 48), 12), draw(0, 1, (48, 48), 12)))
    assert not same(first, draw(0, 0, (48, 48), 13))


@pytest.mark.parametrize("size", [(32, 32), (32, 200), (150, 40), (97, 131), (320, 256)])
def test_any_size_and_shape_can_be_drawn(size):
    for index in range(6):
        scene = draw(1, index, size, 20)
        assert scene.image.shape == (*size, 3)
        assert scene.mask.shape == scene.saliency.shape == size
        assert (scene.image.dtype, scene.mask.dtype, scene.saliency.dtype) == (np.uint8, np.uint8, np.bool_)
        assert 0 < (scene.mask > 0).mean() < 0.9


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": (31, 64)}, "between 32 and 4096"),
        ({"size": (64, 5000)}, "between 32 and 4096"),
        ({"train": 1_000_001}, "data.train is 1000001"),  # the next one is the first validation image
        ({"val": 10**12}, "data.val is 1000000000000"),
        *[({"classes": count}, "between 2 and 20") for count in (0, 1, 21)],
    ],
)
def test_scenes_that_cannot_be_drawn_are_refused(wrong, message):
    with pytest.raises(UserError, match=message):
        ScenesConfig(**wrong)


def stages(count: int) -> list[Stage]:
    made = [Stage(np.random.default_rng([9, index]), (64, 64)) for index in range(count)]
    for stage in made:
        stage.scatter_clutter()
        stage.place_objects(12)
    return made


def test_an_image_shows_one_to_five_objects_two_on_average():
    counts = [len(stage.objects) for stage in stages(200)]
    assert set(counts) == {1, 2, 3, 4, 5}
    assert 1.8 <= np.mean(counts) <= 2.4


def test_few_classes_meet_in_an_image_as_in_photographs():
    """Pascal VOC's training images: 64 % hold one class, 27 % two, 9 % more."""
    counts = [len(set(np.unique(draw(4, index, (64, 64), 20).mask)) - {0}) for index in range(300)]
    shares = [np.mean([count == n for count in counts]) for n in (1, 2)]
    assert shares == pytest.approx([0.64, 0.27], abs=0.07)
    assert min(counts) == 1
    assert 1.3 < np.mean(counts) < 1.6


def test_what_is_no_class_is_drawn_and_salient_but_not_labeled():
    assert kinds_of(6)[:2] == [KINDS[0], KINDS[1]]
    assert {*kinds_of(6)} == {*KINDS}
    met = [draw(4, index, (64, 64), 4) for index in range(100)]
    assert max(scene.mask.max() for scene in met) == 4
    alone = np.mean([len(np.unique(scene.mask)) == 2 for scene in met])
    assert alone > 0.8  # the second thing in an image is mostly of no class
    unlabeled = [(scene.saliency & (scene.mask == 0)).sum() > 0.05 * scene.mask.size for scene in met]
    assert np.mean(unlabeled) > 0.2


def test_no_object_is_hidden_by_more_than_it_may_be():
    for stage in stages(60):
        for owner, area in stage.areas.items():
            assert (stage.owner == owner).sum() >= VISIBLE * area
        last = max(stage.objects)  # lies on top: only the image's edge can take from it
        assert (stage.owner == last).sum() >= INSIDE * stage.areas[last]


def test_the_first_half_of_the_classes_has_its_look_alikes_in_the_second():
    assert class_names(12)[:3] == ("cow", "bus", "cup")
    assert class_names(12)[6:9] == ("horse", "car", "teapot")
    for count in range(2, 21):
        pairs, half = [KINDS.index(kind) % 10 for kind in kinds_of(count)[:count]], (count + 1) // 2
        assert pairs == [*range(half), *range(count - half)]
        assert len({*class_names(count)}) == count


@pytest.mark.parametrize("count", [12, 20])
def test_every_class_appears_and_none_beyond(count):
    seen = np.zeros(256, int)
    for index in range(4 * count):
        seen += np.bincount(draw(2, index, (32, 32), count).mask.ravel(), minlength=256)
    assert (seen[1 : count + 1] > 10).all()
    assert not seen[count + 1 :].any()


def test_every_shape_fills_a_fair_part_of_its_frame():
    rng = np.random.default_rng(0)
    for kind in KINDS:
        sprite = render(posed(kind(rng), rng), 60, Palette(rng), -2.0, rng)
        assert 0.1 < sprite.solid.sum() / 60**2 < 0.95, kind


def test_color_does_not_tell_look_alikes_apart(many):
    """A nearest-mean classifier on the mean color of an object's pixels is right about as often as a coin."""
    colors: dict[int, list[np.ndarray]] = {kind: [] for kind in range(20)}
    for scene in many:
        for value in np.unique(scene.mask[scene.mask > 0]):
            colors[int(value) - 1].append(scene.image[scene.mask == value].mean(axis=0))
    right = total = 0
    for pair in ((kind, kind + 10) for kind in range(10)):
        train = [np.mean(colors[kind][::2], axis=0) for kind in pair]
        for truth, kind in enumerate(pair):
            for color in colors[kind][1::2]:
                right += int(np.argmin([np.linalg.norm(color - mean) for mean in train])) == truth
                total += 1
    assert total > 150
    assert 0.38 < right / total < 0.62


def test_color_does_not_tell_objects_from_their_surroundings(many):
    inside = np.concatenate([scene.image[scene.mask > 0] for scene in many]).astype(float)
    outside = np.concatenate([scene.image[scene.mask == 0] for scene in many]).astype(float)
    apart = np.abs(inside.mean(axis=0) - outside.mean(axis=0)) / outside.std(axis=0)
    assert (apart < 0.5).all()


def test_saliency_is_good_and_not_perfect(many):
    truth = [scene.mask > 0 for scene in many]
    both = sum(int((scene.saliency & t).sum()) for scene, t in zip(many, truth, strict=True))
    recall = both / sum(int(t.sum()) for t in truth)
    precision = both / sum(int(scene.saliency.sum()) for scene in many)
    overlap = [(s.saliency & t).sum() / (s.saliency | t).sum() for s, t in zip(many, truth, strict=True)]
    assert 0.76 < recall < 0.90
    assert 0.82 < precision < 0.97
    assert 0.66 < np.mean(overlap) < 0.84


def test_saliency_misses_whole_objects_and_takes_clutter_for_objects(many):
    missed = [
        not scene.saliency[scene.mask == value].any()
        for scene in many
        for value in np.unique(scene.mask[scene.mask > 0])
    ]
    assert 0.05 < np.mean(missed) < 0.25
    fooled = [(scene.saliency & (scene.mask == 0)).sum() > 0.02 * scene.mask.size for scene in many]
    assert 0.1 < np.mean(fooled) < 0.6
