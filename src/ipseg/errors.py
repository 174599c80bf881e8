"""Errors that help: what is wrong, what was got, what is valid, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

WRONG, STOPPED = 2, 130
"""Exit codes: something the user can mend; stopped by the user, to go on later."""


class UserError(ValueError):
    """Something the user can mend. The command line prints it without a traceback and exits with 2."""


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
    """Raise unless low <= value <= high."""
    if not low <= value <= high:
        raise UserError(f"{name} is {value}; it must be between {low} and {high}.")


def require_at_least(name: str, value: float, low: float) -> None:
    """Raise unless value >= low."""
    if not value >= low:
        raise UserError(f"{name} is {value}; it must be at least {low}.")


def require_one_of(name: str, value: Any, valid: Iterable[Any]) -> None:
    """Raise unless value is one of the valid names or numbers."""
    known = list(valid)
    if value not in known:
        raise unknown(f"value for {name},", value, [str(one) for one in known])
