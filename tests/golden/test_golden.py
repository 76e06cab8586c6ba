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


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_everything_is_as_frozen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(tmp_path) == 0, capsys.readouterr().out


def test_a_source_with_other_values_has_another_version() -> None:
    frozen = versions.current()
    assert list(versions.problems(versions.read(), frozen)) == []
    version, digest = frozen["cider"]
    for other, asked in (((version, "other values"), True), (((version or 0) + 1, digest), False)):
        (line,) = versions.problems(frozen, frozen | {"cider": other})
        assert ("raise encoding.cider in" in line) == asked


ARRAY = np.linspace(0, 1, 12).reshape(3, 4)


def changed(place: tuple[int, int], value: float) -> Any:
    """Return ARRAY with a value added at a place."""
    array = ARRAY.copy()
    array[place] += value
    return array


@pytest.mark.parametrize(
    ("frozen", "found", "said"),
    [
        (ARRAY, changed((1, 2), 2e-2), "u/x: largest difference 0.02 at (1, 2)"),
        (ARRAY, changed((0, 0), np.nan), "largest difference inf at (0, 0)"),
        (ARRAY, ARRAY[:2], "shape (2, 4), frozen (3, 4)"),
        (ARRAY > 0.5, ARRAY > 0.6, "1 of 12 differ"),
        ({"r": 0.5, "n": 3}, {"r": 0.52, "n": 3}, "r: frozen 0.5, found 0.52; Tolerance(absolute=0.01"),
        ({"r": [1, None]}, {"r": [1, 2]}, "r/1: frozen None, found 2"),
        ({"r": 1}, {"r": 1, "s": 1}, "other keys: s"),
        ({"named": True}, {"named": False}, "named: frozen True, found False"),
    ],
)
def test_a_changed_value_is_named_with_its_place_and_size(frozen: Any, found: Any, said: str) -> None:
    def lines(other: Any) -> list[str]:
        return list(store.differences("u", {"x": frozen}, {"x": other}, [("*", store.Tolerance(0.01))], "*"))

    (line,) = lines(found)
    assert said in line
    assert lines(changed((1, 2), 5e-3) if frozen is ARRAY else frozen) == []
