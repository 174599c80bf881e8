"""Classes named `module:Class`: where their modules are found, and who may name them.

The user may: on the command line, in a recipe, in Python. A run folder or a pack may come from a stranger, so
code that it names runs only where that is allowed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from ipseg.errors import UserError

MODULES = "IPSEG_MODULES"
"""The environment variable that hands the folders of `look_in` to the processes of a sweep."""
SECTIONS = ("data", "method")
"""Of a recipe: their `name` may be `module:Class`."""
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_allowed: ContextVar[bool] = ContextVar("code_allowed", default=False)
_imported: set[str] = set()
"""Classes that the user has named, and that a run folder may name, too."""
_folders: dict[Path, None] = {}
_own: set[str] = set()
"""Top-level modules that were found in these folders."""


@contextmanager
def code_allowed(*, wanted: bool) -> Iterator[None]:
    """Inside, run folders and packs may name code. What it raises to end the program is an error like others."""
    before = _allowed.set(wanted)
    try:
        yield
    except SystemExit as error:
        raise UserError(
            f"code of your own, or of a run or package, ended the program (SystemExit: {error.code})."
        ) from error
    finally:
        _allowed.reset(before)


def allow_code() -> None:
    """Allow it until the end of the `code_allowed` that is open: `--allow-code` is read inside of one."""
    _allowed.set(True)


def require_allowed(values: Mapping[str, Any], where: object) -> None:
    """Raise if settings of a run folder or pack name code that is not allowed."""
    for section in SECTIONS:
        given = values.get(section)
        name = str(given.get("name", "")) if isinstance(given, Mapping) else ""
        if ":" in name and name not in _imported and not _allowed.get():
            raise UserError(
                f"{where} names code, {section}.name {name}, and code can do whatever you can. "
                "If you trust it: --allow-code (in Python allow_code=True)."
            )


def look_in(folder: Path) -> None:
    """Find modules in this folder, too: it has one of the user's recipes."""
    _folders.setdefault(folder.resolve())


def environment() -> dict[str, str]:
    """Variables for child processes that read the same recipes."""
    return {MODULES: os.pathsep.join(map(str, _searched()))}


def load_class(name: str, kind: str) -> type:
    if not _NAME.fullmatch(name):
        raise UserError(f'no {kind} "{name}". One of your own is named module:Class.')
    module, _, attribute = name.partition(":")
    try:
        found = getattr(_import(module), attribute)
    except UserError:
        raise
    except (ImportError, AttributeError) as error:
        raise UserError(f"{kind} {name} cannot be imported: {error}.") from error
    except (Exception, SystemExit) as error:  # whatever the module does while it is imported
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(
            f"{kind} {name} cannot be imported: {type(error).__name__}: {error} ({at.filename}, line {at.lineno})."
        ) from error
    if not isinstance(found, type):
        raise UserError(f"{kind} {name} is not a class.")
    _imported.add(name)
    return found


def _searched() -> list[Path]:
    """The working directory, folders of recipes, and those of the process that started this one."""
    inherited = [Path(folder) for folder in os.environ.get(MODULES, "").split(os.pathsep) if folder]
    return list(dict.fromkeys(path.resolve() for path in (Path.cwd(), *_folders, *inherited)))


def _import(module: str) -> ModuleType:
    """Installed modules come first: a file of the same name in one of the folders replaces none of them."""
    top = module.partition(".")[0]
    files = [
        path
        for folder in _searched()
        for path in (folder / top / "__init__.py", folder / f"{top}.py")
        if path.is_file()
    ]
    if not files or (top not in _own and (top in sys.modules or importlib.util.find_spec(top))):
        return importlib.import_module(module)
    if len(files) > 1:
        raise UserError(f"there are two modules {top}: {files[0]} and {files[1]}. Rename one of them.")
    folder = files[0].parent.parent if files[0].name == "__init__.py" else files[0].parent
    importlib.invalidate_caches()
    sys.path.append(str(folder))  # at the end, and for this import alone
    try:
        found = importlib.import_module(module)
    finally:
        sys.path.remove(str(folder))
    _own.add(top)
    look_in(folder)
    return found
