"""Training data of `tune sbert`: the judged pairs of Crisscrossed Captions' val split, and pairs of sentences.

Cosines of the judged pairs by a tuned model, pooled as labels are, are correlated with the human scores.

CxC (Parekh et al., EACL 2021): its val and test splits share no image. Nothing of test is read in this module.

The sentence pairs are the train splits of STS-B and SICK. Neither holds a caption of COCO. STS-B's caption pairs come
from Flickr30K, and SICK's sentences from Flickr8K, so a model that learned from them has seen texts of these datasets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relabel.core.errors import CheckError, MissingError
from relabel.core.numeric.statistics import pearson
from relabel.core.runtime import ProgressBar, Runtime
from relabel.corpus import REFERENCES, Corpus
from relabel.datasets import fetch, locate
from relabel.datasets.cxc import METHODS, TASKS, HumanScores, human_scores, image_ids
from relabel.datasets.judged.sick import TRAIN_FILE, read_relatedness
from relabel.datasets.judged.stsb import FILES, read_stsb
from relabel.store.files import sha256_file

Numbers = NDArray[np.int64]
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Pairs:
    """P judged pairs of one task.

    `left`, `right`: (P,) int64; for sts, two captions; for sits, a caption and an image; for sis, two images. Numbers
        within a `JudgedSet`.
    `score`: (P,) float64; human score, CxC's 0..5 divided by 5.
    `images`: (P, 2) int64; image of either side.
    """

    left: Numbers
    right: Numbers
    score: Scores
    images: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.left)

    def take(self, which: NDArray[Any]) -> Pairs:
        """Select pairs by a mask or by numbers."""
        return Pairs(self.left[which], self.right[which], self.score[which], self.images[which])


class SentencePairs(NamedTuple):
    """P judged pairs of sentences.

    `texts`: (P, 2) int64; numbers of both texts within a `JudgedSet`.
    `score`: (P,) float64; human scores, 0..1.
    """

    texts: NDArray[np.int64]
    score: Scores

    def take(self, which: Numbers) -> SentencePairs:
        """Select pairs by number."""
        return SentencePairs(self.texts[which], self.score[which])


@dataclass(frozen=True)
class JudgedSet:
    """N captions of M images and the pairs of them that people have judged, and judged pairs of other sentences.

    `texts`: the captions, then the other sentences.
    `image`: (N,) int64; image of each caption, ascending.
    `references`: (M, REFERENCES) int64; captions that represent an image.
    `sts`, `sits`, `sis`: in the order of the human scores.
    `digest`: sha256 of ids and captions.
    `sentences`: one element per set of sentence pairs.
    """

    texts: list[str]
    image: Numbers
    references: NDArray[np.int64]
    image_ids: list[str]
    sts: Pairs
    sits: Pairs
    sis: Pairs
    digest: str
    sentences: tuple[SentencePairs, ...] = ()


def read_judged_set(corpus: Corpus, sentences: Sequence[SentenceSet] = ()) -> JudgedSet:
    """Return the captions of CxC's val images in a corpus, and their judged pairs, with sets of other sentences."""
    ids = [f"coco:{number}" for number in image_ids("val")]
    absent = [i for i in ids if i not in corpus.image_of]
    if absent:
        message = f"the corpus has {len(ids) - len(absent):,} of the {len(ids):,} images of CxC's val split"
        raise MissingError(message, where=f"{absent[0]}, ...", todo=_INGEST)
    numbers = np.array(sorted(corpus.image_of[i] for i in ids), np.int64)
    starts, sizes = corpus.indptr[numbers], np.diff(corpus.indptr)[numbers]
    if sizes.min() < REFERENCES:
        where = corpus.image_ids[numbers[int(sizes.argmin())]]
        raise CheckError(f"expected {REFERENCES} captions of an image, found {sizes.min()}", where=where)
    # Captions of an image are consecutive rows of the corpus.
    rows = np.concatenate([np.arange(a, a + n) for a, n in zip(starts, sizes, strict=True)])
    first = np.cumsum(sizes) - sizes
    captions = {corpus.caption_ids[r]: i for i, r in enumerate(rows)}
    images = {corpus.image_ids[m]: i for i, m in enumerate(numbers)}
    image = np.repeat(np.arange(len(numbers)), sizes)
    texts = [corpus.texts[r] for r in rows]
    lines = json.dumps([list(captions), list(images), image.tolist(), texts])
    number_of, pairs = _number_sentences(sentences, len(texts))
    return JudgedSet(
        [*texts, *number_of],
        image,
        first[:, None] + np.arange(REFERENCES),
        list(images),
        _pairs(human_scores("sts", "val"), captions, captions, image, image),
        _pairs(human_scores("sits", "val"), captions, images, image, np.arange(len(numbers))),
        _pairs(human_scores("sis", "val"), images, images, np.arange(len(numbers)), np.arange(len(numbers))),
        hashlib.sha256(lines.encode()).hexdigest(),
        pairs,
    )


