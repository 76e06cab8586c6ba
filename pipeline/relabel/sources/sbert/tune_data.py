"""Training data of `tune sbert`: the judged pairs of Crisscrossed Captions' val split, and pairs of sentences.

The val and test splits of CxC (Parekh et al., EACL 2021) do not share images. This module does not read the test split.

The sentence pairs are the train splits of STS-B and SICK. They do not contain captions of COCO. STS-B's caption pairs
come from Flickr30K and SICK's sentences from Flickr8K, so a model trained on them has seen texts of these datasets.

Batches and folds are groups of images with many judged pairs between them, because only pairs inside a batch are used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relabel.core.errors import MissingError
from relabel.core.numeric.statistics import pearson
from relabel.core.runtime import Runtime
from relabel.corpus import REFERENCES, Corpus
from relabel.datasets import fetch
from relabel.datasets.cxc import METHODS, SIDES, Side, Task, human_scores
from relabel.datasets.evaluation_sets.sick import TRAIN_FILE, read_relatedness
from relabel.datasets.evaluation_sets.stsb import FILES, read_stsb
from relabel.sources.judged import find_judged

SentenceSet = Literal["stsb", "sick"]
Numbers = NDArray[np.int64]

OTHER_IMAGES = "sits of other images"
_TASKS: tuple[Task, ...] = ("sts", "sits", "sis")
_EVALUATED: tuple[Task, ...] = ("sts", "sits")
_FILES: dict[SentenceSet, str] = {"stsb": FILES["train"], "sick": TRAIN_FILE}
_INGEST = "Ingest all of COCO: `relabel ingest --dataset coco`."
_BATCH_IMAGES = 64
_SHARE = 0.25  # share of each set of sentence pairs per epoch


@dataclass(frozen=True)
class Pairs:
    """P judged pairs.

    `left`, `right`: (P, A) and (P, B) int64; texts of both sides: one caption, or REFERENCES captions of an image.
    `score`: (P,) float64; human scores, 0..1.
    `images`: (P, 2) int64; images of both sides, or -1 for pairs of sentences.
    """

    left: Numbers
    right: Numbers
    score: NDArray[np.float64]
    images: Numbers

    def take(self, index: NDArray[Any]) -> Pairs:
        """Select pairs by a mask or by numbers."""
        return Pairs(self.left[index], self.right[index], self.score[index], self.images[index])

    def among(self, texts: Numbers) -> Pairs:
        """Return the pairs with positions in `texts`, sorted numbers of texts, instead of numbers of texts."""
        return replace(self, left=np.searchsorted(texts, self.left), right=np.searchsorted(texts, self.right))

    def cosines(self, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the cosines of the left caption and each right text, (P, B). `vectors`: (N, D) unit vectors."""
        # In float64, as for labels.
        left, right = vectors[self.left[:, 0]].astype(np.float64), vectors[self.right].astype(np.float64)
        return np.asarray(np.einsum("pd,prd->pr", left, right))


@dataclass(frozen=True)
class JudgedPairs:
    """Captions of M images and other sentences, and their human-judged pairs.

    `image`: (N,) int64; image of each caption. The first N texts are the captions, the others are sentences.
    `pairs`: pairs of each task in the order of the human scores, `OTHER_IMAGES` (a subset of sits), and pairs of each
        set of sentence pairs.
    """

    texts: list[str]
    image: Numbers
    images: int
    pairs: dict[str, Pairs]


def read_judged_pairs(corpus: Corpus, sentences: Mapping[SentenceSet, Path]) -> JudgedPairs:
    """Read the judged pairs of CxC's val images, which are the val split of the corpus, and files of sentence pairs."""
    if "val" not in corpus.splits:
        raise MissingError("the corpus has no val split with judged captions", hint=_INGEST)
    rows, images = corpus.rows(("val",)), corpus.images(("val",))
    texts, image = corpus.texts[rows.start : rows.stop], corpus.image[rows.start : rows.stop] - np.int64(images.start)
    # Captions of an image are consecutive rows of the corpus.
    starts = corpus.indptr[images.start : images.stop + 1] - rows.start
    references = starts[:-1, None] + np.arange(REFERENCES)

    def side(kind: Side, judged: Numbers) -> tuple[Numbers, Numbers]:
        """Return the texts for captions or images, and their images."""
        if kind == "image":
            return references[judged - images.start], judged - images.start
        return judged[:, None] - rows.start, image[judged - rows.start]

    pairs = dict[str, Pairs]()
    for task in _TASKS:
        human = human_scores(task, "val")
        judged = (numbers.astype(np.int64) for numbers in find_judged(human, corpus))
        (left, left_image), (right, right_image) = map(side, SIDES[task], judged)
        pairs[task] = Pairs(left, right, human.score / 5, np.stack([left_image, right_image], axis=1))
    pairs[OTHER_IMAGES] = pairs["sits"].take(np.not_equal(*pairs["sits"].images.T))
    if (minimum := int(np.diff(starts).min())) < REFERENCES:
        raise MissingError(f"an image has only {minimum} of {REFERENCES} captions in the corpus", hint=_INGEST)
    for name, path in sentences.items():
        first, second, score = _read_sentence_pairs(name, path)
        # Number distinct sentences, because each sentence of SICK is in several pairs.
        at = {text: len(texts) + i for i, text in enumerate(dict.fromkeys(first + second))}
        texts += at
        a, b = (np.array([[at[text]] for text in side], np.int64) for side in (first, second))
        pairs[name] = Pairs(a, b, score, np.full((len(score), 2), -1))
    return JudgedPairs(texts, image, len(images), pairs)


def find_sentence_pairs(name: SentenceSet, runtime: Runtime) -> Path:
    """Return the path of the train split of a set. It is fetched if missing."""
    return fetch(name, runtime.data, None, runtime.progress, [_FILES[name]])[0]


