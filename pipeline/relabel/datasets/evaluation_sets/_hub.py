"""Rated captions as the hub has them: one row per rating, with the captions of the image as a list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from relabel.datasets.evaluation_file import read_items
from relabel.datasets.evaluation_sets import EvaluationSet, Item, judgements

ROW_IDS = "number of the row, from 1"
_NAMES = {"refs": "references", "cand": "candidate", "mt": "candidate", "human_score": "human", "score": "human"}
"""Columns of the sets on the hub, as those of a file of the user."""


def rated_rows(path: Path) -> Iterator[Item]:
    """Yield the rows of a file. Rows with equal references are of one image."""
    for item in read_items(path, names=_NAMES):
        yield item._replace(cluster="\n".join(item.pairs[0][1]))


def hub_set(name: str, title: str, protocol: str) -> EvaluationSet:
    """Make a set whose manifest has one file, or alternatives, of such rows."""
    return EvaluationSet(
        name=name,
        title=f"{title}, image and caption: Kendall's tau-c with human scores",
        dataset=name,
        read=lambda find: judgements(rated_rows(find())),
        statistics=("tau_c",),
        pair_ids=ROW_IDS,
        protocol=f"{title}: the captions of an image stand for it, as they are published. {protocol}",
    )
