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


class NotEncodedError(MissingError):
    """A label without an encoding of the searched split."""


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
    with; all if empty. `k`: number of results per label. `split`: split whose captions are searched; None for the only
    split of the corpus, else the test split. Returns `query`: the text of the query; `left_out`, list of (str,
    RelabelError): labels that cannot answer, each with the reason.
    """
    # PTB tokens and positions are for encoding.
    project = replace(project, columns=("caption_id", "image_id", "image", "split", "text"))
    split = project.choose_split(split, "test", labels)
    names = list(labels) or list(project.config.sources)
    if not labels and not any(project.layout.encoding(split, label).exists() for label in names):
        where = str(project.layout.encoding(split))
        raise MissingError("nothing is encoded", where=where, todo=f"Run {project.command('encode', split=split)}.")
    opened, chosen = dict[str, Relevance](), dict[str, Relevance]()
    left_out: list[tuple[str, RelabelError]] = []
    for label in names:
        try:
            _check_search(project, label, split, is_text=text is not None, named=bool(labels))
            chosen[label] = open_label(project, label, split, opened=opened)
        except RelabelError as error:
            left_out.append((label, error))
    if not chosen:
        raise left_out[0][1]
    # All labels encode the same rows of the corpus, so any of them can check the id.
    first = next(iter(chosen.values()))
    query: str | int = text if text is not None else project.corpus.find_row(str(caption_id), first.rows)
    hits = {}
    for label, relevance in chosen.items():
        gate = None
        # To score every caption of a split pair by pair would take hours.
        if project.config.source(label).is_pairwise():
            try:
                gate = _open_gate(project, label, opened, split, text is not None), project.config.judge.gate_top
            except RelabelError as error:
                left_out.append((label, error))
                continue
        hits[label] = nearest(relevance, query, k, gate)
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


def _check_search(project: Project, label: str, split: str, is_text: bool, named: bool) -> None:
    """Raise if a label cannot rank captions for a query, or ranks them usefully only if the user names it."""
    if not named and project.config.source(label).spec.baseline:
        message = "it knows image ids only and lists the captions of the image in the order of the corpus"
        raise UsageError(message, todo=f"Name it with --label {label}.")
    if is_text and (reason := _text_obstacle(project, label)) is not None:
        raise UsageError(f"{label} cannot score a new text: {reason}", todo="Search by id: --id ID.")
    folder = project.layout.encoding(split, label)
    # Before the source is prepared, which may hash the files of a model.
    if not folder.exists():
        todo = f"Run {project.command('encode', label=label, split=split)}."
        raise NotEncodedError("not encoded", where=str(folder), todo=todo)


def _text_obstacle(project: Project, label: str) -> str | None:
    """Return the reason why a label, or any of its parts, cannot score a new text; None if it can."""
    source = project.config.source(label)
    reasons = (source.supports("query"), *(_text_obstacle(project, part) for part in source.input_labels()))
    return next((reason for reason in reasons if reason is not None), None)


def _open_gate(project: Project, label: str, opened: dict[str, Relevance], split: str, is_text: bool) -> Relevance:
    """Open the label that selects candidates for a source that scores pair by pair.

    This is `judge.gate`, else the last encoded label that scores fast and, for a text, can score texts.
    """
    fast = [name for name in project.config.sources if project.config.source(name).spec.fast]
    fast = [name for name in fast if not is_text or _text_obstacle(project, name) is None]
    encoded = [name for name in fast if name in opened or project.layout.encoding(split, name).exists()]
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