def _read_sentence_pairs(name: SentenceSet, path: Path) -> tuple[list[str], list[str], NDArray[np.float64]]:
    """Read both sides of a set, and its scores mapped to 0..1: from 0..5 for STS-B, and from 1..5 for SICK."""
    if name == "stsb":
        rated = read_stsb(path)
        return [p.first for p in rated], [p.second for p in rated], np.array([p.score for p in rated]) / 5
    _, first, second, relatedness = read_relatedness(path)
    return first, second, (np.array(relatedness) - 1) / 4


def group_images(judged: JudgedPairs, images: Numbers, size: int, rng: np.random.Generator) -> Numbers:
    """Divide images into groups of `size` with many pairs inside the groups. The last group may be smaller.

    Images are added to a group one at a time: the image with the maximum share of its pairs inside the group.

    Returns (M,) int64: group of each image, or -1 for images that are not in `images`.
    """
    from scipy.sparse import csr_array

    count = judged.images
    ends = np.concatenate([judged.pairs["sts"].images, judged.pairs[OTHER_IMAGES].images])
    a, b = np.concatenate([ends, ends[:, ::-1]]).T
    shared = csr_array((np.ones(len(a)), (a, b)), shape=(count, count))
    total = np.maximum(1, shared.sum(axis=1))
    free, group = np.isin(np.arange(count), images), np.full(count, -1)
    # Random numbers break ties and select the first image of each group.
    draw = rng.random(count) * 1e-6
    for number in range(-(-len(images) // size)):
        inside = np.zeros(count)
        for _ in range(min(size, int(free.sum()))):
            image = int(np.argmax(np.where(free, inside / total + draw, -1)))
            free[image], group[image] = False, number
            near = slice(shared.indptr[image], shared.indptr[image + 1])
            # `csr_array` sums duplicate entries.
            inside[shared.indices[near]] += shared.data[near]
    return group


def cut_folds(judged: JudgedPairs, count: int, seed: int) -> Numbers:
    """Return the fold of each image, (M,) int64. With 3 folds, 4% of STS's and 3% of SITS's pairs are between folds."""
    images = np.arange(judged.images)
    return group_images(judged, images, -(-len(images) // count), np.random.default_rng([seed, count]))


class Batch(NamedTuple):
    """Texts and judged pairs of one training step.

    `texts`: (C,) int64, ascending. `pairs`: pairs by kind, with positions in `texts`.
    """

    texts: Numbers
    pairs: dict[str, Pairs]


def epoch_batches(judged: JudgedPairs, kinds: Collection[str], images: Numbers, seed: int, epoch: int) -> list[Batch]:
    """Return the batches of an epoch: new groups of images, with a share of each set of sentence pairs.

    `kinds`: kinds of pairs. `images`: images for training; pairs with other images are excluded.
    """
    rng = np.random.default_rng([seed, epoch])
    group_of = group_images(judged, images, _BATCH_IMAGES, rng)
    count, of_pair = int(group_of.max()) + 1, dict[str, Numbers]()
    for name in kinds:
        pairs = judged.pairs[name]
        if name in _FILES:
            draw = rng.permutation(len(pairs.score))
            of_pair[name] = np.where(draw < _SHARE * len(draw), draw % count, -1)
        else:
            # Exclude pairs between two groups. In another epoch, their images may be in one group.
            left, right = group_of[pairs.images].T
            of_pair[name] = np.where(left == right, left, -1)
    batches = []
    for i in rng.permutation(count):
        selected = {name: judged.pairs[name].take(of_pair[name] == i) for name in kinds}
        texts = texts_of(selected.values())
        batches.append(Batch(texts, {name: pairs.among(texts) for name, pairs in selected.items()}))
    return batches


def texts_of(pairs: Iterable[Pairs]) -> Numbers:
    """Return the sorted distinct texts of pairs."""
    return np.unique(np.concatenate([side.ravel() for group in pairs for side in (group.left, group.right)]))


def cosine_table(judged: JudgedPairs, vectors: NDArray[np.float32], fold: Numbers) -> pa.Table:
    """Score the pairs of STS and SITS that have both images in one fold, in the order of the human scores.

    `vectors`: (N, D); unit vectors of the captions. `fold`: (M,); fold of each image.

    Returns the table of `out_of_fold.parquet`. `left` and `right` are as in HumanScores. `max` and `mean` pool over the
    references of an image, including the judged caption if it belongs to the image.
    """
    tables = []
    for task in _EVALUATED:
        human, pairs = human_scores(task, "val"), judged.pairs[task]
        cosines, (left, right) = pairs.cosines(vectors), fold[pairs.images].T
        columns = {
            "task": [task] * len(left),
            "left": human.left,
            "right": human.right,
            "human": human.score,
            "method": human.method,
            "fold": left,
            "max": cosines.max(axis=1),
            "mean": cosines.mean(axis=1),
        }
        tables.append(pa.table(columns).filter(pa.array(left == right)))
    return pa.concat_tables(tables)


def correlations(table: pa.Table) -> dict[str, dict[str, float | None]]:
    """Return Pearson's r with human scores per task, for all pairs and by sampling method; None if undefined."""
    method, results = np.array(table["method"].to_pylist()), dict[str, dict[str, float | None]]()
    cosine, human = table["max"].to_numpy(), table["human"].to_numpy()
    for task in _EVALUATED:
        masks = {"all": np.isin(method, METHODS[task])} | {name: method == name for name in METHODS[task]}
        values = {name: pearson(cosine[mask], human[mask]) for name, mask in masks.items()}
        results[task] = {name: None if r is None else round(r, 4) for name, r in values.items()}
    return results
