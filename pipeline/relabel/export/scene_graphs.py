"""The arrays of spice: tuples as numbers, and which of them images and captions match."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.corpus import References
from relabel.export.arrays import write_array
from relabel.sources.scene_graphs.listing import Listing, listing_of
from relabel.sources.scene_graphs.relevance import SceneGraphRelevance
from relabel.sources.scene_graphs.scoring import TOGETHER
from relabel.sources.scene_graphs.search import list_matches
from relabel.store.work import Work

_TOGETHER = 4096  # sets whose matches are listed at once
Found = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]


def write_scene_graphs(relevance: SceneGraphRelevance, work: Work) -> dict[str, int]:
    """Write the arrays of the kind `scene_graphs` (relabel_train.lookup.scene_graphs); return its sizes.

    Beside the opened encoding this holds the largest of the arrays.
    """
    scenes, rows, corpus = relevance.scenes, relevance.rows, relevance.corpus
    listing = listing_of(scenes.graphs, scenes.concepts)
    write_array(work, "scene_graphs.indptr", scenes.graphs.start)
    write_array(work, "scene_graphs.tuples", listing.number)
    images = range(int(corpus.image[rows.start]), int(corpus.image[rows.stop - 1]) + 1)
    captions = References.single(np.arange(rows.start, rows.stop, dtype=np.int32))
    for name, references in (("caption", captions), ("image", corpus.references(images))):
        sets = relevance.places(references, "refs")
        sizes, counts, matches = _matches(relevance, sets, listing)
        indptr = np.zeros(len(sets) + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        write_array(work, f"scene_graphs.{name}_indptr", indptr)
        write_array(work, f"scene_graphs.{name}_matches", matches)
        if name == "image":
            write_array(work, "scene_graphs.image_size", sizes.astype(np.int32))
    return {"tuples": len(listing.concepts)}


def _matches(
    relevance: SceneGraphRelevance, sets: References, listing: Listing
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Count the tuples of each set, count those that it matches, and list these, end to end."""
    scenes = relevance.scenes
    sizes, counts = np.empty((2, len(sets)), np.int64)
    found, buffer = [np.empty(0, np.int32)], np.empty(len(listing.concepts) + 1, np.int32)
    with relevance.room(relevance.largest(sets, TOGETHER)) as room:
        for a in range(0, len(sets), _TOGETHER):
            b = min(a + _TOGETHER, len(sets))
            args = (sets.indptr[a : b + 1], sets.rows, scenes.rows, scenes.words, listing, room, buffer)
            list_matches(*args, sizes[a:b], counts[a:b], np.empty(0, np.int32))
            some = np.empty(int(counts[a:b].sum()), np.int32)
            list_matches(*args, sizes[a:b], counts[a:b], some)
            found.append(some)
    return sizes, counts, np.concatenate(found)
