"""Small corpora, encoded and opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.relabel.sources.encodings import encode

from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.sources.meteor import Meteor, MeteorParams, MeteorRelevance


def corpus_of(images: list[list[str]], tokens: Callable[[list[str]], list[str]]) -> Corpus:
    captions = Corpus.from_captions(
        Caption(f"c:{i}-{k}", f"i:{i}", "test", text) for i, texts in enumerate(images) for k, text in enumerate(texts)
    )
    return replace(captions, tokenize=lambda corpus: tokens(corpus.texts))


def opened(corpus: Corpus, folder: Path, **params: object) -> MeteorRelevance:
    return encode(Meteor(MeteorParams(**params)), corpus, folder, runtime=Runtime(threads=2))[0]  # type: ignore[arg-type, no-any-return]
