"""Contract: both layouts of references name the same sets, and pool scores of them to the same numbers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from relabel_train.scoring.references import PaddedReferences, Pooling, References

SIZES = {"equal": [3, 3, 3], "uneven": [1, 4, 2]}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("pooling", ["max", "mean"])
@pytest.mark.parametrize("shape", [(), (5,)], ids=["scores", "block"])
def test_two_layouts_pool_alike(sizes: list[int], pooling: Pooling, shape: tuple[int, ...]) -> None:
    indptr = np.cumsum([0, *sizes])
    image = np.repeat(np.arange(3, dtype=np.int32), sizes)
    values = np.random.default_rng(0).normal(size=(sum(sizes), *shape))
    rows = References.of([range(a, b) for a, b in pairwise(indptr)])
    padded = PaddedReferences.of_images(image, indptr, indptr[:-1], 4, paired=False)
    index = np.array([2, 0, 2, 1])
    for left, right in ((rows, padded), (rows.take(index), padded.take(index)), (rows.first(), padded.first())):
        assert len(left) == len(right)
        assert left.sizes.tolist() == right.sizes.tolist()
        assert left.firsts.tolist() == right.firsts.tolist()
        expected = [getattr(values[left[m]], pooling)(axis=0) for m in range(len(left))]
        np.testing.assert_allclose(left.pool(values[left.singles().firsts], pooling), expected, rtol=1e-14)
        np.testing.assert_allclose(right.pool(values[right.singles().firsts], pooling), expected, rtol=1e-14)
