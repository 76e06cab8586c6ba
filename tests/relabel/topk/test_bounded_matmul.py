"""Contract: no low-precision score is further from the exact score than its bound, in any arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel.topk.bounded_matmul import Arithmetic, BoundedMatmul, MaxNorms, as_floats

ARITHMETIC: list[Arithmetic] = ["bfloat16", "float32", "numpy"]


def directions(n: int, seed: int) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).standard_normal((n, 50))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_the_error_of_every_score_is_within_its_bound(arithmetic: Arithmetic) -> None:
    small, copies = directions(200, 0) * np.float32(1e-3), np.repeat(directions(10, 1), 10, 0)
    vectors = np.vstack([directions(200, 0), small, copies])
    products = BoundedMatmul(arithmetic)
    quantized = products.quantize(vectors)
    bits = products.multiply(quantized.values, quantized.values, products.empty_tile(500, 500))
    exact = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    slack = products.error_bound(quantized, MaxNorms.of(quantized), 50)[:, None]
    scores = as_floats(bits).astype(np.float64)
    half_step = products.rounding * 2.0 ** np.floor(np.log2(np.maximum(np.abs(scores), 1e-30)))
    error = np.abs(scores - exact)
    assert (error <= slack + half_step).all()
    assert error.max() > (0 if arithmetic != "bfloat16" else 1e-3)  # the arithmetic does round
