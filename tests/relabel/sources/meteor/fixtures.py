"""METEOR of a small corpus, encoded and opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tests.relabel.sources.encodings import corpus_of, encode

from relabel.core.runtime import Runtime
from relabel.sources.meteor import Meteor, MeteorParams, MeteorRelevance


def opened(
    images: Sequence[Sequence[str]], tokens: Callable[[list[str]], list[str]], folder: Path, **params: object
) -> MeteorRelevance:
    """Open METEOR of images of captions, whose PTB tokens `tokens` makes."""
    corpus = replace(corpus_of(images), tokenize=lambda corpus: tokens(corpus.texts))
    return encode(Meteor(MeteorParams(**params)), corpus, folder, runtime=Runtime(threads=2))[0]  # type: ignore[arg-type, no-any-return]
