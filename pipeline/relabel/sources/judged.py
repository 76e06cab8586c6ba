"""Items that people have judged, as rows of captions and numbers of images of a corpus."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relabel.core.errors import MissingError
from relabel.core.types import Rows
from relabel.corpus import Corpus
from relabel.datasets.cxc import SIDES, HumanScores, Side


def find_items(corpus: Corpus, side: Side, ids: Sequence[str]) -> Rows:
    """Return rows of captions or numbers of images, (N,) int32; -1 for an id that the corpus lacks."""
    numbers = corpus.row_of if side == "caption" else corpus.image_of
    return np.fromiter((numbers.get(name, -1) for name in ids), np.int32, len(ids))


def find_pairs(human: HumanScores, corpus: Corpus) -> tuple[Rows, Rows]:
    """Return the left and the right side of P judged pairs, (P,) int32 each, as `find_items` does."""
    left, right = SIDES[human.task]
    return find_items(corpus, left, human.left), find_items(corpus, right, human.right)


def find_judged(human: HumanScores, corpus: Corpus) -> tuple[Rows, Rows]:
    """Return what `find_pairs` returns; raise if the corpus lacks an item."""
    sides = find_pairs(human, corpus)
    for numbers, ids in zip(sides, (human.left, human.right), strict=True):
        if len(lacking := np.flatnonzero(numbers < 0)):
            todo = "Ingest all of COCO: `relabel ingest --dataset coco`."
            raise MissingError(f"the corpus lacks {ids[lacking[0]]}, which people judged", todo=todo)
    return sides
