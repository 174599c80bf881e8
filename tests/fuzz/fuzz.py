"""Give every command files that were good until some of them changed, and see that it says what is wrong.

    python tests/fuzz/fuzz.py --minutes 5 --seed 0
    python tests/fuzz/fuzz.py --seed 0 --only 137    # one case again, with what it said

Recipes, grids, run folders, checkpoints, packs, weights, masks, COCO's JSON and ONNX files are changed: bytes flipped,
cut, doubled; values of other types, huge numbers, deep nesting, odd text; links. A command may succeed, fail or be
interrupted (exit codes 0, 1 where it says so, 2 and 130), within seconds and a memory, and never with a traceback.
A row a kind: cases, and how they ended. Exit code 1 if one broke a rule.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import struct
import sys
import tempfile
import time
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
import forked

from conftest import tiny, write_folder_data

SECONDS, PATIENCE, MEMORY = 10.0, 120.0, 1 << 30
"""What a command may take of the processor, by the clock, and of memory, the program's own included."""
LONG, STOPPED = ("train", "learn"), 130
"""What a recipe may ask to take for days: it gets Ctrl-C after a while, and must end as the docs say."""
SHORT = "training.later_epochs=1"
NUMBERS: tuple[Any, ...] = (
    0,
    -1,
    1,
    2,
    255,
    256,
    2**31,
    2**63 - 1,
    2**63,
    10**400,
    0.5,
    -0.0,
    1e-320,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
)
TEXTS = (
    "",
    " ",
    "\0",
    "\ud800",
    "é",
    "e\u0301",
    "../../../etc/passwd",
    "/dev/zero",
    "a:b",
    ":X",
    "os:system",
    "x" * 5000,
    "\x1b[31m",
    "[bold",
    "=1+1",
    "..",
    "con",
    "null",
    "background",
    "step_00",
    "1e999",
    "-1",
    "\u202e",
    "💥",
    "~",
    "a\nb",
)


# ---- changes --------------------------------------------------------------------------------------------------------


def odd_value(rng: random.Random) -> Any:
    """Something of any type."""
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: rng.choice(NUMBERS),
        lambda: rng.choice(TEXTS),
        lambda: None,
        lambda: rng.random() < 0.5,
        list,
        dict,
        lambda: [rng.choice(NUMBERS)] * rng.choice((1, 3, 300)),
        lambda: {rng.choice(TEXTS): rng.choice(NUMBERS)},
        lambda: nested(rng.choice((3, 70, 2000))),
    )
    return rng.choice(kinds)()