def _number_sentences(sets: Sequence[SentenceSet], start: int) -> tuple[dict[str, int], tuple[SentencePairs, ...]]:
    """Number the distinct sentences of some sets from `start`, and return their pairs by number."""
    # SICK repeats each sentence in several pairs; it is encoded once.
    distinct = dict.fromkeys(text for one in sets for text in (*one.first, *one.second))
    number_of = {text: start + i for i, text in enumerate(distinct)}
    sides = ([[number_of[text] for text in side] for side in (one.first, one.second)] for one in sets)
    return number_of, tuple(
        SentencePairs(np.array(numbers, np.int64).T, one.score) for numbers, one in zip(sides, sets, strict=True)
    )


def _pairs(
    human: HumanScores, left: dict[str, int], right: dict[str, int], left_image: Numbers, right_image: Numbers
) -> Pairs:
    """Return the human scores of one task as pairs of numbers."""
    try:
        first = np.array([left[i] for i in human.left], np.int64)
        second = np.array([right[i] for i in human.right], np.int64)
    except KeyError as error:
        raise MissingError(f"the corpus lacks {error.args[0]}, which people judged", todo=_INGEST) from None
    return Pairs(
        first,
        second,
        human.score / 5,
        np.stack([left_image[first], right_image[second]], axis=1),
    )


_INGEST = "Ingest all of COCO: `relabel ingest --dataset coco`."
SentenceSetName = Literal["stsb", "sick"]
_FILE: dict[SentenceSetName, str] = {"stsb": FILES["train"], "sick": TRAIN_FILE}


@dataclass(frozen=True, eq=False)
class SentenceSet:
    """P sentence pairs with human scores.

    `score`: (P,) float64; human scores, 0..1.
    `sha256`: sha256 of the file.
    """

    name: SentenceSetName
    first: list[str]
    second: list[str]
    score: NDArray[np.float64]
    sha256: str


def read_sentence_sets(names: Sequence[SentenceSetName], runtime: Runtime) -> list[SentenceSet]:
    """Read the train splits of some sets, after fetching the files that are missing."""
    return [_read(name, _find(name, runtime)) for name in names]


def _find(name: SentenceSetName, runtime: Runtime) -> Path:
    """Return the file of a set, fetched if it is missing."""
    try:
        # A file in a mirror or an installed package needs no download.
        return locate(name, _FILE[name], runtime.data)
    except MissingError:
        fetch(name, runtime.data, None, runtime.progress, [_FILE[name]])
    return locate(name, _FILE[name], runtime.data)


def _read(name: SentenceSetName, path: Path) -> SentenceSet:
    """Read the file of a set, with scores mapped to 0..1."""
    if name == "stsb":
        # STS-B rates from 0 to 5 and SICK from 1 to 5. One loss takes both, from 0 to 1.
        pairs = read_stsb(path)
        first, second = [p.first for p in pairs], [p.second for p in pairs]
        score = np.array([p.score for p in pairs]) / 5
    else:
        _, first, second, relatedness = read_relatedness(path)
        score = (np.array(relatedness) - 1) / 4
    return SentenceSet(name, first, second, score, sha256_file(path))


