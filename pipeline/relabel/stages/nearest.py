"""nearest: finds the captions with the highest relevance to a caption or a new text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import MissingError, RelabelError, UsageError
from relabel.corpus import References
from relabel.judge import GATE_TOP
from relabel.sources.relevance import Relevance, block_of_pairs
from relabel.stages.corpus import label_splits, open_corpus
from relabel.stages.encode import check_label_names, open_label
from relabel.stages.session import Session
from relabel.store.manifest import MANIFEST


@dataclass(frozen=True)
class Hit:
    """One result. `same_image`: True for a caption of the query's image."""

    caption_id: str
    image_id: str
    text: str
    score: float
    same_image: bool


def search_labels(
    session: Session, text: str | None, caption_id: str | None, labels: Sequence[str], k: int, split: str | None
) -> tuple[str, Iterator[tuple[str, list[Hit] | RelabelError]]]:
    """Search with several labels lazily. Labels that do not load a model come first.

    `text`, `caption_id`: exactly one of them, a new text or the id of an encoded caption. `labels`: labels to search
    with; by default all that are encoded. `k`: number of results per label. `split`: split to search. The default is
    all if it is encoded, otherwise the split of the caption, or the first encoded one. Returns `query`, the text of the
    query, and `answers`, an iterator over labels with their results, or with the error of a label that cannot answer,
    for example because its encoding is stale. If no label can answer, the iterator finally raises the first error.
    """
    config, corpus = session.config, open_corpus(session)
    check_label_names(config, labels)
    if text is not None and not text.strip():
        raise UsageError("the query is empty", hint="Pass a caption, or --id with the id of a caption.")
    of_caption = [] if caption_id is None else [corpus.caption(corpus.find_row(caption_id, range(len(corpus)))).split]
    likely = ("all", *of_caption, *label_splits(session), *corpus.splits)
    split = split or next((s for s in likely if any(session.folder("encodings", s).glob(f"*/{MANIFEST}"))), likely[1])
    encoded = [name for name in config.sources if session.folder("encodings", split, name).exists()]
    # The baseline compares only image ids.
    names = list(labels) or [name for name in encoded if config.source(name).spec.kind != "baseline"]
    if not names:
        where = str(session.folder("encodings", split))
        raise MissingError("nothing is encoded", where=where, hint=f"Run {session.command('encode', split=split)}.")
    rows = corpus.split_rows(split)
    session.note_once(f"searching {config.ingest.dataset}, split {split}: {len(rows):,} captions")
    query = text if text is not None else corpus.find_row(str(caption_id), rows)
    opened = dict[str, Relevance]()

    def search(label: str) -> list[Hit]:
        for source in config.with_parts(label).values() if text is not None else ():
            source.require("query")
        relevance, gate = open_label(session, label, split, opened), None
        # Scoring every caption of a split pair by pair would take hours.
        if config.source(label).is_pairwise():
            chosen = config.judge.gate or _choose_gate(session, label, encoded, text)
            gate = open_label(session, chosen, split, opened), GATE_TOP
        return nearest(relevance, query, k, gate)

    def slowness(label: str) -> tuple[bool, bool]:
        source = config.source(label)
        return not source.spec.fast, source.model_folder() is not None

    def answers() -> Iterator[tuple[str, list[Hit] | RelabelError]]:
        errors = list[RelabelError]()
        for label in sorted(names, key=slowness):
            answer: list[Hit] | RelabelError
            try:
                with session.runtime.progress.status(f"searching with {label}"):
                    answer = search(label)
            except RelabelError as error:
                errors.append(answer := error)
            yield label, answer
        if len(errors) == len(names):
            raise errors[0]

    return (query if isinstance(query, str) else corpus.caption(query).text), answers()


def nearest(relevance: Relevance, query: str | int, k: int, gate: tuple[Relevance, int] | None = None) -> list[Hit]:
    """Return the k captions with the highest relevance to a query.

    `query`: the reference, as a new text or as the row of an encoded caption. The caption is not in the results.
    `gate`: (Relevance, int); for sources that score pair by pair, a relevance and the number of its best captions to
    score. Returns list of Hit, by (-score, row).
    """
    corpus = relevance.corpus
    captions = np.arange(relevance.rows.start, relevance.rows.stop, dtype=np.int32)
    if not isinstance(query, str):
        captions = captions[captions != query]
    if gate is not None:
        # Sort by row, the order of equal scores.
        captions = np.sort(_best(gate[0], query, captions, gate[1])[0])
    rows, scores = _best(relevance, query, captions, k)
    image = -1 if isinstance(query, str) else int(corpus.image[query])
    hits = []
    for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
        caption, same_image = corpus.caption(row), int(corpus.image[row]) == image
        hits.append(Hit(caption.caption_id, caption.image_id, caption.text, score, same_image))
    return hits


def _choose_gate(session: Session, label: str, encoded: Sequence[str], text: str | None) -> str:
    """Return the label that selects candidates: the last encoded label that is fast and can score the query."""
    for name in reversed(encoded):
        sources = session.config.with_parts(name)
        if sources[name].spec.fast and (text is None or all(one.supports("query") is None for one in sources.values())):
            return name
    raise UsageError(f"{label} is too slow to search without a gate", hint="Use another label, such as sbert.")


def _best(
    relevance: Relevance, query: str | int, captions: NDArray[np.int32], k: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the rows and scores of the k best captions, by (-score, row)."""
    if isinstance(query, str):
        scores = relevance.query(query, captions)
    else:
        reference = References.single(np.array([query], np.int32))
        scores = block_of_pairs(relevance, reference, captions, "first")[0]
    order = np.lexsort((captions, -scores))[:k]
    return captions[order], scores[order]