def nested(depth: int) -> Any:
    """Lists in lists."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def change_value(value: Any, rng: random.Random) -> Any:
    """The value with one thing in it removed, doubled, renamed or replaced."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.9:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key, kind = rng.choice(keys), rng.random()
        if kind < 0.6:
            value[key] = change_value(value[key], rng)
        elif kind < 0.7:
            del value[key]
        elif isinstance(value, dict):
            value[rng.choice((*TEXTS, *map(str, keys)))] = value.pop(key) if kind < 0.8 else odd_value(rng)
        else:
            value.insert(key, value[rng.choice(keys)] if kind < 0.85 else odd_value(rng))
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.5:
        return rng.choice((value + 1, -value, value * 1000, str(value), float(value), *NUMBERS))
    if isinstance(value, str) and rng.random() < 0.3:
        return rng.choice((value + rng.choice(TEXTS), value[::-1], value.upper(), [value]))
    return odd_value(rng)


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Some bytes flipped, cut out, doubled or replaced; often near the beginning, where formats say what follows."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        if not made:
            break
        at = rng.randrange(min(len(made), rng.choice((16, 256, 4096, 1 << 30))))
        kind = rng.randrange(7)
        if kind == 0:
            made[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            made[at] = rng.choice((0, 255, 127, 128, 0x5B, 0x7B, 0x22))
        elif kind == 2:
            del made[at : at + rng.choice((1, 4, 100, len(made)))]
        elif kind == 3:
            made[at:at] = made[at : at + rng.choice((1, 8, 100))] * rng.choice((1, 3))
        elif kind == 4:
            made[at : at + 8] = struct.pack("<q", rng.choice((0, -1, 1, 1 << 40, (1 << 63) - 1)))
        elif kind == 5:
            made[at : at + 4] = rng.randbytes(4)
        else:
            made[at:at] = rng.choice(TEXTS).encode(errors="surrogatepass")
    return bytes(made)


def change_json(path: Path, rng: random.Random) -> None:
    """A JSON file, and line by line one of JSON lines: mostly still JSON."""
    text = path.read_text(encoding="utf-8")
    if rng.random() < 0.25:
        path.write_bytes(change_bytes(text.encode(), rng))
        return
    try:
        if path.suffix == ".jsonl":
            lines = text.splitlines()
            at = rng.randrange(len(lines))
            lines[at] = json.dumps(change_value(json.loads(lines[at]), rng))
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        else:
            value = json.loads(text)
            for _ in range(rng.choice((1, 1, 2))):
                value = change_value(value, rng)
            path.write_text(json.dumps(value), encoding="utf-8")
    except (RecursionError, ValueError):  # nested too deep for the writer, but not for a text
        path.write_text('{"a":' + 5000 * "[", encoding="utf-8")


def change_yaml(path: Path, rng: random.Random) -> None:
    """A YAML file: its text, its values, or a piece that only YAML has."""
    text, kind = path.read_text(encoding="utf-8"), rng.random()
    if kind < 0.2:
        path.write_bytes(change_bytes(text.encode(), rng))
    elif kind < 0.35:
        path.write_text(text + rng.choice(OF_YAML), encoding="utf-8")
    elif kind < 0.5:
        lines = text.splitlines()
        at = rng.randrange(len(lines))
        head, _, _ = lines[at].partition(":")
        lines[at] = f"{head}: {rng.choice(SCALARS)}"
        path.write_text("\n".join(lines), encoding="utf-8")
    else:
        try:
            path.write_text(yaml.safe_dump(change_value(yaml.safe_load(text), rng)), encoding="utf-8")
        except (RecursionError, ValueError, yaml.YAMLError):
            path.write_text("a: " + 3000 * "[", encoding="utf-8")


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join(9 * [f'*a{i - 1}'])}]\n" for i in range(1, 12)
)
OF_YAML = (
    BOMB,
    "\nmodel: &m {width: *m}\n",
    "\n<<: *nothing\n",
    "\n? [a, b]\n: 1\n",
    "\n--- \na: 1\n",
    "\n%TAG ! x\n",
    "\nmodel: &m {backbone: {<<: *m}}\n",
    "\n\t\n",
    "\n!!python/object/apply:os.system [true]\n",
)
SCALARS = (
    "!!binary AAAA",
    "!!set {a, b}",
    "!!timestamp 2001-01-01",
    "2024-02-30",
    "!!float x",
    "!!bool maybe",
    "&a [*a]",
    "1" + 400 * "0",
    ".inf",
    ".nan",
    "0x" + 5000 * "f",
    r'"\0"',
    r'"\ud800"',
    "~",
    "[",
    "{a: 1",
    "1:30:00",
    ":X",
    "own:Thing",
    "os:system",
    "{name: ':X'}",
    "{name: [ipseg]}",
    "'\\'",
    "!!omap [a: 1]",
    "@x",
    "`",
    "|",
)


def change_safetensors(path: Path, rng: random.Random) -> None:
    """The header's JSON, with its length made right, or bytes anywhere."""
    data = path.read_bytes()
    if rng.random() < 0.4:
        path.write_bytes(change_bytes(data, rng))
        return
    length = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    facts = header["__metadata__"]
    if rng.random() < 0.5:
        try:
            facts["facts"] = json.dumps(change_value(json.loads(facts["facts"]), rng))
        except (RecursionError, ValueError):
            facts["facts"] = 5000 * "["
    else:
        header = change_value(header, rng)
    try:
        said = json.dumps(header).encode(errors="surrogatepass")
    except (RecursionError, ValueError):
        said = 5000 * b"["
    path.write_bytes(struct.pack("<Q", len(said)) + said + body)


