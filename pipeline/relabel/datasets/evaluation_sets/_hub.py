"""Rated captions from the hub: one row per rating, with the captions of the image as a list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from relabel.datasets.evaluation_file import read_items
from relabel.datasets.evaluation_sets import EvaluationSet, Item, judgements

ROW_IDS = "number of the row, from 1"
_NAMES = {"refs": "references", "cand": "candidate", "mt": "candidate", "human_score": "human", "score": "human"}
"""Column names of sets on the hub, and the corresponding columns of a user's file."""


def rated_rows(path: Path) -> Iterator[Item]:
    """Yield the rows of a file, clustered by references, because rows of one image have equal references."""
    for item in read_items(path, names=_NAMES):
        yield item._replace(cluster="\n".join(item.pairs[0][1]))


def hub_set(name: str, title: str, protocol: str) -> EvaluationSet:
    """Create an evaluation set of rated captions. Its manifest has one file, or several alternatives."""
    return EvaluationSet(
        name=name,
        title=f"{title}, image and caption: Kendall's tau-c with human scores",
        dataset=name,
        read=lambda find: judgements(rated_rows(find())),
        statistics=("tau_c",),
        pair_ids=ROW_IDS,
        protocol=f"{title}: an image is represented by its published captions. {protocol}",
    )
