"""Frozen heads one after the other or as one network with groups: which is faster? Decides how heads are run.

    python benchmarks/grouped.py --out grouped.json

All heads read the same features, so their first layers can be one convolution; later layers see what is their own in
groups, and the shared stage in one convolution again. Both forms are compiled, in bf16, at the size of Swin-B.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from ipseg.models.fusible import fusing
from ipseg.models.heads import Head, Trunk
from ipseg.models.resize import resize

GPU = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ROUNDS = 20 if GPU.type == "cuda" else 1
STAGES, WIDTH = (128, 256, 512), 256


class Grouped(nn.Module):
    """Several heads of one shape as one network, batch norms folded into the convolutions."""

    def __init__(self, heads: Sequence[Head]) -> None:
        super().__init__()
        self.count = len(heads)
        self.own, self.shared, self.biases = nn.ParameterList(), nn.ParameterList(), nn.ParameterList()
        for layer in range(3):
            folded = [_folded(head.trunk.blocks[layer]) for head in heads]
            own = WIDTH if layer else 0  # the decoder's output is shared as well
            self.own.append(torch.cat([weight[:, :own] for weight, _ in folded]))
            self.shared.append(torch.cat([weight[:, own:] for weight, _ in folded]))
            self.biases.append(torch.cat([bias for _, bias in folded]))
        self.classifiers = nn.ModuleList(head.classifier for head in heads)

    def forward(self, decoded: Tensor, stages: Sequence[Tensor]) -> list[Tensor]:
        """Each head's logits."""
        coarse, middle, fine = stages[::-1]
        x = torch.cat([resize(decoded, coarse.shape[-2:]), coarse], dim=1)
        x = F.conv2d(x, self.shared[0], self.biases[0], padding=1).relu()
        for layer, stage in ((1, middle), (2, fine)):
            own = F.conv2d(resize(x, stage.shape[-2:]), self.own[layer], padding=1, groups=self.count)
            x = (own + F.conv2d(stage, self.shared[layer], self.biases[layer], padding=1)).relu()
        return [classify(part) for classify, part in zip(self.classifiers, x.chunk(self.count, dim=1), strict=True)]


def _folded(block: nn.Sequential) -> tuple[Tensor, Tensor]:
    conv, norm = block[0], block[1]
    return fuse_conv_bn_weights(
        conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    )


def milliseconds(work: Callable[[], object], rounds: int) -> float:
    """Of one call, after a warm-up. Without a GPU the processor's: others may be at work beside us."""
    clock = time.perf_counter if GPU.type == "cuda" else time.process_time
    for _ in range(3):
        work()
    wait()
    began = clock()
    for _ in range(rounds):
        work()
    wait()
    return (clock() - began) / rounds * 1000


def wait() -> None:
    """Until the device has done all."""
    if GPU.type == "cuda":
        torch.cuda.synchronize()


@torch.no_grad()
def measure(count: int, batch: int, side: int, *, fused: bool) -> dict[str, float]:
    """Both forms on the same features."""
    torch.manual_seed(0)
    with GPU:
        heads = [Head(Trunk(STAGES, WIDTH, WIDTH), WIDTH, 3).eval() for _ in range(count)]
        sizes = [(WIDTH, side // 32), *((channels, side // 4 >> i) for i, channels in enumerate(STAGES))]
        decoded, *stages = (torch.rand(batch, c, n, n).to(memory_format=torch.channels_last) for c, n in sizes)
    grouped = Grouped(heads).to(GPU)
    equal = max(
        float((one(decoded, stages) - other).abs().max())
        for one, other in zip(heads, grouped(decoded, stages), strict=True)
    )
    half = torch.bfloat16 if GPU.type == "cuda" else torch.float32
    decoded, *stages = (x.to(half) for x in (decoded, *stages))
    for module in (*heads, grouped):
        module.to(half, memory_format=torch.channels_last)
    run_all = torch.compile(grouped) if fused else grouped
    with fusing(wanted=fused):
        looped_ms = milliseconds(lambda: [head(decoded, stages) for head in heads], ROUNDS)
    return {
        "heads": count,
        "batch": batch,
        "largest_difference": equal,
        "looped_ms": looped_ms,
        "grouped_ms": milliseconds(lambda: run_all(decoded, stages), ROUNDS),
    }


def main() -> None:
    """A few numbers of heads, for sixteen pictures and for one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--heads", type=int, nargs="+", default=[2, 6, 11])
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 1])
    parser.add_argument("--side", type=int, default=512, help="of the pictures")
    parser.add_argument("--plain", action="store_true", help="do not compile")
    options = parser.parse_args()
    rows = []
    for batch in options.batches:
        for count in options.heads:
            rows.append(measure(count, batch, options.side, fused=not options.plain))
            print(json.dumps(rows[-1]), flush=True)
            options.out.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