def change_facts(path: Path, rng: random.Random) -> None:
    """A file of tensors that is whole, with a valid checksum: only what it says, or holds, is another."""
    from ipseg.engine.tensors import load_tensors, save_tensors

    def work() -> None:
        import torch

        tensors, facts = load_tensors(path, "it")
        name = rng.choice(sorted(tensors))
        kind = rng.randrange(6)
        if kind < 2:
            facts = change_value(facts, rng)
        elif kind == 2:
            del tensors[name]
        elif kind == 3:
            tensors[rng.choice(("x", "network.x", "optimiser.999.y", "optimiser.x", "."))] = tensors[name].clone()
        elif kind == 4:
            tensors[name] = torch.zeros(rng.choice(((0,), (1,), (3, 3), (1, 1, 1, 1, 1))))
        else:
            tensors[name] = torch.full_like(tensors[name].float(), rng.choice((float("nan"), float("inf"), 1e38)))
        save_tensors(path, tensors, facts if isinstance(facts, dict) else {})

    log = path.with_name("made.log")
    forked.finish(forked.fork(work, log), log, time.monotonic(), PATIENCE)
    log.unlink(missing_ok=True)


def change_image(path: Path, rng: random.Random) -> None:
    """Bytes of an image file, or one of another kind: size, mode, format."""
    kind = rng.randrange(4)
    if kind == 0:
        path.write_bytes(change_bytes(path.read_bytes(), rng))
        return
    mode = rng.choice(("L", "P", "RGB", "RGBA", "1", "I;16", "I", "F", "LA", "CMYK"))
    size = rng.choice(((1, 1), (64, 48), (48, 64), (1, 3000), (3000, 1), (65, 48)))
    file = rng.choice(("PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP"))
    try:
        Image.effect_noise(size, 50).convert(mode.partition(";")[0]).save(path, format=file)
    except (OSError, ValueError):
        path.write_bytes(b"")


def change_coco(path: Path, rng: random.Random) -> None:
    """As other JSON; annotations count most."""
    change_json(path, rng)


def change_onnx(path: Path, rng: random.Random) -> None:
    """Bytes."""
    path.write_bytes(change_bytes(path.read_bytes(), rng))


