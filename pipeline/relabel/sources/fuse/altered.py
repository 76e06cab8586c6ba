"""Captions and altered copies with nearly the same words, but a different meaning.

CxC has very few such pairs, so a model fitted only to its scores confuses shared words with shared meaning. A copy
swaps two words of a class, or replaces one. Relations are one class. Other words are classified by whether their
neighbours are function words, without a parser; this separates most nouns from their modifiers. The method follows
Hsieh et al., "SugarCrepe", NeurIPS 2023. It uses COCO's val2017; here, captions are from train2014, without any image
of val2017.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations, islice

from relabel.core.runtime import Runtime
from relabel.corpus.readers.coco import FILES, read_coco
from relabel.datasets import locate


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_RELATIONS = _word_set("on in under behind near above beside over below around inside outside")
_FUNCTION_WORDS = _RELATIONS | _word_set(
    "a an the his her their its some this that another one two three four five six seven eight several many few and or "
    "of at to with by for from into onto next through across along between while is are was were be being been has had "
    "have it which who as up down out off front top side back there very he she they"
)
_LEXICON_CAPTIONS = 20_000  # number of captions for counting words
_REPLACEMENTS = 150  # number of frequent words per class that can replace others


def read_train_captions(runtime: Runtime) -> list[str]:
    """Read the captions of COCO's train2014."""
    path = locate("coco-captions", FILES[0], runtime.data)
    return [caption.text for caption in read_coco([path], lambda _, images: dict.fromkeys(images.tolist(), "train"))]


def alter_captions(captions: Sequence[str], count: int, seed: int) -> list[tuple[str, str]]:
    """Return at most `count` captions with altered copies: half with swapped words, half with a replaced word."""
    generator = random.Random(seed)
    shuffled = [_split_words(caption) for caption in generator.sample(captions, len(captions))]
    lexicon = _count_words(shuffled[:_LEXICON_CAPTIONS])
    rest, copies = iter(shuffled), list[tuple[str, str]]()
    for swap, total in ((True, count // 2), (False, count)):
        altered = ((words, _change(words, swap, lexicon, generator)) for words in rest)
        pairs = ((_join_words(words), _join_words(copy)) for words, copy in altered if copy != words)
        copies += islice(pairs, total - len(copies))
    return copies


def classify_words(words: Sequence[str]) -> list[str | None]:
    """Return the class of each word: "relation", a class by neighbours for content words, or None."""
    content = [word.isalpha() and word not in _FUNCTION_WORDS for word in words]
    before, after = [False, *content[:-1]], [*content[1:], False]
    around = [f"{a}-{b}" if inner else None for a, inner, b in zip(before, content, after, strict=True)]
    return ["relation" if word in _RELATIONS else name for word, name in zip(words, around, strict=True)]


def _change(
    words: list[str], swap: bool, lexicon: Mapping[str | None, Sequence[str]], generator: random.Random
) -> list[str]:
    """Swap two words of a class, or replace a word by a frequent word of its class. If impossible, return a copy."""
    classes, copy = classify_words(words), list(words)
    places = [i for i, name in enumerate(classes) if name]
    pairs = [(i, j) for i, j in combinations(places, 2) if classes[i] == classes[j]]
    if swap and pairs:
        i, j = generator.choice(pairs)
        copy[i], copy[j] = words[j], words[i]
    elif places and not swap:
        i = generator.choice(places)
        copy[i] = generator.choice(lexicon[classes[i]])
    return copy


def _count_words(captions: Sequence[Sequence[str]]) -> dict[str | None, list[str]]:
    """Return the most frequent words of each class."""
    counts: defaultdict[str | None, Counter[str]] = defaultdict(Counter)
    for words in captions:
        for word, name in zip(words, classify_words(words), strict=True):
            counts[name][word] += 1
    return {name: [word for word, _ in counter.most_common(_REPLACEMENTS)] for name, counter in counts.items()}


def _split_words(caption: str) -> list[str]:
    return re.findall(r"[a-z']+|[.,]", caption.lower())


def _join_words(words: Sequence[str]) -> str:
    return re.sub(r" ([.,])", r"\1", " ".join(words))
