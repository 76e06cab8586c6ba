"""Parameter models, the YAML of parameter files, and the rule for names that become part of a path.

Models have no unknown fields and are immutable, with finite numbers. A parameter file holds mappings with text keys,
lists, text, decimal numbers, true, false and null; ``on``, ``010`` and ``2024-01-01`` are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from reprlib import Repr
from typing import Annotated, Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from relabel.core.errors import UsageError, choices

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")
_RULE = (
    "A name has at most 100 characters, all of them ASCII letters, digits, '_', '-', '.' or '+', and begins with a "
    "letter or a digit."
)
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
"""Seed of a random generator. numpy and gensim accept 32 bits."""

T = TypeVar("T", bound=BaseModel)
_NAMED = "named_parameter"  # type of an error whose message begins with the name of a parameter
_REPR = Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 60
short = _REPR.repr
"""Return a value as Python writes it, shortened for a message."""


def name_fault(kind: str, name: str) -> str:
    """Return why a name cannot become part of a path, else ""; `kind` of the name: "label", "plan"."""
    return "" if _NAME.fullmatch(name) else f"{short(name)} cannot name a {kind}. {_RULE}"


def check_name(kind: str, name: str) -> str:
    """Return the name if it may become part of a path, else raise."""
    if fault := name_fault(kind, name):
        raise UsageError(fault.removesuffix("."))
    return name


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
                    raise named_error(f"{name}: no such parameter. {choices(str(name), cls.model_fields)}")
        return values

    @field_validator("*", mode="before")
    @classmethod
    def _check_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        assert info.field_name is not None
        types = list(_leaves(cls.model_fields[info.field_name].annotation))
        # Pydantic reads true as 1 and the text "010" as 10.
        if int in types or float in types:
            for item in value if isinstance(value, list | tuple) else (value,):
                if isinstance(item, bool | str):
                    raise ValueError("expected a number")
        return value


def named_error(text: str) -> PydanticCustomError:
    """Return an error of a validation; `text` begins with the name of the parameter below the validated one."""
    return PydanticCustomError(_NAMED, "{text}", {"text": text})


def validate(model: type[T], values: Mapping[str, Any], where: str) -> T:
    """Return the model of some values; an error names the parameter at fault, and `where` the values are from."""
    try:
        return model(**values)
    except ValidationError as error:
        raise UsageError(describe(error), where=where) from error


def describe(error: ValidationError, *parents: str) -> str:
    """Describe the first error of a validation by dotted name, reason and a shortened value."""
    first = error.errors(include_url=False)[0]
    if first["type"] == _NAMED:
        return ".".join([*parents, *map(str, first["loc"]), first["msg"]])
    name = ".".join([*parents, *(str(part) for part in first["loc"])])
    reason = first["msg"].removeprefix("Value error, ")
    value = "" if first["type"] == "missing" else f" (found {short(first['input'])})"
    return f"{name}: {reason}{value}" if name else f"{reason}{value}"


def _leaves(annotation: Any) -> Iterator[Any]:
    """Yield the plain types inside an annotation such as `tuple[int, ...] | None`."""
    if arguments := get_args(annotation):
        for argument in arguments:
            yield from _leaves(argument)
    else:
        yield annotation


class _Loader(yaml.SafeLoader):
    # PyYAML reads YAML 1.1, where `on` is true, `010` is 8, `1:30` is 90 and `1e-4` is text. DVC reads YAML 1.2.
    yaml_implicit_resolvers = {}  # noqa: RUF012

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: list[Any] = []
        for key, _ in node.value:
            text = key.tag == "tag:yaml.org,2002:str"
            if not text or key.value in keys:
                problem = f"key {key.value!r} appears twice" if text else "a key that is not text; quote it"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            keys.append(key.value)
        return super().construct_mapping(node, deep)


for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"(?:{_pattern})$"), _first)


def parse_yaml(text: str) -> Any:
    """Parse one YAML document."""
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        # Not every error of PyYAML has a position.
        mark = getattr(error, "problem_mark", None)
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{at}{getattr(error, 'problem', None) or error}") from error


def with_settings(body: Mapping[str, Any], settings: Sequence[str], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters after applying settings (`NAME=YAML`) and then options by dotted name; None is skipped."""
    result = deepcopy(dict(body))
    for setting in settings:
        name, equals, text = setting.partition("=")
        option = f"--set {name}"
        if not (equals and all(name.split("."))):
            raise UsageError("expected NAME=VALUE", where=option)
        try:
            value = parse_yaml(text)
        except ValueError as error:
            raise UsageError(f"not YAML: {error}", where=option) from error
        _assign(result, name, value, option)
    for name, value in overrides.items():
        if value is not None:
            _assign(result, name, value, name)
    return result


def _assign(body: dict[str, Any], name: str, value: Any, where: str) -> None:
    """Set a value by its dotted name; missing sections are added."""
    *parents, last = name.split(".")
    for parent in parents:
        body = body.setdefault(parent, {})
        if not isinstance(body, dict):
            raise UsageError(f"{parent} has no parameters of its own", where=where)
    body[last] = value
