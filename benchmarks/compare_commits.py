"""Whether two commits compute the same numbers, to the last bit, on this machine.

    python benchmarks/compare_commits.py main~5 main
    python benchmarks/compare_commits.py main                 # beside the working tree as it is
    python benchmarks/compare_commits.py main --only plop --only engine

Each commit is checked out to a temporary folder and computes its golden curves with its own script
(tests/golden/regenerate.py --bits), which knows its names: losses, sums of weights and scores of every method in double
precision; and losses, sums of weights and mIoU of a small run in single precision. A line a method says equal, or where
the first difference is. The exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
SCRIPT = Path("tests", "golden", "regenerate.py")
Numbers = Mapping[str, str]
"""Of one method, by label and in the order of computing: hexadecimal floats."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line a method; 1 if any differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commits", nargs="+", metavar="COMMIT", help="two, or one to compare with the working tree")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a golden curve; again for more")
    options = parser.parse_args(arguments)
    if len(options.commits) > 2:
        parser.error(f"got {len(options.commits)} commits; valid: one or two")
    found = [numbers_of(commit, ROOT, options.only) for commit in options.commits]
    if len(found) == 1:
        found.append(numbers_in(ROOT, options.only))
    lines = {case: comparison(*(each.get(case, {}) for each in found)) for case in {**found[0], **found[1]}}
    for case, line in lines.items():
        print(f"{case:30} {line}")
    return int(any(line != "equal" for line in lines.values()))


def numbers_of(commit: str, repository: Path, only: Sequence[str] = ()) -> dict[str, Numbers]:
    """What a commit computes, in a checkout of its own."""
    with TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(repository), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            if not (tree / SCRIPT).is_file():
                sys.exit(f"{commit} has no {SCRIPT}; only later commits can be compared.")
            return numbers_in(tree, only)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def numbers_in(tree: Path, only: Sequence[str] = ()) -> dict[str, Numbers]:
    """What the code of a tree computes."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "bits.json"
        chosen = [part for name in only for part in ("--only", name)]
        subprocess.run([sys.executable, str(tree / SCRIPT), "--bits", str(file), *chosen], check=True)
        found: dict[str, Numbers] = json.loads(file.read_text(encoding="utf-8"))
        return found


def comparison(one: Numbers, other: Numbers) -> str:
    """`equal`, or the first number that differs and how many do."""
    if not one or not other:
        return f"only in the {'first' if one else 'second'}"
    different = [label for label in dict.fromkeys([*one, *other]) if one.get(label) != other.get(label)]
    if not different:
        return "equal"
    values = " and ".join(_shown(each.get(different[0])) for each in (one, other))
    return f"differs in {len(different)} of {len({**one, **other})} numbers, first {different[0]}: {values}"


def _shown(value: str | None) -> str:
    return "none" if value is None else f"{value} ({float.fromhex(value):.9g})"


if __name__ == "__main__":
    sys.exit(main())