def change_zip(path: Path, rng: random.Random) -> None:
    """Bytes of the archive; or a file in it, with sizes and hashes that are right again."""
    if rng.random() < 0.3:
        path.write_bytes(change_bytes(path.read_bytes(), rng))
        return
    import hashlib

    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(files))
    member = path.with_name(f"member{Path(name).suffix}")
    member.write_bytes(files[name])
    CHANGES[member.suffix](member, rng)
    files[name] = member.read_bytes()
    member.unlink()
    if name != "manifest.json":
        manifest = json.loads(files["manifest.json"])
        manifest["files"][name] = {"bytes": len(files[name]), "sha256": hashlib.sha256(files[name]).hexdigest()}
        files["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for one, data in files.items():
            archive.writestr(one, data)


CHANGES: dict[str, Callable[[Path, random.Random], None]] = {
    ".yaml": change_yaml,
    ".json": change_json,
    ".jsonl": change_json,
    ".png": change_image,
    ".onnx": change_onnx,
    ".zip": change_zip,
    ".safetensors": change_safetensors,
}


def change_file(path: Path, rng: random.Random) -> None:
    """As its kind asks; sometimes it becomes a link, a folder, nothing, or the content of another file."""
    kind = rng.random()
    if kind < 0.03:
        path.unlink()
        path.symlink_to(rng.choice(("/etc/passwd", "/dev/zero", path.name, "..", "nowhere")))
    elif kind < 0.05:
        path.unlink()
        path.mkdir()
    elif kind < 0.07:
        path.write_bytes(rng.choice((b"", b"\xff\xfe", b"\0" * 1000, b"{}", b"[]", b"null", b"\x89PNG\r\n\x1a\n")))
    elif path.suffix == ".safetensors" and rng.random() < 0.5:
        change_facts(path, rng)
    elif path.suffix in CHANGES:
        CHANGES[path.suffix](path, rng)
    else:
        path.write_bytes(change_bytes(path.read_bytes(), rng))


# ---- kinds of cases -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """Files that are copied and changed, and the commands that read them."""

    source: str
    """Below the good files: a file or a folder."""
    pattern: tuple[str, ...]
    """Which of them are changed."""
    commands: tuple[tuple[str, ...], ...]
    """IT is the changed copy, GOOD the folder of good files, OUT a place for results."""
    weight: int = 1


RUN = (
    ("compare", "IT"),
    ("report", "IT", "--out", "OUT.html", "--gallery", "0"),
    ("evaluate", "IT"),
    ("memory", "IT"),
    ("predict", "IT", "GOOD/photo.png", "--out", "OUT"),
    ("pack", "IT", "--out", "OUT.zip"),
    ("train", "IT", "--resume", "--quiet"),
    ("train", "IT", "--resume", "--dry-run"),
    ("report", "IT", "--out", "OUT.html"),
    ("learn", "IT", "--data", "GOOD/new", "--classes", "sheep", "--out", "OUT", "--quiet", "--set", SHORT),
    ("apply", "GOOD/sheep.zip", "IT", "--out", "OUT"),
    ("cost", "IT", "--size", "64"),
    ("explain", "IT", "GOOD/photo.png", "--out", "OUT.png"),
)
KINDS = {
    "recipe": Kind(
        "recipe.yaml", ("*",), (("train", "IT", "--dry-run"), ("train", "IT", "--out", "OUT", "--quiet")), 5
    ),
    "grid": Kind(
        "grid", ("grid.yaml",), (("sweep", "IT/grid.yaml", "--dry-run"), ("sweep", "IT/grid.yaml", "--table")), 4
    ),
    "run": Kind(
        "base", ("recipe.yaml", "run.json", "results.json", "log.jsonl", "step_*/step.json", "*/memory/*.json"), RUN, 10
    ),
    "memory": Kind("base", ("*/memory/*.json", "*/memory/**/*.png"), RUN, 3),
    "weights": Kind("base", ("*/weights.safetensors",), RUN, 4),
    "checkpoint": Kind("halted", ("*/checkpoint.safetensors",), (("train", "IT", "--resume", "--quiet"),), 3),
    "pack": Kind("sheep.zip", ("*",), (("apply", "IT", "GOOD/base", "--out", "OUT"),), 5),
    "masks": Kind(
        "new",
        ("masks/*", "images/*", "saliency/*", "classes.txt"),
        (
            ("data", "check", "IT"),
            ("saliency", "IT", "--fallback", "--quiet"),
            ("evaluate", "GOOD/base", "--data", "IT"),
            ("predict", "GOOD/base", "IT/images", "--out", "OUT"),
            ("learn", "GOOD/base", "--data", "IT", "--classes", "sheep", "--out", "OUT", "--quiet", "--set", SHORT),
        ),
        4,
    ),
    "coco": Kind("coco", ("annotations/*.json",), (("data", "check", "IT", "--format", "coco"),), 4),
    "onnx": Kind("model.onnx", ("*",), (("saliency", "GOOD/bare", "--model", "IT", "--out", "OUT", "--quiet"),), 2),
    "pretrained": Kind(
        "pretrained.safetensors",
        ("*",),
        (("train", "GOOD/recipe.yaml", "--dry-run", "--set", "model.backbone.weights=IT"),),
        1,
    ),
}


def make(good: Path) -> None:
    """Everything that cases change, made by the commands themselves."""
    settings = tiny()
    settings["data"] |= {"train": 8, "val": 2}
    (good / "recipe.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    (good / "grid").mkdir()
    (good / "grid" / "short.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    (good / "grid" / "grid.yaml").write_text(
        "base: short.yaml\nset: {training: {lr: 0.1}}\nscenarios: [2-1, 2-2 disjoint]\nseeds: [0, 1]\n"
        "methods: [ipseg, finetune]\nruns: {one: {}, two: {memory: {size: 2}}}\n"
    )
    old = write_folder_data(good / "old", classes=("red", "green"), count=6)
    base = settings | {"data": {"name": "folder", "path": str(old)}, "scenario": {"name": "1-1"}, "name": "base"}
    base["memory"] = {"size": 3, "store": "copy"}
    base["training"] |= {"log_every": 1}
    (good / "old.yaml").write_text(yaml.safe_dump(base), encoding="utf-8")
    write_folder_data(good / "new", classes=("goat", "sheep", "red"), count=6)
    write_folder_data(good / "bare", count=2, saliency=False)
    shutil.copy(next((good / "new" / "images").iterdir()), good / "photo.png")
    for words, file in (
        (["train", good / "old.yaml", "--out", good / "base", "--quiet"], "base/results.json"),
        (
            [
                "learn",
                good / "base",
                "--data",
                good / "new",
                "--classes",
                "sheep",
                "--out",
                good / "grown",
                "--set",
                SHORT,
            ],
            "grown/learn.json",
        ),
        (["pack", good / "grown", "--out", good / "sheep.zip"], "sheep.zip"),
    ):
        done = forked.call(words, good / "log")
        if not (good / file).is_file():
            sys.exit(f"{words} ended with {done.code}:\n{done.text}")
    log = good / "log"
    for work in (lambda: make_checkpoint(good), lambda: make_models(good), lambda: make_coco(good / "coco")):
        done = forked.finish(forked.fork(work, log), log, time.monotonic(), 600)
        if done.code:
            sys.exit(done.text)


def make_checkpoint(good: Path) -> None:
    """A run that was stopped in its second step."""
    from ipseg.engine import experiment
    from ipseg.engine.recipe import make_recipe
    from ipseg.errors import Interrupted

    class Halting:
        def __enter__(self) -> Callable[[], bool]:
            return (good / "halted" / "step_01").is_dir

        def __exit__(self, *_: object) -> None: ...

    experiment.stop_request = Halting
    try:
        experiment.run(make_recipe(yaml.safe_load((good / "recipe.yaml").read_text())), good / "halted", quiet=True)
    except Interrupted:
        return
    raise AssertionError("it was not stopped")


def make_models(good: Path) -> None:
    """A small ONNX network, and weights to begin with."""
    import onnx
    import timm
    from onnx import TensorProto, helper
    from safetensors.torch import save_file

    save_file(
        timm.create_model("resnet10t", pretrained=False).state_dict(),
        good / "pretrained.safetensors",
        metadata={"facts": "{}"},
    )
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1, 3, 1, 1], [0.3, 0.3, 0.3])
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Sigmoid", ["c"], ["y"])]
    shapes = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, "h", "w"])
        for name, channels in (("x", 3), ("y", 1))
    ]
    graph = helper.make_graph(nodes, "g", shapes[:1], shapes[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), good / "model.onnx")


