"""Contract: parameter models reject unknown fields, true and false as numbers, and numbers that are not finite.
The description of an error names the field, the reason and a shortened value.

A key of YAML that is no text or appears twice is a UsageError that names line and column. A whole number is
decimal.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from relabel.core.errors import UsageError
from relabel.core.parameters import Parameters, Seed, describe, parse_yaml


class Inner(Parameters):
    name: str = "a"
    names: tuple[str, ...] = ()


class Params(Parameters):
    k: int = 10
    rate: float | None = None
    strict: bool = False
    seed: Seed = 0
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("values", "name", "reason"),
    [
        ({"n": 1}, "n", "no such parameter"),
        ({"k": True}, "k", "not valid here"),
        ({"k": 1.5}, "k", "valid integer"),
        ({"rate": False}, "rate", "not valid here"),
        ({"rate": float("nan")}, "rate", "finite"),
        ({"seed": -1}, "seed", "greater than or equal to 0"),
    ],
)
def test_a_wrong_value_is_named(values: dict[str, Any], name: str, reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Params.model_validate(values)
    assert re.match(f"{name}: .*{reason}", describe(caught.value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("{a: true, b: FALSE}", {"a": True, "b": False}),
        ("[0, 010, -2, +3, 1_000, .5, 2., -1.5E+3]", [0, 10, -2, 3, 1000, 0.5, 2.0, -1500.0]),
    ],
)
def test_values(text: str, value: object) -> None:
    assert parse_yaml(text, "--set a") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "line 1, column 5"),
        ("a: 1\nb: 2\na: 3", "key 'a' appears twice.*line 3, column 1"),
        ("a: {b: 1, b: 2}", "key 'b' appears twice.*line 1, column 11"),
        ("a: x\n1: x", "a key that is not text; quote it.*line 2, column 1"),
        ("no: x", "not text"),
        ("a: 1:30", "1:30"),
        ("a: 0x10", "0x10"),
        ("!!python/object/apply:os.getcwd []", "could not determine a constructor"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_yaml(text, "--set a")
    assert re.search(message, str(caught.value), re.DOTALL)
