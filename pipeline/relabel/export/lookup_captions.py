"""What every lookup says of its captions: image, ids, which failed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.corpus import Corpus
from relabel.store.arrays import write_array
from relabel.store.workdir import Work
from relabel_train.ids import Ids


def write_captions(corpus: Corpus, rows: range, failed: NDArray[np.int32], work: Work) -> None:
    """Write the arrays of relabel_train.lookup.format.CAPTIONS.

    Parameters
    ----------
    corpus : Corpus
    rows : range
        Rows covered: whole images.
    failed : (F,) int32
        Rows among them without an encoding.
    work : Work
    """
    image = corpus.image[rows.start : rows.stop]
    first = int(image[0])
    count = int(image[-1]) + 1 - first
    write_array(work, "image", (image - first).astype("<i4"))
    write_array(work, "indptr", (corpus.indptr[first : first + count + 1] - rows.start).astype("<i8"))
    write_array(work, "failed", (failed - rows.start).astype("<i4"))
    ids = {
        "caption_ids": corpus.caption_ids[rows.start : rows.stop],
        "image_ids": corpus.image_ids[first : first + count],
    }
    for what, names in ids.items():
        for name, array in Ids.of(names).arrays(what).items():
            write_array(work, name, array)
