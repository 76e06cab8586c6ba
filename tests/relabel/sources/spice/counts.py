"""Counts of tuples by kind, which the jar reports beside its score: they show where a graph differs from the jar's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit
from relabel.core.types import Rows
from relabel.corpus import References
from relabel.sources.spice.relevance import SceneGraphRelevance
from relabel.sources.spice.scene_graph import ATTRIBUTES, NODES, RELATIONS
from relabel.sources.spice.scoring import MERGED, close_refs, matches, open_refs


def counts(relevance: SceneGraphRelevance, references: References, captions: Rows) -> NDArray[np.int64]:
    """Count the tuples of P pairs, (P, 3, 3): objects, attributes, relations; matched, of the caption, of the merge."""
    sets, candidates = relevance.set_positions(references, "set"), relevance.positions(captions).astype(np.int32)
    out = np.zeros((len(candidates), 3, 3), np.int64)
    indptr, graph = relevance.graph(sets, MERGED, 0, len(sets))
    _count(indptr, sets.rows, relevance.scenes.captions, candidates, graph, out)
    return out


@jit
def _count(indptr: Any, sets: Any, captions: Any, candidates: Any, graph: Any, out: Any) -> None:
    start, concepts = captions.graphs
    for p in range(len(candidates)):
        open_refs(sets[indptr[p] : indptr[p + 1]], captions, graph)
        for t in range(start[candidates[p]], start[candidates[p] + 1]):
            first, second, third = concepts[t, 0], concepts[t, 1], concepts[t, 2]
            kind = int(second >= 0) + int(third >= 0)
            out[p, kind, 0] += int(matches(first, second, third, graph.bits, graph.limbs[0], graph.limbs[1]))
            out[p, kind, 1] += 1
        out[p, 0, 2] = graph.used[NODES]
        out[p, 1, 2] = graph.used[ATTRIBUTES]
        out[p, 2, 2] = graph.used[RELATIONS]
        close_refs(graph)
