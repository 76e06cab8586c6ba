"""Contract: relabel computes what is frozen in `values`, within the tolerances beside it; a changed value is named; a
source with other values has another version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden import store, versions
from tests.golden.__main__ import compare


def lines(frozen: dict[str, Any], found: dict[str, Any], **tolerance: float) -> list[str]:
    return list(store.differences("u", frozen, found, [("*", store.Tolerance(**tolerance))], "*"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_everything_is_as_frozen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(tmp_path) == 0, capsys.readouterr().out


def test_a_source_with_other_values_has_another_version() -> None:
    assert list(versions.problems(versions.read(), versions.current())) == []
    frozen = versions.current()
    version, digest = frozen["cider"]
    (line,) = versions.problems(frozen, frozen | {"cider": (version, "other values")})
    assert "raise encoding.cider in" in line
    (line,) = versions.problems(frozen, frozen | {"cider": ((version or 0) + 1, digest)})
    assert "raise" not in line


def test_a_changed_value_is_named_with_its_place_and_size() -> None:
    frozen = {"a/b": np.linspace(0, 1, 12).reshape(3, 4)}
    changed = {"a/b": frozen["a/b"].copy()}
    changed["a/b"][1, 2] += 1e-3
    (line,) = lines(frozen, changed, absolute=1e-4)
    assert line.startswith("u/a/b: largest difference 0.001 at (1, 2)")
    assert "tolerance absolute 0.0001" in line
    assert lines(frozen, changed, absolute=2e-3) == []
    changed["a/b"][0, 0] = np.nan
    assert "at (0, 0)" in lines(frozen, changed, absolute=1)[0]
    assert "shape (2, 4), frozen (3, 4)" in lines(frozen, {"a/b": frozen["a/b"][:2]})[0]


@pytest.mark.parametrize(
    ("frozen", "found", "said"),
    [
        ({"r": 0.5, "n": 3}, {"r": 0.52, "n": 3}, "r differs by 0.02 (0.5 is 0.52)"),
        ({"r": [1, None]}, {"r": [1, 2]}, "r[1]: frozen None, found 2"),
        ({"r": 1}, {"r": 1, "s": 1}, "has other keys: s"),
        ({"named": True}, {"named": False}, "named: frozen True, found False"),
    ],
)
def test_a_changed_figure_is_named(frozen: Any, found: Any, said: str) -> None:
    (line,) = lines({"x": frozen}, {"x": found}, absolute=1e-2)
    assert said in line
    assert lines({"x": frozen}, {"x": frozen}) == []
