"""The YAML of parameter files: mappings with text keys, lists, text, numbers, true, false and null.

Scalars follow the core schema of YAML 1.2, as in DVC: ``on`` and ``2024-01-01`` are text, ``1e-4`` is a number.
PyYAML's own schema (YAML 1.1) also has dates, base 2, base 60 and sets, whose constructors raise on malformed text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

MAX_NODES = 100_000
"""Maximum number of values of one document, with aliases expanded: nine lines of aliases can name 10^9 values."""


class _Loader(yaml.SafeLoader):
    # PyYAML keeps its tables on the class. Empty ones drop the tags and patterns of YAML 1.1.
    yaml_implicit_resolvers = {}  # noqa: RUF012
    yaml_constructors = {}  # noqa: RUF012


def _mapping(loader: _Loader, node: yaml.Node) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise _error("expected a mapping", node)
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise _error("expected text as a key", key_node)
        if key in values:
            raise _error(f"key {key!r} appears twice", key_node)
        values[key] = loader.construct_object(value_node, deep=True)
    return values


def _sequence(loader: _Loader, node: yaml.Node) -> list[Any]:
    if not isinstance(node, yaml.SequenceNode):
        raise _error("expected a list", node)
    return [loader.construct_object(item, deep=True) for item in node.value]


def _scalar(read: Callable[[str], Any]) -> Callable[[_Loader, yaml.Node], Any]:
    def construct(_: _Loader, node: yaml.Node) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            raise _error("expected a single value", node)
        try:
            return read(node.value)
        except ValueError as error:
            # More digits than Python converts, or an explicit tag such as `!!int` on other text.
            raise _error(str(error).partition(";")[0], node) from error

    return construct


def _unknown(_: _Loader, node: yaml.Node) -> Any:
    raise _error(f"unknown tag {node.tag!r}", node)


def _error(message: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, message, node.start_mark)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"not true or false: {text[:40]!r}")
    return text.lower() == "true"


def _float(text: str) -> float:
    # YAML writes `.inf` and `.nan`, Python `inf` and `nan`.
    name = text.lstrip("+-").lower()
    return float(text.replace(".", "", 1)) if name in (".inf", ".nan") else float(text)


def _null(_: str) -> None:
    return None


_Loader.add_constructor(None, _unknown)
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:seq", _sequence)
_Loader.add_constructor("tag:yaml.org,2002:str", _scalar(str))
for _name, _pattern, _first, _read in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""], _null),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF"), _boolean),
    ("int", r"[-+]?[0-9]+", list("-+0123456789"), int),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
        _float,
    ),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"(?:{_pattern})$"), _first)
    _Loader.add_constructor(f"tag:yaml.org,2002:{_name}", _scalar(_read))


def parse_yaml(text: str) -> Any:
    """Parse one YAML document.

    Raises
    ------
    ValueError
        If the text is not YAML, a key appears twice or is not text, a tag belongs to another schema, values are nested
        too deeply, or there are more than `MAX_NODES` values. The message names line and column where they are known.

    Examples
    --------
    >>> parse_yaml("{k: 10, rate: 1e-4, device: on}")
    {'k': 10, 'rate': 0.0001, 'device': 'on'}
    """
    try:
        value = yaml.load(text, _Loader)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except yaml.YAMLError as error:
        # Not every error of PyYAML has a position or a short text.
        mark = getattr(error, "problem_mark", None)
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(at + str(getattr(error, "problem", None) or " ".join(str(error).split()))) from error
    # Aliases share one Python object, so the document is small in memory however many values it names.
    stack, count = [value], 0
    while stack:
        node = stack.pop()
        count += 1
        if count + len(stack) > MAX_NODES:
            raise ValueError(f"more than {MAX_NODES:,} values")
        stack += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return value
