"""Contract: TripletLoss equals its loops for every kind of negative, with and without masked siblings.

SAMLoss equals Eq. 7 for its sampled negatives; sampling follows the paper's terms and never selects an own item.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.relabel_train.losses.batches import Batch, assert_equals_loops, make_smooth, sum_rows, with_gradient

from relabel_train.losses import SAMLoss, TripletLoss


# "soft" reads labels by default; "hardest" and "sum" do where `below` is given.
@pytest.mark.parametrize(
    ("negatives", "below", "bound"),
    [("hardest", None, math.inf), ("sum", None, math.inf), ("soft", None, 1)]
    + [(kind, below, below) for kind in ("hardest", "sum", "soft") for below in (1.0, 0.56)],
)
def test_equals_loops(negatives: Any, below: float | None, bound: float) -> None:
    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        allowed = [j for j in range(len(s)) if not own[j] and r[j] < bound - 1e-9]
        if negatives == "sum":
            return sum(max(0.0, 0.2 + s[j] - s[p]) for j in allowed)
        if negatives == "hardest" or not allowed:
            return max((max(0.0, 0.2 + s[j] - s[p]) for j in allowed), default=0.0)
        return max(0.0, math.log(sum(math.exp(50 * s[j]) for j in allowed)) / 50 - s[p] + 0.2)

    for reduction, directions, factor in (("sum", "sum", 1.0), ("mean", "sum", 1 / 9), ("mean", "mean", 1 / 18)):
        loss = TripletLoss(negatives=negatives, below=below, reduction=reduction, directions=directions)  # type: ignore[arg-type]
        assert_equals_loops(loss, query, factor)


@pytest.mark.parametrize("negatives", ["hardest", "sum", "soft"])
def test_exact_duplicates_are_no_negatives(negatives: Any) -> None:
    """Check labels of 1 that rounding has moved, in every dtype that stores them."""
    scores, loss = torch.tensor([[0.5, 0.9], [0.9, 0.5]]), TripletLoss(negatives=negatives, below=1.0)
    for dtype, rounded in ((torch.float32, 0.9999999), (torch.float16, 0.9995), (torch.bfloat16, 0.9961)):
        duplicate = torch.tensor([[1.0, rounded], [rounded, 1.0]], dtype=dtype)
        assert loss(scores, duplicate).item() == 0
        assert loss(scores, torch.eye(2, dtype=dtype)).item() > 0


def test_labels_are_read_only_where_negatives_depend_on_them() -> None:
    scores = torch.rand(3, 3)
    TripletLoss()(scores)
    for loss in (TripletLoss(below=1.0), TripletLoss(negatives="soft")):
        with pytest.raises(ValueError, match="needs relevance"):
            loss(scores)


def test_large_scores_do_not_overflow() -> None:
    value, gradient = with_gradient(TripletLoss(negatives="soft"), torch.full((3, 3), 1000.0), torch.eye(3))
    assert value.item() == pytest.approx(6 * (0.2 + math.log(2) / 50), rel=1e-3)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("margin_of", ["image", "query"])
@pytest.mark.parametrize("clamp", [None, 0.1])
@pytest.mark.parametrize(("sampling", "extreme"), [("hard", max), ("soft", min)])
def test_sam_equals_loops(batch: Batch, sampling: Any, extreme: Any, clamp: float | None, margin_of: Any) -> None:
    def query(s: list[float], r: list[float], own: list[bool], p: int) -> float:
        allowed = [j for j in range(len(s)) if not own[j]]
        best = extreme(s[j] for j in allowed)
        k = min((j for j in allowed if s[j] == best), key=lambda j: r[j])  # the least relevant of ties
        margin = (r[p] - r[k]) / 3
        return max(0.0, (margin if clamp is None else min(clamp, margin)) + s[k] - s[p])

    loss, fives = SAMLoss(sampling=sampling, margin_of=margin_of, clamp=clamp), batch.relevance * 5
    # Eq. 7 reads the labels of a caption's negative images in the row of its own image.
    of_captions = fives if margin_of == "image" else fives.T
    for same in (batch.same_image, torch.eye(9, dtype=torch.bool)):
        expected = sum_rows(query, Batch(batch.scores, fives, same))
        expected += sum_rows(query, Batch(batch.scores.T, of_captions, same.T))
        assert loss(batch.scores, fives, same).item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def released_by_loops(s: list[list[float]], r: list[list[float]], hard: bool, clamp: float) -> float:
    """Add the released code's terms: the second item of an order per row, with the other term's margin at that item."""
    places = range(len(s))
    by_row = [sorted(places, key=lambda j: s[i][j] - s[i][i], reverse=hard)[1] for i in places]
    by_column = [sorted(places, key=lambda j: s[i][j] - s[j][j], reverse=hard)[1] for i in places]

    def margin(j: int, negative: int) -> float:
        return min(clamp, (r[j][j] - r[j][negative]) / 3)

    total = 0.0
    for i in places:
        m, k = by_row[i], by_column[i]
        total += max(0.0, s[i][m] - s[i][i] + margin(m, by_column[m]))
        total += max(0.0, s[i][k] - s[k][k] + margin(k, by_row[k]))
    return total


@pytest.mark.parametrize("sampling", ["hard", "soft"])
def test_sam_as_released_equals_loops(sampling: Any) -> None:
    for seed in range(5):
        scores, relevance = make_smooth(seed, 9, 9)
        inputs, found = (scores, relevance * 5), []
        for clamp in (None, 1.0):
            found.append(SAMLoss(sampling=sampling, form="released", clamp=clamp)(*inputs).item())
            lists = scores.tolist(), inputs[1].tolist()
            expected = released_by_loops(*lists, sampling == "hard", math.inf if clamp is None else clamp)
            assert found[-1] == pytest.approx(expected, rel=1e-12)
            assert found[-1] != pytest.approx(SAMLoss(sampling=sampling)(*inputs).item())
        assert found[0] > found[1]  # labels are large enough for the clamp to matter, as CIDEr-D's are


def test_sam_as_released_with_random_items_draws_no_pair() -> None:
    """Check labels whose margins name the item: 0 for the pair, and more than 1 for all others."""
    scores, relevance = torch.zeros(6, 6, dtype=torch.float64), 6 * torch.eye(6, dtype=torch.float64)
    for seed in range(20):
        loss = SAMLoss(form="released", generator=torch.Generator().manual_seed(seed))
        assert loss(scores, relevance).item() == pytest.approx(12 * 2)  # every margin is 6 / 3


def test_random_negatives_are_uniform_and_never_own() -> None:
    loss = SAMLoss(generator=torch.Generator().manual_seed(0))
    others = ~torch.eye(5, dtype=torch.bool)
    others[0, 3] = False
    count = torch.zeros(5, 5)
    for _ in range(2000):
        keys, _ = loss.sampling_keys(torch.zeros(5, 5), ~others)
        count += torch.nn.functional.one_hot(loss.pick_largest(keys, torch.zeros(5, 5), 1)[0], 5)
    assert bool((count[~others] == 0).all())
    torch.testing.assert_close(count / 2000, others / others.sum(dim=1, keepdim=True), rtol=0, atol=0.05)


def test_random_numbers_are_drawn_on_the_generators_device() -> None:
    """Check scores on a device without values; on a GPU torch refuses a generator of another device."""
    generator = torch.Generator().manual_seed(0)
    start, scores = generator.get_state(), torch.empty(5, 5, device="meta")
    keys = SAMLoss(generator=generator).sampling_keys(scores, torch.eye(5, device="meta") > 0)
    assert [numbers.device.type for numbers in keys] == ["meta", "meta"]
    assert not torch.equal(generator.get_state(), start)
