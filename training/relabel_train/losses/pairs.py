"""Hinges over all pairs of items that a label orders, by sorting: no tensor has a pair of items as its axes.

A sum of hinges [s_k - s_j + margin]_+ is linear in the scores once it is known how often each item is the upper one
(j) and the lower one (k) of a pair whose hinge is open. Both counts are exact integers, found without a gradient; the
sum of scores times counts then has the exact value and the exact gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor


def hinge_ranked(scores: Tensor, above: Tensor, below: Tensor, gap: float, margin: float) -> tuple[Tensor, Tensor]:
    """Sum [s_k - s_j + margin]_+ over all (j, k) with above_j > below_k + gap.

    Parameters
    ----------
    scores : (Q, N) float
    above : (Q, N) float
        Label of an item as the upper one of a pair; -inf if it never is.
    below : (Q, N) float
        Label of an item as the lower one; inf if it never is.
    gap : float
        Labels must differ by more.
    margin : float

    Returns
    -------
    value : (Q,) float
        The sum for each query.
    pairs : (Q,) int64
        How many pairs the labels order, open or not.

    Notes
    -----
    Time O(Q N log N), memory O(Q N).
    """
    with torch.no_grad():
        ranked, order = scores.sort(dim=1, stable=True)
        place = torch.empty_like(order).scatter_(
            1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
        )
        raised = below + gap
        lower, by_below = raised.sort(dim=1, stable=True)
        upper, by_above = above.sort(dim=1, stable=True)
        # The same floating-point comparison decides a pair from both its ends, so no pair is open at one end alone.
        lower_labels = torch.searchsorted(lower, above.contiguous())
        closed = torch.searchsorted(ranked + margin, scores.contiguous(), right=True)
        upper_labels = torch.searchsorted(upper, raised.contiguous(), right=True)
        opened = torch.searchsorted(ranked, (scores + margin).contiguous())
        values = torch.cat([place.gather(1, by_below), place.gather(1, by_above)])
        found = count_below(values, torch.cat([lower_labels, upper_labels]), torch.cat([closed, opened]))
        as_upper = lower_labels - found[: len(scores)]
        as_lower = opened - found[len(scores) :]
    return _linear(scores, as_upper, as_lower, margin), lower_labels.sum(dim=1)


def hinge_between(scores: Tensor, upper: Tensor, lower: Tensor, margin: float) -> Tensor:
    """Sum [s_k - s_j + margin]_+ over all j of one set and k of another.

    Parameters
    ----------
    scores : (Q, N) float
    upper, lower : (Q, N) bool
        Which items are a j, which a k.
    margin : float

    Returns
    -------
    (Q,) float

    Notes
    -----
    Time O(Q N log N), memory O(Q N).
    """
    with torch.no_grad():
        raised = scores + margin
        lows = raised.masked_fill(~lower, -torch.inf).sort(dim=1).values
        ups = scores.masked_fill(~upper, torch.inf).sort(dim=1).values
        as_upper = scores.shape[1] - torch.searchsorted(lows, scores.contiguous(), right=True)
        as_lower = torch.searchsorted(ups, raised.contiguous())
        as_upper, as_lower = as_upper * upper, as_lower * lower
    return _linear(scores, as_upper, as_lower, margin)


def count_below(values: Tensor, first: Tensor, limit: Tensor) -> Tensor:
    """Count the values below a limit among the first of a permutation.

    Parameters
    ----------
    values : (Q, N) int64
        Each row is a permutation of 0..N-1.
    first : (Q, K) int64
        How many values to look at, from the left; 0..N.
    limit : (Q, K) int64
        0..N.

    Returns
    -------
    (Q, K) int64

    Notes
    -----
    Bit by bit from the highest, values are parted stably by that bit inside the groups of equal higher bits (a wavelet
    tree). As the values are a permutation, the group of values v..v+w-1 starts at place v. Time O(Q (N + K) log N).
    """
    length = values.shape[1]
    places = torch.arange(length, device=values.device)
    total = torch.zeros_like(first)
    at = first
    for bit in range(length.bit_length() - 1, -1, -1):
        one = (values >> bit) & 1
        zeros = torch.nn.functional.pad((1 - one).cumsum(dim=1), (1, 0))
        start = limit >> (bit + 1) << (bit + 1)
        left = zeros.gather(1, at) - (start >> 1)  # zeros of the limit's group among the first
        goes_right = ((limit >> bit) & 1).bool()
        total = total + torch.where(goes_right, left, 0)
        at = torch.where(goes_right, at - left + (1 << bit), start + left)
        if bit:
            start = values >> (bit + 1) << (bit + 1)
            left = zeros[:, :-1] - (start >> 1)
            to = torch.where(one.bool(), places - left + (1 << bit), start + left)
            values = torch.empty_like(values).scatter_(1, to, values)
    return total


def _linear(scores: Tensor, as_upper: Tensor, as_lower: Tensor, margin: float) -> Tensor:
    # Large terms cancel, so they are summed in float64 where the device has it.
    wide = scores.dtype if scores.device.type == "mps" else torch.float64
    value = (scores.to(wide) * (as_lower - as_upper)).sum(dim=1) + margin * as_upper.sum(dim=1).to(wide)
    return value.to(scores.dtype)
