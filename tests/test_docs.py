"""What the docs say is true: links lead somewhere, commands parse, named code exists, settings are up to date."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

import ipseg
from ipseg.apps.extend import require_free
from ipseg.apps.train import resolve
from ipseg.cli import app
from ipseg.config import override
from ipseg.data.registry import data_config
from ipseg.saliency.onnx import OnnxConfig
from ipseg.training.recipe import load_recipe, make_recipe
from ipseg.training.recipe_files import shipped_recipes

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
METHOD = ROOT / "docs" / "methods" / "ipseg.md"
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """The page without its blocks of code and its comments."""
    return re.sub(r"^```.*?^```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


# ---- links ------------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The names by which a page's headings are linked to."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name} links to {target}"
        assert found.is_relative_to(ROOT), f"{page.name} links out of the repository: {target}"
        if anchor:
            assert anchor in anchors(found), f"{page.name} links to {target}"


def test_every_page_of_the_docs_can_be_reached_from_its_index():
    listed = set(re.findall(r"\]\(([^)#\s]+)", (ROOT / "docs" / "index.md").read_text(encoding="utf-8")))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages - {"index.md"} <= listed


# ---- commands ---------------------------------------------------------------------------------------------------


def command_lines(page: Path) -> list[list[str]]:
    """Every `ipseg` command line of the page's shell blocks, as words."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    words = [shlex.split(line.partition(" > ")[0], comments=True) for line in lines]
    return [line for line in words if line and line[0] == "ipseg"]


def find_command(words: list[str]) -> tuple[str, Any, list[str]]:
    """The command that words begin with, also one of a group, by its name, and the words after it."""
    name, *rest = words
    command = COMMANDS.get(name)
    inner = getattr(command, "commands", {})
    return (f"{name} {rest[0]}", inner[rest[0]], rest[1:]) if rest and rest[0] in inner else (name, command, rest)


@every_page
def test_every_command_line_parses(page):
    for line in command_lines(page):
        name, command, words = find_command(line[1:])
        assert command is not None, f"{page.name}: ipseg {name}"
        assert not hasattr(command, "commands"), f"{page.name}: {' '.join(line)} names no command of its group"
        parsed = command.make_context(name, list(words)).params
        for assignment in parsed.get("changes") or ():
            check_assignment(name, parsed, assignment)


def check_assignment(command: str, parsed: dict, assignment: str) -> None:
    """A `--set` names a setting that exists and, once a run is trained, one that may still change."""
    if command in ("train", "cost"):
        assert load_recipe(parsed["recipe"], [assignment])
    elif command == "sweep":
        grid = yaml.safe_load((ROOT / parsed["grid"]).read_text(encoding="utf-8"))
        assert load_recipe((ROOT / parsed["grid"]).parent / grid["base"], [assignment])
    elif command == "extend":
        require_free(assignment)
        assert load_recipe("scenes_6-2_ipseg", [assignment])
    elif command == "data check":
        assert data_config(override({"data": {"name": parsed["kind"], "path": "here"}}, [assignment])["data"])
    elif command == "saliency":
        section, _, key = assignment.partition("=")[0].partition(".")
        assert section == "model"
        assert key in {field.name for field in dataclasses.fields(OnnxConfig)}
    else:
        key = assignment.partition("=")[0]
        assert key in load_recipe("scenes_6-2_ipseg").inference_settings() or key == "data.path", assignment


@every_page
def test_every_command_named_in_a_sentence_exists_with_its_options(page):
    for words in re.findall(r"`ipseg ([^`]+)`", prose(page)):
        name, command, _ = find_command(words.split())
        known = {option for parameter in command.params for option in parameter.opts} if command else set()
        assert command or name == "--help", f"{page.name}: ipseg {words}"
        assert set(re.findall(r"--[a-z-]+", words)) <= known | {"--help"}, f"{page.name}: ipseg {words}"


