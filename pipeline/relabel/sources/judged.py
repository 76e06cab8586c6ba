"""Human-judged items as caption rows and image numbers of a corpus."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relabel.core.errors import MissingError
from relabel.core.types import Rows
from relabel.corpus import Corpus
from relabel.datasets.cxc import SIDES, HumanScores, Side


def find_items(corpus: Corpus, side: Side, ids: Sequence[str]) -> Rows:
    """Return caption rows or image numbers of ids, (N,) int32; -1 for ids that are not in the corpus."""
    numbers = corpus.row_of if side == "caption" else corpus.image_of
    return np.fromiter((numbers.get(name, -1) for name in ids), np.int32, len(ids))


def find_pairs(human: HumanScores, corpus: Corpus) -> tuple[Rows, Rows]:
    """Return the left and right items of P judged pairs, (P,) int32 each; see `find_items`."""
    left, right = SIDES[human.task]
    return find_items(corpus, left, human.left), find_items(corpus, right, human.right)


def find_judged(human: HumanScores, corpus: Corpus) -> tuple[Rows, Rows]:
    """Return the items of judged pairs as `find_pairs` does, but raise if an item is not in the corpus."""
    sides = find_pairs(human, corpus)
    for numbers, ids in zip(sides, (human.left, human.right), strict=True):
        if len(absent := np.flatnonzero(numbers < 0)):
            hint = "Ingest all of COCO: `relabel ingest --dataset coco`."
            raise MissingError(f"the judged item {ids[absent[0]]} is not in the corpus", hint=hint)
    return sides
