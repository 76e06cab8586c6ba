"""Training data of `tune sbert`: the judged pairs of Crisscrossed Captions' val split, and pairs of sentences.

CxC (Parekh et al., EACL 2021): its val and test splits share no image. Nothing of test is read in this module.

The sentence pairs are the train splits of STS-B and SICK. Neither holds a caption of COCO. STS-B's caption pairs come
from Flickr30K, and SICK's sentences from Flickr8K, so a model that learned from them has seen texts of these datasets.

Batches, and folds to hold out, are groups of images that share many judged pairs, because a batch learns from the pairs
inside it alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relabel.core.errors import CheckError, MissingError
from relabel.core.numeric.statistics import pearson
from relabel.core.runtime import Runtime
from relabel.corpus import REFERENCES, Corpus
from relabel.datasets import fetch, locate
from relabel.datasets.cxc import METHODS, Task, human_scores, image_ids
from relabel.datasets.judged.sick import TRAIN_FILE, read_relatedness
from relabel.datasets.judged.stsb import FILES, read_stsb

SentenceSet = Literal["stsb", "sick"]
Numbers = NDArray[np.int64]

OTHER_IMAGES = "sits of other images"
_TASKS: tuple[Task, ...] = ("sts", "sits", "sis")
_EVALUATED: tuple[Task, ...] = ("sts", "sits")
_FILES: dict[SentenceSet, str] = {"stsb": FILES["train"], "sick": TRAIN_FILE}
_INGEST = "Ingest all of COCO: `relabel ingest --dataset coco`."
_BATCH_IMAGES = 64
_SHARE = 0.25  # of each set of sentence pairs in an epoch


@dataclass(frozen=True)
class Pairs:
    """P judged pairs.

    `left`, `right`: (P, A) and (P, B) int64; texts that stand for either side: a caption, or REFERENCES of an image.
    `score`: (P,) float64; human scores, 0..1.
    `images`: (P, 2) int64; image of either side, -1 for pairs of sentences.
    """

    left: Numbers
    right: Numbers
    score: NDArray[np.float64]
    images: Numbers

    def take(self, which: NDArray[Any]) -> Pairs:
        """Select pairs by a mask or by numbers."""
        return Pairs(self.left[which], self.right[which], self.score[which], self.images[which])


@dataclass(frozen=True)
class JudgedSet:
    """Captions of M images and other sentences, and the pairs of them that people have judged.

    `image`: (N,) int64; image of each caption. The first N texts are the captions, the others the sentences.
    `pairs`: by task, in the order of the human scores, and `OTHER_IMAGES`, a part of sits; by set of sentence pairs.
    `digest`: sha256 of the captions, with their ids and images.
    """

    texts: list[str]
    image: Numbers
    image_ids: list[str]
    pairs: dict[str, Pairs]
    digest: str


def read_judged_set(corpus: Corpus, sentences: Mapping[SentenceSet, Path]) -> JudgedSet:
    """Read the judged pairs of CxC's val images in a corpus, and those of files of sentence pairs."""
    ids = [f"coco:{number}" for number in image_ids("val")]
    if absent := [i for i in ids if i not in corpus.image_of]:
        message = f"the corpus has {len(ids) - len(absent):,} of the {len(ids):,} images of CxC's val split"
        raise MissingError(message, where=f"{absent[0]}, ...", todo=_INGEST)
    numbers = np.array(sorted(corpus.image_of[i] for i in ids), np.int64)
    sizes = np.diff(corpus.indptr)[numbers]
    if sizes.min() < REFERENCES:
        where = corpus.image_ids[numbers[int(sizes.argmin())]]
        raise CheckError(f"expected {REFERENCES} captions of an image, found {sizes.min()}", where=where)
    # Captions of an image are consecutive rows of the corpus.
    rows = np.concatenate([np.arange(corpus.indptr[m], corpus.indptr[m + 1]) for m in numbers])
    texts, image = [corpus.texts[r] for r in rows], np.repeat(np.arange(len(numbers)), sizes)
    caption_at = {corpus.caption_ids[r]: i for i, r in enumerate(rows)}
    image_at = {corpus.image_ids[m]: i for i, m in enumerate(numbers)}
    references = (np.cumsum(sizes) - sizes)[:, None] + np.arange(REFERENCES)

    def side(ids: Sequence[str]) -> tuple[Numbers, Numbers]:
        """Return the texts that stand for captions or images, and their images."""
        kind = caption_at if ids[0] in caption_at else image_at
        if unknown := next((i for i in ids if i not in kind), None):
            raise MissingError(f"the corpus lacks {unknown}, which people judged", todo=_INGEST)
        at = np.array([kind[i] for i in ids], np.int64)
        return (at[:, None], image[at]) if kind is caption_at else (references[at], at)

    pairs = dict[str, Pairs]()
    for task in _TASKS:
        human = human_scores(task, "val")
        (left, left_image), (right, right_image) = side(human.left), side(human.right)
        pairs[task] = Pairs(left, right, human.score / 5, np.stack([left_image, right_image], axis=1))
    pairs[OTHER_IMAGES] = pairs["sits"].take(np.not_equal(*pairs["sits"].images.T))
    digest = hashlib.sha256(json.dumps([list(caption_at), list(image_at), image.tolist(), texts]).encode()).hexdigest()
    for name, path in sentences.items():
        first, second, score = _read_sentence_pairs(name, path)
        # SICK repeats each sentence in several pairs; it is encoded once.
        at = {text: len(texts) + i for i, text in enumerate(dict.fromkeys(first + second))}
        texts += at
        a, b = (np.array([[at[text]] for text in side], np.int64) for side in (first, second))
        pairs[name] = Pairs(a, b, score, np.full((len(score), 2), -1))
    return JudgedSet(texts, image, list(image_at), pairs, digest)


