"""Parameter models and the YAML of parameter files.

Models have no unknown fields and are immutable, with finite numbers.

A parameter file holds mappings with text keys, lists, text, numbers, true, false and null. Scalars follow the core
schema of YAML 1.2, as in DVC: ``on`` and ``2024-01-01`` are text, ``1e-4`` is a number. The schema of PyYAML (YAML 1.1)
also has dates, base 2, base 60 and sets, whose constructors raise on malformed text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from reprlib import Repr
from typing import Annotated, Any, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from relabel.core.errors import choices

Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
"""Seed of a random generator. scikit-learn and gensim accept 32 bits."""

_UNKNOWN = "unknown_parameter"  # type of the error for a name that is no parameter
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


class Parameters(BaseModel):
    """Base class of a parameter model.

    Every numeric field declares a lower and an upper bound. The bounds lie far beyond any real use. They reject values
    that can only be mistakes before these cost hours or memory.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for name in values:
                if name not in cls.model_fields:
                    advice = choices(str(name), cls.model_fields)
                    raise PydanticCustomError(
                        _UNKNOWN, "{name}: no such parameter. {advice}", {"name": name, "advice": advice}
                    )
        return values

    @field_validator("*", mode="before")
    @classmethod
    def _check_scalars(cls, value: Any, info: ValidationInfo) -> Any:
        assert info.field_name is not None
        annotation = cls.model_fields[info.field_name].annotation
        for item in value if isinstance(value, list | tuple) else (value,):
            # Python counts True and False as the numbers 1 and 0.
            if isinstance(item, bool) and bool not in _leaves(annotation):
                raise ValueError("expected no true or false")
            if isinstance(item, str):
                _check_text(item)
        return value


def describe(error: ValidationError, *parents: str) -> str:
    """Describe the first error of a validation by dotted name, reason and a shortened value."""
    first = error.errors(include_url=False)[0]
    if first["type"] == _UNKNOWN:
        return ".".join([*parents, *map(str, first["loc"]), first["msg"]])
    name = ".".join([*parents, *(str(part) for part in first["loc"])])
    reason = first["msg"].removeprefix("Value error, ")
    value = "" if first["type"] == "missing" else f" (found {_SHORT.repr(first['input'])})"
    return f"{name}: {reason}{value}" if name else f"{reason}{value}"


def _check_text(text: str) -> None:
    if "\0" in text:
        raise ValueError("text holds a NUL character")


def _leaves(annotation: Any) -> Iterator[Any]:
    """Yield the plain types inside an annotation such as `tuple[int, ...] | None`."""
    if arguments := get_args(annotation):
        for argument in arguments:
            yield from _leaves(argument)
    else:
        yield annotation


class _Loader(yaml.SafeLoader):
    # PyYAML keeps its tables on the class. Empty ones drop the tags and patterns of YAML 1.1.
    yaml_implicit_resolvers = {}  # noqa: RUF012
    yaml_constructors = {}  # noqa: RUF012


def _mapping(loader: _Loader, node: yaml.Node) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise _yaml_error("expected a mapping", node)
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise _yaml_error("expected text as a key", key_node)
        if key in values:
            raise _yaml_error(f"key {key!r} appears twice", key_node)
        values[key] = loader.construct_object(value_node, deep=True)
    return values


def _sequence(loader: _Loader, node: yaml.Node) -> list[Any]:
    if not isinstance(node, yaml.SequenceNode):
        raise _yaml_error("expected a list", node)
    return [loader.construct_object(item, deep=True) for item in node.value]


def _scalar(read: Callable[[str], Any]) -> Callable[[_Loader, yaml.Node], Any]:
    def construct(_: _Loader, node: yaml.Node) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            raise _yaml_error("expected a single value", node)
        try:
            return read(node.value)
        except ValueError as error:
            # More digits than Python converts, or an explicit tag such as `!!int` on other text.
            raise _yaml_error(str(error).partition(";")[0], node) from error

    return construct


def _unknown(_: _Loader, node: yaml.Node) -> Any:
    raise _yaml_error(f"unknown tag {node.tag!r}", node)


def _yaml_error(message: str, node: yaml.Node) -> yaml.MarkedYAMLError:
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
    """Parse one YAML document."""
    try:
        return yaml.load(text, _Loader)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except yaml.YAMLError as error:
        # Not every error of PyYAML has a position or a short text.
        mark = getattr(error, "problem_mark", None)
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(at + str(getattr(error, "problem", None) or " ".join(str(error).split()))) from error
