"""Checks of values from files that anybody may have written: small, finite and of text that can be written again.

Python's readers accept values that break their users later: numbers that no machine holds, half characters and
NUL in text, sections nested without end. YAML is read in config.py, with the same limits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from itertools import chain
from typing import Any

from ipseg.errors import UserError

MAX_JSON_BYTES = 1 << 28
"""Bytes of one of our own files: results of 250 classes in 50 steps are smaller."""
MAX_DEPTH = 64
"""Sections within sections."""


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. The caller adds the file's name to the UserError."""
    require_size(len(text), MAX_JSON_BYTES)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # text that is not UTF-8, too, and numbers of thousands of digits
        raise UserError(f"not JSON ({error})") from error
    require_sound(value)
    return value


def require_sound(value: Any) -> None:
    """Raise if nested lists and dicts are too deep, or hold numbers or text that nothing can use."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise UserError(f"its sections are nested deeper than {MAX_DEPTH}")
        level = [inner for one in level for inner in _check(one)]


def _check(value: Any) -> Iterable[Any]:
    """Check one value; returns those inside it."""
    if isinstance(value, dict):
        return chain(value, value.values())
    if isinstance(value, (list, tuple, set)):
        return value
    if isinstance(value, str):
        require_text(value)
    elif isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise UserError(f"it holds a number of {value.bit_length()} bits; whole numbers have at most 64")
    elif isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"it holds the number {value}; numbers must be finite")
    return ()


def require_text(text: str) -> None:
    """Raise if a text cannot be written as UTF-8, or has a NUL, which ends it for the system."""
    if "\0" in text or text != text.encode(errors="replace").decode():
        problem = "a NUL" if "\0" in text else "half a character, or bytes that are not UTF-8"
        raise UserError(f"the text {text[:200]!a} holds {problem}")


def require_size(got: int, most: int) -> None:
    if got > most:
        raise UserError(f"it has {got:,} bytes; at most {most:,} are read")
