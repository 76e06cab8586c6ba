"""Contract: a head is a sum of interpolated curves between 0 and its cap. A model read from disk equals the written
one, and a damaged one is refused.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.relabel.sources.fuse.fixtures import small_model, some_head, write_fuse_model

from relabel.core.errors import CheckError
from relabel.sources.fuse.model import KIND, Feature, read_model


def test_a_head_is_a_sum_of_curves_between_0_and_its_cap() -> None:
    head = some_head((Feature("a", "max"), Feature("a", "mean"), Feature("b", "set")))
    values = np.random.default_rng(1).random((500, 3)) * 3 - 1
    values[7, 1] = np.nan
    scores = head.score(values.T)
    for p, row in enumerate(values):
        total = 0.0
        for (_, knots, heights), value in zip(head.curves, row, strict=True):
            j = sum(value >= knot for knot in knots)
            if j in (0, len(knots)):
                total += heights[0 if j == 0 else -1]
            else:
                share = (value - knots[j - 1]) / (knots[j] - knots[j - 1])
                total += heights[j - 1] + share * (heights[j] - heights[j - 1])
        assert np.isnan(scores[p]) if p == 7 else scores[p] == pytest.approx(min(head.cap, max(0.0, total)))
    assert (scores == head.cap).any()
    assert np.array_equal(scores, np.concatenate([head.score(row[:, None]) for row in values]), equal_nan=True)


def test_a_model_is_restored(tmp_path: Path) -> None:
    model = small_model()
    write_fuse_model(tmp_path / "fuse", model)
    assert read_model(tmp_path / "fuse") == model


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    write_fuse_model(tmp_path / "fuse", small_model())
    path = tmp_path / "fuse" / "model.json"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckError, match=r"model\.json"):
        read_model(tmp_path / "fuse")


def test_a_model_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_fuse_model(tmp_path / "fuse", small_model())
    monkeypatch.setattr("relabel.store.manifest.version_of", lambda kind, _=None: 99 if kind == KIND else 2)
    with pytest.raises(CheckError, match="another version of relabel"):
        read_model(tmp_path / "fuse")
