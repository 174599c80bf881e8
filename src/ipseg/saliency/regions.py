"""Regions without a trained model: the graph-based segments of Felzenszwalb and Huttenlocher, cut where saliency ends.

Methods over regions (MicroSeg) give every pixel the class of its region, so that what the regions join bounds what
they can reach.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from ipseg.errors import UserError
from ipseg.saliency.fallback import salient

MAX_REGIONS = 100
"""Of an image: as many as the Mask2Former maps that MicroSeg was published with have."""
NO_REGION = 255
"""In an index map: the pixel is in no region."""
SIDE = 320
"""The working size: of the longer side, where the image is larger."""
SCALE, COARSER = 50.0, 1.3
"""The first preference for large segments, and its factor as long as there are too many of them."""
LEAST = 20
"""Pixels of a segment, and of a part that saliency cuts off."""


def propose_regions(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(H, W) index map of at most 100 regions of an (H, W, 3) RGB image. The same image gives the same map."""
    try:
        from skimage.segmentation import felzenszwalb
    except ImportError as error:
        raise UserError(
            "regions without maps need scikit-image: pip install 'ipseg[regions]'. (A folder of maps does not.)"
        ) from error
    height, width = image.shape[:2]
    scale = min(1.0, SIDE / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = np.asarray(Pillow.fromarray(image).resize(size, Pillow.Resampling.BOX))
    inside, preference, least = salient(small), SCALE, LEAST
    while True:
        segments = felzenszwalb(small, scale=preference, sigma=0.8, min_size=least)
        regions = cut(segments, inside)
        if regions.max() < MAX_REGIONS:
            large = Pillow.fromarray(regions.astype(np.uint8)).resize((width, height), Pillow.Resampling.NEAREST)
            return np.asarray(large)
        preference, least = preference * COARSER, int(1.25 * least) + 1


def cut(segments: NDArray[np.intp], inside: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Split every segment into its salient part and the rest, unless one of them has hardly a pixel.

    >>> cut(np.repeat([[0, 1]], [40, 40], axis=1), np.arange(80)[None] < 60).reshape(8, 10)[:, 0]
    array([0, 0, 0, 0, 2, 2, 1, 1])
    """
    counts = np.bincount((2 * segments + inside).ravel(), minlength=2 * (segments.max() + 1)).reshape(-1, 2)
    split = counts.min(1) >= LEAST
    return np.unique(2 * segments + (inside & split[segments]), return_inverse=True)[1].reshape(segments.shape)
