"""Contract: compiled code works with and without a writable cache, and is cached where possible; selection by heaps
equals a full sort.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relabel.core.numeric.heap import select_top

SELECT = """
import numpy as np
from relabel.core.numeric.heap import select_top
rows, scores = np.empty((1, 2), np.int32), np.empty((1, 2))
select_top(np.array([[1.0, 3.0, 2.0]]), np.arange(3, dtype=np.int32), rows, scores)
print(rows.tolist())
"""
NO_ROOM = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
"""
NO_FOLDER = """
import numba
real = numba.njit
def njit(*functions, **options):
    if options.pop("cache", False):
        raise RuntimeError("cannot cache function: no locator available")
    return real(*functions, **options)
numba.njit = njit
"""


@pytest.mark.parametrize(("before", "kept"), [("", True), (NO_ROOM, False), (NO_FOLDER, False)])
def test_machine_code_is_cached_where_possible(tmp_path: Path, before: str, kept: bool) -> None:
    if before == NO_ROOM:
        pytest.importorskip("resource", reason="no RLIMIT_FSIZE on this system")
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run([sys.executable, "-c", before + SELECT], env=env, capture_output=True, text=True, check=False)
    assert (run.stdout.strip(), run.stderr) == ("[[1, 2]]", "")
    assert any(p.stat().st_size > 100 for p in tmp_path.rglob("*.nb*")) == kept


@settings(max_examples=100, deadline=None)
@given(scores=st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=40), data=st.data())
def test_selection_equals_a_full_sort(scores: list[float], data: st.DataObject) -> None:
    count = len(scores)
    rows = np.array(data.draw(st.permutations(range(count))), np.int32)
    k = data.draw(st.integers(1, count))
    values = np.array([scores, scores[::-1]])
    best_rows, best = np.empty((2, k), np.int32), np.empty((2, k))
    select_top(values, rows, best_rows, best)
    for m in range(2):
        order = sorted(range(count), key=lambda i: (-values[m, i], rows[i]))[:k]
        assert best_rows[m].tolist() == rows[order].tolist()
        assert best[m].tolist() == values[m, order].tolist()
