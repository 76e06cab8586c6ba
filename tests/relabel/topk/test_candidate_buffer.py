"""Contract of the buffer of candidates: nothing that can still be among the best is ever dropped, ties go to the lowest
numbers, and `floor` never exceeds the exact score of the k-th best.
"""

from __future__ import annotations

import numpy as np

from relabel.topk.candidate_buffer import make_buffer, rescore_and_truncate
from relabel.topk.exact_scores import PAIRED, ExactOperands


def test_ties_at_the_end_go_to_the_lowest_rows() -> None:
    vectors = np.ones((40, 1), np.float32)
    exact = ExactOperands(vectors, np.arange(2), np.array([7]), np.arange(40), PAIRED)
    buffer = make_buffer(np.zeros(1), np.full(1, -np.inf), 40, np.dtype(np.int32), 0.0)
    buffer.columns[0], buffer.values[0], buffer.sizes[0] = np.arange(40)[::-1], 1.0, 40
    assert rescore_and_truncate(buffer, exact, 0, 6).tolist() == [1.0] * 6
    assert buffer.columns[0, :6].tolist() == [0, 1, 2, 3, 4, 5]
    assert buffer.floor[0] == 1.0
