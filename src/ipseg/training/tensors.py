"""Tensors in files: safetensors, written whole or not at all, with a checksum that finds damage."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ipseg.errors import UserError
from ipseg.files import TEMPORARIES, replacing
from ipseg.parsing import parse_json


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and a few JSON facts about them."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    said = json.dumps(dict(facts))
    header = {"facts": said, "checksum": str(_checksum(plain, said))}
    before, after = TEMPORARIES.split("*")
    with replacing(path) as temporary, TemporaryDirectory(dir=path.parent, prefix=before, suffix=after) as private:
        written = Path(private) / path.name  # in a folder of its own: a kill leaves a file of `save_file` beside it
        _save(plain, written, header)
        shutil.copymode(temporary, written)  # `save_file` lets the owner alone read
        written.replace(temporary)


def _save(tensors: dict[str, Tensor], path: Path, header: dict[str, str]) -> None:
    try:
        save_file(tensors, path, metadata=header)
    except SafetensorError as error:
        if found := re.search(r"os error (\d+)", str(error)):  # a full disk, a limit on file sizes
            raise OSError(int(found[1]), os.strerror(int(found[1]))) from error
        raise


def load_tensors(path: Path, what: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and facts; a damaged file is refused by name."""
    if not path.is_file():
        raise UserError(f"{what} is missing: {path}. {_remedy(path)}")
    path.open("rb").close()  # raises where one may not read; `safe_open` would say that there is no such file
    try:
        with safe_open(path, framework="pt") as opened:
            header = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        facts = dict(parse_json(header["facts"]))
        whole = header["checksum"] == str(_checksum(tensors, header["facts"]))
    except OSError as error:  # of the disk, or of the path: the file itself may well be whole
        raise UserError(f"{what} cannot be read: {path} ({error}).") from error
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{what} is damaged: {path} ({error}). {_remedy(path)}") from error
    if not whole:
        raise UserError(f"{what} is damaged: {path} does not have the checksum it was written with. {_remedy(path)}")
    return tensors, facts


def mismatch(tensor: Tensor, like: Tensor) -> str | None:
    """Why a tensor from a file cannot stand for another one; none if it can."""
    if tensor.dtype != like.dtype or tensor.shape != like.shape:
        return f"is {list(tensor.shape)} of {tensor.dtype}, and should be {list(like.shape)} of {like.dtype}"
    if tensor.is_floating_point() and not tensor.isfinite().all():
        return "has numbers that are not finite"
    return None


def _remedy(path: Path) -> str:
    """Advice about a damaged file of a run. A step depends on those before, so none can be trained again alone."""
    if path.name.startswith("checkpoint"):
        return "Move it out of the run's folder: --resume then begins this step anew."
    return (
        "Put a whole copy in its place. If there is none, but the data is there, move the folder of this step and "
        "those of all later ones elsewhere: --resume then learns these steps anew."
    )


def digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and values: equal for equal models, whichever files they were read from."""
    value = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        value.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        value.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return value.hexdigest()


def _checksum(tensors: Mapping[str, Tensor], facts: str) -> int:
    value = zlib.crc32(facts.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        value = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), value)
        value = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, value)
    return value
