"""Contract: a grading report equals a plain loop over the pairs of different images."""

from __future__ import annotations

import numpy as np
import pytest

from relabel_train.batches import Captions, RandomBatches, grading, grading_table, labelled
from relabel_train.batches.base import Rows

IMAGE = np.repeat(np.arange(12, dtype=np.int32), 3)
CAPTIONS = Captions.of(IMAGE, first=5)
LEVELS = (0.75, 0.5, 0.25)


class Lattice:
    """Asymmetric relevance in quarters, so that values lie on thresholds."""

    values = np.random.default_rng(1).integers(0, 5, (36, 36)) / 4.0

    def block(self, rows: Rows, columns: Rows) -> np.ndarray:
        return self.values[np.ix_(rows - 5, columns - 5)].astype(np.float32)


@pytest.mark.parametrize("size", [1, 7, 36])
def test_equals_a_loop(size: int) -> None:
    batches = RandomBatches(CAPTIONS, size, seed=0, drop_last=False).epoch(0)
    report = grading(labelled(batches, Lattice(), CAPTIONS), LEVELS)
    above, pairs, siblings, every = [0, 0, 0], 0, 0, 0
    images, captions = [0] * 4, [0] * 4
    for rows in batches:
        met: dict[int, set[int]] = {int(r): set() for r in rows}
        met_by: dict[int, set[int]] = {int(r): set() for r in rows}
        for i in rows.tolist():
            for j in rows.tolist():
                if IMAGE[i - 5] == IMAGE[j - 5]:
                    siblings += i != j
                    continue
                r = Lattice.values[i - 5, j - 5]
                level = sum(r < t for t in LEVELS)
                pairs += 1
                above = [a + (r >= t) for a, t in zip(above, LEVELS, strict=True)]
                met[i].add(level)
                met_by[j].add(level)
        for level in range(4):
            images[level] += sum(level in s for s in met.values())
            captions[level] += sum(level in s for s in met_by.values())
        every += sum(len(s) == 4 for s in met.values())
    n = len(batches)
    assert report.batches == n
    assert (report.pairs, report.siblings) == (pairs / n, siblings / n)
    assert report.above == tuple(a / n for a in above)
    assert report.images == tuple(i / 36 for i in images)
    assert report.captions == tuple(c / 36 for c in captions)
    assert report.all_levels == every / 36
    assert grading(labelled(batches, Lattice(), CAPTIONS), LEVELS).to_json()["levels"] == list(LEVELS)


def test_side_by_side() -> None:
    one = grading(labelled(RandomBatches(CAPTIONS, 6, seed=0, drop_last=True), Lattice(), CAPTIONS), LEVELS)
    table = grading_table({"a": one, "b": one}).splitlines()
    assert {line.count("|") for line in table} == {4}
    assert table[0].split() == ["|", "|", "a", "|", "b", "|"]
    assert f"{one.above[2]:.1f}" in next(line for line in table if line.startswith("| pairs per batch, r >= 0.25"))
    assert any(line.startswith("| images that meet 0.25 <= r < 0.5 |") for line in table)


def test_no_batch() -> None:
    with pytest.raises(ValueError, match="no batch"):
        grading([], LEVELS)