COLUMNS = ("max", "second", "mean")
SCHEMA = pa.schema(
    [
        pa.field("task", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("left", pa.string(), nullable=False),
        pa.field("right", pa.string(), nullable=False),
        pa.field("human", pa.float64(), nullable=False),
        pa.field("method", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("fold", pa.int32(), nullable=False),
        *(pa.field(name, pa.float64(), nullable=False) for name in COLUMNS),
    ]
)
"""Columns of `out_of_fold.parquet`. `left` and `right` are as in HumanScores. `max`, `second` (second largest) and
`mean` pool over an image's references, which include the judged caption if the image is its own. The single cosine of
an sts pair is all three."""


def encode(
    folder: Path, judged: JudgedSet, captions: NDArray[np.int64], runtime: Runtime, bar: ProgressBar
) -> NDArray[Any]:
    """Encode some of the captions as the source `sbert` does.

    `folder`: folder of the model. `captions`: (n,) int64. `bar`: progress bar that counts captions. Returns (N, D)
    float32: task vectors; NaN for captions that are not in `captions`.
    """
    from relabel.sources.models.encoder import SentenceEncoder

    encoder = SentenceEncoder(folder, None, None, "float32", runtime)
    out = np.full((len(judged.texts), encoder.width), np.nan, np.float32)
    out[captions] = encoder.encode([judged.texts[i] for i in captions], bar.advance).vectors
    return out


def cosine_table(judged: JudgedSet, vectors: NDArray[Any], fold: NDArray[np.int32], folds: list[int]) -> pa.Table:
    """Score the pairs whose two images lie in the same fold.

    `vectors`: (N, D) float32; vectors of at least the captions of these folds. `fold`: (M,) int32; fold of each image.
    `folds`: folds to score. Returns pyarrow.Table: with SCHEMA, in the order of the human scores.
    """
    tables = []
    for task in ("sts", "sits"):
        human, pairs = human_scores(task, "val"), getattr(judged, task)
        left, right = fold[pairs.images].T
        selected = np.flatnonzero((left == right) & np.isin(left, folds))
        chosen = pairs.take(selected)
        a = vectors[chosen.left].astype(np.float64)
        references = chosen.right[:, None] if task == "sts" else judged.references[chosen.right]
        # In float64, as labels are scored; sorting gives the two largest.
        cosines = np.sort(np.einsum("pd,prd->pr", a, vectors[references].astype(np.float64)), axis=1)
        pooled = cosines[:, -1], cosines[:, max(-2, -cosines.shape[1])], cosines.mean(axis=1)
        tables.append(_table(human, selected, left[selected], dict(zip(COLUMNS, pooled, strict=True))))
    return pa.concat_tables(tables).unify_dictionaries()


def _table(human: HumanScores, selected: NDArray[np.int64], fold: NDArray[Any], pooled: dict[str, Any]) -> pa.Table:
    """Return the selected human scores with their folds and pooled cosines."""
    columns = {
        "task": pa.array([human.task] * len(selected)).dictionary_encode(),
        "left": [human.left[i] for i in selected],
        "right": [human.right[i] for i in selected],
        "human": human.score[selected],
        "method": pa.array([human.method[i] for i in selected], pa.string()).dictionary_encode(),
        "fold": fold.astype(np.int32),
    }
    return pa.table(columns | pooled, schema=SCHEMA)


def sort_pairs(table: pa.Table) -> pa.Table:
    """Sort rows into the order of the human scores, sts before sits."""
    rank = {
        (task, *pair): i
        for task in ("sts", "sits")
        for i, pair in enumerate(zip(*_ids(human_scores(task, "val")), strict=True))
    }
    keys = zip(*(table[name].to_pylist() for name in ("task", "left", "right")), strict=True)
    # All sts pairs come first: 10**9 exceeds the number of pairs of a task.
    return table.take(np.argsort([(key[0] == "sits") * 10**9 + rank[key] for key in keys], kind="stable"))


def _ids(human: HumanScores) -> tuple[list[str], list[str]]:
    """Return the ids of both sides of all pairs."""
    return human.left, human.right


def correlations(table: pa.Table) -> dict[str, dict[str, Any]]:
    """Return Pearson's r with human scores per task, for all pairs and by sampling method, and the number of pairs."""
    results: dict[str, dict[str, Any]] = {}
    task, method = (np.array(table[name].to_pylist()) for name in ("task", "method"))
    cosine, human = table["max"].to_numpy(), table["human"].to_numpy()
    for name in TASKS:
        if name in task:
            parts = {"all": task == name} | {m: (task == name) & (method == m) for m in METHODS[name]}
            results[name] = {part: _rounded(pearson(cosine[mask], human[mask])) for part, mask in parts.items()}
            results[name]["pairs"] = int(parts["all"].sum())
    return results


def _rounded(r: float | None) -> float | None:
    """Round to four digits; None stays None, and NaN becomes None."""
    return None if r is None or r != r else round(r, 4)
