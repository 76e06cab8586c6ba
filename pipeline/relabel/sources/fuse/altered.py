"""Captions and their altered copies: nearly the same words, and another meaning.

CxC has next to no such pairs, so a fit to its scores alone takes shared words for shared meaning. A copy exchanges two
words of one class, or replaces one. Relations are a class, and so are content words that stand between function words
in one way, as most nouns do, and most of their modifiers; no parser is needed. After Hsieh et al., "SugarCrepe",
NeurIPS 2023, whose captions are of COCO's val2017: copies are made from train2014, which shares no image with it.
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
_LEXICON_CAPTIONS = 20_000  # captions whose words are counted
_REPLACEMENTS = 150  # most frequent words of a class, which replace others


def read_train_captions(runtime: Runtime) -> list[str]:
    """Read the captions of COCO's train2014."""
    path = locate("coco-captions", FILES[0], runtime.data)
    return [caption.text for caption in read_coco([path], lambda _, images: dict.fromkeys(images.tolist(), "train"))]


def alter_captions(captions: Sequence[str], count: int, seed: int) -> list[tuple[str, str]]:
    """Return `count` captions, or as many as can be altered, each with its copy: half of them with exchanged words."""
    generator = random.Random(seed)
    shuffled = [_split_words(caption) for caption in generator.sample(captions, len(captions))]
    lexicon = _count_words(shuffled[:_LEXICON_CAPTIONS])
    rest, copies = iter(shuffled), list[tuple[str, str]]()
    for exchange, made in ((True, count // 2), (False, count)):
        altered = ((words, _change(words, exchange, lexicon, generator)) for words in rest)
        pairs = ((_join_words(words), _join_words(copy)) for words, copy in altered if copy != words)
        copies += islice(pairs, made - len(copies))
    return copies


def classify_words(words: Sequence[str]) -> list[str | None]:
    """Assign relations to one class, and content words to classes by their neighbours; None for all others."""
    content = [word.isalpha() and word not in _FUNCTION_WORDS for word in words]
    before, after = [False, *content[:-1]], [*content[1:], False]
    around = [f"{a}-{b}" if inner else None for a, inner, b in zip(before, content, after, strict=True)]
    return ["relation" if word in _RELATIONS else name for word, name in zip(words, around, strict=True)]


def _change(
    words: list[str], exchange: bool, lexicon: Mapping[str | None, Sequence[str]], generator: random.Random
) -> list[str]:
    """Exchange two words of one class, or replace a word by a frequent one of its class, where there are any."""
    classes, copy = classify_words(words), list(words)
    places = [i for i, one in enumerate(classes) if one]
    pairs = [(i, j) for i, j in combinations(places, 2) if classes[i] == classes[j]]
    if exchange and pairs:
        i, j = generator.choice(pairs)
        copy[i], copy[j] = words[j], words[i]
    elif places and not exchange:
        i = generator.choice(places)
        copy[i] = generator.choice(lexicon[classes[i]])
    return copy


def _count_words(captions: Sequence[Sequence[str]]) -> dict[str | None, list[str]]:
    """Return the most frequent words of each class."""
    counts: defaultdict[str | None, Counter[str]] = defaultdict(Counter)
    for words in captions:
        for word, one in zip(words, classify_words(words), strict=True):
            counts[one][word] += 1
    return {one: [word for word, _ in counter.most_common(_REPLACEMENTS)] for one, counter in counts.items()}


def _split_words(caption: str) -> list[str]:
    return re.findall(r"[a-z']+|[.,]", caption.lower())


def _join_words(words: Sequence[str]) -> str:
    return re.sub(r" ([.,])", r"\1", " ".join(words))
