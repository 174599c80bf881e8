"""Settings: frozen dataclasses made from YAML, checked key by key, and written back with their own comments."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import yaml

from ipseg.errors import UserError, unknown
from ipseg.files import missing, read_plain
from ipseg.own_code import load_class
from ipseg.parsing import MAX_DEPTH, require_size, require_sound

T = TypeVar("T")
Settings = dict[str, Any]

_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
"""A number that YAML 1.1 reads as text: 1e-3."""
MAX_YAML_BYTES = 1 << 18
"""Bytes. The largest shipped recipe has 10 kB; PyYAML reads some 100 kB a second."""
MAX_YAML_NODES = 100_000
"""Values and sections of a YAML file, with the repetitions of its aliases."""
_NOT_YAML = (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions of PyYAML: its own, and others for an impossible date, `!!bool maybe` and a set that is a list."""
_MERGE = "tag:yaml.org,2002:merge"
"""The key `<<`, which includes another section, under the section's own keys."""

Scope = Literal["fixed", "step", "later", "inference", "runtime", "place"]
"""What a setting acts on, and so when it may change.

fixed: the network's shape; never. step: every step; not within a run. later: as step, but not on the base step, which
runs that differ in it can share. inference: predictions alone; at every evaluation. runtime: speed and messages, not
results; when a run is resumed. place: paths of files; as runtime, if the files are the same.
"""


def scoped(default: Any, scope: Scope) -> Any:
    """A field of settings with a scope; a field without one is of scope `step`."""
    return dataclasses.field(default=default, metadata={"scope": scope})


def scopes(config: Any, prefix: str = "") -> dict[str, Scope]:
    """The scope of every setting, by `section.key`, of a config or a class of configs."""
    found: dict[str, Scope] = {}
    hints = typing.get_type_hints(config if isinstance(config, type) else type(config))
    for field in dataclasses.fields(config):
        inner = hints[field.name] if isinstance(config, type) else getattr(config, field.name)
        if dataclasses.is_dataclass(inner):
            found |= scopes(inner, f"{prefix}{field.name}.")
        else:
            found[f"{prefix}{field.name}"] = field.metadata.get("scope", "step")
    return found


