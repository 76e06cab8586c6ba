"""Hinges over all pairs of items that are ordered by label, by sorting: no tensor has pairs of items as its axes.

A sum of hinges [s_k - s_j + margin]_+ is linear in the scores, given the number of open hinges in which each item is
the upper one (j) and the lower one (k). Both counts are exact integers, computed without a gradient; the sum of scores
times counts has the exact value and the exact gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor


def hinge_ranked(scores: Tensor, above: Tensor, below: Tensor, gap: float, margin: float) -> tuple[Tensor, Tensor]:
    """Sum [s_k - s_j + margin]_+ over all (j, k) with above_j > below_k + gap, in time O(Q N log N).

    `scores`, (Q, N). `above`, `below`: labels of an item as the upper one of a pair and as the lower one, -inf and inf
    if it never is. Returns the sum of each query and its number of pairs ordered by label, open or not: (Q,) each.
    """
    # The same labels on both sides are sorted once.
    other = None if below is above else below
    as_upper, as_lower, pairs = count_open_pairs(scores.detach(), above, other, gap, margin)
    return _sum_hinges(scores, as_upper, as_lower, margin), pairs


# One opaque operation: a compiler would spend minutes on hundreds of small ones.
@torch.library.custom_op(
    "relabel_train::count_open_pairs",
    mutates_args=(),
    schema="(Tensor scores, Tensor above, Tensor? below, float gap, float margin) -> (Tensor, Tensor, Tensor)",
)
def count_open_pairs(
    scores: Tensor, above: Tensor, below: Tensor | None, gap: float, margin: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Count each item's open pairs as the upper one and as the lower one, and each query's pairs, open or not.

    Parameters are those of `hinge_ranked`; without `below`, `above` stands for it.
    """
    # On a CPU 2^15 scores per step keep every level of the wavelet tree in a cache.
    size = max(1, (1 << 15) // scores.shape[1]) if scores.device.type == "cpu" else len(scores)
    # A compiler may pass other strides than the caller did.
    scores, above = scores.contiguous(), above.contiguous()
    below = None if below is None else below.contiguous()
    counts = [
        _open_pairs(
            scores[q : q + size], above[q : q + size], None if below is None else below[q : q + size], gap, margin
        )
        for q in range(0, len(scores), size)
    ]
    as_upper, as_lower, pairs = (torch.cat(parts) for parts in zip(*counts, strict=True))
    return as_upper, as_lower, pairs


@count_open_pairs.register_fake
def _(scores: Tensor, *_others: object) -> tuple[Tensor, Tensor, Tensor]:
    counts = torch.empty_like(scores, dtype=torch.int64, memory_format=torch.contiguous_format)
    return counts, torch.empty_like(counts), counts.new_empty(len(scores))


def _open_pairs(
    scores: Tensor, above: Tensor, below: Tensor | None, gap: float, margin: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Count the open pairs of some queries; parameters and results are those of `count_open_pairs`."""
    length = scores.shape[1]
    # Ranks replace scores: comparisons of integers are exact, and count_below needs a permutation.
    ranked, order = scores.sort(dim=1, stable=True)
    rank = inverse(order)
    upper, by_above = above.sort(dim=1, stable=True)
    lower, by_below = (upper + gap, by_above) if below is None else (below + gap).sort(dim=1, stable=True)
    # Per lower item: the number of items that score below it plus the margin.
    opened = torch.searchsorted(ranked, ranked + margin)
    # Per upper item, by label: the number of items with a small enough label.
    lows = torch.searchsorted(lower, upper)
    # The same two comparisons for the partner: items that score lower by the margin, and items without a higher label.
    closed, ups = transpose_counts(opened), transpose_counts(lows)
    # Ranks of scores in ascending order of labels.
    values = rank.gather(1, by_above)
    if below is None:
        # One permutation answers both questions: a single tree with the two lists of queries side by side.
        limits = closed.gather(1, values), opened.gather(1, values)
        counts = count_below(values, torch.cat([lows, ups], dim=1), torch.cat(limits, dim=1))
        closed_lows, open_ups = counts[:, :length], counts[:, length:]
    else:
        # Two orders of labels: two trees, stacked along the axis of queries.
        lower_values = rank.gather(1, by_below)
        limits = closed.gather(1, values), opened.gather(1, lower_values)
        counts = count_below(torch.cat([lower_values, values]), torch.cat([lows, ups]), torch.cat(limits))
        closed_lows, open_ups = counts[: len(scores)], counts[len(scores) :]
    # An upper item's open pairs: all its lower partners less those that score low enough.
    as_upper = torch.empty_like(order).scatter_(1, by_above, lows - closed_lows)
    # Open pairs of a lower item: items that score below it plus the margin, minus those that are not its upper partner.
    as_lower = torch.empty_like(order).scatter_(1, by_below, limits[1] - open_ups)
    return as_upper, as_lower, lows.sum(dim=1)


def hinge_between(scores: Tensor, upper: Tensor, lower: Tensor, margin: float) -> Tensor:
    """Sum [s_k - s_j + margin]_+ over all j in `upper` and k in `lower`, (Q, N) bool, in time O(Q N log N): (Q,)."""
    with torch.no_grad():
        ranked, order = scores.sort(dim=1, stable=True)
        upper, lower = upper.gather(1, order), lower.gather(1, order)
        raised = ranked + margin
        # Numbers of k and of j among the items up to each rank.
        lows, ups = _count_up_to(lower), _count_up_to(upper)
        # An item j is open against the items k from rank `closed` on; an item k against the j below rank `opened`.
        opened = torch.searchsorted(ranked, raised)
        closed = transpose_counts(opened)
        as_upper = (lows[:, -1:] - lows.gather(1, closed)) * upper
        as_lower = ups.gather(1, opened) * lower
        # Back from the order of scores to the order of items.
        rank = inverse(order)
        as_upper, as_lower = as_upper.gather(1, rank), as_lower.gather(1, rank)
    return _sum_hinges(scores, as_upper, as_lower, margin)


def count_below(values: Tensor, first: Tensor, limit: Tensor) -> Tensor:
    """Count the values below each of K limits among the first ones of a permutation of 0..N-1.

    `values`: (Q, N). `first`, `limit`: (Q, K), 0..N. A wavelet tree: from the highest bit down, values are partitioned
    stably by that bit within the groups of equal higher bits. As the values are a permutation, the group of values
    v..v+w-1 starts at index v. Time O(Q (N + K) log N).
    """
    length = values.shape[1]
    indices = torch.arange(length, device=values.device)
    total = torch.zeros_like(first)
    # Invariant: `position` is one past the counted values within the group that shares the limit's higher bits.
    position = first
    for bit in range(length.bit_length() - 1, -1, -1):
        half = 1 << bit
        one = (values >> bit) & 1
        # zeros[i]: values with a 0 at this bit among the first i.
        zeros = torch.nn.functional.pad((1 - one).cumsum(dim=1), (1, 0))
        # The limit's group starts at its higher bits; before it exactly half of every group has a 0 at this bit.
        start = limit & -(2 * half)
        left = zeros.gather(1, position) - (start >> 1)  # zeros of the limit's group among the first
        # A limit with a 1 at this bit is above all zeros of its group: they count, and the search goes on in the ones.
        right = (limit >> bit) & 1
        total = total + left * right
        position = torch.where(right.bool(), position - left + half, start + left)
        if bit:
            # Partition every group stably: zeros to its front, ones behind them.
            start = values & -(2 * half)
            left = zeros[:, :-1] - (start >> 1)
            to = torch.where(one.bool(), indices - left + half, start + left)
            values = torch.empty_like(values).scatter_(1, to, values)
    return total


def transpose_counts(counts: Tensor) -> Tensor:
    """Count, for each index k, the entries of an ascending row of counts that are at most k.

    If counts_j is the number of items of one sorted row below item j of another, the result is the number of items of
    the other not above item k of the first. Both come from the same comparisons, so rounding cannot make them disagree.
    """
    rows, length = counts.shape
    # Entries of at most k are the running sum of a histogram of the entries.
    histogram = counts.new_zeros(rows, length + 1).scatter_add_(1, counts, torch.ones_like(counts))
    return histogram.cumsum(dim=1)[:, :length]


def inverse(order: Tensor) -> Tensor:
    """Return the rank of each item in an order, both (Q, N) int64."""
    ranks = torch.arange(order.shape[1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, ranks)


def _count_up_to(mask: Tensor) -> Tensor:
    """Count the marks before each position: (Q, N) bool to (Q, N + 1) int64."""
    return torch.nn.functional.pad(mask.long().cumsum(dim=1), (1, 0))


def _sum_hinges(scores: Tensor, as_upper: Tensor, as_lower: Tensor, margin: float) -> Tensor:
    """Sum the open hinges from the counts of their items: a linear function of the scores, with its exact gradient."""
    # Large terms cancel, so they are summed in float64 if the device has it.
    wide = scores.dtype if scores.device.type == "mps" else torch.float64
    value = (scores.to(wide) * (as_lower - as_upper)).sum(dim=1) + margin * as_upper.sum(dim=1).to(wide)
    return value.to(scores.dtype)
