"""Mixed precision, where it must not reach."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def autocast_disabled(x: Tensor) -> AbstractContextManager[object]:
    """Within the block operations on x keep its number format, whatever autocast would make of them."""
    kind = x.device.type
    return nullcontext() if kind == "meta" else torch.autocast(kind, enabled=False)  # meta tensors know no autocast
