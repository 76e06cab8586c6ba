"""Captions and their altered copies: nearly the same words, and another meaning.

CxC has next to no such pairs, so a fit to its scores alone takes shared words for shared meaning. A copy exchanges two
modifiers or two nouns of a caption, or replaces a modifier, a noun or a relation. Patterns of English captions find
these words; no parser is needed. After Hsieh et al., "SugarCrepe", NeurIPS 2023, whose captions are of COCO's val2017:
copies are made from train2014, which shares no image with it.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

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
_CHANGES: tuple[tuple[Literal["exchange", "replace"], tuple[WordClass, ...]], ...] = (
    ("exchange", ("modifier", "count")),
    ("exchange", ("noun",)),
    ("replace", ("modifier", "count")),
    ("replace", ("noun",)),
    ("replace", ("relation", "activity")),
)
_LEXICON_CAPTIONS = 20_000  # captions whose words are counted
_REPLACEMENTS = 150  # most frequent words of a class, which replace others


def read_train_captions(runtime: Runtime) -> list[str]:
    """Read the captions of COCO's train2014."""
    path = locate("coco-captions", FILES[0], runtime.data)
    return [caption.text for caption in read_coco([path], lambda _, images: dict.fromkeys(images.tolist(), "train"))]


def alter_captions(captions: Sequence[str], count: int, seed: int) -> list[tuple[str, str]]:
    """Return `count` captions, or all that can be altered, each with its copy; the kinds of change are balanced."""
    generator = random.Random(seed)
    shuffled = generator.sample(captions, len(captions))
    lexicon = _count_words(shuffled[:_LEXICON_CAPTIONS])
    made = [0] * len(_CHANGES)
    copies: list[tuple[str, str]] = []
    for caption in shuffled:
        if len(copies) == count:
            break
        words = _split_words(caption)
        # The rarest kind that fits the caption is made, because exchanges need two words of one class.
        for kind in sorted(range(len(_CHANGES)), key=made.__getitem__):
            if (altered := _change(words, *_CHANGES[kind], lexicon, generator)) is not None:
                copies.append((_join_words(words), _join_words(altered)))
                made[kind] += 1
                break
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


def _change(
    words: list[str],
    change: Literal["exchange", "replace"],
    kinds: Sequence[WordClass],
    lexicon: Mapping[WordClass | None, Sequence[str]],
    generator: random.Random,
) -> list[str] | None:
    """Exchange two different words of one class, or replace one by a frequent one of it; None if there is none."""
    of_kind = [(i, one) for i, one in enumerate(classify_words(words)) if one in kinds]
    # The words that change, by their places.
    if change == "exchange":
        pairs = [(i, j) for (i, a), (j, b) in combinations(of_kind, 2) if a == b and words[i] != words[j]]
        changes = [{i: words[j], j: words[i]} for i, j in pairs]
    else:
        changes = [{i: word} for i, one in of_kind for word in lexicon.get(one, ()) if word != words[i]]
    if not changes:
        return None
    new = generator.choice(changes)
    return [new.get(i, word) for i, word in enumerate(words)]


def _count_words(captions: Sequence[str]) -> dict[WordClass | None, list[str]]:
    """Return the most frequent words of each class."""
    counts: defaultdict[WordClass | None, Counter[str]] = defaultdict(Counter)
    for words in map(_split_words, captions):
        for word, one in zip(words, classify_words(words), strict=True):
            counts[one][word] += 1
    return {one: [word for word, _ in counter.most_common(_REPLACEMENTS)] for one, counter in counts.items()}


def _split_words(caption: str) -> list[str]:
    return re.findall(r"[a-z']+|[.,]", caption.lower())


def _join_words(words: Sequence[str]) -> str:
    return re.sub(r" ([.,])", r"\1", " ".join(words))
