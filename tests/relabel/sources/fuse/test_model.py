"""Contract: trees read from scikit-learn give its predictions bit for bit, for any batch and number of threads. A
head is a sum in fixed order. A model read from disk equals the written one, and a damaged one is refused.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.relabel.sources.fuse.fixtures import fitted_head, small_model, write_fuse_model

from relabel.core.errors import CheckError
from relabel.sources.fuse.features import Feature
from relabel.sources.fuse.model import FuseModel, Head, add_trees, export_trees, read_model


@pytest.mark.parametrize("monotone", [True, False])
@pytest.mark.parametrize("trees", [1, 60])
def test_trees_are_bit_identical_to_sklearn(monotone: bool, trees: int) -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor

    random = np.random.default_rng(trees)
    train, human = random.normal(size=(3000, 7)), random.random(3000)
    train[:, 3] = np.round(train[:, 3])  # few distinct values: thresholds fall between them
    constraint = [1] * 7 if monotone else None
    booster = HistGradientBoostingRegressor(max_iter=trees, min_samples_leaf=3, monotonic_cst=constraint)
    booster.fit(train, human + train[:, 0] / 5)
    exported = export_trees(booster)
    thresholds = exported.values[exported.nodes[:, 0] == 2]
    values = random.normal(size=(20_000, 7))
    values[: len(thresholds), 2] = thresholds  # a value equal to a threshold goes left
    for threads in (1, 3):
        out = np.full(len(values), float(np.ravel(booster._baseline_prediction)[0]))
        add_trees(exported, values, out, threads)
        assert np.array_equal(out, booster.predict(values))


def test_a_head_is_a_fixed_sum_clipped_to_0_and_1() -> None:
    head = fitted_head((Feature("a", "max"), Feature("a", "mean"), Feature("b", "refs")))
    values = np.random.default_rng(1).random((500, 3)) * 3 - 1
    values[7, 1] = np.nan
    scores = head.score(values, threads=2)
    for p, row in enumerate(values):
        total = head.intercept
        for f in range(3):
            total += row[f] * head.weights[f]
        for root in head.trees.roots:
            n = root
            while head.trees.nodes[n, 0] >= 0:
                feature, left, right = head.trees.nodes[n]
                n = left if row[feature] <= head.trees.values[n] else right
            total += head.trees.values[n]
        assert np.isnan(scores[p]) if p == 7 else scores[p] == min(1.0, max(0.0, total))
    assert np.array_equal(scores, np.concatenate([head.score(values[i : i + 1]) for i in range(500)]), equal_nan=True)


def test_a_linear_head_has_no_trees() -> None:
    head = Head((Feature("a", "max"),), 0.25, np.array([0.5]))
    assert head.score(np.array([[0.5], [2.0], [-1.0]])).tolist() == [0.5, 1.0, 0.0]
    assert len(head.trees.roots) == len(export_trees(SimpleNamespace(_predictors=[])).roots) == 0


def test_a_model_is_restored(tmp_path: Path) -> None:
    model = small_model()
    write_fuse_model(tmp_path / "fuse", model)
    restored: FuseModel = read_model(tmp_path / "fuse")
    assert restored.parts == model.parts
    for name, head in model.heads.items():
        again = restored.heads[name]
        assert (again.features, again.intercept) == (head.features, head.intercept)
        for a, b in zip((again.weights, *again.trees), (head.weights, *head.trees), strict=True):
            assert np.array_equal(a, b)
            assert a.dtype == b.dtype
    assert not list((tmp_path / "fuse").glob("*.pkl"))


@pytest.mark.parametrize("file", ["model.json", "set-values.npy"])
def test_a_damaged_model_is_refused(tmp_path: Path, file: str) -> None:
    write_fuse_model(tmp_path / "fuse", small_model())
    path = tmp_path / "fuse" / file
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckError, match=file):
        read_model(tmp_path / "fuse")
