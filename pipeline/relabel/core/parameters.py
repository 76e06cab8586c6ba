"""Base class of all parameter models: no unknown fields, immutable, finite numbers, encodable text."""

from __future__ import annotations

from collections.abc import Iterator
from reprlib import Repr
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from relabel.core.hints import choices

Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
"""Seed of a random generator. scikit-learn and gensim accept 32 bits."""

_UNKNOWN = "unknown_parameter"  # type of the error for a name that is no parameter
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


class Parameters(BaseModel):
    """Base class of a parameter model.

    Every numeric field declares a lower and an upper bound. The bounds lie far beyond any real use. They reject values
    that can only be mistakes before these cost hours or memory.

    Examples
    --------
    >>> class Params(Parameters):
    ...     k: int = 10
    >>> Params(k=3)
    Params(k=3)
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
    """Describe the first error of a validation by dotted name, reason and a shortened value.

    Examples
    --------
    >>> class Params(Parameters):
    ...     k: int = 10
    >>> try:
    ...     Params(k="many")
    ... except ValidationError as error:
    ...     print(describe(error, "neighbours"))
    neighbours.k: Input should be a valid integer, unable to parse string as an integer (found 'many')
    """
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
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("text is not Unicode: it holds a lone surrogate") from None


def _leaves(annotation: Any) -> Iterator[Any]:
    """Yield the plain types inside an annotation such as `tuple[int, ...] | None`."""
    if arguments := get_args(annotation):
        for argument in arguments:
            yield from _leaves(argument)
    else:
        yield annotation
