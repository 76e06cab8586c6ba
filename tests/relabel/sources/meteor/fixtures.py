"""Small corpora, encoded and opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.sources.base import OpenEncoding
from relabel.sources.meteor import Meteor, MeteorParams, MeteorRelevance
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import open_artefact
from relabel.store.tasks import make_all


def corpus_of(images: list[list[str]], tokens: Callable[[list[str]], list[str]]) -> Corpus:
    captions = Corpus.from_captions(
        Caption(f"c:{i}-{k}", f"i:{i}", "test", text) for i, texts in enumerate(images) for k, text in enumerate(texts)
    )
    return captions.with_tokens(tokens(captions.texts))


def opened(corpus: Corpus, folder: Path, **params: object) -> MeteorRelevance:
    source, runtime, rows = Meteor(MeteorParams(**params)), Runtime(threads=2), range(len(corpus))  # type: ignore[arg-type]

    def fill(work):  # type: ignore[no-untyped-def]
        work.facts["rows"] = [0, len(corpus)]
        make_all(source.tasks(corpus, rows, 100, runtime), work, runtime.progress)

    build(
        folder,
        Recipe(
            "encoding",
            "meteor",
            lambda: source.fingerprint_params(corpus, rows, runtime),
            {"corpus": corpus.digest},
            fill,
        ),
    )
    return source.open(OpenEncoding(corpus, folder, open_artefact(folder, "encoding"), runtime))
