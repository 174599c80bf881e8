"""Classes of regions instead of pixels (MicroSeg).

A region's vector is the mean of the decoder's output over it, and every pixel has the logits of its region; a pixel of
no region has 0 for every channel. So a loss over pixels needs no map of logits: it follows from the number of pixels
that each region has of each label. R is always 100; regions that an image lacks have no pixel.

Channels: K clusters of the unknown, a dummy without a positive label, then the classes. The clusters are added up
before the sigmoid, so that losses and predictions see [unknown, dummy, classes].
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ipseg.methods.base import Prediction
from ipseg.methods.labels import confident_old_classes
from ipseg.methods.losses import global_count
from ipseg.models.boxes import full_boxes
from ipseg.models.network import Encoder, pad_to_multiple
from ipseg.models.precision import autocast_disabled
from ipseg.saliency.regions import MAX_REGIONS, NO_REGION, propose_regions
from ipseg.scenario import IGNORE


def proposed(images: Tensor, boxes: Tensor | None = None) -> Tensor:
    """(B, H, W): regions of images that come without, each in its box."""
    edges = (full_boxes(images) if boxes is None else boxes).round().long().tolist()
    found = np.full((len(images), *images.shape[-2:]), NO_REGION, dtype=np.uint8)
    pixels = (images.permute(0, 2, 3, 1) * 255).round().byte().cpu().numpy()
    for row, (top, left, bottom, right) in enumerate(edges):
        found[row, top:bottom, left:right] = propose_regions(pixels[row, top:bottom, left:right])
    return torch.from_numpy(found).to(images.device).long()


def on_canvas(regions: Tensor, encoder: Encoder) -> Tensor:
    """The regions of a batch padded as its images are; of a tile the part that its features show."""
    free = ~pad_to_multiple((regions != NO_REGION)[:, None], encoder.backbone.multiple)[:, 0]
    padded = pad_to_multiple(regions[:, None], encoder.backbone.multiple)[:, 0].masked_fill(free, NO_REGION)
    if encoder.tile is None:
        return padded
    top, left, bottom, right = encoder.tile.window
    return padded[:, top:bottom, left:right]


def region_cells(regions: Tensor, size: Sequence[int]) -> Tensor:
    """(B, R, n): which cells of a feature map over the same canvas are of each region; a cell is its first pixel's.

    regions: (B, H, W). size: of the map, of n cells.
    """
    rows = torch.arange(size[0], device=regions.device) * regions.shape[-2] // size[0]
    columns = torch.arange(size[1], device=regions.device) * regions.shape[-1] // size[1]
    cells = regions[:, rows[:, None], columns].flatten(1)
    return cells[:, None] == torch.arange(MAX_REGIONS, device=cells.device)[:, None]


def region_vectors(decoded: Tensor, regions: Tensor) -> Tensor:
    """(B, C, R, 1): the mean of the decoder's output over each region; 0 for one that has no cell.

    regions: (B, H, W) over the same canvas as the features. The means are a product with one-hot cells: sums of a
    scatter would come in another order every time on a GPU.
    """
    with autocast_disabled(decoded):
        member = region_cells(regions, decoded.shape[-2:]).float()
        sums = torch.einsum("bcn,brn->bcr", decoded.flatten(2).float(), member)
        return (sums / member.sum(2).clamp(min=1)[:, None])[..., None]


def region_pixels(regions: Tensor) -> Tensor:
    """(B, R): the pixels of each region."""
    return label_counts(regions, torch.zeros_like(regions), 1)[:, :MAX_REGIONS, 0]


def label_counts(regions: Tensor, labels: Tensor, channels: int) -> Tensor:
    """(B, R + 1, channels): the pixels of each region that have each label; last, those of no region.

    regions, labels: (B, H, W); pixels with the label 255 are left out. Sums of integers, exact in any order.
    """
    place = regions.clamp(max=MAX_REGIONS) * (channels + 1) + labels.clamp(max=channels)
    size = (MAX_REGIONS + 1) * (channels + 1)
    place = place + size * torch.arange(len(place), device=place.device)[:, None, None]
    counts = torch.zeros(len(place) * size, dtype=torch.long, device=place.device)
    counts.scatter_add_(0, place.flatten(), torch.ones_like(place).flatten())
    return counts.view(len(place), MAX_REGIONS + 1, channels + 1)[..., :channels]


def collapse(logits: Tensor, unknowns: int) -> Tensor:
    """Channels [unknown, dummy, classes]: the sum of the unknown's clusters, and the others as they are."""
    return torch.cat([logits[:, :unknowns].sum(1, keepdim=True), logits[:, unknowns:]], dim=1)


