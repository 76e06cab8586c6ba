"""Contract: bit j of a comparison's mask is set exactly if score j is not below its limit."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from relabel.topk.llvm_kernels import WORD_BITS, lowest_bit, mask_reaching


@numba.njit  # type: ignore[untyped-decorator]
def mask(row: Any, start: int, limit: Any) -> Any:
    return mask_reaching(row, start, limit)


@numba.njit  # type: ignore[untyped-decorator]
def first_bit(word: Any) -> Any:
    return lowest_bit(np.uint64(word))


def keys_of(bits: Any) -> Any:
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


@pytest.mark.parametrize("dtype", [np.int16, np.int32])
def test_masks_are_comparisons_of_keys(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    limits = np.iinfo(dtype)
    row = rng.integers(limits.min, limits.max, 200, dtype, endpoint=True)
    each = rng.integers(limits.min, limits.max, 200, dtype, endpoint=True)
    for start in (0, 3, 136):
        part = keys_of(row[start : start + WORD_BITS])
        for limit in (limits.min, 0, int(part[7]), limits.max):
            expected = sum(1 << j for j in range(WORD_BITS) if part[j] >= limit)
            assert mask(row, start, dtype(limit)) == expected
        expected = sum(1 << j for j in range(WORD_BITS) if part[j] >= each[start + j])
        assert mask(row, start, each) == expected


def test_keys_are_ordered_as_scores() -> None:
    scores = np.sort(np.random.default_rng(0).standard_normal(1000).astype(np.float32))
    assert (np.diff(keys_of(scores.view(np.int32)).astype(np.int64)) >= 0).all()


@pytest.mark.parametrize("bit", [0, 1, 31, 63])
def test_the_lowest_bit(bit: int) -> None:
    assert first_bit(np.uint64(1 << bit)) == bit
    assert first_bit(np.uint64((1 << bit) | (1 << 63))) == bit
