"""Contract: LadderLoss equals its loops for two to four levels, hard and summed, with the paper's sets and the
released ones.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.relabel_train.losses.batches import IRREGULAR, Batch, assert_equals_loops

from relabel_train.losses import LadderLoss

SLACK = 1e-9


def worst_or_sum(hinges: list[float], contrast: str) -> float:
    hinges = [max(0.0, hinge) for hinge in hinges]
    return sum(hinges) if contrast == "sum" else max(hinges, default=0.0)


@pytest.mark.parametrize("contrast", ["hard", "sum"])
@pytest.mark.parametrize("sets", ["levels", "cumulative"])
@pytest.mark.parametrize("thresholds", [(0.63,), (0.63, 0.56), (0.6, 0.56, -0.2)])
def test_equals_loops(batch: Batch, thresholds: tuple[float, ...], sets: Any, contrast: Any) -> None:
    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        total = worst_or_sum([0.2 - s[p] + s[j] for j in range(len(s)) if not own[j]], contrast)
        ceiling = float("inf")
        for theta, weight in zip(thresholds, (0.25, 0.125, 0.0625), strict=False):
            lower = [j for j in range(len(s)) if not own[j] and r[j] < theta - SLACK]
            upper = [i for i in range(len(s)) if i != p and theta - SLACK <= r[i] < ceiling - SLACK]
            if sets == "cumulative":
                upper = [i for i in range(len(s)) if i == p or r[i] >= theta - SLACK]
            total += weight * worst_or_sum([0.01 - s[i] + s[j] for i in upper for j in lower], contrast)
            ceiling = theta
        return total

    loss = LadderLoss(thresholds, contrast=contrast, sets=sets)
    assert_equals_loops(loss, query)
    names = {f"level{n}_{d}" for n in range(1, len(thresholds) + 2) for d in ("i2t", "t2i")}
    assert set(loss.terms(*batch.all)) == names


def test_fillers_equal_loops() -> None:
    """Check the released code: items of the other side enter the minimum as 1 and the maximum as 0."""

    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        far = [r[j] < 0.63 - SLACK and not own[j] for j in range(len(s))]
        similar = [j == p or r[j] >= 0.63 - SLACK for j in range(len(s))]
        least = min(s[j] if similar[j] else 1.0 for j in range(len(s)))
        most = max(s[j] if far[j] else 0.0 for j in range(len(s)))
        first = worst_or_sum([0.2 - s[p] + s[j] for j in range(len(s)) if not own[j]], "hard")
        return first + 0.25 * max(0.0, 0.01 - least + most)

    none_lower = Batch(IRREGULAR[0].scores - 1, IRREGULAR[0].relevance.clamp(min=0.7), IRREGULAR[0].same_image)
    assert_equals_loops(LadderLoss(sets="cumulative", fillers=True), query, batches=[*IRREGULAR, none_lower])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_a_label_on_the_threshold_is_similar(dtype: torch.dtype) -> None:
    relevance = torch.tensor([[1.0, 0.63, 0.1]] * 3, dtype=torch.float64).to(dtype)
    similar, lower = LadderLoss().level_sets(relevance, torch.eye(3, dtype=torch.bool), 2)
    assert similar[0].tolist() == [False, True, False]
    assert lower[0].tolist() == [False, False, True]
