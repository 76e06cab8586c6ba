"""Contract: TripletLoss equals its loops in value and gradient for every kind of negative, with and without masked
siblings.

SAMLoss equals Eq. 7 for its sampled negatives; sampling follows the paper's terms and never selects an own item.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from relabel_train.losses import SAMLoss, TripletLoss


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("negatives", ["hardest", "sum", "soft"])
def test_equals_loops(batch: Any, both_ways: Any, negatives: Any, masked: bool) -> None:
    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        allowed = [j for j in range(len(s)) if not own[j] and (negatives != "soft" or r[j] < 1 - 1e-9)]
        if not allowed:
            return 0.0
        if negatives == "sum":
            return sum(max(0.0, 0.2 + s[j] - s[p]) for j in allowed)
        if negatives == "hardest":
            return max(0.0, max(0.2 + s[j] - s[p] for j in allowed))
        return max(0.0, math.log(sum(math.exp(50 * s[j]) for j in allowed)) / 50 - s[p] + 0.2)

    value = TripletLoss(negatives=negatives)(batch.scores, batch.relevance, batch.same_image if masked else None)
    assert value.item() == pytest.approx(both_ways(query, batch, masked), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("negatives", ["hardest", "sum", "soft"])
def test_gradient(smooth: Any, negatives: Any) -> None:
    scores, relevance = smooth(3)
    loss = TripletLoss(negatives=negatives, gamma=5)
    assert torch.autograd.gradcheck(lambda s: loss(s, relevance), scores.requires_grad_())


def test_exact_duplicates_are_no_soft_negatives() -> None:
    scores = torch.tensor([[0.5, 0.9], [0.9, 0.5]])
    assert TripletLoss(negatives="soft")(scores, torch.ones(2, 2)).item() == 0
    rounded = torch.tensor([[1.0, 0.9999999], [0.9999999, 1.0]])
    assert TripletLoss(negatives="soft")(scores, rounded).item() == 0
    assert TripletLoss(negatives="soft")(scores, torch.eye(2)).item() > 0


def test_large_scores_do_not_overflow() -> None:
    scores = torch.full((3, 3), 1000.0, requires_grad=True)
    loss = TripletLoss(negatives="soft")(scores, torch.eye(3))
    loss.backward()
    assert loss.item() == pytest.approx(6 * (0.2 + math.log(2) / 50), rel=1e-3)
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())


def by_loops(batch: Any, pick: Any, margin_of: str, clamp: float | None, masked: bool) -> float:
    s, r, same_image, total = batch.scores.tolist(), batch.relevance.tolist(), batch.same_image, 0.0
    size = len(s)
    for p in range(size):
        allowed = [j for j in range(size) if not (same_image[p, j] if masked else j == p)]
        column = [s[i][p] for i in range(size)]
        labels = r[p] if margin_of == "image" else [r[i][p] for i in range(size)]
        m, k = pick(allowed, s[p], r[p]), pick(allowed, column, labels)
        other = r[p][k] if margin_of == "image" else r[k][p]
        for margin, gain in (((r[p][p] - r[p][m]) / 3, s[p][m] - s[p][p]), ((r[p][p] - other) / 3, s[k][p] - s[p][p])):
            total += max(0.0, (margin if clamp is None else min(clamp, margin)) + gain)
    return total


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("margin_of", ["image", "query"])
@pytest.mark.parametrize("clamp", [None, 0.1])
@pytest.mark.parametrize(("sampling", "extreme"), [("hard", max), ("soft", min)])
def test_sam_equals_loops(
    irregular: Any, sampling: Any, extreme: Any, clamp: float | None, margin_of: Any, masked: bool
) -> None:
    for seed in range(3):
        batch = irregular(seed)
        loss = SAMLoss(sampling=sampling, margin_of=margin_of, clamp=clamp)
        value = loss(batch.scores, batch.relevance * 5, batch.same_image if masked else None)

        def pick(allowed: list[int], s: list[float], r: list[float]) -> int:
            best = extreme(s[j] for j in allowed)
            return min((j for j in allowed if s[j] == best), key=lambda j: r[j])  # the least relevant of ties

        fives = type(batch)(batch.scores, batch.relevance * 5, batch.same_image)
        assert value.item() == pytest.approx(by_loops(fives, pick, margin_of, clamp, masked), rel=1e-9, abs=1e-9)


def released_by_loops(s: list[list[float]], r: list[list[float]], hard: bool, clamp: float | None) -> float:
    """Add the released code's terms: the second item of an order per row, with the other term's margin at that item."""
    places = range(len(s))
    by_row = [sorted(places, key=lambda j: s[i][j] - s[i][i], reverse=hard)[1] for i in places]
    by_column = [sorted(places, key=lambda j: s[i][j] - s[j][j], reverse=hard)[1] for i in places]

    def margin(j: int, negative: int) -> float:
        difference = (r[j][j] - r[j][negative]) / 3
        return difference if clamp is None else min(clamp, difference)

    total = 0.0
    for i in places:
        m, k = by_row[i], by_column[i]
        total += max(0.0, s[i][m] - s[i][i] + margin(m, by_column[m]))
        total += max(0.0, s[i][k] - s[k][k] + margin(k, by_row[k]))
    return total


@pytest.mark.parametrize("clamp", [None, 1.0])
@pytest.mark.parametrize("sampling", ["hard", "soft"])
def test_sam_as_released_equals_loops(smooth: Any, sampling: Any, clamp: float | None) -> None:
    own = 0
    for seed in range(5):
        scores, relevance = smooth(seed, 9, 9)
        relevance = relevance * 5
        loss = SAMLoss(sampling=sampling, form="released", clamp=clamp)
        expected = released_by_loops(scores.tolist(), relevance.tolist(), sampling == "hard", clamp)
        assert loss(scores, relevance).item() == pytest.approx(expected, rel=1e-12)
        assert loss(scores, relevance).item() != pytest.approx(SAMLoss(sampling=sampling)(scores, relevance).item())
        second = scores.argsort(dim=1, descending=sampling == "hard")[:, 1]
        own += int((second == torch.arange(9)).sum())
    assert own > 0  # the pair itself was drawn


def test_sam_as_released_is_clamped_at_1(smooth: Any) -> None:
    """Check that the labels are large enough for the clamp to matter, as CIDEr-D's are."""
    scores, relevance = smooth(0, 9, 9)
    clamped, plain = (SAMLoss(sampling="hard", form="released", clamp=c)(scores, relevance * 10) for c in (1.0, None))
    assert clamped < plain


