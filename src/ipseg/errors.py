"""Errors that help: the problem, the value, the valid values, the remedy."""

from __future__ import annotations

import difflib
import errno
import re
import shlex
from collections.abc import Iterable
from typing import Any

WRONG, STOPPED = 2, 130
"""Exit codes: an error that the user can fix; interrupted by the user, to be resumed."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""System errors of a full disk, or of the user's quota."""
_NO_RIGHT = "Get the right to read and write there, or choose another place."
_ADVICE = {
    errno.EROFS: "Nothing can be written there; choose another place.",
    errno.EACCES: _NO_RIGHT,
    errno.EPERM: _NO_RIGHT,
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.EFBIG: "It is larger than files may be there: raise the limit (ulimit -f), or choose another place.",
    errno.EINVAL: "The file system takes no such name; choose another one.",
    errno.ENOTDIR: "A part of this path is a file and no folder; choose another place.",
    errno.EISDIR: "It is a folder and should be a file; choose another name.",
    errno.EEXIST: "Something else is there already; choose another name.",
    errno.ELOOP: "Its links lead back to themselves; choose another place.",
}
"""Of the system's errors about a path. A missing file is not among them: that may well be our mistake."""


_SHORTAGE = re.compile(r"out of memory|can't allocate memory|size calculation overflowed")
"""In the messages of torch, which has no error of its own for it on the CPU."""


class UserError(ValueError):
    """An error that the user can fix. The command line prints it without a traceback and exits with 2."""


class Interrupted(Exception):  # noqa: N818
    """The user stopped a run; its state is saved. The command line says so and exits with 130."""


def unknown(kind: str, got: object, valid: Iterable[str], hint: str = "") -> UserError:
    """An error for a name that does not exist, with the nearest one that does.

    >>> print(unknown("method", "ipsg", ["ipseg", "finetune"]))
    no method "ipsg". Did you mean ipseg? Valid: finetune, ipseg.
    """
    names = sorted(valid)
    near = difflib.get_close_matches(str(got), names, n=1, cutoff=0.5)
    guess = f" Did you mean {near[0]}?" if near else ""
    listed = f" Valid: {', '.join(names)}." if 0 < len(names) <= 40 else ""
    return UserError(f'no {kind} "{got}".{guess}{listed}{" " + hint if hint else ""}')


def require_between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise UserError(f"{name} is {value}; it must be between {low} and {high}.")


def require_at_least(name: str, value: float, low: float) -> None:
    if not value >= low:
        raise UserError(f"{name} is {value}; it must be at least {low}.")


def require_above(name: str, value: float, low: float) -> None:
    if not value > low:
        raise UserError(f"{name} is {value}; it must be more than {low}.")


def require_one_of(name: str, value: Any, valid: Iterable[Any]) -> None:
    known = list(valid)
    if value not in known:
        raise unknown(f"value for {name},", value, [str(one) for one in known])


def memory_shortage(error: BaseException) -> str | None:
    """What the system says where memory does not suffice, that of a GPU included; none for another error.

    >>> memory_shortage(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    'CUDA out of memory. Tried to allocate 2.00 GiB.'
    """
    said = (str(error).splitlines() or [type(error).__name__])[0]
    ours = isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _SHORTAGE.search(said))
    return said if ours else None


def quoted(place: object) -> str:
    """A path or a setting as a shell takes it, for commands that people copy.

    >>> quoted("my run")
    "'my run'"
    """
    return shlex.quote(str(place))


# ---- errors of the system -------------------------------------------------------------------------------------------


def format_path_error(error: OSError) -> str | None:
    """The problem with a path and its remedy; none for other errors.

    >>> format_path_error(OSError(errno.ENAMETOOLONG, "File name too long", "x.png"))
    'x.png cannot be used (File name too long). Choose a shorter name.'
    """
    place = error.filename2 or error.filename  # of two the second is the one that is written
    if error.errno in FULL:
        return full_disk(place)
    if error.errno not in _ADVICE or place is None:
        return None
    return f"{place} cannot be used ({error.strerror}). {_ADVICE[error.errno]}"


def full_disk(place: object) -> str:
    where = f": {place} could not be written" if place else ""
    return (
        f"the disk is full{where}. What was written before is whole; free some space and start the same command "
        "again (`train` and `extend`: with --resume)."
    )
