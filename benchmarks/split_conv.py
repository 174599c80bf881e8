"""What a head saves whose convolutions are split (models/heads.py SplitConv): forward and backward, beside plain ones.

    python benchmarks/split_conv.py --out split_conv.json

Heads as IPSeg's on ResNet-50, in turns, so that both see the same noise. On a GPU in bf16 and compiled.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import torch
from grouped import GPU, ROUNDS, milliseconds
from torch import Tensor, nn

from ipseg.models.fusible import fusing
from ipseg.models.heads import Head, Trunk

STAGES, WIDTH = (256, 512, 1024), 256


class Plain(nn.Conv2d):
    """One convolution of the joined channels: torch computes the gradient of them all."""

    def forward(self, x: Tensor, stage: Tensor) -> Tensor:  # type: ignore[override]
        """Joined, then convolved."""
        return super().forward(torch.cat([x, stage], dim=1))


def heads() -> dict[str, Head]:
    """Two of the same weights."""
    torch.manual_seed(0)
    with GPU:
        ours, plain = (Head(Trunk(STAGES, WIDTH, WIDTH), WIDTH, 3).eval() for _ in range(2))
    plain.load_state_dict(ours.state_dict())
    for block in plain.trunk.blocks:
        block[0].__class__ = Plain
    return {name: head.to(memory_format=torch.channels_last) for name, head in (("plain", plain), ("ours", ours))}


def main() -> None:
    """Milliseconds of both, and their ratio, again and again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=16 if GPU.type == "cuda" else 2)
    parser.add_argument("--side", type=int, default=320, help="of the pictures")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    half, side = torch.bfloat16 if GPU.type == "cuda" else torch.float32, options.side // 4
    sizes = [(WIDTH, side // 4), *((channels, side >> i) for i, channels in enumerate(STAGES))]
    decoded, *stages = (
        torch.rand(options.batch, c, n, n, device=GPU, dtype=half).to(memory_format=torch.channels_last)
        for c, n in sizes
    )

    def learn(head: Head) -> None:
        with torch.autocast(GPU.type, torch.bfloat16, enabled=GPU.type == "cuda"), fusing(wanted=GPU.type == "cuda"):
            loss = head(decoded, stages).float().square().mean()
        torch.autograd.backward(loss)

    rows = []
    for _ in range(options.repeats):
        took = {name: milliseconds(lambda head=head: learn(head), ROUNDS) for name, head in heads().items()}
        rows.append(took | {"ratio": took["ours"] / took["plain"]})
        print(json.dumps(rows[-1]), flush=True)
    ratio = statistics.median(row["ratio"] for row in rows)
    found = {"device": GPU.type, "batch": options.batch, "side": options.side, "ratio": ratio, "rows": rows}
    options.out.write_text(json.dumps(found) + "\n")
    print(f"median ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
