"""What a source finds closest to a caption or a new text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import MissingError, RelabelError, UsageError
from relabel.corpus import Corpus, References
from relabel.sources.relevance import Relevance
from relabel.stages import Project, open_label


@dataclass(frozen=True)
class Hit:
    """One found caption; `same_image` marks a sibling of the caption asked for."""

    caption_id: str
    image_id: str
    text: str
    score: float
    same_image: bool


def row_of(corpus: Corpus, rows: range, caption_id: str) -> int:
    """Find an encoded caption by id.

    Raises
    ------
    UsageError
        If the corpus lacks it or it is not among the encoded rows.
    """
    row = corpus.row_of.get(caption_id)
    if row is None:
        raise UsageError(
            "no such caption in the corpus", where=caption_id, todo=f"Ids read like {corpus.caption_ids[0]}."
        )
    if row not in rows:
        split = corpus.table["split"][row].as_py()
        raise UsageError(
            f"caption {caption_id} is in split {split}, which is not encoded", todo=f"Use --split {split}."
        )
    return row


def nearest(relevance: Relevance, asked: str | int, k: int, gate: tuple[Relevance, int] | None = None) -> list[Hit]:
    """Find the k captions of highest relevance.

    Parameters
    ----------
    relevance : Relevance
    asked : str or int
        A new text, or the row of an encoded caption (itself left out of the answer). It is the reference.
    k : int
    gate : (Relevance, int), optional
        Score only the gate's best candidates: for sources that score pair by pair.

    Returns
    -------
    list of Hit
        By (-score, row).
    """
    corpus = relevance.corpus
    captions = np.arange(relevance.rows.start, relevance.rows.stop, dtype=np.int32)
    if not isinstance(asked, str):
        captions = captions[captions != asked]
    if gate is not None:
        captions = np.sort(_best(gate[0], asked, captions, gate[1])[0])
    found, scores = _best(relevance, asked, captions, k)
    image = -1 if isinstance(asked, str) else int(corpus.image[asked])
    return [
        Hit(
            corpus.caption_ids[row],
            corpus.image_ids[corpus.image[row]],
            corpus.texts[row],
            float(score),
            int(corpus.image[row]) == image,
        )
        for row, score in zip(found.tolist(), scores, strict=True)
    ]


def ask(
    project: Project, text: str | None, caption_id: str | None, labels: Sequence[str], k: int, split: str
) -> tuple[str, dict[str, list[Hit]], list[tuple[str, RelabelError]]]:
    """Ask several labels at once. A label that cannot answer, say for a stale encoding, is left out.

    Parameters
    ----------
    text, caption_id : str or None
        Exactly one of them: a new text, or the id of an encoded caption.
    labels : sequence of str
        Those to ask; if empty, all that are encoded, same_image aside (it finds siblings, in row order).
    k : int
    split : str
        Whose captions are searched.

    Returns
    -------
    asked : str
        The text asked for.
    hits : dict of label to list of Hit
    left_out : list of (str, RelabelError)
        Labels that cannot answer, and why.

    Raises
    ------
    MissingError
        If nothing is encoded.
    UsageError
        If the id is not among the encoded captions.
    RelabelError
        If no label can answer: the reason of the first.
    """
    asked_labels = list(labels) or [
        label
        for label, params in project.config.sources.items()
        if params.source != "same_image" and project.layout.encoding(split, label).exists()
    ]
    if not asked_labels:
        where = str(project.layout.encoding(split))
        raise MissingError("nothing is encoded", where=where, todo=f"Run `relabel encode --split {split}`.")
    if text is not None:
        asked_labels = _of_texts(project, asked_labels, named=bool(labels))
    opened: dict[str, Relevance] = {}
    left_out: list[tuple[str, RelabelError]] = []
    for label in asked_labels:
        try:
            opened[label] = open_label(project, label, split)
        except RelabelError as error:
            left_out.append((label, error))
    if not opened:
        raise left_out[0][1]
    first = next(iter(opened.values()))
    asked: str | int = text if text is not None else row_of(project.corpus, first.rows, str(caption_id))
    hits = {}
    for label, relevance in opened.items():
        gate = None
        if project.config.source(label).is_pairwise():
            try:
                gate = _gate(project, label, opened, split, text is not None), project.config.judge.gate_top
            except RelabelError as error:
                left_out.append((label, error))
                continue
        hits[label] = nearest(relevance, asked, k, gate)
    if not hits:
        raise left_out[0][1]
    return (asked if isinstance(asked, str) else project.corpus.texts[asked]), hits, left_out


def _of_texts(project: Project, labels: Sequence[str], named: bool) -> list[str]:
    """Keep the labels that can score a new text.

    Raises
    ------
    UsageError
        If no label can, or one cannot that was named.
    """
    able = []
    for label in labels:
        try:
            reason = _no_text(project, label)
        except RelabelError:  # its model is missing, say: opening it tells
            reason = None
        if reason is None:
            able.append(label)
            continue
        error = UsageError(f"{label} knows no new text: {reason}", todo="Ask by a caption's id: --id ID.")
        if named or (label == labels[-1] and not able):
            raise error
        project.runtime.progress.note(str(error))
    return able


def _no_text(project: Project, label: str) -> str | None:
    """Say why a label, or a label that it is made of or gated by, cannot score a new text."""
    source = project.config.source(label)
    reasons = (source.query_blocker(), *(_no_text(project, part) for part in source.input_labels()))
    return next((reason for reason in reasons if reason is not None), None)


def _gate(project: Project, label: str, opened: dict[str, Relevance], split: str, of_text: bool) -> Relevance:
    """Choose what picks the candidates of a source that scores pair by pair: `judge.gate`, else the last that can."""
    able = [n for n in project.config.sources if project.config.source(n).spec.fast]
    able = [n for n in able if not of_text or _no_text(project, n) is None]
    there = [n for n in able if n in opened or project.layout.encoding(split, n).exists()]
    name = project.config.judge.gate or (there[-1] if there else None)
    if name is None:
        raise UsageError(f"{label} scores pair by pair and needs a gate", todo="Encode a label of vectors or features.")
    return opened.get(name) or open_label(project, name, split)


def _best(
    relevance: Relevance, asked: str | int, captions: NDArray[np.int32], k: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    if isinstance(asked, str):
        scores = relevance.query(asked, captions)
    else:
        reference = References.single(np.array([asked], np.int32))
        scores = relevance.block(reference, captions, "paired")[0]
    order = np.lexsort((captions, -scores))[:k]
    return captions[order], scores[order]
