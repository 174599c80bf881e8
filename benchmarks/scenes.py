"""What the drawn scenes are like, in numbers: objects, foreground, saliency, speed.

Run `python benchmarks/scenes.py`.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from ipseg.data.dataset import present_classes
from ipseg.data.scenes.scene import draw


def main() -> None:
    """Draw some pictures and print what they hold, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=300)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--classes", type=int, default=12)
    options = parser.parse_args()
    began = time.process_time()
    scenes = [draw(0, index, (options.size, options.size), options.classes) for index in range(options.pictures)]
    seconds = time.process_time() - began
    truth = np.stack([scene.mask > 0 for scene in scenes])
    found = np.stack([scene.saliency for scene in scenes])
    both, either = (truth & found).sum((1, 2)), (truth | found).sum((1, 2))
    facts = {
        "pictures": options.pictures,
        "milliseconds a picture": 1000 * seconds / options.pictures,
        "classes a picture": np.mean([len(present_classes(scene.mask)) for scene in scenes]),
        "foreground share": truth.mean(),
        "saliency IoU, mean over pictures": (both / either).mean(),
        "saliency recall": (truth & found).sum() / truth.sum(),
        "saliency precision": (truth & found).sum() / found.sum(),
    }
    print(json.dumps({name: round(float(value), 3) for name, value in facts.items()}, indent=2))


if __name__ == "__main__":
    main()
