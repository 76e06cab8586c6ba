"""Captions with altered copies: nearly the same words, another meaning.

CxC has next to no such pairs, so a fit to its scores alone takes shared words for shared meaning. A copy exchanges two
modifiers or two nouns of a caption, or replaces a modifier, a noun or a relation. Patterns of English captions find
these words; no parser is needed. After Hsieh et al., "SugarCrepe", NeurIPS 2023, whose captions are of COCO's val2017:
copies are made from train2014, which shares no image with it.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.corpus.readers.coco import FILES, read_coco
from relabel.datasets import locate

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
    """Read the captions of COCO's train2014.

    Raises
    ------
    MissingError
        If the file is not on this machine.
    """
    path = locate("coco-captions", FILES[0], runtime.data)
    return [caption.text for caption in read_coco([path], lambda _, images: dict.fromkeys(images.tolist(), "train"))]


def alter_captions(captions: Sequence[str], count: int, seed: int) -> list[AlteredCopy]:
    """Alter `count` captions, drawn without replacement; the kinds of change are as frequent as possible.

    Raises
    ------
    UsageError
        If fewer captions can be altered.

    Examples
    --------
    >>> from relabel.sources.fuse.altered import alter_captions
    >>> alter_captions(["a black cat on a white chair"], 1, seed=0)
    [AlteredCopy(caption='a black cat on a white chair', copy='a white cat on a black chair')]
    """
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
    made = [0] * len(changes)
    copies: list[AlteredCopy] = []
    for caption in shuffled:
        if len(copies) == count:
            break
        words = _split_words(caption)
        classes = classify_words(words)
        # The rarest kind that fits the caption is made, because exchanges need two words of one class.
        for kind in sorted(range(len(changes)), key=made.__getitem__):
            if (altered := changes[kind](words, classes)) is not None:
                copies.append(AlteredCopy(_join_words(words), _join_words(altered)))
                made[kind] += 1
                break
    if len(copies) < count:
        message = f"{len(copies):,} of {len(captions):,} captions can be altered, and {count:,} are needed"
        raise UsageError(message, where="tune.fuse.altered", todo="Set it to a smaller number.")
    return copies


def classify_words(words: Sequence[str]) -> list[WordClass | None]:
    """Assign the words of a caption to classes by their neighbours; None for all others.

    Examples
    --------
    >>> from relabel.sources.fuse.altered import classify_words
    >>> classify_words(["two", "red", "birds", "sitting", "on", "a", "branch"])
    ['count', 'modifier', 'noun', 'activity', 'relation', None, 'noun']
    """
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
