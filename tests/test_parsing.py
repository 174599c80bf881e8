"""YAML and JSON that anybody may have written: small, finite, and of text that can be written again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from commands import extension, fails
from ipseg.config import MAX_YAML_BYTES, parse_yaml
from ipseg.errors import UserError
from ipseg.parsing import parse_json
from ipseg.scenario import ScenarioConfig
from ipseg.training.folder import RunFolder
from ipseg.training.recipe import make_recipe

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join(9 * [f'*a{i - 1}'])}]\n" for i in range(1, 30)
)
MERGED = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 40))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, r"line \d: more than 100,000 values, aliases followed"),
        (MERGED, "more than 100,000 values"),
        ("a: &a [1, *a]", "line 1: this section contains itself"),
        ("a: &a {b: {c: *a}}", "line 1: this section contains itself"),
        ("a: " + 70 * "[" + 70 * "]", "nested deeper than 64"),
        ("a: " + 5000 * "[", "recursion"),
        ("- x\n" * (MAX_YAML_BYTES // 4 + 1), "at most 262,144 are read"),
        ("a: 1" + 400 * "0", "a number of 1329 bits"),
        ("a: 0x" + 100_000 * "f", "a number of 400000 bits"),
        ("a: -9223372036854775809", "a number of 64 bits"),
        ("a: .inf", "the number inf"),
        ("a: [-.inf]", "the number -inf"),
        ("a: .nan", "the number nan"),
        ("a: 1.0e+999", "the number inf"),
        (r'a: "\ud800"', "half a character"),
        (r'"\0": 1', "holds a NUL"),
        ("a: \0", "not YAML"),
        ("a: !!set [1]", "not YAML"),
        ("a: !!python/object/apply:os.getcwd []", "not YAML"),
    ],
    ids=range(19),
)
def test_yaml_that_would_break_its_readers_is_refused(text, message):
    with pytest.raises(UserError, match=message):
        parse_yaml(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 70 + "]" * 70, "nested deeper than 64"),
        ("[" * 100_000, "not JSON"),
        ("NaN", "the number nan"),
        ("[1e999]", "the number inf"),
        ("1" + 400 * "0", "1329 bits"),
        ("1" + 5000 * "0", "not JSON"),
        (r'{"a": ["\ud800"]}', "half a character"),
        (r'{"\u0000": 1}', "holds a NUL"),
        (b"\xff", "not JSON"),
    ],
    ids=range(9),
)
def test_json_that_would_break_its_readers_is_refused(text, message):
    with pytest.raises(UserError, match=message):
        parse_json(text)


def test_aliases_of_a_recipe_are_read():
    assert parse_yaml("a: &a {x: [1, 2]}\nb: *a\nc: {<<: *a, y: 3}") == {
        "a": {"x": [1, 2]},
        "b": {"x": [1, 2]},
        "c": {"x": [1, 2], "y": 3},
    }


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(plain)
def test_what_is_sound_is_read_as_it_was_written(value):
    assert parse_json(json.dumps(value)) == value
    assert parse_yaml(yaml.safe_dump(value)) == value


# ---- names and paths ------------------------------------------------------------------------------------------------


def test_words_that_are_not_utf8_are_refused_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (
        ["train", "scenes_6-2_ipseg", "--out", os.fsdecode(b"caf\xe9")],
        extension("run", "new", "\udce9", "out"),
        ["predict", "run", "caf\udce9.jpg", "--out", "out"],
    ):
        assert "not UTF-8" in fails(*words)
    assert not list(tmp_path.iterdir())


def test_a_run_in_a_folder_whose_name_is_not_utf8_is_refused_before_anything_is_written(
    tiny_settings, tmp_path, monkeypatch
):
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    odd.mkdir()
    with pytest.raises(UserError, match=r"caf.udce9/run' cannot be used: .* not UTF-8.*Choose another name, or folder"):
        RunFolder.check(odd / "run", make_recipe(tiny_settings), resume=False)
    monkeypatch.chdir(odd)
    with pytest.raises(UserError, match="not UTF-8"):
        RunFolder.check(Path("run"), make_recipe(tiny_settings), resume=False)
    assert not list(odd.iterdir())


def test_classes_that_cannot_be_written_down_are_refused():
    for names in (["cow", "\ud800"], ["cow", "b\0s"]):
        with pytest.raises(UserError, match=r"half a character|NUL"):
            ScenarioConfig(name="1-1").build("own", names)
