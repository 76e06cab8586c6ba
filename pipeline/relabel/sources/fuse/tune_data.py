"""Training data of `tune fuse`: judged pairs, captions with altered copies, and the features of parts for both.

The judged pairs are of CxC's val split, and features follow the protocol of evaluation.

SITS compares a caption with the first five captions of an image, which may include itself. STS compares a caption with
another one as its only reference, in both directions. `relabel.judge.cxc` implements the same protocol.

A caption and its altered copy have nearly the same words and another meaning. CxC has next to no such pairs, so a fit
to its scores alone takes shared words for shared meaning. A copy exchanges two
modifiers or two nouns of a caption, or replaces a modifier, a noun or a relation. Patterns of English captions find
these words; no parser is needed. After Hsieh et al., "SugarCrepe", NeurIPS 2023, whose captions are of COCO's val2017:
copies are made from train2014, which shares no image with it.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.errors import CheckError, UsageError
from relabel.core.runtime import Progress, Runtime
from relabel.core.types import Rows, Scores
from relabel.corpus import Corpus, References
from relabel.corpus.readers.coco import FILES, read_coco
from relabel.datasets import locate
from relabel.datasets.cxc import HumanScores, human_scores
from relabel.sources.base import Source
from relabel.sources.fuse.features import SINGLE_POOLINGS, Feature, FeaturePooling, pair_features
from relabel.sources.relevance import Relevance

Task = Literal["sits", "sts"]
TASKS: tuple[Task, ...] = ("sits", "sts")
OUT_OF_FOLD = "out_of_fold.parquet"
"""File in the folder of a model that was tuned on val: predictions by models that had not seen a pair's images."""
_STEP = 2048  # pairs between two updates of the progress bar


@dataclass(frozen=True, eq=False)
class JudgedPairs:
    """Judged pairs of one task.

    `left`, `right`: (P,) int32; rows of captions; the right sides of SITS are numbers of images.
    `images`: (P, 2) int32; images of both sides.
    """

    task: Task
    human: HumanScores
    corpus: Corpus
    left: Rows
    right: Rows

    @classmethod
    def of(cls, task: Task, corpus: Corpus) -> JudgedPairs:
        """Find the pairs of val in a corpus."""
        human = human_scores(task, "val")
        right_of = corpus.image_of if task == "sits" else corpus.row_of
        try:
            left = [corpus.row_of[i] for i in human.left]
            right = [right_of[i] for i in human.right]
        except KeyError as error:
            message = f"the corpus lacks {error.args[0]}, which has human scores"
            raise CheckError(message, todo="Ingest COCO's captions with Karpathy's val split.") from error
        return cls(task, human, corpus, np.array(left, np.int32), np.array(right, np.int32))

    @cached_property
    def images(self) -> NDArray[np.int32]:
        """Images of both sides of each pair, (P, 2) int32."""
        image = self.corpus.image
        return np.stack([image[self.left], self.right if self.task == "sits" else image[self.right]], axis=1)

    @property
    def directions(self) -> list[tuple[References, Rows]]:
        """Reference sets and captions to score: one direction for SITS, both for STS."""
        if self.task == "sits":
            return [(self.corpus.references(self.right), self.left)]
        return [(References.single(a), b) for a, b in ((self.left, self.right), (self.right, self.left))]

    def table(
        self, label: str, relevance: Relevance, poolings: Sequence[FeaturePooling], progress: Progress
    ) -> pa.Table:
        """Compute the features of a part: one column per pooling and direction (`max 0`), one row per pair."""
        features = [Feature(label, pooling) for pooling in poolings]
        columns: dict[str, Scores] = {}
        title = f"{label}, {self.task} val"
        with progress.bar(title, len(self.left) * len(self.directions), "pairs") as bar:
            for direction, (references, captions) in enumerate(self.directions):
                pieces = []
                for a in range(0, len(captions), _STEP):
                    batch = np.arange(a, min(a + _STEP, len(captions)))
                    pieces.append(pair_features({label: relevance}, features, references.take(batch), captions[batch]))
                    bar.advance(len(batch))
                columns |= {
                    f"{f.pooling} {direction}": v for f, v in zip(features, np.concatenate(pieces).T, strict=True)
                }
        return pa.table(columns)

    def out_of_fold(self, path: Path, poolings: Sequence[FeaturePooling]) -> pa.Table:
        """Read the features of a part that was itself tuned on val; NaN for pairs between folds."""
        table = pq.read_table(path)
        if missing := {"task", "left", "right", *poolings} - set(table.column_names):
            raise CheckError(f"no column {', '.join(sorted(missing))}", where=str(path), todo="Tune the model again.")
        names = ("task", "left", "right")
        keys = zip(*(table[name].cast(pa.string()).to_pylist() for name in names), strict=True)
        row_of = {key: i for i, key in enumerate(keys)}
        pairs = ((self.task, a, b) for a, b in zip(self.human.left, self.human.right, strict=True))
        at = np.fromiter((row_of.get(key, -1) for key in pairs), np.int64, len(self.left))
        if (at < 0).all():
            raise CheckError(f"no judged pair of {self.task} val", where=str(path), todo="Tune the model again.")
        # Both directions get the same columns: such a file has one prediction per pair.
        columns = {pooling: np.where(at < 0, np.nan, table[pooling].to_numpy()[at]) for pooling in poolings}
        return pa.table(
            {
                f"{pooling} {direction}": columns[pooling]
                for direction in range(len(self.directions))
                for pooling in poolings
            }
        )


