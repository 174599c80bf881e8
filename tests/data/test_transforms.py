"""Scale, crop and flip: image, labels and saliency go together, and what is not the image is padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from ipseg.data.batch import Batch, Sample, join
from ipseg.data.transforms import AugmentParams, CropTransform, apply_transform, cat, pack
from ipseg.models.boxes import inside

CPU = torch.device("cpu")


def sample(height: int, width: int, seed: int = 0) -> Sample:
    """Noise; labels 0 to 4 and 255."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(np.array([0, 1, 2, 3, 4, 255], dtype=np.uint8), (height, width))
    return Sample(rng.integers(0, 256, (height, width, 3), dtype=np.uint8), labels, rng.random((height, width)) < 0.5)


def telling(height: int, width: int, square: tuple[int, int, int]) -> Sample:
    """A square of label 7 that is white and salient; the rest is black."""
    top, left, side = square
    labels = np.zeros((height, width), dtype=np.uint8)
    labels[top : top + side, left : left + side] = 7
    return Sample(np.repeat((labels > 0)[..., None] * np.uint8(255), 3, axis=2), labels, labels > 0)


def lay(samples: list[Sample], transforms: list[CropTransform], canvas: tuple[int, int]) -> Batch:
    return apply_transform(pack(samples, 3, CPU), range(len(samples)), transforms, canvas)


def test_laid_down_as_it_is_an_image_comes_back_unchanged():
    given_one, batch = sample(20, 30), lay([sample(20, 30)], [CropTransform(1, 0, 0, flip=False)], (20, 30))
    assert torch.equal((batch.images[0] * 255).round().byte().permute(1, 2, 0), torch.from_numpy(given_one.image))
    assert np.array_equal(batch.labels[0], given_one.labels)
    assert np.array_equal(batch.salient[0], given_one.salient)
    assert batch.boxes.tolist() == [[0, 0, 20, 30]]


def test_beyond_the_image_lies_padding_that_is_ignored_black_and_outside_the_box():
    batch = lay([sample(10, 12)], [CropTransform(1, -3, -2, flip=False)], (20, 20))
    shown = inside(batch.boxes, (20, 20))[0]
    assert batch.boxes.tolist() == [[3, 2, 13, 14]]
    assert (batch.labels[0][~shown] == 255).all()
    assert not batch.salient[0][~shown].any()
    assert not batch.images[0][:, ~shown].any()
    assert np.array_equal(batch.labels[0, 3:13, 2:14], sample(10, 12).labels)


def test_images_of_different_sizes_share_a_batch_without_touching_each_other():
    samples = [sample(10, 12, 1), sample(16, 5, 2)]
    still = CropTransform(1, 0, 0, flip=False)
    together = lay(samples, [still, still], (16, 16))
    for row, each in enumerate(samples):
        alone = lay([each], [still], (16, 16))
        assert torch.allclose(together.images[row], alone.images[0], atol=1e-6)
        assert torch.equal(together.labels[row], alone.labels[0])
        assert torch.equal(together.boxes[row], alone.boxes[0])


@pytest.mark.parametrize("resize", ["crop", "full", "shrink"])
@given(st.sampled_from([(8, 600), (1, 400), (400, 1), (1, 1)]), st.integers(0, 2**16))
def test_no_image_is_so_thin_that_nothing_of_it_is_seen(resize, size, seed):
    params = AugmentParams.draw(np.random.default_rng(seed), (0.5, 1.0), flip=True, resize=resize)
    batch = lay([sample(*size)], [params.transform(size, (64, 64))], (64, 64))
    assert inside(batch.boxes, (64, 64)).any()


@pytest.mark.parametrize(("top", "left"), [(0, 0), (-4, -5), (3, 6)])
def test_a_flip_mirrors_image_labels_and_saliency_alike_and_the_box_stays(top, left):
    still, mirrored = (lay([sample(16, 20)], [CropTransform(1, top, left, flip=f)], (24, 32)) for f in (False, True))
    assert torch.equal(still.boxes, mirrored.boxes)
    first, last = int(still.boxes[0, 1]), int(still.boxes[0, 3])
    back = lay([_flipped(sample(16, 20))], [CropTransform(1, top, left, flip=False)], (24, 32))
    if left <= 0:  # the whole width is shown
        columns = slice(first, last)
        assert torch.equal(mirrored.labels[..., columns], still.labels[..., columns].flip(-1))
    assert torch.equal(mirrored.labels, back.labels)
    assert torch.equal(mirrored.salient, back.salient)
    assert torch.allclose(mirrored.images, back.images, atol=1e-5)


@pytest.mark.parametrize("resize", ["crop", "full"])
def test_half_of_the_images_are_flipped_and_none_where_that_is_switched_off(resize):
    rng = np.random.default_rng(0)
    for flip, low, high in ((True, 0.45, 0.55), (False, 0, 0)):
        drawn = [AugmentParams.draw(rng, (0.5, 2.0), flip=flip, resize=resize).flip for _ in range(2000)]
        assert low <= sum(drawn) / len(drawn) <= high


def _flipped(given_one: Sample) -> Sample:
    arrays = (given_one.image, given_one.labels, given_one.salient)
    return Sample(*(np.ascontiguousarray(array[:, ::-1]) for array in arrays))


