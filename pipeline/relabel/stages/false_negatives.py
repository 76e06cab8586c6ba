"""false-negatives: captions of other images that describe an image as well as people find right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import UsageError
from relabel.core.numeric.statistics import Vector
from relabel.core.tables import Table, html, to_pandas
from relabel.core.types import Rows, Scores
from relabel.corpus import Corpus, References
from relabel.export.base import ArtefactRef
from relabel.export.neighbours import COLUMNS, matrix
from relabel.judge.cxc_figures import NON_GT
from relabel.sources.relevance import Relevance
from relabel.stages.corpus import label_splits, open_corpus
from relabel.stages.encode import named_warnings, open_label
from relabel.stages.ingest import namespace
from relabel.stages.judged import judgement, open_scores
from relabel.stages.neighbours import neighbour_table
from relabel.stages.session import Session
from relabel.store.manifest import MANIFEST

PRECISION, HUMAN = 0.8, 4
"""Least share of the pairs at or above a threshold that people score `HUMAN` or more, of 5."""


_LISTED = 10  # pairs in a notebook


@dataclass(frozen=True)
class Threshold:
    """Least relevance of a false negative.

    `precision`: share of CxC's non-GT pairs of this relevance or more that people score `HUMAN` or more; None if it is
        not known.
    `judged`: number of these pairs.
    """

    relevance: float
    precision: float | None = None
    judged: int | None = None


# Of COCO after `relabel correlate --cxc --split val --label sbert,cider`, November 2026, rounded down, so that the same
# pairs reach them. Four digits of sbert's would add about ten pairs of COCO's test split.
SHIPPED = {"sbert": Threshold(0.8198199, 0.8005, 1323), "cider": Threshold(2.1432, 0.8, 165)}
"""Thresholds of sources with their default parameters."""


@dataclass(frozen=True, eq=False)
class FalseNegatives:
    """Pairs of an image and a caption of another image, by (-relevance, image, caption).

    `labels`: names; the first one has chosen the pairs.
    `rows`: captions of the split.
    `keys`: (P,) int64; the image's number times the number of captions of the corpus, plus the caption's row.
    `scores`: (P,) float64; relevance by the first label.
    `cut`: captions whose list of neighbours ends at or above the threshold, so that pairs may be missing.
    `warnings`: those of the captions and of the labels, each with the name of its dataset or label.
    """

    corpus: Corpus
    split: str
    labels: dict[str, Relevance]
    rows: range
    threshold: Threshold
    keys: NDArray[np.int64]
    scores: Scores
    cut: int
    warnings: Sequence[str]

    @property
    def described(self) -> int:
        """Number of captions that have at least one pair."""
        return len(np.unique(self.keys % len(self.corpus)))

    def summary(self) -> list[str]:
        """Return sentences about the number of pairs and the threshold."""
        total, limit, name = len(self.rows), self.threshold, next(iter(self.labels))
        share = f"{self.described:,} of {total:,} captions ({self.described / total:.1%}) describe another image, too"
        lines = [f"{self.split}: {share}"]
        lines += [f"{len(self.scores):,} pairs of such a caption and image: {name} is {limit.relevance:.4g} or more"]
        if limit.precision is not None:
            share = f"{limit.precision:.1%} have a human score of {HUMAN} to 5"
            lines += [f"of {limit.judged:,} such pairs that people judged (CxC val), {share}"]
        if self.cut:
            lines += [f"pairs may be missing: the neighbours of {self.cut:,} captions end above the threshold"]
        return lines

    def table(self, count: int) -> Table:
        """Return pairs at equal distances in the list: the first ones repeat a caption word for word."""
        step, (share, *notes) = max(1, len(self.keys) // count), self.summary()
        name = next(iter(self.labels))
        pairs = [*self.records(slice(step // 2, None, step))][:count]
        texts = ("own_caption", "caption")
        rows = [(f"{pair[name]:.3f}", *(" ".join(str(pair[text]).split()) for text in texts)) for pair in pairs]
        images = [("", str(pair["image_id"]), str(pair["caption_image_id"])) for pair in pairs]
        header = (name, "caption of the image that matches best", "caption of another image")
        return Table(share, header, tuple(rows), tuple(notes), tuple(images))

    def records(self, chosen: slice = slice(None)) -> Iterator[dict[str, str | float]]:
        """Yield the chosen pairs with ids, texts, and the score of every label.

        `own_caption` is the caption of the image that `caption` matches best, of those that the label compares.
        """
        corpus, pairs, (first, *others) = self.corpus, _sets(self.corpus, self.keys[chosen]), self.labels
        scores = {first: self.scores[chosen]} | {name: self.labels[name].pairs(*pairs) for name in others}
        shown = {name: values.round(4).tolist() for name, values in scores.items()}
        closest = _closest(self.labels[first], *pairs).tolist()
        for i, (own, row) in enumerate(zip(closest, pairs[1].tolist(), strict=True)):
            image, caption = corpus.caption(own), corpus.caption(row)
            texts = {"image_id": image.image_id, "own_caption_id": image.caption_id, "own_caption": image.text}
            texts |= {"caption_id": caption.caption_id, "caption_image_id": caption.image_id, "caption": caption.text}
            yield {name: values[i] for name, values in shown.items()} | texts

    def to_pandas(self) -> Any:
        """Return all pairs as a pandas.DataFrame, with the columns of the file of `--out`."""
        return to_pandas([*self.records()])

    def _repr_html_(self) -> str:
        return html(self.table(_LISTED))


def find_false_negatives(
    session: Session, labels: Sequence[str] = (), split: str | None = None, threshold: Threshold | None = None
) -> FalseNegatives:
    """Find the pairs of an image and another image's caption whose relevance reaches a threshold.

    The candidates of an image are the neighbours of its captions.

    `labels`: the first one chooses the pairs, and its neighbours must exist; by default, those of `export.labels` that
    have neighbours. `split`: None for `judge.split` of a benchmark, and the first split of other data. `threshold`:
    within the range of the label; None for the one that human scores give (see `find_threshold`).
    """
    split = label_splits(session, split)[0]
    names, corpus = list(labels) or _with_neighbours(session, split), open_corpus(session)
    rows, table = corpus.split_rows(split), ArtefactRef.of(neighbour_table(session, names[0], split, "captions"))
    limit = threshold or find_threshold(session, names[0])
    low, high = session.config.source(names[0]).spec.bounds
    if not low <= limit.relevance <= high:
        todo = f"Give --threshold from {low:g} to {high:g}."
        raise UsageError(f"the relevance of {names[0]} never reaches {limit.relevance:g}", where="threshold", todo=todo)
    # The split of the encoding that the neighbours are from: the split itself, or all.
    relevance = {name: open_label(session, name, table.manifest.metadata["split"]) for name in names}
    first, size = relevance[names[0]], len(corpus)
    ends = np.concatenate([matrix(near, "scores")[:, -1:] for near in table.tables(rows, ["scores"])])
    # A list of all other captions lacks none.
    cut = (ends >= limit.relevance).any(axis=1) & (int(table.manifest.metadata["width"]) < len(rows) - 1)
    # The relevance of an image is that of one of its captions, and exact lists that end below the limit have all
    # captions that reach it. Elsewhere, any neighbour may reach it.
    exact = session.config.source(names[0]).spec.kind == "vectors" and not table.manifest.config["index"]
    every = np.full(len(corpus.image_ids), not exact or first.pooling != "max")
    every[corpus.image[rows][cut]] = True
    found, worth = [np.empty(0, np.int64)], [np.empty(0)]
    with session.runtime.progress.bar("false negatives", len(rows), "captions") as bar:
        for near in table.tables(rows, COLUMNS):
            candidates, scores, same = (matrix(near, name) for name in COLUMNS)
            image = corpus.image[near["row"].to_numpy()].astype(np.int64)
            # One number per pair: several captions of an image may have a neighbour in common.
            possible = ~same & ((scores >= limit.relevance) | every[image][:, None])
            pairs = np.unique((image[:, None] * size + candidates)[possible])
            relevances = first.pairs(*_sets(corpus, pairs))
            reached = relevances >= limit.relevance
            found.append(pairs[reached])
            worth.append(relevances[reached])
            bar.advance(len(near))
    # The captions of an image may lie in two tables.
    keys, places = np.unique(np.concatenate(found), return_index=True)
    scores = np.concatenate(worth)[places]
    # Keys ascend by image and caption, the order of equal scores.
    order = np.argsort(-scores, kind="stable")
    named = named_warnings(session, names, table.manifest.metadata["split"])
    warnings = [f"{name}: {text}" for name, text in named]
    missing = int(cut.sum())
    return FalseNegatives(corpus, split, relevance, rows, limit, keys[order], scores[order], missing, warnings)


def find_threshold(session: Session, label: str) -> Threshold:
    """Return the threshold of a label: from its scores of CxC's val pairs if they exist, else as shipped.

    UsageError where neither is there, or human scores support none.
    """
    if namespace(session) == "coco":
        params = session.config.judge.model_copy(update={"split": "val"})
        val = replace(session, config=session.config.model_copy(update={"judge": params}))
        if "sits" in params.tasks and (judgement(val, label).out / MANIFEST).exists():
            pairs = open_scores(val, label).tasks["sits"]
            chosen = pairs.subset(NON_GT) & pairs.scored
            if found := least_relevance(pairs.relevance[chosen], pairs.human.score[chosen]):
                return found
    source = session.config.params(label)
    if source == type(source).model_validate({}) and source.source in SHIPPED:
        return SHIPPED[source.source]
    todo = f"Give --threshold. On COCO, `relabel correlate --cxc --split val --label {label}` makes the scores for one."
    raise UsageError(f"no threshold of {label} is known", todo=todo)


def least_relevance(relevance: Vector, human: NDArray[np.float64]) -> Threshold | None:
    """Return the least relevance at and above which the share of pairs that people score `HUMAN` is `PRECISION`.

    `relevance`, `human`: (P,) of judged pairs. Returns None if no relevance has that share.
    """
    order = np.argsort(-relevance, kind="stable")
    ranked, count = relevance[order], np.arange(1, len(order) + 1)
    precision = np.cumsum(human[order] >= HUMAN) / count
    # Pairs of equal relevance are above a threshold together.
    last = np.append(ranked[1:] < ranked[:-1], True)[: len(order)]
    passed = np.flatnonzero(last & (precision >= PRECISION))
    if not len(passed):
        return None
    return Threshold(float(ranked[passed[-1]]), float(precision[passed[-1]]), int(count[passed[-1]]))


def _sets(corpus: Corpus, keys: NDArray[np.int64]) -> tuple[References, Rows]:
    """Return the references of the image and the row of the caption of each pair."""
    return corpus.references(keys // len(corpus)), (keys % len(corpus)).astype(np.int32)


def _closest(relevance: Relevance, references: References, captions: Rows) -> Rows:
    """Return the reference of each set that scores highest against the caption alone, the first one of equal scores.

    A pooled score is of all references, and its first one may describe something else.
    """
    pair = np.repeat(np.arange(len(references)), np.diff(references.indptr))
    scores = relevance.pairs(References.single(references.rows), captions[pair], "first")
    order = np.lexsort((-np.nan_to_num(scores, nan=-np.inf), pair))
    return references.rows[order[references.indptr[:-1]]]


def _with_neighbours(session: Session, split: str) -> list[str]:
    """Return the labels of `export.labels` that have neighbours; the first one that could, if none has."""
    config = session.config
    able = [name for name in config.exported if config.source(name).supports("neighbours") is None]
    if not able:
        raise UsageError("no label of export.labels has neighbours", todo="Name one with --label.")
    made = [name for name in able if session.folder("neighbours", split, "captions", name, MANIFEST).exists()]
    return made or able[:1]