def make_coco(root: Path) -> None:
    """Two splits with polygons and run lengths."""
    (root / "annotations").mkdir(parents=True)
    for split in ("train2017", "val2017"):
        (root / split).mkdir()
        annotations, images = [], []
        for i in range(2):
            Image.fromarray(np.full((32, 48, 3), 100 + i, np.uint8)).save(root / split / f"{i}.jpg")
            images.append({"id": i, "file_name": f"{i}.jpg", "height": 32, "width": 48})
            annotations += [
                {
                    "id": 2 * i,
                    "image_id": i,
                    "category_id": 7,
                    "iscrowd": 0,
                    "segmentation": [[1, 1, 20, 1, 20, 20, 1, 20]],
                },
                {
                    "id": 2 * i + 1,
                    "image_id": i,
                    "category_id": 9,
                    "iscrowd": 1,
                    "segmentation": {"counts": [1000, 36, 500], "size": [32, 48]},
                },
            ]
        categories = [{"id": 7, "name": "cat"}, {"id": 9, "name": "dog"}]
        (root / "annotations" / f"instances_{split}.json").write_text(
            json.dumps({"images": images, "annotations": annotations, "categories": categories})
        )


# ---- running --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One command on one changed copy."""

    number: int
    kind: str
    words: tuple[str, ...]
    changed: str
    outcome: forked.Outcome
    problem: str


