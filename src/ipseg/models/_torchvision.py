"""Make `import torchvision` (and so timm) work beside a CPU-only torch.

The torchvision wheel is built for one torch build. Beside another one its compiled operators cannot load, and the
import fails with "operator torchvision::nms does not exist", although models and transforms need none of them.
Declaring the two operators that the import asks for is enough. On an install where torchvision loads by itself nothing
is done.
"""

from __future__ import annotations

import sys

import torch

_declared: torch.library.Library | None = None  # must stay alive: operators go when their library does


def ensure_torchvision() -> bool:
    """Import torchvision, declaring the missing operators if that is what stops it. True if they were declared."""
    global _declared  # noqa: PLW0603
    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]  # half imported
        _declared = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            _declared.define(  # type: ignore[no-untyped-call]
                f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        import torchvision  # noqa: F401
    return _declared is not None
