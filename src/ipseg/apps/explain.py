"""`ipseg explain`: for one image a step's label maps, every head's scores, the posterior and the result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ipseg.apps.explain_sheet import IGNORED, OTHER, PURE, SALIENT, UNKNOWN_THING, Panel, Sheet, head_rows
from ipseg.apps.model import Model, as_array, as_tensor
from ipseg.apps.run import Run
from ipseg.data.batch import Sample as StepSample
from ipseg.data.dataset import DatasetSplits, require_same_size
from ipseg.data.transforms import as_batch
from ipseg.errors import UserError
from ipseg.files import replacing, require_output
from ipseg.methods.ipseg import IPSegConfig
from ipseg.methods.ipseg_lda import IPSegLDAConfig
from ipseg.methods.labels import coupled_labels, permanent_labels, temporary_labels
from ipseg.models.network import Network, logits_of
from ipseg.report.figures import styled

WRITTEN_BY = "ipseg explain"
"""In the metadata of the PNG: only such a file is replaced."""
Scores = dict[str, NDArray[np.float32]]
"""The probabilities of a branch by channel, each (H, W)."""


@dataclass(frozen=True)
class InputImage:
    """The image to explain. Label maps are made of ground truth, in the data set's values, and saliency."""

    name: str
    image: NDArray[np.uint8]
    mask: NDArray[np.uint8] | None = None
    saliency: NDArray[np.bool_] | None = None


def explain(path: Path, image: str, *, step: int | None = None, device: str = "auto") -> Sheet:
    """The sheet for an image file, or an image of the run's data, after a step."""
    run = Run.open(path)
    config: object = run.recipe.method
    if not isinstance(config, IPSegConfig | IPSegLDAConfig):
        raise UserError(f"explain visualizes IPSeg; {path} is a run of the method {run.recipe.method.name}.")
    chosen = run.step(step)
    if Path(image).is_file():
        sample = InputImage(Path(image).name, as_array(image))
    else:
        sample = find_sample(run.recipe.splits(), image)
    model = run.model(chosen.index, device)
    rows: dict[str, list[Panel]] = {"image": [Panel("image x")]}
    notes = []
    if sample.mask is None:
        notes.append("The label maps are left out: they need an image of the run's data.")
    else:
        teacher = run.model(chosen.index - 1, device) if chosen.index else None
        inputs, labels = label_panels(sample, config, model, teacher)
        rows["image"] += inputs
        rows[f"labels of step {chosen.index}"] = labels
    permanent, heads = head_scores(model, sample.image, decoupled=config.fusion.decoupled)
    rows["permanent branch"] = [Panel("c'_b  background", permanent["c'_b"]), Panel("c'_u  unknown", permanent["c'_u"])]
    strongest, left_out = head_rows(heads)
    rows |= strongest
    result = model.predict(sample.image)
    rows["result"] = [Panel("pixels alone", result.pixel_labels)] if result.pixel_labels is not None else []
    rows["result"] += [Panel("image posterior", result.posterior)] if result.posterior else []
    rows["result"].append(Panel("result: pixels x posterior" if result.posterior else "result", result.labels))
    if sample.mask is not None:
        rows["result"].append(Panel("ground truth", run.scenario.evaluation_table(chosen)[sample.mask]))
    return Sheet(
        image=sample.image,
        classes=model.classes,
        title=f"{sample.name} after step {chosen.index}: {', '.join(model.classes[1:])}",
        rows=rows,
        special=[PURE, UNKNOWN_THING, *([OTHER] if config.fusion.decoupled else []), IGNORED],
        notes=notes + left_out,
    )


def find_sample(splits: DatasetSplits, name: str) -> InputImage:
    """An image of the run's data: train/NAME, val/NAME, or NAME, which is looked for in val first."""
    split, _, rest = name.partition("/")
    candidates = [("val", name), ("train", name)]
    if rest and split in ("train", "val"):
        candidates.insert(0, (split, rest))
    for key, wanted in candidates:
        images = splits.split(key)
        if wanted in images.names:
            index = list(images.names).index(wanted)
            image, mask, saliency = images.image(index), images.mask(index), images.saliency(index)
            require_same_size(f"{key}/{wanted}", image=image.shape, mask=mask.shape, saliency_map=saliency.shape)
            return InputImage(f"{key}/{wanted}", image, mask, saliency)
    raise UserError(
        f'no image "{name}": it is no file, and no name in the run\'s data, such as val/{splits.val.names[0]}.'
    )