def run(number: int, seed: int, good: Path, place: Path) -> Case:
    """Everything about a case follows from its number and the seed."""
    rng = random.Random(f"{seed} {number}")
    name = rng.choices(list(KINDS), [kind.weight for kind in KINDS.values()])[0]
    kind = KINDS[name]
    source = good / kind.source
    it = place / source.name
    copy = shutil.copytree if source.is_dir() else shutil.copy
    copy(source, it)
    files = [it] if it.is_file() else sorted({file for one in kind.pattern for file in it.glob(one) if file.is_file()})
    chosen = rng.sample(files, min(len(files), rng.choice((1, 1, 1, 2))))
    for file in chosen:
        change_file(file, rng)
    command = rng.choice(kind.commands)
    names = {"IT": str(it), "OUT": str(place / "out"), "GOOD": str(good)}
    words = []
    for word in command:
        for short, path in names.items():
            if word.startswith(short) or word.endswith(f"={short}"):
                word = word.replace(short, path, 1)  # noqa: PLW2901
                break
        words.append(word)
    os.chdir(place)
    polite = PATIENCE / 4 if command[0] in LONG else None
    outcome = forked.call(words, place / "log", seconds=PATIENCE, memory=3 * MEMORY, polite=polite)
    return Case(
        number,
        name,
        tuple(command),
        ", ".join(str(one.relative_to(place)) for one in chosen),
        outcome,
        problem(outcome),
    )


def problem(outcome: forked.Outcome) -> str:  # noqa: PLR0911
    """Which rule it broke."""
    if "Traceback (most recent call last)" in outcome.text:
        return "traceback: " + outcome.text.strip().splitlines()[-1][:200]
    if outcome.code == -9:
        return f"more than {PATIENCE:.0f} s"
    if outcome.code not in (0, 1, 2, STOPPED):
        return f"exit code {outcome.code}"
    if outcome.code and not outcome.text.strip():
        return f"exit code {outcome.code} without a word"
    if outcome.code == 1 and not any(word in outcome.text for word in SAID_WITH_1):
        return "exit code 1: " + outcome.text.strip()[-200:]
    if outcome.worked > SECONDS and outcome.code != STOPPED:
        return f"{outcome.worked:.0f} s of work"
    if outcome.peak > MEMORY:
        return f"{outcome.peak / 2**20:.0f} MB"
    return ""


SAID_WITH_1 = ("not learned", "problem", "wrong", "of the grid", "error")
"""Commands whose answer is 'no' end with 1, and say so: `data check`, `learn` of what was not learned."""


def summary(ends: dict[str, Counter[str]], wrong: int, slowest: float, largest: int) -> str:
    """A line of JSON."""
    cases = sum(codes.total() for codes in ends.values())
    worst = {"slowest": round(slowest, 1), "peak MB": largest >> 20}
    return json.dumps({"cases": cases, "wrong": wrong, **worst, "exit codes": ends})


def main() -> int:
    """Cases until the time, or their number, is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--cases", type=int, default=1 << 30)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*", help="these cases, with what they said")
    options = parser.parse_args()
    os.environ["IPSEG_CACHE"] = tempfile.mkdtemp(prefix="ipseg-fuzz-cache-")
    forked.import_all()
    ends: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: list[Case] = []
    slowest, largest = 0.0, 0
    with tempfile.TemporaryDirectory(prefix="ipseg-fuzz-") as folder:
        good = Path(folder, "good")
        good.mkdir()
        make(good)
        end = time.monotonic() + 60 * options.minutes
        for number in options.only or range(options.first, options.first + options.cases):
            if time.monotonic() > end:
                break
            place = Path(folder, "case")
            place.mkdir()
            case = run(number, options.seed, good, place)
            ends[case.kind][str(case.outcome.code)] += 1
            slowest, largest = max(slowest, case.outcome.worked), max(largest, case.outcome.peak)
            if case.problem:
                wrong.append(case)
                print(f"{number} {case.kind} {' '.join(case.words)} [{case.changed}]: {case.problem}", flush=True)
            if options.only:
                print(case.outcome.text, f"exit code {case.outcome.code}, {case.outcome.worked:.1f} s of work")
            os.chdir("/")
            shutil.rmtree(place, ignore_errors=True)
            if number % 200 == 199:
                print(summary(ends, len(wrong), slowest, largest), flush=True)
    shutil.rmtree(os.environ["IPSEG_CACHE"], ignore_errors=True)
    print(summary(ends, len(wrong), slowest, largest))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