def find_sentence_pairs(name: SentenceSet, runtime: Runtime) -> Path:
    """Return the train split of a set, fetched if it is missing."""
    try:
        # A file in a mirror or an installed package needs no download.
        return locate(name, _FILES[name], runtime.data)
    except MissingError:
        fetch(name, runtime.data, None, runtime.progress, [_FILES[name]])
    return locate(name, _FILES[name], runtime.data)


def _read_sentence_pairs(name: SentenceSet, path: Path) -> tuple[list[str], list[str], NDArray[np.float64]]:
    """Read both sides of a set and its scores. STS-B rates from 0 to 5 and SICK from 1 to 5; one loss takes 0 to 1."""
    if name == "stsb":
        rated = read_stsb(path)
        return [p.first for p in rated], [p.second for p in rated], np.array([p.score for p in rated]) / 5
    _, first, second, relatedness = read_relatedness(path)
    return first, second, (np.array(relatedness) - 1) / 4


def group_images(judged: JudgedSet, images: Numbers, size: int, rng: np.random.Generator) -> Numbers:
    """Divide images into groups of `size` that share many pairs; the last group may have fewer.

    A group grows one image at a time, always by the image with the largest share of its pairs inside the group.

    Returns (M,) int64: group of each image, -1 for those that are not in `images`.
    """
    from scipy.sparse import csr_array

    count = len(judged.image_ids)
    ends = np.concatenate([judged.pairs["sts"].images, judged.pairs[OTHER_IMAGES].images])
    a, b = np.concatenate([ends, ends[:, ::-1]]).T
    shared = csr_array((np.ones(len(a)), (a, b)), shape=(count, count))
    total = np.maximum(1, shared.sum(axis=1))
    free, group = np.isin(np.arange(count), images), np.full(count, -1)
    # Breaks ties, and draws the first image of each group.
    draw = rng.random(count) * 1e-6
    for number in range(-(-len(images) // size)):
        inside = np.zeros(count)
        for _ in range(min(size, int(free.sum()))):
            image = int(np.argmax(np.where(free, inside / total + draw, -1)))
            free[image], group[image] = False, number
            near = slice(shared.indptr[image], shared.indptr[image + 1])
            # Duplicate entries of the matrix were summed when it was made from coordinates.
            inside[shared.indices[near]] += shared.data[near]
    return group


def cut_folds(judged: JudgedSet, count: int, seed: int) -> Numbers:
    """Return the fold of each image, (M,) int64. Few pairs cross folds of CxC: 4% of STS's and 3% of SITS's with 3."""
    images = np.arange(len(judged.image_ids))
    return group_images(judged, images, -(-len(images) // count), np.random.default_rng([seed, count]))


class Term(NamedTuple):
    """Judged pairs of one kind in a batch, and their weight in the loss. Texts are positions in the batch's texts."""

    weight: float
    left: Numbers
    right: Numbers
    score: NDArray[np.float32]


class Batch(NamedTuple):
    """Texts and judged pairs of one training step; `texts`: (C,) int64, distinct."""

    texts: Numbers
    terms: list[Term]


def epoch_batches(
    judged: JudgedSet, weights: Mapping[str, float], images: Numbers, seed: int, epoch: int
) -> list[Batch]:
    """Return the batches of an epoch, from images in new groups, and a share of each set of sentence pairs.

    `weights`: by kind of pairs. `images`: images to learn from; no batch holds a pair with another image.
    """
    rng = np.random.default_rng([seed, epoch])
    group_of = group_images(judged, images, _BATCH_IMAGES, rng)
    count, of_pair = int(group_of.max()) + 1, dict[str, Numbers]()
    for name in weights:
        pairs = judged.pairs[name]
        if name in _FILES:
            draw = rng.permutation(len(pairs.score))
            of_pair[name] = np.where(draw < _SHARE * len(draw), draw % count, -1)
        else:
            # Pairs across two groups are left out, until an epoch that groups their images.
            left, right = group_of[pairs.images].T
            of_pair[name] = np.where(left == right, left, -1)
    return [
        _make_batch({name: (weights[name], judged.pairs[name].take(of_pair[name] == i)) for name in weights})
        for i in rng.permutation(count)
    ]


def _make_batch(parts: Mapping[str, tuple[float, Pairs]]) -> Batch:
    """Make a batch of the texts that its pairs need."""
    texts = np.unique(np.concatenate([side.ravel() for _, p in parts.values() for side in (p.left, p.right)]))
    terms = [
        Term(weight, np.searchsorted(texts, p.left), np.searchsorted(texts, p.right), p.score.astype(np.float32))
        for weight, p in parts.values()
    ]
    return Batch(texts, terms)


def cosine_table(judged: JudgedSet, vectors: NDArray[np.float32], fold: Numbers) -> pa.Table:
    """Score the pairs of captions and of caption and image whose images lie in one fold, in the human scores' order.

    `vectors`: (N, D); unit vectors of the captions. `fold`: (M,); fold of each image.

    Returns the table of `out_of_fold.parquet`. `left` and `right` are as in HumanScores. `max`, `second` (second
    largest) and `mean` pool over an image's references, which include the judged caption if the image is its own. The
    single cosine of an sts pair is all three.
    """
    tables = []
    for task in _EVALUATED:
        human, (left, right) = human_scores(task, "val"), fold[judged.pairs[task].images].T
        selected = np.flatnonzero(left == right)
        pairs = judged.pairs[task].take(selected)
        # In float64, as labels are scored; sorting gives the two largest.
        a, b = vectors[pairs.left[:, 0]].astype(np.float64), vectors[pairs.right].astype(np.float64)
        cosines = np.sort(np.einsum("pd,prd->pr", a, b), axis=1)
        columns = {
            "task": [task] * len(selected),
            "left": [human.left[i] for i in selected],
            "right": [human.right[i] for i in selected],
            "human": human.score[selected],
            "method": [human.method[i] for i in selected],
            "fold": left[selected],
            "max": cosines[:, -1],
            "second": cosines[:, max(-2, -cosines.shape[1])],
            "mean": cosines.mean(axis=1),
        }
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def correlations(table: pa.Table) -> dict[str, dict[str, Any]]:
    """Return Pearson's r with human scores per task, for all pairs and by sampling method, and the number of pairs."""
    results: dict[str, dict[str, Any]] = {}
    task, method = (np.array(table[name].to_pylist()) for name in ("task", "method"))
    cosine, human = table["max"].to_numpy(), table["human"].to_numpy()
    for name in _EVALUATED:
        parts = {"all": task == name} | {m: (task == name) & (method == m) for m in METHODS[name]}
        found = {part: pearson(cosine[mask], human[mask]) for part, mask in parts.items()}
        results[name] = {part: None if r is None or r != r else round(r, 4) for part, r in found.items()}
        results[name]["pairs"] = int(parts["all"].sum())
    return results