def region_bce(logits: Tensor, regions: Tensor, labels: Tensor) -> Tensor:
    """`pixel_bce` of the logits that pixels have from their regions, exactly.

    With n_r pixels in a region, n_rc of them labeled c: the sum over r and c of n_r softplus(x_rc) - n_rc x_rc. Labeled
    pixels of no region count: each adds log 2 a channel, and no gradient.

    logits: (B, channels, R). labels: (B, H, W) channels, or 255.
    """
    channels = logits.shape[1]
    counts = label_counts(regions, labels, channels)
    inside = counts[:, :MAX_REGIONS].to(logits.dtype).transpose(1, 2)
    outside = counts[:, MAX_REGIONS].sum() * (channels * math.log(2))
    summed = (inside.sum(1, keepdim=True) * F.softplus(logits) - inside * logits).sum() + outside
    return summed / global_count(counts.sum())


def micro_loss(logits: Tensor, pixels: Tensor) -> Tensor:
    """MicroSeg's loss that parts the clusters of the unknown: the map of each must be most alike to itself.

    S = V V'^T of the maps, each normalized over the pixels, V' without gradient; the mean of -log softmax(S)_ii over
    maps and images. Maps are constant in a region, so that their products are sums over regions, weighed by pixels.

    logits: (B, K, R), of the clusters. pixels: (B, R).
    """
    maps = F.normalize(logits * pixels[:, None].to(logits.dtype).sqrt(), dim=2)
    own = (maps @ maps.detach().transpose(1, 2)).log_softmax(2).diagonal(dim1=1, dim2=2)
    return -own.sum() / (own.shape[1] * global_count(own.new_full((), len(own))))


def to_pixels(values: Tensor, regions: Tensor) -> Tensor:
    """(B, C, H, W): the values of each pixel's region; values: (B, C, R + 1), last those of no region."""
    place = regions.clamp(max=MAX_REGIONS).flatten(1)[:, None].expand(-1, values.shape[1], -1)
    return values.gather(2, place).view(*values.shape[:2], *regions.shape[1:])


def old_classes(logits: Tensor, regions: Tensor, least: float) -> Tensor:
    """(B, H, W): the old class that a pixel's region has with at least this probability; 0 elsewhere.

    logits: of the teacher, collapsed, (B, 2 + old classes, R).
    """
    found = confident_old_classes(F.pad(logits, (0, 1)), least)
    return to_pixels(found[:, None], regions)[:, 0]


def region_prediction(logits: Tensor, regions: Tensor) -> Prediction:
    """Scores of all pixels: the unknown and the dummy are background, and so is a pixel of no region.

    logits: collapsed, (B, 2 + classes, R).
    """
    probabilities = F.pad(logits, (0, 1)).sigmoid()  # 0 for every channel where there is no region
    scores = torch.cat([probabilities[:, :1] + probabilities[:, 1:2], probabilities[:, 2:]], dim=1)
    maps = to_pixels(scores, regions)
    return Prediction(maps, maps, unknown=to_pixels(probabilities[:, :1], regions)[:, 0])


def unlabeled_as_unknown(labels: Tensor, old: Tensor) -> Tensor:
    """Targets over [unknown, dummy, classes]: what is neither annotated nor an old class is unknown."""
    targets = torch.where(labels > 0, labels + 1, torch.where(old > 0, old + 1, 0))
    return targets.masked_fill(labels == IGNORE, IGNORE)
