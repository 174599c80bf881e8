"""The docs are true: links lead somewhere, commands parse, named code exists, generated pages are up to date."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import typer.main
import yaml

import ipseg
from ipseg.apps.train import resolve
from ipseg.cli import app
from ipseg.training.recipe import load_recipe, make_recipe

ROOT = Path(__file__).parent.parent
PAGES = sorted(path for folder in ("docs", "benchmarks") for path in (ROOT / folder).rglob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *PAGES]
METHOD = ROOT / "docs" / "methods" / "ipseg.md"
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """The page without its blocks of code and its comments."""
    return re.sub(r"^ *```.*?^ *```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names by which a page's headings are linked to."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            found = (page.parent / path).resolve() if path else page
            assert found.exists(), f"{page} links to {target}"
            assert found.is_relative_to(ROOT), f"{page} links out of the repository: {target}"
            assert not anchor or anchor in anchors(found), f"{page} links to {target}"


def test_every_page_of_the_docs_can_be_reached_from_its_index():
    listed = set(re.findall(r"\]\(([^)#\s]+)", (ROOT / "docs" / "index.md").read_text(encoding="utf-8")))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages - {"index.md"} <= listed


def find_command(words: list[str]) -> tuple[str, Any, list[str]]:
    """The command that words begin with, also one of a group, by its name, and the words after it."""
    name, *rest = words
    command = COMMANDS.get(name)
    inner = getattr(command, "commands", {})
    return (f"{name} {rest[0]}", inner[rest[0]], rest[1:]) if rest and rest[0] in inner else (name, command, rest)


def test_every_command_line_parses_and_its_settings_exist():
    for page in PAGES:
        lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
        for words in (shlex.split(line.partition(" > ")[0], comments=True) for line in lines):
            if not words or words[0] != "ipseg":
                continue
            name, command, rest = find_command(words[1:])
            assert command is not None, f"{page}: ipseg {name}"
            parsed = command.make_context(name, list(rest)).params
            if name in ("train", "cost") and (ROOT / "recipes" / f"{parsed['recipe']}.yaml").is_file():
                assert load_recipe(parsed["recipe"], list(parsed.get("changes") or ()))
            if name == "sweep" and str(parsed["grid"]).startswith("benchmarks/"):
                assert (ROOT / parsed["grid"]).is_file(), f"{page}: {parsed['grid']}"


def test_every_command_in_a_sentence_exists_with_its_options():
    for page in PAGES:
        for words in re.findall(r"`ipseg ([^`]+)`", prose(page)):
            name, command, _ = find_command(words.split())
            known = {option for parameter in command.params for option in parameter.opts} if command else set()
            assert command or name == "--help", f"{page}: ipseg {words}"
            assert set(re.findall(r"--[a-z-]+", words)) <= known | {"--help"}, f"{page}: ipseg {words}"


def test_the_readme_lists_every_command_and_opens_with_demo_and_test():
    readme = ROOT / "README.md"
    rows = re.findall(r"^\| `ipseg ([a-z]+)` \|", readme.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(COMMANDS)
    first, second = blocks(readme, "sh")[0].splitlines()
    assert (first.split()[:2], second.split()[:2]) == (["make", "demo"], ["make", "test"])


def test_every_target_of_make_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        shell = "\n".join(blocks(page, "sh"))
        named = re.findall(r"^make ([a-z-]+)", shell, re.MULTILINE) + re.findall(r"`make ([a-z-]+)", prose(page))
        assert set(named) <= targets, page


def test_the_page_of_settings_is_up_to_date():
    """If not: python docs/make_settings.py."""
    spec = importlib.util.spec_from_file_location("make_settings", ROOT / "docs" / "make_settings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page()


def test_every_recipe_shown_is_one():
    for page in PAGES:
        for block in blocks(page, "yaml"):
            assert resolve(yaml.safe_load(inspect.cleandoc(block)))


def test_the_defaults_said_to_be_ipsegs_are():
    recipe = make_recipe({"data": {"name": "scenes"}, "scenario": {"name": "6-2"}, "method": {"name": "ipseg"}})
    rows = re.findall(r"^\| `(\w+)\.(\w+)` \| ([^ |]+) \|", METHOD.read_text(encoding="utf-8"), re.MULTILINE)
    for section, key, value in rows:
        assert getattr(getattr(recipe, section), key) == yaml.safe_load(value), f"{section}.{key}"


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


def test_every_file_and_function_named_exists():
    for page in PAGES:
        for file, name in named_code(page):
            assert exists(file, name), f"{page}: {file} {name}"
        for path in re.findall(r"`((?:[a-z_]+/)+[\w-]+\.(?:py|yaml|md))`", prose(page)):
            assert (ROOT / path).exists() or (ROOT / "src" / "ipseg" / path).exists(), f"{page}: {path}"


def test_every_equation_of_the_paper_leads_to_its_code():
    lines = re.findall(r"^Eq\. (\d) implemented by (.+)$", METHOD.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(number) for number, _ in lines] == list(range(1, 10))
    assert all(re.match(r"`[\w/]+\.py` `[\w.]+`", code) for _, code in lines)


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


def test_python_shown_is_python_and_names_what_the_package_has():
    for page in PAGES:
        for block in blocks(page, "python"):
            compile(inspect.cleandoc(block), page.name, "exec")
            assert all(hasattr(ipseg, name) for name in re.findall(r"\bipseg\.([a-z]+)\(", block)), page


def test_no_path_of_anybodys_machine_is_in_the_docs():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"(?<![\w.~)])/(?:home|root|tmp|work|mnt|Users|opt)/\S*", text), page


def test_the_citation_is_of_this_version_and_of_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    paper = citation["preferred-citation"]
    assert citation["version"] == ipseg.__version__
    assert [author["family-names"] for author in paper["authors"]] == ["Yu", "Fang", "Zhao", "Wei"]
    assert f"\n## {ipseg.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