def label_panels(
    sample: InputImage, config: IPSegConfig | IPSegLDAConfig, model: Model, teacher: Model | None
) -> tuple[list[Panel], list[Panel]]:
    """The inputs of a step (ground truth, saliency, the teacher's labels) and the label maps made of them (Eq. 5)."""
    assert sample.saliency is not None
    step = model.scenario.steps[model.step]
    y = torch.from_numpy(model.scenario.training_table(step)[sample.mask]).long()
    salient = torch.from_numpy(sample.saliency)
    old = torch.zeros_like(y)
    inputs = [Panel(f"y: labels of step {step.index}", y.numpy()), Panel("S(x): saliency", sample.saliency * SALIENT)]
    if teacher is not None:
        seen = StepSample(sample.image, y.byte().numpy(), sample.saliency)
        batch = as_batch(seen, len(teacher.classes) - 1, teacher.device)
        old = teacher.method.pseudo_labels(batch)[0].cpu()
        inputs.append(Panel(f"f_t-1(x): model of step {teacher.step}", old.numpy()))

    def panel(caption: str, channels: torch.Tensor, *meaning: int) -> Panel:
        """Channels of a branch as learned indices and special semantics."""
        table = np.full(256, IGNORED)
        table[: len(meaning)] = meaning
        return Panel(caption, table[channels.numpy()])

    classes = range(1, len(model.classes))
    coupled = coupled_labels(y, old, salient)
    if not config.fusion.decoupled:
        return inputs, [panel("y~: one map, coupled", coupled, UNKNOWN_THING, PURE, *classes)]
    if isinstance(config, IPSegConfig) and not config.rules.known_classes_ignored:
        own = coupled_labels(y, torch.zeros_like(y), salient)
        return inputs, [
            panel("y~: permanent, all classes", coupled, UNKNOWN_THING, PURE, *classes),
            panel(f"y~: step {step.index}, all classes", own, OTHER, PURE, *classes),
        ]
    first = 1 + len(step.old)
    new = range(first, first + len(step.new))
    return inputs, [
        panel("y~p: permanent branch", permanent_labels(y, old > 0, salient), UNKNOWN_THING, PURE),
        panel(f"y~t: branch of step {step.index}", temporary_labels(y, salient, first), OTHER, PURE, *new),
    ]


@torch.no_grad()
def head_scores(model: Model, image: NDArray[np.uint8], *, decoupled: bool) -> tuple[Scores, dict[str, Scores]]:
    """The probabilities of the permanent branch, and of each temporary one by its name."""
    network = model.method.network
    assert isinstance(network, Network)
    network.eval()
    features = network.encoder(as_tensor(image, model.device))

    def scores(head: torch.nn.Module, channels: list[str]) -> Scores:
        return dict(zip(channels, logits_of(head, features)[0].sigmoid().cpu().numpy(), strict=True))

    extra = ["c_f", "c'_b"] if decoupled else []
    heads = {
        f"head of step {step.index}": scores(head, [*extra, *step.new])
        for step, head in zip(model.scenario.steps[: model.step + 1], network.temporary, strict=True)
    }
    return scores(network.permanent, ["c'_u", "c'_b"]), heads


def require_writable(out: Path, image: Path) -> None:
    """Raise if the sheet would replace the image, or anything but an earlier sheet."""
    if out.exists() and image.exists() and out.samefile(image):
        raise UserError(f"--out {out} would overwrite the image that is read.")
    require_output(out, (".png",), f"Software\0{WRITTEN_BY}".encode())


def save_sheet(figure: Figure, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as temporary, styled():
        figure.savefig(temporary, format="png", dpi=120, metadata={"Software": WRITTEN_BY})