def build(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Make a config dataclass of a mapping: unknown keys and wrong types are refused by name (`where` + key)."""
    if not isinstance(values, Mapping):
        raise UserError(f"{where} must be a section of settings, got {values!r}.")
    if not dataclasses.is_dataclass(cls):
        raise UserError(f"{where}: {cls.__name__} is not a dataclass of settings.")
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    prefix = f"{where}." if where else ""
    for key in values:
        if key not in names:
            raise unknown(f"setting {prefix}{key}: no key", key, names)
    for field in dataclasses.fields(cls):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            raise UserError(f"the setting {prefix}{field.name} is missing.")
    return cls(**{key: convert(value, hints[key], f"{prefix}{key}") for key, value in values.items()})


def convert(value: Any, hint: Any, where: str) -> Any:
    """Check a value against a type hint; lists become tuples and whole numbers become floats where asked."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any or dataclasses.is_dataclass(value):  # a section that was made already
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(value, args, where)
    if origin is Literal:
        if value not in args:
            raise unknown(f"value for {where}:", value, [str(arg) for arg in args])
        return value
    if origin is tuple:
        return _convert_tuple(value, args, where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return build(hint, value, where)
    return _convert_plain(value, hint, where)


def _convert_plain(value: Any, hint: Any, where: str) -> Any:
    if hint is float and isinstance(value, str) and _EXPONENT.fullmatch(value):
        value = float(value)
    try:
        require_sound(value)
    except UserError as error:
        raise UserError(f"{where}: {error}.") from error
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    try:
        matches = isinstance(value, hint)
    except TypeError as error:  # list[int], dict[str, int] in a user's own class
        raise UserError(
            f"{where}: its field has the type {hint}, which settings cannot have. For a list declare tuple[...], as in "
            "tuple[int, ...]; for a section a dataclass of its own."
        ) from error
    if not matches or (hint is int and isinstance(value, bool)):
        raise UserError(f"{where} must be {_describe(hint)}, got {value!r}.")
    return value


def _convert_union(value: Any, args: tuple[Any, ...], where: str) -> Any:
    if value is None and type(None) in args:
        return None
    problems = []
    for arg in args:
        if arg is not type(None):
            try:
                return convert(value, arg, where)
            except UserError as error:
                problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    raise UserError(f"{where} must be {' or '.join(map(_describe, args))}, got {value!r}.")


def _convert_tuple(value: Any, args: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise UserError(f"{where} must be a list, got {value!r}.")
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(convert(item, args[0], f"{where}[{i}]") for i, item in enumerate(value))
    if len(value) != len(args):
        raise UserError(f"{where} must have {len(args)} values, got {value!r}.")
    return tuple(convert(item, arg, f"{where}[{i}]") for i, (item, arg) in enumerate(zip(value, args, strict=True)))


def _describe(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    if get_origin(hint) is tuple:
        return "a list"
    if get_origin(hint) is Literal:
        return " or ".join(str(arg) for arg in get_args(hint))
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def find_class(name: str, known: Mapping[str, type], kind: str) -> type:
    """A class by its short name, or by `module:Class` for one that lives elsewhere."""
    if name in known:
        return known[name]
    if ":" not in name:
        raise unknown(kind, name, known, "One of your own is named module:Class.")
    return load_class(name, kind)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text. The caller adds the file's name to the UserError."""
    require_size(len(text.encode(errors="surrogatepass")), MAX_YAML_BYTES)
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, {})
        value = loader.construct_document(node)
    except UserError:
        raise
    except _NOT_YAML as error:
        raise UserError(f"not YAML ({error})") from error
    require_sound(value)
    return value


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """The number of values of a node, aliases followed. known: of nodes, 0 while they are being counted."""
    if id(node) in known:
        if not known[id(node)]:
            raise UserError(f"line {node.start_mark.line + 1}: this section contains itself, by an alias")
        return known[id(node)]
    known[id(node)] = 0
    inner: Sequence[Any] = node.value if isinstance(node, yaml.CollectionNode) else ()
    count = 1
    for child in inner:
        count += sum(_count(one, known) for one in (child if isinstance(child, tuple) else (child,)))
        if count > MAX_YAML_NODES:
            raise UserError(f"line {node.start_mark.line + 1}: more than {MAX_YAML_NODES:,} values, aliases followed")
    known[id(node)] = count
    return count


class _Loader(yaml.SafeLoader):
    """The safe loader, but a duplicate key is refused: of two it would keep the last, silently."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()  # before `<<` is resolved: its keys may be repeated
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            name = self.construct_object(key, deep=True)
            if name in seen:
                raise UserError(
                    f'line {key.start_mark.line + 1}: duplicate key "{key.value}". Remove one of the two, or rename it'
                )
            seen.add(name)
        return node


def read_yaml(path: Path, what: str) -> Settings:
    try:
        values = parse_yaml(read_plain(path, MAX_YAML_BYTES).decode())
    except FileNotFoundError as error:
        raise missing(what, path) from error
    except ValueError as error:  # also where it is not UTF-8
        raise UserError(f"{what} cannot be read: {path}: {error}.") from error
    if not isinstance(values, dict):
        raise UserError(f"{what} must be a mapping of settings: {path}.")
    return values


def override(values: Settings, assignments: typing.Sequence[str]) -> Settings:
    """Apply `section.key=value` assignments (the values are YAML) to a copy of the settings."""
    result = copy.deepcopy(values)
    for assignment in assignments:
        key, value = assigned(assignment, "--set", "method.alpha_nf=0.6")
        *sections, last = key.split(".")
        if len(sections) > MAX_DEPTH:
            raise UserError(f"--set {key[:60]}...: there are no {len(sections)} sections within each other.")
        target = result
        for section in sections:
            inner = target.setdefault(section, {})
            if not isinstance(inner, dict):
                raise UserError(f"--set {assignment}: {section} is a value, not a section.")
            target = inner
        target[last] = value
    return result


def assigned(assignment: str, option: str, example: str) -> tuple[str, Any]:
    """The key and the value, which is YAML, of KEY=VALUE.

    >>> assigned("memory.size=50", "--set", "seed=1")
    ('memory.size', 50)
    """
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise UserError(f'{option} takes KEY=VALUE, got "{assignment}"; for example {option} {example}')
    try:
        return key.strip(), parse_yaml(text)
    except UserError as error:
        raise UserError(f"{option} {key}={text[:60]}: {error}. Text goes in quotes.") from error


def flat(values: Any, prefix: str = "") -> dict[str, Any]:
    """Settings by `section.key`.

    >>> flat({"memory": {"size": 50}, "seed": 1})
    {'memory.size': 50, 'seed': 1}
    """
    if not isinstance(values, Mapping):
        return {prefix: values}
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}.{key}" if prefix else str(key))
    return found


def to_dict(config: Any) -> Any:
    """Plain dicts, lists and values, ready for JSON or YAML."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {field.name: to_dict(getattr(config, field.name)) for field in dataclasses.fields(config)}
    return [to_dict(item) for item in config] if isinstance(config, tuple) else config


def to_yaml(config: Any) -> str:
    """The config as YAML, every key with the docstring of its field as a comment."""
    return "\n".join(_yaml_lines(config, 0)) + "\n"


def _yaml_lines(config: Any, depth: int) -> list[str]:
    lines, docs, indent = [], field_docs(type(config)), "  " * depth
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        lines += [f"{indent}# {line}" for line in textwrap.wrap(docs.get(field.name, ""), 108 - len(indent))]
        if dataclasses.is_dataclass(value):
            lines += [f"{indent}{field.name}:", *_yaml_lines(value, depth + 1)]
        else:
            style = '"' if isinstance(value, str) and not value.isprintable() else None
            text = yaml.safe_dump(  # on one line: the lines of a section are indented one by one
                to_dict(value), default_flow_style=True, default_style=style, width=float("inf"), allow_unicode=True
            )
            lines.append(f"{indent}{field.name}: " + text.removesuffix("...\n").strip())
        if depth == 0:
            lines.append("")
    return lines


def field_docs(cls: type) -> dict[str, str]:
    """The docstring under each field of a dataclass: settings are explained once, where they are defined."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        names = {field.name for field in dataclasses.fields(base)}
        tree = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for pair in zip(tree.body, tree.body[1:], strict=False):
            match pair:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    if name in names:
                        docs[name] = inspect.cleandoc(text).replace("\n", " ")
    return docs
