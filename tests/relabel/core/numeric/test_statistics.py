"""Contract: coefficients equal their definitions, a constant is undefined and never NaN, and the interval is a cluster
bootstrap.

Contract: compiled code works with and without a writable cache, and is cached where possible. A change of any module
with compiled functions, or damage in the cache, makes it compile again. Selection by heaps equals a full sort.

Contract: the thread helpers process every chunk once.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relabel
from relabel.core.numeric.kernels import MAX, jit, pool_next
from relabel.core.numeric.statistics import bootstrap, kendall, pearson, round_relative, spearman
from relabel.core.numeric.threads import run_chunks
from relabel.topk.heaps import heap_push, sort_heaps

X = np.array([0.3, 0.1, 0.4, 0.1, 0.5, 0.9, 0.2, 0.6, 0.5, 0.3])
Y = np.array([2.7, 1.8, 2.8, 1.8, 2.8, 4.5, 0.4, 5.0, 2.3, 5.0])


def pearson_by_numpy(x: list[float], y: list[float]) -> float:
    return float(np.corrcoef(x, y)[0, 1])


def by_hand_ranks(x: list[float]) -> list[float]:
    return [sum(b < a for b in x) + (sum(b == a for b in x) + 1) / 2 for a in x]


def by_hand_tau_b(x: list[float], y: list[float]) -> float:
    score, ties_x, ties_y, pairs = 0, 0, 0, 0
    for i in range(len(x)):
        for j in range(i):
            pairs += 1
            ties_x += x[i] == x[j]
            ties_y += y[i] == y[j]
            score += int(np.sign(x[i] - x[j]) * np.sign(y[i] - y[j]))
    return score / math.sqrt((pairs - ties_x) * (pairs - ties_y))


def test_coefficients_equal_their_definitions() -> None:
    x, y = X.tolist(), Y.tolist()
    assert pearson(X, Y) == pytest.approx(pearson_by_numpy(x, y), abs=1e-12)
    assert spearman(X, Y) == pytest.approx(pearson_by_numpy(by_hand_ranks(x), by_hand_ranks(y)), abs=1e-12)
    assert kendall(X, Y) == pytest.approx(by_hand_tau_b(x, y), abs=1e-12)


@pytest.mark.parametrize("x", [np.full(10, 0.7), np.zeros(10), np.ones(10) + 1e-7 * X])
def test_a_constant_is_undefined_without_a_warning(x: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for a, b in ((round_relative(x), Y), (Y, np.full(10, 5.0))):
            assert (pearson(a, b), spearman(a, b), kendall(a, b), bootstrap(a, b, np.arange(10))) == (None,) * 4


def test_rounding_noise_makes_no_order() -> None:
    noise = np.random.default_rng(0).uniform(-3e-7, 3e-7, 10)
    assert round_relative(1 + noise).tolist() == [round_relative(1 + noise)[0]] * 10
    steps = np.array([0.1, 0.1 + 2e-5, -0.4, 1.0])
    assert len(set(round_relative(steps))) == 4
    assert round_relative(X * 1e-9) == pytest.approx(X * 1e-9, rel=1e-4)
    mixed = np.concatenate([1 + noise, X])
    exact = np.concatenate([np.ones(10), X])
    human = np.concatenate([5 - Y, Y])
    assert kendall(round_relative(mixed), human) == kendall(round_relative(exact), human)


def test_interval_is_a_bootstrap_over_clusters() -> None:
    cluster = np.array([7, 7, 3, 3, 3, 9, 9, 1, 1, 4])
    names = [1, 3, 4, 7, 9]
    resamples, seed = 200, 5
    generator = np.random.default_rng(seed)
    oracle = []
    for _ in range(resamples):
        sample = generator.integers(0, len(names), len(names))
        rows = [i for d in sample for i in range(len(X)) if cluster[i] == names[d]]
        if len({X[i] for i in rows}) > 1 and len({Y[i] for i in rows}) > 1:
            oracle.append(pearson_by_numpy([X[i] for i in rows], [Y[i] for i in rows]))
    interval = bootstrap(X, Y, cluster, resamples, seed)
    assert interval is not None
    low, high = np.quantile(oracle, [0.025, 0.975])
    assert (interval.low, interval.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))


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
from numba.core.caching import CacheImpl
CacheImpl._locator_classes = []
"""
SCORE = """
import numpy as np
from relabel.topk.exact_scores import score
print(score(np.eye(2, dtype=np.float32), np.array([0, 1]), 0, 2, 0, 1))
"""


@pytest.mark.parametrize(("before", "kept"), [("", True), (NO_ROOM, False), (NO_FOLDER, False)])
def test_machine_code_is_cached_where_possible(tmp_path: Path, before: str, kept: bool) -> None:
    if before == NO_ROOM:
        pytest.importorskip("resource", reason="no RLIMIT_FSIZE on this system")
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run([sys.executable, "-c", before + SELECT], env=env, capture_output=True, text=True, check=False)
    assert (run.stdout.strip(), run.stderr) == ("[[2, 1]]", "")
    assert any(p.stat().st_size > 100 for p in tmp_path.rglob("*.nb*")) == kept


def test_an_upgrade_compiles_the_callers_of_a_changed_function(tmp_path: Path) -> None:
    shutil.copytree(Path(relabel.__file__).parent, tmp_path / "relabel", ignore=shutil.ignore_patterns("__pycache__"))
    module, path = tmp_path / "relabel/core/numeric/kernels.py", os.pathsep.join([str(tmp_path), *sys.path])
    env, text = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": path}, module.read_text()
    for changed, best in ((text, "1.0"), (text.replace("if score > pooled", "if score < pooled"), "0.0")):
        module.write_text(changed)
        for _ in range(2):
            run = subprocess.run([sys.executable, "-c", SCORE], env=env, capture_output=True, text=True, check=True)
            assert run.stdout.strip() == best
            folders = {path.parent.name for path in (tmp_path / "cache").rglob("*.nbi")}
            assert len(folders) == 1


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_a_damaged_cache_is_replaced(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def hits() -> int:
        compiled = jit(pool_next.py_func)  # type: ignore[attr-defined]
        assert compiled(1.0, 2.0, MAX) == 2.0
        return compiled.stats.cache_hits.total()  # type: ignore[no-any-return]

    assert (hits(), hits()) == (0, 1)
    for damage in (lambda b: b"", lambda b: b[: len(b) // 2], lambda b: bytes(len(b)), lambda b: b"\xff" * len(b)):
        (path,) = tmp_path.rglob(f"*.{ending}")
        path.write_bytes(damage(path.read_bytes()))
        assert (hits(), hits()) == (0, 1)


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


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("count", "step"), [(0, 4), (3, 4), (4, 4), (1001, 4)])
def test_chunks_cover_the_range_once(count: int, step: int, threads: int) -> None:
    worked, sizes = [0] * count, list[int]()

    def work(start: int, stop: int) -> None:
        assert 0 < stop - start <= step
        for i in range(start, stop):
            worked[i] += 1

    run_chunks(work, count, threads, step, sizes.append)
    assert worked == [1] * count
    assert sum(sizes) == count
