"""Pairs that people have judged, as rows of captions and numbers of images of a corpus."""

from __future__ import annotations

import numpy as np

from relabel.core.errors import MissingError
from relabel.core.types import Rows
from relabel.corpus import Corpus
from relabel.datasets.cxc import SIDES, HumanScores


def find_judged(human: HumanScores, corpus: Corpus) -> tuple[Rows, Rows]:
    """Return the left and the right side of P judged pairs, (P,) int32 each: rows of captions or numbers of images."""
    numbers = {"caption": corpus.row_of, "image": corpus.image_of}
    sides = zip(SIDES[human.task], (human.left, human.right), strict=True)
    try:
        left, right = (np.array([numbers[kind][name] for name in ids], np.int32) for kind, ids in sides)
    except KeyError as error:
        todo = "Ingest all of COCO: `relabel ingest --dataset coco`."
        raise MissingError(f"the corpus lacks {error.args[0]}, which people judged", todo=todo) from error
    return left, right
