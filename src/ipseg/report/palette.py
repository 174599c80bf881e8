"""One color for each class in every label map, figure and page: black background, light gray for ignored pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ipseg.errors import UserError

IGNORE = 255
"""The label of ignored pixels."""
Bytes = NDArray[np.uint8]

# Okabe and Ito's colors and six that match them, then always the color farthest from all before it: in CIELAB, as seen
# with normal vision and with the two common color deficiencies (simulated after Machado, Oliveira and Fernandes, 2009).
PALETTE = """
    000000 56b4e9 e69f00 009e73 f0e442 cc79a7 d55e00 0072b2 882255 b5ec8a 7b5cff 8a6a3a ff3b6b 3b2c9a 0000ff 1effb4
    8787f0 96000f 006978 a5a54b 00f0ff d20fb4 4b694b 9600c3 69ff69 5a4b87 ff8796 e1b487 87d23c 4b961e 4b0fd2 005a0f
    3cb4c3 78c3a5 693c2d ffa569 005ad2 9600ff c34b96 b42d4b f0c3f0 b45ad2 ff5a3c ff4bff ffd25a c3f0d2 c300f0 782d96
    ff87f0 ff78c3 5a965a 69d269 87ffa5 f05a87 69e1b4 a52d96 b40000 d25a4b d20078 b487d2 960069 69691e a5ff00 c38796
    5a5a2d 1ed2ff 8778a5 872db4 96a578 963c2d b4a569 e10f1e ffa53c 87d2e1 c3d200 a5d296 78f0e1 c3782d 3cc300 d21e3c
    5a69f0 0fc3c3 c32de1 c30f5a 00e1c3 783c4b ffc378 5a2dd2 0fd24b 875a87 009687 b44b69 f01eb4 f09687 6900b4 e1f087
    a50fa5 f00fd2 3c1ef0 871e3c 8778c3 693cc3 873c3c ff4b5a 5a3c69 e1a5a5 870fe1 e14be1 e187ff b44b1e f087b4 e1c35a
    5ab4d2 6969a5 b41e69 6978d2 d24b87 e13c5a 1e4b78 c3d287 781e78 3c96e1 1e4be1 ff872d e1d2a5 4bf0b4 ff6978 a5873c
    ff784b f03c78 5a4ba5 b4001e 6987ff 69d2d2 d2b4ff 874b69 69a500 a54b96 00ffff 69875a c32d87 5a3c87 e1963c d26996
    c3d24b 87b487 a5ff4b 5a78b4 96b45a f06900 87784b 96f05a 1ef078 5affe1 f0d296 003cb4 875a3c 785ac3 3ca5a5 b42dc3
    7887b4 7800a5 87c3e1 964b78 5ac396 e1b4d2 d287a5 d24bc3 693cff e1004b 873cd2 3c4bb4 a5692d a54b00 784b96 c378c3
    00b4ff 4be169 e1b45a 69b4b4 5a2d96 5ad2b4 a5f0c3 2d2dc3 96d2a5 d296d2 b4f01e c37869 785ae1 b43cff 87a55a f08787
    87b4e1 873c1e ffe196 5ae1f0 ff2d00 b4963c a5f0f0 e12da5 5a4b0f 2d8778 7878f0 96c378 e1a54b ff87c3 e15a3c b487b4
    8796f0 4b5aa5 96e11e 1e785a 960087 4bc3f0 6900e1 5ae1ff 005a5a ffb469 961e4b ffe169 b4c30f 1ea54b 4bf0a5 b46969
    a5e1c3 b4c396 3c874b 1e4b87 96ff96 3c9678 c35a96 964bb4 c37887 875a2d 4bffd2 ff4be1 ffd287 9669ff 691eb4 2de178
    87e1d2 a500e1 3c6900 d25a78 1eb43c a578d2 d2d23c 0f871e 2d87a5 871e2d ff96f0 1e96f0 f06996 5a96ff b4f0b4 d2d2d2
"""


def colors(n: int = 256) -> Bytes:
    """The colors of labels 0 to n - 1 as (n, 3): a class keeps its color however many others there are.

    >>> colors(2).tolist()
    [[0, 0, 0], [86, 180, 233]]
    """
    if not 0 <= n <= 256:
        raise UserError(f"a palette holds 0 to 256 colors, not {n}.")
    return np.frombuffer(bytes.fromhex(PALETTE), np.uint8).reshape(256, 3)[:n].copy()


def as_hex(color: Bytes) -> str:
    """A color as CSS writes it.

    >>> as_hex(colors(2)[1])
    '#56b4e9'
    """
    return "#" + bytes(color).hex()


def as_labels(labels: NDArray[np.integer]) -> Bytes:
    """The label map as bytes."""
    if labels.ndim != 2 or not np.issubdtype(labels.dtype, np.integer):
        raise UserError(f"a label map is (height, width) whole numbers, not {labels.shape} of {labels.dtype}.")
    if labels.size and not (labels.min() >= 0 and labels.max() <= 255):
        raise UserError(f"labels run from 0 to 255; this map holds {labels.min()} to {labels.max()}.")
    return labels.astype(np.uint8)


def indexed_image(labels: NDArray[np.integer]) -> Image.Image:
    """The label map as an image with a palette: a viewer shows colors, a program reads the labels back."""
    image = Image.fromarray(as_labels(labels))
    image.putpalette(colors().tobytes())
    return image
