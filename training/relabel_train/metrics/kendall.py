"""Kendall's tau of scores and labels: tau-a, as BCLS Eq. 2, and tau-b, which corrects for ties."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.graded import Keys, RankedLabels, Ranking

Taus = tuple[NDArray[np.float64], NDArray[np.float64]]
_LISTS = 1 << 17
"""Items of lists that are sorted per step: 0.5 MiB, so that all levels stay in a cache."""
_BLOCK = 32
"""Largest block whose pairs are compared one by one."""


def kendall_tau(scores: NDArray[np.floating[Any]], labels: NDArray[np.floating[Any]]) -> Taus:
    """Return Kendall's tau between the scores and the labels of each query.

    Parameters
    ----------
    scores, labels : (Q, n) float32 or float64
        Without NaN.

    Returns
    -------
    tau_a : (Q,) float64
        (C - D) / (n (n - 1) / 2), -1..1 (Li et al., arXiv 2210.11319, Eq. 2). Pairs that are tied in scores or in
        labels count neither way, so that a perfect list with tied labels (five captions of label 1) stays below 1. NaN
        for n < 2.
    tau_b : (Q,) float64
        (C - D) / sqrt of the product of the numbers of pairs untied in scores and untied in labels (Kendall 1945);
        scipy's default. NaN if all scores or all labels are the same.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.metrics import kendall_tau
    >>> scores, labels = np.array([[0.9, 0.5, 0.4, 0.1]]), np.array([[1.0, 1.0, 0.2, 0.6]])
    >>> tau_a, tau_b = kendall_tau(scores, labels)
    >>> tau_a.round(4), tau_b.round(4)  # 4 pairs agree, 1 disagrees, 1 is tied
    (array([0.5]), array([0.5477]))
    """
    return compute_taus(Ranking(scores, labels).best().sorted_keys())


def cs_at_k(ranked: RankedLabels, k: int) -> NDArray[np.float64]:
    """Return the Coherent Score: Kendall's tau-b of scores and labels of the K best-scored items of each query.

    Zhou et al., Ladder Loss for Coherent Visual-Semantic Embedding, AAAI 2020; tau-b, as their released code.

    Parameters
    ----------
    ranked : RankedLabels
        Q queries.
    k : int
        2 or more; shorter lists are used completely.

    Returns
    -------
    (Q,) float64
        -1..1. NaN if the K labels, or the K scores, are all the same.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.metrics import Ranking, cs_at_k
    >>> scores, labels = np.array([[0.9, 0.5, 0.4, 0.1]]), np.array([[1.0, 0.8, 0.2, 0.6]])
    >>> cs_at_k(Ranking(scores, labels).best(3), 3)
    array([1.])
    """
    return compute_taus(ranked.sorted_keys(k))[1]


def compute_taus(keys: Keys) -> Taus:
    """Return tau-a and tau-b of keys, (Q, n), in the order of `RankedLabels.sorted_keys`."""
    queries, n = keys.shape
    every = n * (n - 1) // 2
    # The high half is the score alone; equal keys are tied in score and label.
    tied_scores, tied_both = tied_pairs(keys >> 32), tied_pairs(keys)
    # Sort by label, with the position in the list in the low 31 bits.
    by_label = (keys & 0xFFFFFFFF) << 31
    by_label |= np.arange(n)
    by_label.sort(axis=1)
    tied_labels = tied_pairs(by_label >> 31)
    # Labels rise in this order. Equal labels keep their positions, and equal scores have positions in the order of
    # labels. So the inversions of positions are exactly the pairs that scores and labels order the same way.
    concordant = count_inversions(by_label & 0x7FFFFFFF)
    # Pairs tied in both were subtracted twice. C + D = untied, so C - D = 2 C - untied.
    untied = every - tied_scores - tied_labels + tied_both
    difference = (2 * concordant - untied).astype(np.float64)
    product = (every - tied_scores).astype(np.float64) * (every - tied_labels)
    with np.errstate(divide="ignore", invalid="ignore"):
        tau_b = np.where(product > 0, difference / np.sqrt(product), np.nan)
        return (difference / every if every else np.full(queries, np.nan)), tau_b


def tied_pairs(ordered: NDArray[Any]) -> NDArray[np.int64]:
    """Count the pairs of equal items in each row of a sorted array: (Q, n) to (Q,) int64."""
    same = ordered[:, 1:] == ordered[:, :-1]
    counts = np.zeros(len(ordered), np.int64)
    # Scores of a model seldom tie: most rows are skipped.
    for q in np.flatnonzero(same.any(axis=1)):
        # A run of r equal items has r (r - 1) / 2 pairs.
        ends = np.flatnonzero(np.concatenate([[True], ~same[q], [True]]))
        run = np.diff(ends)
        counts[q] = (run * (run - 1) // 2).sum()
    return counts


def count_inversions(orders: NDArray[np.integer]) -> NDArray[np.int64]:
    """Count the pairs a < b with orders[a] > orders[b] in each row.

    `orders`: (Q, n) int; each row a permutation of 0..n - 1; n at most 2^30. Returns (Q,) int64.

    Merge counting in which every merge of all lists is one vectorised sort: O(n log^2 n).
    """
    queries, n = orders.shape
    step = max(1, _LISTS // max(1, n))
    counts = [_count(orders[start : start + step]) for start in range(0, queries, step)]
    return np.concatenate(counts) if counts else np.zeros(0, np.int64)


def _count(orders: NDArray[np.integer]) -> NDArray[np.int64]:
    """Count the inversions of rows that fit a cache: (Q, n) to (Q,) int64."""
    queries, n = orders.shape
    # Halve the length until a block has at most _BLOCK items; all blocks get the same width.
    width, levels = n, 0
    while width > _BLOCK:
        width, levels = (width + 1) // 2, levels + 1
    width = max(1, -(-n // (1 << levels)))
    padded = width << levels
    keys = np.empty((queries, padded), np.int32)
    keys[:, :n] = orders
    # Padding is larger than everything and in order, so it adds no inversions.
    keys[:, n:] = np.arange(n, padded)
    total = _count_within(keys.reshape(queries, -1, width))
    # The lowest bit marks the half that an item comes from.
    keys <<= 1
    while width < padded:
        halves = keys.reshape(-1, 2, width)
        halves[:, 0] &= -2
        halves[:, 1] |= 1
        # One sort of all pairs of halves merges them. Marks differ only between halves, so the order is by item.
        keys.reshape(-1, 2 * width).sort(axis=1)
        # The position of an item of the left half, less its position within that half, is the number of smaller items
        # of the right half: its inversions. Both sums are taken over all items of a row together.
        left = np.flatnonzero((keys.reshape(-1) & 1) == 0).reshape(queries, -1)
        pairs = padded // (2 * width)
        starts = 2 * width * width * np.arange(queries * pairs, dtype=np.int64).reshape(queries, pairs).sum(axis=1)
        total += left.sum(axis=1) - starts - pairs * (width * (width - 1) // 2)
        width *= 2
    return total


def _count_within(blocks: NDArray[np.int32]) -> NDArray[np.int64]:
    """Count the inversions within blocks, (Q, blocks, width), comparing pairs of all blocks in parallel: (Q,) int64."""
    queries, block_count, width = blocks.shape
    # Positions along the first axis: one comparison serves item i of every block.
    across = np.ascontiguousarray(blocks.reshape(-1, width).T)
    counts = np.zeros(queries * block_count, np.int32)
    for i in range(width - 1):
        larger = across[i] > across[i + 1 :]
        # At most _BLOCK - 1 = 31 per item, which a byte holds.
        counts += larger.view(np.uint8).sum(axis=0, dtype=np.uint8)
    return np.asarray(counts.reshape(queries, block_count).sum(axis=1), np.int64)
