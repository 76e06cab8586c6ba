"""Contract: no low-precision score is further from the exact score than its bound, in any screen, and no pair whose
exact score reaches the floor of a query is screened out.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel.topk.screen import Screen, empty_tile, error_bound, multiply, screen


def directions(n: int, seed: int) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).standard_normal((n, 50))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("kind", ["int8", "float32"])
def test_the_error_of_every_score_is_within_its_bound(kind: Screen) -> None:
    small, tiny = directions(100, 0) * np.float32(1e-3), directions(10, 2) * np.float32(1e-25)
    vectors = np.vstack([directions(200, 0), small, np.repeat(directions(10, 1), 10, 0), tiny, np.zeros((1, 50))])
    vectors = vectors.astype(np.float32)
    held = screen(vectors, kind)
    products = multiply(held.values, held.values, empty_tile(held.values.dtype, len(vectors) ** 2))
    exact = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    error = np.abs(products * held.scale * held.scale[:, None] - exact)
    assert (error <= error_bound(held, held, 50)[:, None] + held.size[:, None] * held.error).all()
    assert error.max() > (1e-4 if kind == "int8" else 0)  # the screen does round
