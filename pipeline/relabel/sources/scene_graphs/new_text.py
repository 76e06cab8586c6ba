"""A text that is not in the corpus, as the only reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relabel.sources.scene_graphs.build import Scenes, near_concepts, rows_of, signatures
from relabel.sources.scene_graphs.structures import Rows, Words
from relabel.sources.scene_graphs.synonyms import spelled, words_table


def new_rows(tuples: list[list[str]], scenes: Scenes, jar: Path) -> tuple[Rows, Words]:
    """Make the one row of a new text, and its words, which match the corpus's concepts.

    Parameters
    ----------
    tuples : list of list of str
        As the parser gives them.
    scenes : Scenes
        Of the corpus.
    jar : Path
        METEOR's, which holds the synonym sets.
    """
    column = pa.chunked_array([pa.array([tuples], pa.list_(pa.list_(pa.string())))])
    table = words_table(spelled(column)[2].to_pylist(), jar)
    spelling = pc.cast(table["word"], pa.large_string()).combine_chunks()
    itself = pc.fill_null(pc.index_in(spelling, value_set=scenes.spelling), -1).to_numpy().astype(np.int32)
    held = pc.list_value_length(table["synsets"]).to_numpy()
    start = np.zeros(len(held) + 1, np.int64)
    np.cumsum(held, out=start[1:])
    names = pc.list_flatten(table["synsets"]).to_numpy()
    # Sets that the corpus lacks come after its own: they matter among the words of the text.
    every = np.concatenate([scenes.numbers, np.setdiff1d(names, scenes.numbers).astype(np.int32)])
    order = np.argsort(every, kind="stable")
    synsets = order[np.searchsorted(every, names, sorter=order)].astype(np.int32)
    words = Words(start, synsets, signatures(start, synsets), np.zeros(len(held) + 1, np.int64), np.empty(0, np.int32))
    near = near_concepts(words, itself, scenes.words, len(scenes.numbers), *scenes.multiple)
    return rows_of(column, spelling), words._replace(near_start=near[0], near=near[1])
