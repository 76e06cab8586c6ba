"""Parameter models, parameter files in YAML, and the check of names that become part of a path.

Models are immutable, forbid unknown fields and accept only finite numbers. Parameter files are read by PyYAML's safe
loader with two changes: keys must be strings and unique, and integers are always decimal.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from relabel.core.errors import UsageError, choices

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
"""Seed of a random generator. numpy and gensim accept 32 bits."""

SET_ONLY: Any = {"option": False}
"""`json_schema_extra` of a parameter without a command-line option; it can only be set with `--set`."""

T = TypeVar("T", bound=BaseModel)
short = reprlib.repr
"""Return the repr of a value, shortened for a message."""


def check_name(kind: str, name: str) -> str:
    """Return `name` if it is valid as part of a path; raise a UsageError otherwise. `kind`: "label", "dataset", ..."""
    if not _NAME.fullmatch(name):
        hint = "A name has at most 100 ASCII letters, digits and `_-.+`, and begins with a letter or a digit."
        raise UsageError(f"{short(name)} cannot name a {kind}", hint=hint)
    return name


class Parameters(BaseModel):
    """Base class of parameter models.

    Every numeric field declares a lower and an upper bound, far outside the useful range. The bounds reject mistakes
    before they cost hours of work or exhaust the memory.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for name in values:
                if name not in cls.model_fields:
                    raise ValueError(f"{name}: no such parameter. {choices(str(name), cls.model_fields)}")
        return values

    @field_validator("*", mode="before")
    @classmethod
    def _reject_bool(cls, value: Any, info: ValidationInfo) -> Any:
        assert info.field_name is not None
        # Pydantic converts true to 1.
        has_bool = any(isinstance(item, bool) for item in (value if isinstance(value, list | tuple) else [value]))
        if has_bool and "bool" not in str(cls.model_fields[info.field_name].annotation):
            raise ValueError("true or false is not valid here")
        return value


def validate(model: type[T], values: Mapping[str, Any], where: str) -> T:
    """Create a model from values. An error names the invalid parameter and the origin of the values, `where`."""
    try:
        return model(**values)
    except ValidationError as error:
        raise UsageError(describe(error), where=where) from error


def describe(error: ValidationError) -> str:
    """Describe the first validation error: dotted parameter name, reason and shortened value."""
    first = error.errors(include_url=False)[0]
    # For a missing or unknown parameter, pydantic reports the whole mapping as the input.
    value = "" if isinstance(first["input"], dict) else f" (found {short(first['input'])})"
    reason = first["msg"].removeprefix("Value error, ") + value
    return ": ".join(filter(None, [".".join(map(str, first["loc"])), reason]))


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            # YAML 1.1 reads the keys `no` and `1` as false and an integer.
            text = key.tag == "tag:yaml.org,2002:str"
            if not text or key.value in seen:
                problem = f"key {key.value!r} appears twice" if text else "a key that is not text; quote it"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_decimal(self, node: yaml.ScalarNode) -> int:
        # YAML 1.1 reads 010 as 8 and 1:30 as 90.
        return int(node.value)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_decimal)


def parse_yaml(text: str | bytes, where: str) -> Any:
    """Parse one YAML document. `where`: its origin, for the error message."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"not YAML: {error}", where=where) from error


def with_settings(body: Mapping[str, Any], settings: Sequence[str], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `body` after applying settings (`NAME=YAML`), then overrides by dotted name unless None."""
    result = deepcopy(dict(body))
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise UsageError("expected NAME=VALUE", where=f"--set {name}")
        _assign(result, name, parse_yaml(text, f"--set {name}"), f"--set {name}")
    for name, value in overrides.items():
        if value is not None:
            _assign(result, name, value, name)
    return result


def setting(name: str, value: Any) -> str:
    """Format a parameter as the setting `NAME=YAML` that `with_settings` reads."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=float("inf"))
    # PyYAML writes an end-of-document marker after a plain scalar.
    return f"{name}={text.removesuffix('...' + chr(10)).rstrip()}"


def _assign(body: dict[str, Any], name: str, value: Any, where: str) -> None:
    """Set a value by its dotted name, adding missing sections."""
    *parents, last = name.split(".")
    for parent in parents:
        body = body.setdefault(parent, {})
        if not isinstance(body, dict):
            raise UsageError(f"{parent} is a value, not a section of parameters", where=where)
    body[last] = value