def poolings_of(source: Source[Any], task: Task) -> tuple[FeaturePooling, ...]:
    """Return the poolings of a part's features."""
    # A single reference has one score under every pooling. A source that scores the set itself is read by that score in
    # place of the mean, and by nothing else if it scores pair by pair, which is slow.
    if task == "sts":
        return ("max",)
    if "refs" in source.spec.refused_poolings:
        return SINGLE_POOLINGS
    return ("refs",) if source.is_pairwise() else ("refs", "max", "second")


def read_features(table: pa.Table, poolings: Sequence[FeaturePooling], directions: int) -> Scores:
    """Read a table of `JudgedPairs.table` as an array, (directions, P, len(poolings)) float64."""
    return np.stack(
        [
            np.stack([table[f"{pooling} {direction}"].to_numpy() for pooling in poolings], axis=1)
            for direction in range(directions)
        ]
    )


WordClass = Literal["modifier", "count", "noun", "relation", "activity"]


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_COUNTS = _word_set("two three four five six seven eight several many")
_DETERMINERS = _COUNTS | _word_set("a an the his her their its some this that another one")
_RELATIONS = _word_set("on in under behind near above beside over below around inside outside")
_FUNCTION_WORDS = _DETERMINERS | _word_set(
    "and or of at to with by for from into onto next through across along between while is are was were be being been "
    "has have had it which who as up down out off front top side back there very he she they few"
)
_LEXICON_CAPTIONS = 20_000  # captions whose words are counted
_REPLACEMENTS = 150  # most frequent words of a class, which replace others


class AlteredCopy(NamedTuple):
    """Caption and its altered copy, both in lower case."""

    caption: str
    copy: str


def read_train_captions(runtime: Runtime) -> list[str]:
    """Read the captions of COCO's train2014."""
    path = locate("coco-captions", FILES[0], runtime.data)
    return [caption.text for caption in read_coco([path], lambda _, images: dict.fromkeys(images.tolist(), "train"))]


