"""Contract: YAML is read by the core schema of YAML 1.2; any other syntax is a ValueError that names line and
column.
"""

from __future__ import annotations

import math

import pytest

from relabel.core.plain_yaml import MAX_NODES, parse_yaml


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


BOMB = "\n".join(["a0: &a0 [1, 1]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10))])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "line 1, column 5"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: key 'a' appears twice"),
        ("1: x", "line 1, column 1: expected text as a key"),
        ("[a]: x", "expected text as a key"),
        ("? {a: b}\n: x", "expected text as a key"),
        ("true: x", "expected text as a key"),
        ("9" * 5000, "digits"),
        ("!!int x", "invalid literal"),
        ("!!bool x", "not true or false"),
        ("!!float x", "could not convert"),
        ("!!int [1]", "expected a single value"),
        ("!!map [1]", "expected a mapping"),
        ("!!seq {a: 1}", "expected a list"),
        ("!!timestamp x", "unknown tag"),
        ("!!set {a, b}", "unknown tag"),
        ("!!binary x", "unknown tag"),
        ("!!python/object/apply:os.getcwd []", "unknown tag"),
        ("&a [*a]", "recursive"),
        ("[" * 5000, "nested too deeply"),
        (BOMB, f"more than {MAX_NODES:,} values"),
        ("a: \x00", "not allowed"),
        ("--- 1\n--- 2", "another document"),
        ("*a", "undefined alias"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_yaml(text)