@given(
    seed=st.integers(0, 10_000), height=st.integers(12, 60), width=st.integers(12, 60),
    crop=st.tuples(st.integers(16, 48), st.integers(16, 48)),
)  # fmt: skip
def test_image_labels_and_saliency_stay_aligned_under_any_random_crop(seed, height, width, crop):
    rng = np.random.default_rng(seed)
    square = (int(rng.integers(0, height - 8)), int(rng.integers(0, width - 8)), 8)
    transform = AugmentParams.draw(rng, (0.5, 2.0), flip=True).transform((height, width), crop)
    batch = lay([telling(height, width, square)], [transform], crop)
    labels, image = batch.labels[0], batch.images[0].mean(0)
    assert (image[labels == 7] >= 0.249).all()  # bilinear mixes at edges only: half white there, a quarter at a corner
    assert (image[labels == 0] <= 0.501).all()
    assert torch.equal(batch.salient[0], labels == 7)
    assert torch.equal(labels != 255, inside(batch.boxes, crop)[0])


@given(seed=st.integers(0, 10_000), height=st.integers(4, 90), width=st.integers(4, 90))
def test_a_random_crop_shows_as_much_of_the_image_as_fits(seed, height, width):
    params = AugmentParams.draw(np.random.default_rng(seed), (0.5, 2.0), flip=False)
    transform = params.transform((height, width), (32, 32))
    batch = lay([sample(height, width)], [transform], (32, 32))
    top, left, bottom, right = batch.boxes[0].tolist()
    assert 0.5 <= transform.scale <= 2
    assert bottom - top == pytest.approx(min(32, height * transform.scale), abs=1e-3)
    assert right - left == pytest.approx(min(32, width * transform.scale), abs=1e-3)


@given(seed=st.integers(0, 99), height=st.integers(2, 90), width=st.integers(2, 90))
def test_a_whole_image_is_shown_uncropped_if_that_leaves_a_pixel_of_its_shorter_side(seed, height, width):
    assume(0.5 * min(48 / height, 32 / width) * min(height, width) >= 1)
    params = AugmentParams.draw(np.random.default_rng(seed), (0.5, 1.0), flip=True, resize="full")
    transform = params.transform((height, width), (48, 32))
    batch = lay([sample(height, width)], [transform], (48, 32))
    top, left, bottom, right = batch.boxes[0].tolist()
    assert bottom - top == pytest.approx(height * transform.scale, abs=1e-3)
    assert right - left == pytest.approx(width * transform.scale, abs=1e-3)
    assert 0.5 - 1e-4 <= max((bottom - top) / 48, (right - left) / 32) <= 1 + 1e-4


def test_stored_labels_and_oracle_labels_travel_with_their_image():
    plain = sample(8, 8)
    remembered = Sample(plain.image, plain.labels, plain.salient, stored=np.array([True, False]))
    still = CropTransform(1, 0, 0, flip=False)
    batch = lay([plain, remembered], [still, still], (8, 8))
    assert batch.stored.tolist() == [[False] * 3, [True, False, False]]  # a class learned since is not in it
    assert batch.full is None
    oracle = Sample(plain.image, plain.labels, plain.salient, full=plain.labels)
    laid = lay([oracle], [CropTransform(1, -2, 0, flip=True)], (10, 8))
    assert torch.equal(laid.full, laid.labels)


def test_joined_batches_keep_their_rows():
    still = CropTransform(1, 0, 0, flip=False)
    batches = [lay([sample(8, 8, seed)], [still], (8, 8)) for seed in range(3)]
    joined = join(batches)
    assert len(joined) == 3
    assert all(torch.equal(joined.labels[i], batches[i].labels[0]) for i in range(3))


def test_of_many_packed_images_the_same_batch_is_cut_as_of_those_of_the_batch_alone():
    samples = [sample(10, 12, 1), sample(16, 5, 2), sample(7, 9, 3)]
    transforms = [CropTransform(1.3, 2, -1, flip=True), CropTransform(0.8, 0, 0, flip=False)]
    packed = cat([pack(samples[:2], 3, CPU), pack(samples[2:], 3, CPU)])
    assert packed.sizes == ((10, 12), (16, 5), (7, 9))
    from_many = apply_transform(packed, [2, 0], transforms, (16, 16))
    alone = lay([samples[2], samples[0]], transforms, (16, 16))
    for name in ("images", "boxes", "labels", "salient", "stored"):
        assert torch.equal(getattr(from_many, name), getattr(alone, name)), name


@given(st.integers(0, 10**6))
def test_images_are_sampled_as_torch_samples_them(seed):
    rng = np.random.default_rng(seed)
    height, width = (int(side) for side in rng.integers(4, 40, 2))
    scale, top, left = rng.uniform(0.5, 2), rng.uniform(-9, 9), rng.uniform(-9, 9)
    ours = lay([sample(height, width, seed)], [CropTransform(scale, top, left, flip=False)], (24, 32))
    y, x = ((torch.arange(n) + 0.5 + shift) / scale for n, shift in ((24, top), (32, left)))
    grid = torch.stack(torch.meshgrid(x * 2 / width - 1, y * 2 / height - 1, indexing="xy"), -1)[None].float()
    image = torch.from_numpy(sample(height, width, seed).image).permute(2, 0, 1)[None].float() / 255
    theirs = torch.nn.functional.grid_sample(image, grid, padding_mode="border", align_corners=False)
    shown = inside(ours.boxes, (24, 32))[:, None]
    assert torch.allclose(ours.images * shown, theirs * shown, atol=1e-4)
