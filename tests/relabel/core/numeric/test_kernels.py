"""Contract: compiled functions are cached between processes; an index that names removed types is replaced.

Compiled code works with and without a writable cache, and is cached where possible; selection by heaps equals a full
sort, and pooling keeps NaN.
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

from relabel.core.numeric.kernels import MAX, MEAN, pool_next
from relabel.topk.heaps import heap_push, sort_heaps

TYPES = "from typing import NamedTuple\nclass {name}(NamedTuple):\n    x: float\n"
KERNEL = """
from relabel.core.numeric.kernels import jit
from {module} import {name}

@jit
def double(pair):
    return 2.0 * pair.x
"""
CALL = """
from {module} import {name}
from kernel import double
print(double({name}(21.0)), sum(double.stats.cache_hits.values()))
"""


def call(folder: Path, module: str, name: str) -> str:
    """Write both modules, call the function in a new process, and return its result and its cache hits."""
    (folder / f"{module}.py").write_text(TYPES.format(name=name))
    (folder / "kernel.py").write_text(KERNEL.format(module=module, name=name))
    code = f"import sys; sys.path.insert(0, {str(folder)!r})" + CALL.format(module=module, name=name)
    # -B: a module rewritten within a second, with its old size, would be read from its .pyc file
    command = [sys.executable, "-B", "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_an_index_that_names_a_moved_type_is_replaced(tmp_path: Path) -> None:
    assert call(tmp_path, "old_types", "Pair") == "42.0 0"
    (tmp_path / "old_types.py").unlink()
    assert call(tmp_path, "new_types", "Pair") == "42.0 0"
    assert call(tmp_path, "new_types", "RenamedPair") == "42.0 0"


SELECT = """
import numpy as np
from relabel.topk.heaps import sort_heaps
rows, scores = np.array([[1, 2]], np.int32), np.array([[2.0, 3.0]])
sort_heaps(rows, scores)
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
    assert (run.stdout.strip(), run.stderr) == ("[[2, 1]]", "")
    assert any(p.stat().st_size > 100 for p in tmp_path.rglob("*.nb*")) == kept


@settings(max_examples=100, deadline=None)
@given(scores=st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=40), data=st.data())
def test_selection_equals_a_full_sort(scores: list[float], data: st.DataObject) -> None:
    count = len(scores)
    rows = np.array(data.draw(st.permutations(range(count))), np.int32)
    k = data.draw(st.integers(1, count))
    best_rows, best = np.full((1, k), np.iinfo(np.int32).max, np.int32), np.full((1, k), -1.0)
    for score, row in zip(scores, rows, strict=True):
        heap_push(score, row, best[0], best_rows[0], k)
    sort_heaps(best_rows, best)
    order = sorted(range(count), key=lambda i: (-scores[i], rows[i]))[:k]
    assert best_rows[0].tolist() == rows[order].tolist()
    assert best[0].tolist() == [scores[i] for i in order]


def test_pooling_keeps_nan() -> None:
    for pooling, expected in ((MAX, 2.0), (MEAN, 3.0)):
        assert pool_next(1.0, 2.0, pooling) == pool_next(2.0, 1.0, pooling) == expected
        assert np.isnan([pool_next(1.0, np.nan, pooling), pool_next(np.nan, 1.0, pooling)]).all()