def test_the_readme_lists_every_command():
    rows = re.findall(r"^\| `ipseg ([a-z]+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(COMMANDS)


def test_the_readme_opens_with_demo_and_test():
    first, second = blocks(ROOT / "README.md", "sh")[0].splitlines()
    assert (first.split()[:2], second.split()[:2]) == (["make", "demo"], ["make", "test"])


@every_page
def test_every_target_of_make_exists(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shell = "\n".join(blocks(page, "sh"))
    named = re.findall(r"^make ([a-z-]+)", shell, re.MULTILINE) + re.findall(r"`make ([a-z-]+)", prose(page))
    assert set(named) <= targets


# ---- settings and recipes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["make_settings", "make_reproduce"])
def test_a_page_that_is_made_by_a_script_is_up_to_date(name):
    """If not: python docs/make_settings.py, or docs/make_reproduce.py."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page()


@every_page
def test_every_recipe_shown_is_one(page):
    for block in blocks(page, "yaml"):
        assert resolve(yaml.safe_load(block))


@every_page
def test_every_assignment_in_a_sentence_changes_a_setting_that_exists(page):
    whole = yaml.safe_load((ROOT / "recipes" / "scenes_6-2_ipseg.yaml").read_text(encoding="utf-8"))
    for line in prose(page).splitlines():  # those of one line go together
        assert make_recipe(override(whole, re.findall(r"[` ]([a-z]+\.[a-z_.]+=[^`\s]*[^`\s,])", line)))


def test_every_shipped_recipe_has_its_row():
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[[^\]]+\]\(\.\./recipes/([\w-]+)\.yaml\)", text, re.MULTILINE)
    assert sorted(rows) == [path.stem for path in shipped_recipes()]


def test_the_defaults_said_to_be_the_methods_are():
    recipe = make_recipe({"data": {"name": "scenes"}, "scenario": {"name": "6-2"}, "method": {"name": "ipseg"}})
    rows = re.findall(r"^\| `(\w+)\.(\w+)` \| ([^ |]+) \|", METHOD.read_text(encoding="utf-8"), re.MULTILINE)
    for section, key, value in rows:
        assert getattr(getattr(recipe, section), key) == yaml.safe_load(value), f"{section}.{key}"
    own = {field.name for field in dataclasses.fields(recipe.method)} - {"name"}  # type: ignore[arg-type]
    assert {key for section, key, _ in rows if section == "method"} == own


# ---- code -------------------------------------------------------------------------------------------------------


def named_code(page: Path) -> list[tuple[str, str]]:
    """Pairs of file and name: `models/fusion.py` `fuse`, `filter_noise` names two."""
    found = re.findall(r"`([a-z_/]+\.py)`((?:,? `(?![\w.]*\.py`)[A-Za-z_][\w.]*`)+)", prose(page))
    return [(file, name) for file, names in found for name in re.findall(r"`([^`]+)`", names)]


def exists(file: str, name: str) -> bool:
    """Whether a module has the name; the last part may also be a field or an attribute that is set on `self`."""
    thing = importlib.import_module("ipseg." + file.removesuffix(".py").replace("/", "."))
    *parents, last = name.split(".")
    for parent in parents:
        thing = getattr(thing, parent)
    if hasattr(thing, last):
        return True
    return inspect.isclass(thing) and (
        last in inspect.get_annotations(thing) or f"self.{last}" in inspect.getsource(thing)
    )


@every_page
def test_every_function_named_with_its_file_exists(page):
    for file, name in named_code(page):
        assert exists(file, name), f"{page.name}: {file} {name}"


def test_every_equation_of_the_paper_leads_to_its_code():
    lines = re.findall(r"^Eq\. (\d) implemented by (.+)$", METHOD.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(number) for number, _ in lines] == list(range(1, 10))
    assert all(re.match(r"`[\w/]+\.py` `[\w.]+`", code) for _, code in lines)
    assert len(named_code(METHOD)) > 60


@every_page
def test_every_file_named_exists(page):
    for path in re.findall(r"`((?:[a-z_]+/)+[\w-]+\.(?:py|yaml|md))`", prose(page)):
        assert (ROOT / path).exists() or (ROOT / "src" / "ipseg" / path).exists(), f"{page.name}: {path}"


def test_the_data_set_of_the_docs_works(tmp_path, monkeypatch):
    (code,) = blocks(ROOT / "docs" / "data.md", "python")
    (tmp_path / "shapes.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    recipe = make_recipe({"data": {"name": "shapes:ShapesConfig", "count": 6}, "scenario": {"name": "1-1"}})
    splits = recipe.data.build()
    scenario = recipe.scenario.build(splits.name, splits.classes)
    assert scenario.images_per_step(splits.train.class_presence()) == [3, 3]
    assert splits.val.image(0).shape == (*splits.val.mask(0).shape, 3)
    assert splits.val.saliency(1).any()
    monkeypatch.delitem(sys.modules, "shapes")


@every_page
def test_python_shown_is_python_and_names_what_the_package_has(page):
    for block in blocks(page, "python"):
        compile(block, page.name, "exec")
        assert all(hasattr(ipseg, name) for name in re.findall(r"\bipseg\.([a-z]+)\(", block))


# ---- words ------------------------------------------------------------------------------------------------------

BOASTS = "state-of-the-art|cutting-edge|blazing|seamless|powerful|revolutionary|effortless|world-class|simply the best"


@every_page
def test_the_docs_do_not_boast_and_leave_nothing_to_do(page):
    text = page.read_text(encoding="utf-8")
    assert not re.findall(rf"\b(?:{BOASTS}|TODO|FIXME|XXX)\b", text, re.IGNORECASE)


@every_page
def test_no_path_of_anybodys_machine_is_in_the_docs(page):
    assert not re.findall(r"(?<![\w.~)])/(?:home|root|tmp|work|mnt|Users|opt)/\S*", page.read_text(encoding="utf-8"))


@every_page
def test_no_point_of_a_list_hides_in_the_one_before_it(page):
    assert not re.findall(r"[.:;)] - (?:\*\*|[A-Z`]).*", prose(page))


@every_page
def test_every_row_of_a_table_is_whole(page):
    assert not [line for line in prose(page).splitlines() if line.startswith("| ") and not line.endswith("|")]


def test_the_citation_is_of_this_version_and_of_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    paper = citation["preferred-citation"]
    assert citation["version"] == ipseg.__version__
    assert [author["family-names"] for author in paper["authors"]] == ["Yu", "Fang", "Zhao", "Wei"]
    assert f"\n## {ipseg.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
