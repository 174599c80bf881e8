"""Names of classes, files and runs may be a stranger's: no control character in them acts on a terminal."""

from __future__ import annotations

_SIGNS = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "␡"}
"""Unicode's symbols for the control characters."""
_HIDDEN = [*range(0x80, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
"""C1 controls, separators of lines, and marks that turn the direction of writing."""
_HALVES = range(0xD800, 0xE000)
"""Of letters, as a file's name has them that is not UTF-8: no file could take them."""
_ONE_LINE = _SIGNS | dict.fromkeys([*_HIDDEN, *_HALVES], "�")
_VISIBLE = {code: sign for code, sign in _ONE_LINE.items() if chr(code) not in "\n\t"}


def visible(text: str) -> str:
    r"""Text whose control characters a terminal shows instead of obeying them; lines and tabs stay.

    >>> visible("bus\x1b[31m")
    'bus␛[31m'
    """
    return text.translate(_VISIBLE)


def one_line(text: str) -> str:
    r"""The same for a name: it has no lines either.

    >>> one_line("bus\n# cow")
    'bus␊# cow'
    """
    return text.translate(_ONE_LINE)
