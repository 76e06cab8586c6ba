"""nearest: the captions that a source finds closest to a caption or to a new text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import MissingError, RelabelError, UsageError
from relabel.corpus import References
from relabel.sources.relevance import Relevance
from relabel.stages import Project, open_label


@dataclass(frozen=True)
class Hit:
    """One result; `same_image` marks a caption of the query's image."""

    caption_id: str
    image_id: str
    text: str
    score: float
    same_image: bool


def search_labels(
    project: Project, text: str | None, caption_id: str | None, labels: Sequence[str], k: int, split: str | None
) -> tuple[str, dict[str, list[Hit]], list[tuple[str, RelabelError]]]:
    """Search with several labels. A label that cannot answer, for example with a stale encoding, is left out.

    `text`, `caption_id`: exactly one of them: a new text, or the id of an encoded caption. `labels`: labels to search
    with; all that are encoded if empty. `k`: number of results per label. `split`: split whose captions are searched;
    None for the only split of the corpus, else the test split. Returns `query`: the text of the query; `left_out`, list
    of (str, RelabelError): labels that cannot answer, each with the reason.
    """
    # PTB tokens and positions are for encoding.
    project = replace(project, columns=("caption_id", "image_id", "image", "split", "text"))
    split = project.choose_split(split, "test", labels)
    # The baseline knows image ids only.
    searchable = [name for name in project.config.sources if not project.config.source(name).spec.baseline]
    names = list(labels) or [name for name in searchable if project.layout.encoding(split, name).exists()]
    if not names:
        where = str(project.layout.encoding(split))
        raise MissingError("nothing is encoded", where=where, todo=f"Run {project.command('encode', split=split)}.")
    rows = project.corpus.rows(project.splits(split))
    query = text if text is not None else project.corpus.find_row(str(caption_id), rows)
    hits, opened = dict[str, list[Hit]](), dict[str, Relevance]()
    left_out: list[tuple[str, RelabelError]] = []
    for label in names:
        try:
            if text is not None and (reason := _text_obstacle(project, label)) is not None:
                raise UsageError(f"{label} cannot score a new text: {reason}", todo="Search by id: --id ID.")
            relevance, gate = open_label(project, label, split, opened=opened), None
            # To score every caption of a split pair by pair would take hours.
            if project.config.source(label).is_pairwise():
                gate = _open_gate(project, label, opened, split, text is not None), project.config.judge.gate_top
            hits[label] = nearest(relevance, query, k, gate)
        except RelabelError as error:
            left_out.append((label, error))
    if not hits:
        raise left_out[0][1]
    return (query if isinstance(query, str) else project.corpus.caption(query).text), hits, left_out


def nearest(relevance: Relevance, query: str | int, k: int, gate: tuple[Relevance, int] | None = None) -> list[Hit]:
    """Return the k captions of highest relevance to a query.

    `query`: a new text, or the row of an encoded caption, which is left out of the results. It is the reference.
    `gate`: (Relevance, int); score only so many of this relevance's best captions: for sources that score pair by pair.
    Returns list of Hit: by (-score, row).
    """
    corpus = relevance.corpus
    captions = np.arange(relevance.rows.start, relevance.rows.stop, dtype=np.int32)
    if not isinstance(query, str):
        captions = captions[captions != query]
    if gate is not None:
        # Ascending rows, as the order of equal scores.
        captions = np.sort(_best(gate[0], query, captions, gate[1])[0])
    rows, scores = _best(relevance, query, captions, k)
    image = -1 if isinstance(query, str) else int(corpus.image[query])
    hits = []
    for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
        caption, same_image = corpus.caption(row), int(corpus.image[row]) == image
        hits.append(Hit(caption.caption_id, caption.image_id, caption.text, score, same_image))
    return hits


def _text_obstacle(project: Project, label: str) -> str | None:
    """Return the reason why a label, or any of its parts, cannot score a new text; None if it can."""
    sources = (project.config.source(label), *project.config.parts(label).values())
    return next(filter(None, (source.supports("query") for source in sources)), None)


def _open_gate(project: Project, label: str, opened: dict[str, Relevance], split: str, is_text: bool) -> Relevance:
    """Open the label that selects candidates for a source that scores pair by pair.

    This is `judge.gate`, else the last encoded label that scores fast and, for a text, can score texts.
    """
    fast = [name for name in project.config.sources if project.config.source(name).spec.fast]
    fast = [name for name in fast if not is_text or _text_obstacle(project, name) is None]
    encoded = [name for name in fast if project.layout.encoding(split, name).exists()]
    gate = project.config.judge.gate or (encoded[-1] if encoded else None)
    if gate is None:
        raise UsageError(f"{label} scores pair by pair and needs a gate", todo="Encode a label of vectors or features.")
    return open_label(project, gate, split, opened=opened)


def _best(
    relevance: Relevance, query: str | int, captions: NDArray[np.int32], k: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the rows of the k best captions and their scores, by (-score, row)."""
    if isinstance(query, str):
        scores = relevance.query(query, captions)
    else:
        reference = References.single(np.array([query], np.int32))
        scores = relevance.block(reference, captions, "paired")[0]
    order = np.lexsort((captions, -scores))[:k]
    return captions[order], scores[order]
