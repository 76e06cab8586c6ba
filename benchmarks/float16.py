"""Difference of blocks of float16 lookups from those of float32.

    python benchmarks/float16.py labels/coco/exports/test/lookup/sbert [more lookups of vectors in float32]

Each block is of 128 random captions. The vectors are rounded to float16, as `export.lookup.dtype=float16` stores them,
and both blocks are computed in float64. `bound` is the largest difference that two unit vectors can have: each of their
numbers changes by up to 2^-11 of itself. `order` is the share of pairs of neighbouring cells of a row whose order
changes. Results: results/float16.json.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from common import describe, machine, save, show

from relabel_train.lookup import open_lookup

BLOCKS, B = 200, 128
BOUND = 2 * 2.0**-11 + 2.0**-22


def differences(folder: Path, seed: int = 0) -> dict[str, Any]:
    """Return statistics of the differences over random blocks."""
    lookup, rng = open_lookup(folder), np.random.default_rng(seed)
    vectors = np.asarray(lookup.arrays["vectors"])
    if vectors.dtype != np.float32:
        raise SystemExit(f"{folder}: export it in float32")
    errors, swapped, pairs = [], 0, 0
    for _ in range(BLOCKS):
        unit = vectors[rng.integers(len(vectors), size=B)]
        exact, rounded = (v @ v.T for v in (unit.astype(np.float64), unit.astype(np.float16).astype(np.float64)))
        errors.append(np.abs(rounded - exact))
        order = np.argsort(exact, axis=1)
        steps = np.diff(np.take_along_axis(rounded, order, 1), axis=1)
        distinct = np.diff(np.take_along_axis(exact, order, 1), axis=1) > 0
        swapped, pairs = swapped + int((steps[distinct] < 0).sum()), pairs + int(distinct.sum())
    error = np.stack(errors)
    cut = np.quantile(error, [0.5, 0.99])
    return {
        "median": float(cut[0]),
        "p99": float(cut[1]),
        "largest": float(error.max()),
        "bound": BOUND,
        "order": swapped / pairs,
        "bytes": [vectors.nbytes, vectors.nbytes // 2],
    }


def main() -> None:
    figures = {f"{Path(path).name} ({Path(path).parts[-3]})": differences(Path(path)) for path in sys.argv[1:]}
    if not figures:
        raise SystemExit(__doc__)
    facts = machine("numpy")
    save("float16", {"machine": facts, "lookups": figures})
    names = ("median", "p99", "largest", "bound", "order")
    show(describe(facts), ["lookup", *names], [[k, *(f"{f[n]:.1e}" for n in names)] for k, f in figures.items()])


if __name__ == "__main__":
    main()
