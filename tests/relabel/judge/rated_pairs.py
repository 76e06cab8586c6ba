"""Pairs with three ratings each, and an evaluation set of such pairs, for the tests of figures and reports."""

from __future__ import annotations

from functools import partial

import numpy as np

from relabel.datasets.evaluation_sets import EvaluationSet, Judgements

RNG = np.random.default_rng(3)
P = 40
RATINGS = RNG.integers(1, 5, (P, 3)).astype(float)
SCORES = np.round(RATINGS.mean(axis=1) + RNG.normal(size=P), 1)
GROUPS = ["x" if p % 2 else "y" for p in range(P)]
RATED = Judgements(
    ids=[str(p) for p in range(P)], references=[["a"]] * P, candidates=["b"] * P, ratings=RATINGS, groups=GROUPS,
    clusters=[str(p // 2) for p in range(P)],
)  # fmt: skip


judged = partial(EvaluationSet, name="mine", title="Mine", dataset="mine", protocol="P.", read=None, pair_ids="n")  # type: ignore[arg-type]
