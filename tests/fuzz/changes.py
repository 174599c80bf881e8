"""Good files made odd: bytes flipped, cut, doubled; values of other types, huge numbers, deep nesting, odd text; links.

Everything follows from the generator that is given.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import yaml
from PIL import Image

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
        limited = float(min(max(value, -1e300), 1e300))  # an integer may be more than a float holds
        return rng.choice((value + 1, -value, value * 1000, str(value), limited, *NUMBERS))
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
    from ipseg.training.tensors import load_tensors, save_tensors

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
            tensors[rng.choice(("x", "network.x", "optimizer.999.y", "optimizer.x", "."))] = tensors[name].clone()
        elif kind == 4:
            tensors[name] = torch.zeros(rng.choice(((0,), (1,), (3, 3), (1, 1, 1, 1, 1))))
        else:
            tensors[name] = torch.full_like(tensors[name].float(), rng.choice((float("nan"), float("inf"), 1e38)))
        save_tensors(path, tensors, facts if isinstance(facts, dict) else {})

    log = path.with_name("made.log")
    forked.finish(forked.fork(work, log), log, time.monotonic(), 60)
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


def change_zip(path: Path, rng: random.Random) -> None:
    """Bytes of the archive; or a file in it, with sizes and hashes that are right again."""
    if rng.random() < 0.3:
        path.write_bytes(change_bytes(path.read_bytes(), rng))
        return
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
