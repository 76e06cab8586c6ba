"""RSUM: R@1, R@5 and R@10 of both directions, added up."""

from __future__ import annotations

from collections.abc import Iterable


def rsum(percents: Iterable[float]) -> float:
    """Add up recalls in percent: 0..600 for the usual six.

    Over folds it is the sum of means. vsepp's and SAM's evaluation print six times something else there (D27).
    """
    return float(sum(percents))