def alter_captions(captions: Sequence[str], count: int, seed: int) -> list[AlteredCopy]:
    """Alter `count` captions, drawn without replacement; the kinds of change are as frequent as possible."""
    generator = random.Random(seed)
    shuffled = generator.sample(captions, len(captions))
    lexicon = _count_words(shuffled[:_LEXICON_CAPTIONS])
    changes: list[Callable[[list[str], list[WordClass | None]], list[str] | None]] = [
        lambda words, classes: _exchange(words, classes, ("modifier", "count"), generator),
        lambda words, classes: _exchange(words, classes, ("noun",), generator),
        lambda words, classes: _replace(words, classes, ("modifier", "count"), lexicon, generator),
        lambda words, classes: _replace(words, classes, ("noun",), lexicon, generator),
        lambda words, classes: _replace(words, classes, ("relation", "activity"), lexicon, generator),
    ]
    copies_per_change = [0] * len(changes)
    copies: list[AlteredCopy] = []
    for caption in shuffled:
        if len(copies) == count:
            break
        words = _split_words(caption)
        classes = classify_words(words)
        # The rarest kind that fits the caption is made, because exchanges need two words of one class.
        for kind in sorted(range(len(changes)), key=copies_per_change.__getitem__):
            if (altered := changes[kind](words, classes)) is not None:
                copies.append(AlteredCopy(_join_words(words), _join_words(altered)))
                copies_per_change[kind] += 1
                break
    if len(copies) < count:
        message = f"{len(copies):,} of {len(captions):,} captions can be altered, and {count:,} are needed"
        raise UsageError(message, where="tune.fuse.altered", todo="Set it to a smaller number.")
    return copies


def classify_words(words: Sequence[str]) -> list[WordClass | None]:
    """Assign the words of a caption to classes by their neighbours; None for all others."""
    classes: list[WordClass | None] = [None] * len(words)
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else ""
        if word in _RELATIONS:
            classes[i] = "relation"
        elif word in _COUNTS:
            classes[i] = "count"
        elif word in _FUNCTION_WORDS or not word.isalpha():
            continue
        elif _is_activity(word):
            classes[i] = "activity"
        elif i and (words[i - 1] in _DETERMINERS or classes[i - 1] == "modifier"):
            # A noun ends its phrase; a word between determiner and noun modifies it.
            ends = following in _FUNCTION_WORDS | _RELATIONS or not following.isalpha() or _is_activity(following)
            classes[i] = "noun" if ends else "modifier"
    return classes


def _is_activity(word: str) -> bool:
    return len(word) > 5 and word.endswith("ing")


def _exchange(
    words: list[str], classes: list[WordClass | None], kinds: Sequence[WordClass], generator: random.Random
) -> list[str] | None:
    """Exchange two different words of one class; None if there are none."""
    places = [
        pair
        for kind in kinds
        for pair in combinations([i for i, one in enumerate(classes) if one == kind], 2)
        if words[pair[0]] != words[pair[1]]
    ]
    if not places:
        return None
    i, j = generator.choice(places)
    altered = list(words)
    altered[i], altered[j] = words[j], words[i]
    return altered


def _replace(
    words: list[str],
    classes: list[WordClass | None],
    kinds: Sequence[WordClass],
    lexicon: dict[WordClass, list[str]],
    generator: random.Random,
) -> list[str] | None:
    """Replace a word by a frequent one of its class; None if there is none."""
    places = [
        (i, kind)
        for i, one in enumerate(classes)
        for kind in kinds
        if kind == one and set(lexicon.get(kind, ())) - {words[i]}
    ]
    if not places:
        return None
    i, kind = generator.choice(places)
    altered = list(words)
    altered[i] = generator.choice([word for word in lexicon[kind] if word != words[i]])
    return altered


def _count_words(captions: Sequence[str]) -> dict[WordClass, list[str]]:
    """Return the most frequent words of each class."""
    counts: dict[WordClass, Counter[str]] = {}
    for caption in captions:
        words = _split_words(caption)
        for word, one in zip(words, classify_words(words), strict=True):
            if one is not None:
                counts.setdefault(one, Counter())[word] += 1
    return {one: [word for word, _ in counter.most_common(_REPLACEMENTS)] for one, counter in counts.items()}


def _split_words(caption: str) -> list[str]:
    return re.findall(r"[a-z']+|[.,]", caption.lower())


def _join_words(words: Sequence[str]) -> str:
    return re.sub(r" ([.,])", r"\1", " ".join(words))