def test_sam_as_released_with_random_items_draws_no_pair(smooth: Any) -> None:
    """Check labels whose margins name the item: 0 for the pair, and more than 1 for all others."""
    scores = torch.zeros(6, 6, dtype=torch.float64)
    relevance = 6 * torch.eye(6, dtype=torch.float64)
    for seed in range(20):
        loss = SAMLoss(form="released", generator=torch.Generator().manual_seed(seed))
        assert loss(scores, relevance).item() == pytest.approx(12 * 2)  # every margin is 6 / 3


def test_sam_as_released_gradient(smooth: Any) -> None:
    scores, relevance = smooth(8)
    loss = SAMLoss(sampling="hard", form="released", clamp=1.0)
    assert torch.autograd.gradcheck(lambda s: loss(s, relevance * 5), scores.requires_grad_())


def test_random_negatives_are_uniform_and_never_own() -> None:
    loss = SAMLoss(generator=torch.Generator().manual_seed(0))
    own_items = torch.eye(5, dtype=torch.bool)
    own_items[0, 3] = True
    count = torch.zeros(5, 5)
    for _ in range(2000):
        keys, _ = loss.sampling_keys(torch.zeros(5, 5), own_items)
        count += torch.nn.functional.one_hot(loss.pick_largest(keys, torch.zeros(5, 5), 1)[0], 5)
    assert bool((count[own_items] == 0).all())
    share = count / 2000
    assert bool(((share - (~own_items).float() / (~own_items).sum(dim=1, keepdim=True)).abs() < 0.05).all())


def test_a_generator_makes_it_repeatable(batch: Any) -> None:
    def run() -> Tensor:
        loss = SAMLoss(generator=torch.Generator().manual_seed(7))
        return torch.stack([loss(batch.scores, batch.relevance) for _ in range(5)])

    assert torch.equal(run(), run())
    assert len(set(run().tolist())) > 1


@pytest.mark.parametrize("sampling", ["hard", "soft"])
def test_sam_gradient(smooth: Any, sampling: Any) -> None:
    scores, relevance = smooth(8)
    assert torch.autograd.gradcheck(lambda s: SAMLoss(sampling=sampling)(s, relevance), scores.requires_grad_())
