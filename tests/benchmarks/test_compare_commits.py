"""benchmarks/compare_commits.py: whether two commits compute the same bits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import compare_commits
import pytest
from compare_commits import SCRIPT, comparison, numbers_of

FAKE = """
import json, sys
from pathlib import Path
bits = {"mib": {"step 0, iteration 1, pixels": (1.5).hex(), "score 1": (%s).hex()}}
Path(sys.argv[sys.argv.index("--bits") + 1]).write_text(json.dumps(bits))
"""


def git(repository: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(repository), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path) -> Path:
    """Commits `none`, without golden curves, `first` and `second`, whose scores differ, and a tree like the first."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet")
    for tag, score in (("none", None), ("first", 0.5), ("second", 0.25)):
        if score is not None:
            (root / SCRIPT).parent.mkdir(parents=True, exist_ok=True)
            (root / SCRIPT).write_text(FAKE % score)
        git(root, "add", ".")
        git(root, "commit", "--quiet", "--allow-empty", "--message", tag)
        git(root, "tag", tag)
    (root / SCRIPT).write_text(FAKE % 0.5)
    return root


def test_the_first_number_that_differs_is_named_with_both_values():
    one = {"step 0, iteration 1, pixels": (1.5).hex(), "score 1": (0.5).hex()}
    other = one | {"score 1": (0.25).hex()}
    assert comparison(one, dict(one)) == "equal"
    expected = "differs in 1 of 2 numbers, first score 1: 0x1.0000000000000p-1 (0.5) and 0x1.0000000000000p-2 (0.25)"
    assert comparison(one, other) == expected


def test_a_number_or_a_method_that_only_one_commit_has_is_a_difference():
    one = {"score 1": (0.5).hex()}
    assert comparison(one, one | {"score 2": (0.5).hex()}).endswith(
        "first score 2: none and 0x1.0000000000000p-1 (0.5)"
    )
    assert comparison(one, {}) == "only in the first"
    assert comparison({}, one) == "only in the second"


def test_two_commits_are_compared_each_with_its_own_script_and_nothing_is_left(repository, monkeypatch, capsys):
    monkeypatch.setattr(compare_commits, "ROOT", repository)
    assert compare_commits.main(["first", "first"]) == 0
    assert compare_commits.main(["first", "second"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["mib", "equal"]
    assert "first score 1" in lines[1]
    trees = subprocess.run(
        ["git", "-C", str(repository), "worktree", "list"], capture_output=True, text=True, check=True
    )
    assert len(trees.stdout.splitlines()) == 1


def test_one_commit_is_compared_with_the_working_tree(repository, monkeypatch):
    monkeypatch.setattr(compare_commits, "ROOT", repository)
    assert [compare_commits.main([tag]) for tag in ("first", "second")] == [0, 1]


def test_a_commit_without_golden_curves_is_refused(repository):
    with pytest.raises(SystemExit, match="none has no tests/golden"):
        numbers_of("none", repository)
