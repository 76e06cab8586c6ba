"""Lookup arrays of spice: tuples as numbers, and the tuples that each image and each caption matches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.csr import indptr_of
from relabel.corpus import References
from relabel.sources.spice.relevance import SceneGraphRelevance
from relabel.sources.spice.scoring import MERGED
from relabel.sources.spice.tuple_search import TupleTable, list_matches, tuple_table
from relabel.store.arrays import write_array
from relabel.store.workdir import Work

_SETS = 4096  # sets whose matches are listed together


def write_scene_graphs(relevance: SceneGraphRelevance, work: Work) -> dict[str, int]:
    """Write the arrays of the kind `scene_graphs` (see `relabel_train.lookup.spice`).

    Beside the opened encoding this holds the largest of the arrays.

    Returns
    -------
    dict of str to int
        Sizes for `lookup.json`: `tuples`.
    """
    scenes, rows, corpus = relevance.scenes, relevance.rows, relevance.corpus
    table = tuple_table(scenes.graphs, scenes.concepts)
    write_array(work, "scene_graphs.indptr", scenes.graphs.start)
    write_array(work, "scene_graphs.tuples", table.number)
    images = range(int(corpus.image[rows.start]), int(corpus.image[rows.stop - 1]) + 1)
    captions = References.single(np.arange(rows.start, rows.stop, dtype=np.int32))
    for name, references in (("caption", captions), ("image", corpus.references(images))):
        sets = relevance.set_positions(references, "refs")
        sizes, counts, matches = _matches(relevance, sets, table)
        write_array(work, f"scene_graphs.{name}_indptr", indptr_of(counts))
        write_array(work, f"scene_graphs.{name}_matches", matches)
        if name == "image":
            write_array(work, "scene_graphs.image_size", sizes.astype(np.int32))
    return {"tuples": len(table.concepts)}


def _matches(
    relevance: SceneGraphRelevance, sets: References, table: TupleTable
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Return each set's number of tuples, its number of matching distinct tuples, and these tuples, end to end."""
    scenes = relevance.scenes
    sizes, counts = np.empty((2, len(sets)), np.int64)
    pieces, buffer = [np.empty(0, np.int32)], np.empty(len(table.concepts) + 1, np.int32)
    with relevance.borrow_graph(relevance.size_bound(sets, MERGED)) as graph:
        for a in range(0, len(sets), _SETS):
            b = min(a + _SETS, len(sets))
            args = (sets.indptr[a : b + 1], sets.rows, scenes.rows, scenes.words, table, graph, buffer)
            # The first pass counts, the second one fills an array of exactly that size.
            list_matches(*args, sizes[a:b], counts[a:b], np.empty(0, np.int32))
            piece = np.empty(int(counts[a:b].sum()), np.int32)
            list_matches(*args, sizes[a:b], counts[a:b], piece)
            pieces.append(piece)
    return sizes, counts, np.concatenate(pieces)
