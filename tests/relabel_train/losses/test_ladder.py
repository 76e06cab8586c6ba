"""Contract: LadderLoss equals its loops for two to four levels, hard and summed, with the paper's sets and the
released ones.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from relabel_train.losses import LadderLoss

SLACK = 1e-9


def first_level(s: list[float], own: list[bool], p: int, contrast: str) -> float:
    hinges = [max(0.0, 0.2 - s[p] + s[j]) for j in range(len(s)) if not own[j]]
    return sum(hinges) if contrast == "sum" else max(hinges, default=0.0)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("contrast", ["hard", "sum"])
@pytest.mark.parametrize("sets", ["levels", "cumulative"])
@pytest.mark.parametrize("thresholds", [(0.63,), (0.63, 0.56), (0.6, 0.56, -0.2)])
def test_equals_loops(
    batch: Any, both_ways: Any, thresholds: tuple[float, ...], sets: Any, contrast: Any, masked: bool
) -> None:
    weights = (1, 0.25, 0.125, 0.0625)

    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        total = first_level(s, own, p, contrast)
        for level in range(2, len(thresholds) + 2):
            theta = thresholds[level - 2] - SLACK
            lower = [j for j in range(len(s)) if not own[j] and r[j] < theta]
            if sets == "cumulative":
                upper = [i for i in range(len(s)) if i == p or r[i] >= theta]
            else:
                ceiling = float("inf") if level == 2 else thresholds[level - 3] - SLACK
                upper = [i for i in range(len(s)) if i != p and theta <= r[i] < ceiling]
            hinges = [max(0.0, 0.01 - s[i] + s[j]) for i in upper for j in lower]
            total += weights[level - 1] * (sum(hinges) if contrast == "sum" else max(hinges, default=0.0))
        return total

    loss = LadderLoss(thresholds, contrast=contrast, sets=sets)
    value = loss(batch.scores, batch.relevance, batch.same_image if masked else None)
    assert value.item() == pytest.approx(both_ways(query, batch, masked), rel=1e-9, abs=1e-9)
    names = {f"level{n}_{d}" for n in range(1, len(thresholds) + 2) for d in ("i2t", "t2i")}
    assert set(loss.terms(batch.scores, batch.relevance)) == names


def test_fillers_equal_loops(batch: Any, both_ways: Any) -> None:
    """Check the released code: items of the other side enter the minimum as 1 and the maximum as 0."""

    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        far = [r[j] < 0.63 - SLACK for j in range(len(s))]
        least = min(1.0 if far[j] else s[j] for j in range(len(s)))
        most = max(s[j] if far[j] else 0.0 for j in range(len(s)))
        return first_level(s, own, p, "hard") + 0.25 * max(0.0, 0.01 - least + most)

    value = LadderLoss(sets="cumulative", fillers=True)(batch.scores, batch.relevance)
    assert value.item() == pytest.approx(both_ways(query, batch, False), rel=1e-9, abs=1e-9)


def test_a_query_without_lower_items_has_a_loss_with_fillers_only() -> None:
    relevance = torch.tensor([[1.0, 0.9], [0.9, 1.0]], dtype=torch.float64)
    scores = torch.tensor([[0.5, -0.5], [-0.5, 0.5]], dtype=torch.float64)
    assert LadderLoss()(scores, relevance).item() == 0
    assert LadderLoss(sets="cumulative")(scores, relevance).item() == 0
    assert LadderLoss(sets="cumulative", fillers=True)(scores, relevance).item() == pytest.approx(4 * 0.25 * 0.51)


@pytest.mark.parametrize("contrast", ["hard", "sum"])
@pytest.mark.parametrize("sets", ["levels", "cumulative"])
def test_gradient(smooth: Any, contrast: Any, sets: Any) -> None:
    scores, relevance = smooth(5)
    loss = LadderLoss((0.3, -0.2), contrast=contrast, sets=sets)
    assert torch.autograd.gradcheck(lambda s: loss(s, relevance), scores.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_a_label_on_the_threshold_is_similar(dtype: torch.dtype) -> None:
    relevance = torch.tensor([[1.0, 0.63, 0.1]] * 3, dtype=torch.float64).to(dtype)
    own_items = torch.eye(3, dtype=torch.bool)
    similar, lower = LadderLoss().level_sets(relevance, own_items, 2)
    assert similar[0].tolist() == [False, True, False]
    assert lower[0].tolist() == [False, False, True]
