"""Contract: parameter models reject unknown fields, booleans as numbers, numbers that are not finite, and text that
cannot be written. The description of an error names the field, the reason and a shortened value.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from relabel.core.parameters import Parameters, Seed, describe


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
        ({"inner": {"names": ["a", "\ud800"]}}, "inner.names", "lone surrogate"),
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
