"""What the paper's figures show, for one picture: labels of a step, every head's scores, the posterior, the result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from ipseg.apps import explain_sheet
from ipseg.apps.explain_sheet import IGNORED, OTHER, PURE, SALIENT, UNKNOWN_THING, Head, Panel, View
from ipseg.apps.model import Model, Result, as_array, as_tensor, finished_step, restored
from ipseg.apps.predict import save_png, stamp
from ipseg.data.dataset import Dataset, DatasetSplits, require_same_size
from ipseg.data.file_dataset import FileDataset, MaskReader
from ipseg.data.image_io import ColorMasks, IndexMasks, read_salient
from ipseg.errors import UserError
from ipseg.files import require_output
from ipseg.methods.ipseg import IPSegConfig
from ipseg.methods.ipseg_lda import IPSegLDAConfig
from ipseg.methods.labels import coupled_labels, permanent_labels, temporary_labels
from ipseg.models.network import Network, logits_of
from ipseg.scenario.split import Scenario
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import Recipe, make_recipe
from ipseg.training.system import choose_device

DRAWN_BY = "ipseg explain"
"""What a sheet's file says about itself."""


@dataclass(frozen=True)
class Subject:
    """The picture to explain. Ground truth, in the data set's values, and saliency are what label maps are made of."""

    name: str
    image: NDArray[np.uint8]
    mask: NDArray[np.uint8] | None = None
    salient: NDArray[np.bool_] | None = None


def explain(
    run: Path,
    picture: str,
    *,
    step: int | None = None,
    mask: Path | None = None,
    saliency: Path | None = None,
    device: str = "auto",
) -> tuple[Image.Image, list[str]]:
    """The sheet for a picture after a step, and notes on what it leaves out."""
    folder = RunFolder.open(run)
    recipe = make_recipe(folder.settings())
    config: object = recipe.method
    if not isinstance(config, IPSegConfig | IPSegLDAConfig):
        raise UserError(f"explain draws what IPSeg does; {run} is a run of the method {recipe.method.name}.")
    chosen = finished_step(folder, step)
    scenario = folder.scenario(recipe)
    place = choose_device(device)
    subject = find_picture(picture, mask, saliency, recipe, scenario)
    model = restored(folder, recipe, scenario, chosen, place)
    view = View(subject.image, model.classes, f"{subject.name} after step {chosen}: {', '.join(model.classes[1:])}")
    rows = {"picture": [explain_sheet.photo(view, "picture x")]}
    notes = []
    if subject.mask is None:
        notes.append("The label maps are left out: they need ground truth and saliency (--mask FILE --saliency FILE).")
    else:
        previous = restored(folder, recipe, scenario, chosen - 1, place) if chosen else None
        given, made = label_panels(view, subject, config, model, previous)
        rows = {"picture": rows["picture"] + given, f"labels of step {chosen}": made}
    permanent, heads = head_scores(model, subject.image, decoupled=config.fusion.decoupled)
    head_rows, left_out = explain_sheet.head_rows(heads)
    rows |= {"permanent branch": explain_sheet.permanent_row(permanent), **head_rows}
    rows["result"] = result_panels(view, model.predict(subject.image))
    if subject.mask is not None:
        truth = scenario.evaluation_table(scenario.steps[chosen])[subject.mask]
        rows["result"].append(explain_sheet.painted(view, truth, "ground truth"))
    return explain_sheet.sheet(view, rows, _semantics(config)), notes + left_out


def _semantics(config: IPSegConfig | IPSegLDAConfig) -> list[int]:
    """What a legend must name beside the classes."""
    other = [OTHER] if config.fusion.decoupled else []
    return [PURE, UNKNOWN_THING, *other, IGNORED]


# ---- the file ---------------------------------------------------------------------------------------------------


def require_place(out: Path, *read: Path | None) -> None:
    """Raise if the sheet would take the place of a picture that is read, or of anything but an earlier sheet."""
    if out.exists() and any(path and path.exists() and out.samefile(path) for path in read):
        raise UserError(f"--out {out} would overwrite a picture that is read.")
    require_output(out, (".png",), stamp(DRAWN_BY))


def save_sheet(sheet: Image.Image, out: Path) -> None:
    """Write it, whole or not at all, with the word that it is a sheet."""
    out.parent.mkdir(parents=True, exist_ok=True)
    save_png(sheet, out, DRAWN_BY)


# ---- the picture ------------------------------------------------------------------------------------------------


def find_picture(picture: str, mask: Path | None, saliency: Path | None, recipe: Recipe, scenario: Scenario) -> Subject:
    """A file of the user's, or a picture of the run's data."""
    if Path(picture).is_file():
        return own_picture(Path(picture), mask, saliency, recipe, scenario)
    if mask or saliency:
        raise UserError(f"--mask and --saliency go with a picture file; {picture} is none.")
    return data_picture(recipe.splits(), picture)


def own_picture(path: Path, mask: Path | None, saliency: Path | None, recipe: Recipe, scenario: Scenario) -> Subject:
    """A file, with its ground truth and saliency map where they are given."""
    image = as_array(path)
    if mask is None and saliency is None:
        return Subject(path.name, image)
    if mask is None or saliency is None:
        raise UserError("--mask and --saliency go together: label maps are made of both.")
    return _equal_sizes(path.name, image, mask_reader(recipe, scenario)(mask), read_salient(saliency))


