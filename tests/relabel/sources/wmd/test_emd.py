"""Contract of transport: the least cost of a transportation problem, as a linear program finds it, for any supplies and
demands of one sum; the same whichever side is called sources; and POT's figure where POT is installed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from relabel.sources.wmd.distance import transport

Problem = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Bags of 1 to 7 words with counts, as supplies and demands; costs with many ties, or none."""
    left = np.array(draw(st.lists(st.integers(1, 4), min_size=1, max_size=7)))
    right = np.array(draw(st.lists(st.integers(1, 4), min_size=1, max_size=7)))
    tied = st.integers(0, 3).map(float)
    cost = draw(st.one_of(st.just(tied), st.just(st.floats(0, 100, allow_subnormal=False))))
    cells = draw(st.lists(cost, min_size=left.size * right.size, max_size=left.size * right.size))
    return np.array(cells).reshape(left.size, right.size), left * right.sum(), right * left.sum()


def solved(problem: Problem) -> float:
    cost, supply, demand = problem
    return transport(np.ascontiguousarray(cost), supply.copy(), demand.copy())


def by_linear_program(problem: Problem) -> float:
    cost, supply, demand = problem
    m, n = cost.shape
    rows = [np.eye(m)[i].repeat(n) for i in range(m)]
    columns = [np.tile(np.eye(n)[j], m) for j in range(n)]
    found = linprog(cost.reshape(-1), A_eq=np.array(rows + columns), b_eq=np.concatenate([supply, demand]))
    assert found.success
    return float(found.fun)


@settings(max_examples=150, deadline=None)
@given(problems())
def test_the_cost_is_that_of_a_linear_program(problem: Problem) -> None:
    expected = by_linear_program(problem)
    assert solved(problem) == pytest.approx(expected, rel=1e-9, abs=1e-7)
    cost, supply, demand = problem
    assert solved((np.ascontiguousarray(cost.T), demand, supply)) == pytest.approx(expected, rel=1e-9, abs=1e-7)


@settings(max_examples=300, deadline=None)
@given(problems())
def test_the_cost_is_what_pot_finds(problem: Problem) -> None:
    ot = pytest.importorskip("ot")
    cost, supply, demand = problem
    mass = float(supply.sum())
    assert solved(problem) / mass == pytest.approx(ot.emd2(supply / mass, demand / mass, cost), abs=1e-9)


def test_bags_of_more_words_than_any_caption_has() -> None:
    ot, rng = pytest.importorskip("ot"), np.random.default_rng(0)
    for m, n in ((60, 45), (1, 80), (33, 1), (50, 50)):
        left, right = rng.integers(1, 9, m), rng.integers(1, 9, n)
        problem = rng.random((m, n)), left * right.sum(), right * left.sum()
        mass = float(problem[1].sum())
        expected = ot.emd2(problem[1] / mass, problem[2] / mass, problem[0])
        assert solved(problem) / mass == pytest.approx(expected, abs=1e-9)
