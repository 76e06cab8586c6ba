"""false-negatives: finds captions of other images that people would probably accept for an image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import UsageError
from relabel.core.tables import Table, html, to_pandas
from relabel.core.types import Rows, Scores
from relabel.corpus import Corpus, References
from relabel.export.base import ArtefactRef
from relabel.export.neighbours import COLUMNS, matrix
from relabel.judge.calibration import RIGHT, STATED
from relabel.sources.relevance import Relevance
from relabel.stages.calibrate import need_calibration
from relabel.stages.corpus import label_splits, open_corpus
from relabel.stages.encode import named_warnings, open_label
from relabel.stages.neighbours import neighbour_table
from relabel.stages.session import Session
from relabel.store.manifest import MANIFEST

_LISTED = 10  # number of pairs shown in a notebook
_CHOSEN = "of pairs that the label itself selected, ECCV Caption confirms far fewer (docs/calibration.md)"


@dataclass(frozen=True, eq=False, repr=False)
class FalseNegatives:
    """Pairs of an image and a caption of another image, by (-relevance, image, caption).

    `labels`: names of labels; the first one selected the pairs.
    `rows`: rows of the captions of the split.
    `keys`: (P,) int64; the image's number times the number of captions of the corpus, plus the caption's row.
    `scores`: (P,) float64; relevance by the first label.
    `threshold`: minimum relevance. `probability`: probability of a human score of 4 or more at the threshold, by the
        first label's calibration. None if the caller set the relevance.
    `cut`: number of captions with lists of neighbours that end at or above the threshold: pairs may be missing.
    `warnings`: warnings of the captions and labels, each with the name of the dataset or label.
    """

    corpus: Corpus
    split: str
    labels: dict[str, Relevance]
    rows: range
    threshold: float
    probability: float | None
    keys: NDArray[np.int64]
    scores: Scores
    cut: int
    warnings: Sequence[str]

    def __repr__(self) -> str:
        return f"<FalseNegatives of {', '.join(self.labels)}: {'; '.join(self.summary()[:2])}>"

    @property
    def described(self) -> int:
        """Number of captions that have at least one pair."""
        return len(np.unique(self.keys % len(self.corpus)))

    def summary(self) -> list[str]:
        """Describe the number of pairs and the threshold in sentences."""
        total, name = len(self.rows), next(iter(self.labels))
        share = f"{self.described:,} of {total:,} captions ({self.described / total:.1%}) also describe another image"
        lines = [f"{self.split}: {share}"]
        lines += [f"{len(self.scores):,} pairs of a caption and another image, with {name} >= {self.threshold:.4g}"]
        if self.probability is not None:
            share = f"{self.probability:.0%} of judged pairs have a human score of {RIGHT} or more"
            lines += [f"at {self.threshold:.4g}, {share}"]
            lines += [_CHOSEN]
        if self.cut:
            lines += [f"pairs may be missing: all neighbours of {self.cut:,} captions are above the threshold"]
        return lines

    def table(self, count: int) -> Table:
        """Return evenly spaced pairs of the list, because the first ones repeat a caption word for word."""
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

        `own_caption` is the caption of the image that is closest to `caption`, among those that the label compares.
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
    session: Session,
    labels: Sequence[str] = (),
    split: str | None = None,
    probability: float | None = None,
    threshold: float | None = None,
) -> FalseNegatives:
    """Find pairs of an image and another image's caption with a relevance at or above a threshold.

    The candidates of an image are the neighbours of its captions.

    `labels`: the first one selects the pairs and must have neighbours; by default, the labels of `export.labels` with
    neighbours. `split`: by default, `judge.split` for a benchmark and the first split for other data. `probability`:
    minimum probability of a human score of 4 or more, by the first label's calibration; `STATED` by default.
    `threshold`: minimum relevance, in the range of the label, instead of a probability.
    """
    if threshold is not None and probability is not None:
        raise UsageError("probability and threshold are mutually exclusive", hint="Pass only one of them.")
    split = label_splits(session, split)[0]
    names, corpus = list(labels) or _with_neighbours(session, split), open_corpus(session)
    rows, table = corpus.split_rows(split), ArtefactRef.of(neighbour_table(session, names[0], split, "captions"))
    if threshold is None:
        probability = STATED if probability is None else probability
        threshold = find_threshold(session, names[0], probability)
    low, high = session.config.source(names[0]).spec.bounds
    if not low <= threshold <= high:
        hint = f"Pass --threshold from {low:g} to {high:g}."
        raise UsageError(f"the relevance of {names[0]} never reaches {threshold:g}", where="threshold", hint=hint)
    # Use the encoding from which the neighbours were computed, of the split itself or of all.
    relevance = {name: open_label(session, name, table.manifest.metadata["split"]) for name in names}
    first, size = relevance[names[0]], len(corpus)
    ends = np.concatenate([matrix(near, "scores")[:, -1:] for near in table.tables(rows, ["scores"])])
    # A list with all other captions is complete.
    cut = (ends >= threshold).any(axis=1) & (int(table.manifest.metadata["width"]) < len(rows) - 1)
    # If the relevance of an image is that of one of its captions, exact lists that end below the threshold contain all
    # captions that reach it. Otherwise, any neighbour may reach it.
    exact = session.config.source(names[0]).spec.kind == "vectors" and not table.manifest.config["index"]
    every = np.full(len(corpus.image_ids), not exact or first.pooling != "max")
    every[corpus.image[rows][cut]] = True
    key_chunks, score_chunks = [np.empty(0, np.int64)], [np.empty(0)]
    with session.runtime.progress.bar("false negatives", len(rows), "captions") as bar:
        for near in table.tables(rows, COLUMNS):
            candidates, scores, same = (matrix(near, name) for name in COLUMNS)
            image = corpus.image[near["row"].to_numpy()].astype(np.int64)
            # Keys identify pairs, because several captions of an image may share a neighbour.
            possible = ~same & ((scores >= threshold) | every[image][:, None])
            pairs = np.unique((image[:, None] * size + candidates)[possible])
            relevances = first.pairs(*_sets(corpus, pairs))
            reached = relevances >= threshold
            key_chunks.append(pairs[reached])
            score_chunks.append(relevances[reached])
            bar.advance(len(near))
    # The captions of an image may be in two tables.
    keys, places = np.unique(np.concatenate(key_chunks), return_index=True)
    scores = np.concatenate(score_chunks)[places]
    # Equal scores keep the order of the keys, by image and caption.
    order = np.argsort(-scores, kind="stable")
    named = named_warnings(session, names, table.manifest.metadata["split"])
    warnings = [f"{name}: {text}" for name, text in named]
    missing = int(cut.sum())
    ordered = keys[order], scores[order]
    return FalseNegatives(corpus, split, relevance, rows, threshold, probability, *ordered, missing, warnings)


def find_threshold(session: Session, label: str, probability: float = STATED) -> float:
    """Return the minimum relevance with at least this probability of a human score of 4 or more.

    It is the minimum of the label's range if every relevance has the probability; UsageError if no relevance has it.
    """
    curve = need_calibration(session, label).curve
    if (found := curve.threshold(probability)) is not None:
        return max(found, session.config.source(label).spec.bounds[0])
    highest = np.floor(100 * curve.probability[-1]) / 100
    problem = f"the calibration of {label} does not reach {probability:g}: its maximum is {highest:g}"
    raise UsageError(problem, where="probability", hint=f"Pass --probability up to {highest:g}.")


def _sets(corpus: Corpus, keys: NDArray[np.int64]) -> tuple[References, Rows]:
    """Return the references of the image and the row of the caption of each pair."""
    return corpus.references(keys // len(corpus)), (keys % len(corpus)).astype(np.int32)


def _closest(relevance: Relevance, references: References, captions: Rows) -> Rows:
    """Return the reference of each set with the maximum score as a single reference; the first one of equal scores.

    A pooled score depends on all references, and the first one may describe something else.
    """
    pair = np.repeat(np.arange(len(references)), np.diff(references.indptr))
    scores = relevance.pairs(References.single(references.rows), captions[pair], "first")
    order = np.lexsort((-np.nan_to_num(scores, nan=-np.inf), pair))
    return references.rows[order[references.indptr[:-1]]]


def _with_neighbours(session: Session, split: str) -> list[str]:
    """Return the labels of `export.labels` that have neighbours. If none has, return the first that supports them."""
    config = session.config
    able = [name for name in config.exported if config.source(name).supports("neighbours") is None]
    if not able:
        raise UsageError("no label of export.labels has neighbours", hint="Select one with --label.")
    existing = [name for name in able if session.folder("neighbours", split, "captions", name, MANIFEST).exists()]
    return existing or able[:1]