def mask_reader(recipe: Recipe, scenario: Scenario) -> MaskReader:
    """The run's own way to read masks, by color for example. Where its data is gone or another, by index."""
    by_index = IndexMasks(len(scenario.data_classes))
    try:
        splits = recipe.data.build()
    except UserError:
        return by_index
    if splits.classes != scenario.data_classes or not isinstance(splits.train, FileDataset):
        return by_index
    own = splits.train.read_mask
    return own if isinstance(own, (IndexMasks, ColorMasks)) else by_index  # COCO's are of its own pictures alone


def data_picture(splits: DatasetSplits, name: str) -> Subject:
    """A picture of the run's data set: train/NAME, val/NAME, or NAME, which is looked for in val first."""
    split, slash, rest = name.partition("/")
    chosen: list[tuple[str, Dataset, str]] = [(key, splits.split(key), name) for key in ("val", "train")]
    if slash and split in ("train", "val"):
        chosen = [(split, splits.split(split), rest), *chosen]
    for key, pictures, wanted in chosen:
        if wanted in pictures.names:
            index = list(pictures.names).index(wanted)
            image, mask, salient = pictures.image(index), pictures.mask(index), pictures.saliency(index)
            return _equal_sizes(f"{key}/{wanted}", image, mask, salient)
    raise UserError(
        f'no picture "{name}": it is no file, and no name in the run\'s data, such as val/{splits.val.names[0]}.'
    )


def _equal_sizes(name: str, image: NDArray[np.uint8], mask: NDArray[np.uint8], salient: NDArray[np.bool_]) -> Subject:
    require_same_size(name, image=image, mask=mask, saliency_map=salient)
    return Subject(name, image, mask, salient)


# ---- what is drawn ----------------------------------------------------------------------------------------------


def label_panels(
    view: View, subject: Subject, config: IPSegConfig | IPSegLDAConfig, model: Model, previous: Model | None
) -> tuple[list[Panel], list[Panel]]:
    """What a step is given (ground truth, saliency, the previous model) and the label maps it makes of it (Eq. 5)."""
    assert subject.mask is not None
    assert subject.salient is not None
    step = model.scenario.steps[model.step]
    y = torch.from_numpy(model.scenario.training_table(step)[subject.mask]).long()
    salient = torch.from_numpy(subject.salient)
    old = torch.zeros_like(y)
    if previous is not None:  # the teacher of the step
        old = previous.method.pseudo_labels(as_tensor(subject.image, previous.device))[0].cpu()
    given = [
        explain_sheet.painted(view, y.numpy(), f"y: what step {step.index} may see"),
        explain_sheet.painted(view, subject.salient * SALIENT, "S(x): saliency"),
    ]
    if previous is not None:
        given.append(explain_sheet.painted(view, old.numpy(), f"f_t-1(x): model of step {previous.step}"))
    classes = [*range(1, len(view.classes))]
    coupled = _named(coupled_labels(y, old, salient), [UNKNOWN_THING, PURE, *classes])
    if not config.fusion.decoupled:
        return given, [explain_sheet.painted(view, coupled, "y~: one map, coupled")]
    if isinstance(config, IPSegConfig) and not config.rules.known_classes_ignored:
        own = _named(coupled_labels(y, torch.zeros_like(y), salient), [OTHER, PURE, *classes])
        return given, [
            explain_sheet.painted(view, coupled, "y~: permanent branch and all classes"),
            explain_sheet.painted(view, own, f"y~: branch of step {step.index} and all classes"),
        ]
    first = 1 + len(step.old)
    permanent = _named(permanent_labels(y, old > 0, salient), [UNKNOWN_THING, PURE])
    temporary = _named(temporary_labels(y, salient, first), [OTHER, PURE, *range(first, first + len(step.new))])
    return given, [
        explain_sheet.painted(view, permanent, "y~p: permanent branch"),
        explain_sheet.painted(view, temporary, f"y~t: branch of step {step.index}"),
    ]


def _named(channels: torch.Tensor, meaning: list[int]) -> NDArray[np.integer]:
    """Channels of a branch as what the sheet paints: learned indices and the few special semantics."""
    table = np.full(256, IGNORED)
    table[: len(meaning)] = meaning
    named: NDArray[np.integer] = table[channels.numpy()]
    return named


@torch.no_grad()
def head_scores(model: Model, image: NDArray[np.uint8], *, decoupled: bool) -> tuple[Head, list[Head]]:
    """The probabilities of every channel of the permanent branch and of each temporary one."""
    network = model.method.network
    assert isinstance(network, Network)
    network.eval()
    features = network.encoder(as_tensor(image, model.device))

    def scores(head: torch.nn.Module) -> NDArray[np.float32]:
        probabilities: NDArray[np.float32] = logits_of(head, features)[0].sigmoid().cpu().numpy()
        return probabilities

    extra = ["c_f", "c'_b"] if decoupled else []
    steps = model.scenario.steps[: model.step + 1]
    heads = [
        Head(f"head of step {step.index}", dict(zip([*extra, *step.new], scores(head), strict=True)))
        for step, head in zip(steps, network.temporary, strict=True)
    ]
    return Head("permanent branch", dict(zip(["c'_u", "c'_b"], scores(network.permanent), strict=True))), heads


def result_panels(view: View, result: Result) -> list[Panel]:
    """The labels of the pixels alone, the posterior, and both together."""
    if result.posterior is None:
        return [explain_sheet.painted(view, result.labels, "result (no posterior)")]
    alone = result.pixel_labels  # none where a gate has left heads out
    return [
        *([] if alone is None else [explain_sheet.painted(view, alone, "pixels alone")]),
        explain_sheet.bars(view, result.posterior, "image posterior"),
        explain_sheet.painted(view, result.labels, "result: pixels x posterior"),
    ]
