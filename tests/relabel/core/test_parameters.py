"""Contract: parameter models reject unknown fields, booleans as numbers, numbers that are not finite, and NUL in
text. The description of an error names the field, the reason and a shortened value.

YAML is read by the core schema of YAML 1.2; any other syntax is a ValueError that names line and column.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

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
        ({"k": True}, "k", "expected no true or false"),
        ({"rate": False}, "rate", "expected no true or false"),
        ({"rate": float("nan")}, "rate", "finite"),
        ({"rate": float("inf")}, "rate", "finite"),
        ({"seed": -1}, "seed", "greater than or equal to 0"),
        ({"seed": 2**32}, "seed", "less than or equal to"),
        ({"inner": {"name": "a\0b"}}, "inner.name", "NUL"),
    ],
)
def test_a_wrong_value_is_named(values: dict[str, Any], name: str, reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Params.model_validate(values)
    text = describe(caught.value, "stage")
    assert text.startswith(f"stage.{name}: ")
    assert reason in text


def test_a_long_value_is_shortened() -> None:
    with pytest.raises(ValidationError) as caught:
        Params.model_validate({"k": "x" * 10_000})
    assert len(describe(caught.value)) < 200


def test_valid_values_are_accepted_and_frozen() -> None:
    params = Params(k=3, rate=0.5, strict=True, inner=Inner(names=("a", "b")))
    assert params.model_dump()["inner"] == {"name": "a", "names": ("a", "b")}
    with pytest.raises(ValidationError, match="frozen"):
        params.k = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("on: No", {"on": "No"}),
        ("{a: true, b: FALSE}", {"a": True, "b": False}),
        ("[1, -2, +3, 007]", [1, -2, 3, 7]),
        ("[1e-4, .5, 2., -1.5E+3]", [1e-4, 0.5, 2.0, -1500.0]),
        (
            "[0b1, 0x1F, 0o7, 1_000, 1:30, 2024-01-01, =, <<]",
            ["0b1", "0x1F", "0o7", "1_000", "1:30", "2024-01-01", "=", "<<"],
        ),
        ("['1', \"true\", !!str 2]", ["1", "true", "2"]),
        ("&a [1]", [1]),
        ("[&a [1], *a]", [[1], [1]]),
    ],
)
def test_values(text: str, value: object) -> None:
    assert parse_yaml(text) == value


def test_values_that_are_not_finite() -> None:
    low, high, nan = parse_yaml("[-.inf, .Inf, .NaN]")
    assert (low, high) == (-math.inf, math.inf)
    assert math.isnan(nan)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "line 1, column 5"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: key 'a' appears twice"),
        ("1: x", "line 1, column 1: expected text as a key"),
        ("[a]: x", "expected text as a key"),
        ("!!int x", "invalid literal"),
        ("!!int [1]", "expected a single value"),
        ("!!map [1]", "expected a mapping"),
        ("!!timestamp x", "unknown tag"),
        ("!!python/object/apply:os.getcwd []", "unknown tag"),
        ("&a [*a]", "recursive"),
        ("a: \x00", "not allowed"),
        ("--- 1\n--- 2", "another document"),
        ("*a", "undefined alias"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_yaml(text)
