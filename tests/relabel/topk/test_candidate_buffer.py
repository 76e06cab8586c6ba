"""Contract: the buffer of candidates rejects a score only if its upper bound lies below the floor. Ties go to the
lowest numbers, and `floor` never exceeds the exact score of the k-th best.
"""

from __future__ import annotations

import numpy as np
import pytest

from relabel.core.numeric.kernels import FIRST
from relabel.topk.bounded_matmul import as_floats
from relabel.topk.candidate_buffer import make_buffer, rescore_and_truncate
from relabel.topk.exact_scores import ExactOperands


@pytest.mark.parametrize("floor", [0.9, 0.5, 0.25, 1e-3, 0.0, -1e-4, -0.25, -0.9])
@pytest.mark.parametrize("slack", [1e-30, 1e-6, 1e-3, 0.3])
def test_only_scores_whose_upper_bound_is_below_the_floor_are_rejected(floor: float, slack: float) -> None:
    buffer = make_buffer(np.array([slack]), np.array([floor]), 10, np.dtype(np.int16), 2.0**-8)
    bits = np.arange(-(1 << 15), 1 << 15).astype(np.int16)  # every bfloat16 number
    keys = np.where(bits < 0, bits ^ np.int16(0x7FFF), bits)
    with np.errstate(invalid="ignore"):  # signalling NaN among the bits
        scores = as_floats(bits).astype(np.float64)
    usual = np.abs(scores) <= 2
    scores, rejected = scores[usual], keys[usual] < buffer.limit[0]
    half_step = np.where(scores == 0, 0, 2.0**-8 * 2.0 ** np.floor(np.log2(np.maximum(np.abs(scores), 1e-300))))
    assert rejected.any()
    assert (scores + slack + half_step < floor)[rejected].all()
    # The limit is sharp up to a few roundings.
    assert rejected[scores < floor - slack - 2.0**-5 * (abs(floor) + slack) - 1e-6].all()


def test_ties_at_the_end_go_to_the_lowest_rows() -> None:
    vectors = np.ones((40, 1), np.float32)
    exact = ExactOperands(vectors, np.arange(2), np.array([7]), np.arange(40), FIRST)
    buffer = make_buffer(np.zeros(1), np.full(1, -np.inf), 40, np.dtype(np.int32), 0.0)
    buffer.numbers[0], buffer.values[0], buffer.sizes[0] = np.arange(40)[::-1], 1.0, 40
    assert rescore_and_truncate(buffer, exact, 0, 6).tolist() == [1.0] * 6
    assert buffer.numbers[0, :6].tolist() == [0, 1, 2, 3, 4, 5]
    assert buffer.floor[0] == 1.0
