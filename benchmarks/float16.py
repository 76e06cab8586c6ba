"""Difference of blocks of float16 lookups from those of float32.

    python benchmarks/float16.py --labels labels/coco/exports/test/lookup    # the lookups of vectors in this folder

Each block is of 128 random captions. The vectors are rounded to float16, as `export.lookup.dtype=float16` stores
them, and divided by their lengths, as lookups read them. Both blocks are computed in float64. `order` is the share of
pairs of neighbouring cells of a row whose order changes. Two unit vectors can differ by at most 9.8e-4: each of their
numbers changes by up to 2^-11 of itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from harness import Table, agree, options

from relabel_train.lookup import Lookup, open_lookup

BLOCKS, B = 200, 128
BOUND = 2 * 2.0**-11 + 2.0**-22


def differences(lookup: Lookup) -> tuple[np.ndarray, float]:
    """Return the differences over random blocks, and the share of neighbours that change places."""
    vectors, rng = np.asarray(lookup.arrays["vectors"]), np.random.default_rng(0)
    errors, swapped, pairs = [], 0, 0
    for _ in range(BLOCKS):
        unit = vectors[rng.integers(len(vectors), size=B)]
        half = unit.astype(np.float16).astype(np.float64)
        half /= np.maximum(np.linalg.norm(half, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        exact, rounded = (v @ v.T for v in (unit.astype(np.float64), half))
        errors.append(np.abs(rounded - exact))
        order = np.argsort(exact, axis=1)
        steps = np.diff(np.take_along_axis(rounded, order, 1), axis=1)
        distinct = np.diff(np.take_along_axis(exact, order, 1), axis=1) > 0
        swapped, pairs = swapped + int((steps[distinct] < 0).sum()), pairs + int(distinct.sum())
    return np.stack(errors), swapped / pairs


def main() -> None:
    args = options(__doc__, labels=Path("labels/coco/exports/test/lookup"))
    table = Table("Blocks of float16 and float32 lookups: median difference")
    for path in sorted(args.labels.glob("[!.]*")):
        lookup = open_lookup(path)
        if lookup.about.kind == "vectors" and lookup.arrays["vectors"].dtype == np.float32:
            error, order = differences(lookup)
            largest = agree(f"{path.name} in float16", error, 0, BOUND)
            median, high = np.quantile(error, [0.5, 0.99]).tolist()
            table.add(lookup.about.label, "cosine", median, p99=high, largest=largest, order=order)
    table.end("float16", args.save, "numpy")


if __name__ == "__main__":
    main()
