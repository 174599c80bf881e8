"""Mixed precision, where it must not reach, and where torch does not see that it should."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def unmixed(x: Tensor) -> AbstractContextManager[object]:
    """Within the block operations on x keep its number format, whatever autocast would make of them."""
    kind = x.device.type
    return nullcontext() if kind == "meta" else torch.autocast(kind, enabled=False)  # meta tensors know no autocast


def mixed(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors of one device in the number format that autocast, where it is on, has convolutions compute in."""
    kind = tensors[0].device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return tensors
    return tuple(x.to(torch.get_autocast_dtype(kind)) for x in tensors)
