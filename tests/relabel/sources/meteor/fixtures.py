"""METEOR of small corpora, a stand-in for its Java programs, and the jar as the oracle of scores."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from tests.relabel.sources.encodings import corpus_of, encode

from relabel.core.java import java_command
from relabel.core.runtime import Runtime
from relabel.core.types import Scores
from relabel.sources.meteor import Meteor, MeteorParams, MeteorRelevance
from relabel.sources.meteor.relevance import score_texts
from relabel.sources.meteor.tables import Tables, make_tables
from relabel.sources.wordnet import find_meteor_jar

PROGRAMS = """
for line in sys.stdin:
    {trouble}
    word = line.rstrip()
    print(word.removesuffix("s") if "Stemmer" in sys.argv else word, flush=True)
"""
"""Stand-ins for METEOR's normaliser, which changes nothing, and its stemmer, which removes a final s."""


def opened(
    images: Sequence[Sequence[str]],
    folder: Path,
    tokens: Callable[[list[str]], list[str]] | None = None,
    runtime: Runtime | None = None,
    **params: Any,
) -> MeteorRelevance:
    """Open METEOR of images of captions, with PTB tokens made by `tokens`; by default they are the texts."""
    corpus = corpus_of(images)
    if tokens is not None:
        corpus = replace(corpus, tokenize=lambda corpus: tokens(corpus.texts))
    return encode(Meteor(MeteorParams(**params)), corpus, folder, runtime=runtime or Runtime(threads=2))[0]  # type: ignore[no-any-return]


def stem(words: Sequence[str]) -> list[str]:
    """Return the stems that METEOR's stemmer returns for the words of these tests."""
    return [{"running": "run", "walking": "walk", "walks": "walk"}.get(w, w.removesuffix("s")) for w in words]


def score(pairs: Sequence[tuple[str, str]]) -> Scores:
    """Score pairs of a reference and a candidate, both normalised."""
    texts = {text: number for number, text in enumerate(dict.fromkeys(text for pair in pairs for text in pair))}
    made = make_tables(lambda: list(texts), stem)
    references, captions = np.array([[texts[a], texts[b]] for a, b in pairs], np.int32).T
    return score_texts(Tables.of(lambda name: made[name]()), references.copy(), captions.copy(), threads=1)


class Jar:
    """The scorer of the METEOR 1.5 jar, as pycocoevalcap's wrapper runs it, without the option `-norm`."""

    def __init__(self) -> None:
        options = ("-", "-", "-stdio", "-l", "en", "-lower")
        command = java_command("-Xmx2G", "-jar", find_meteor_jar(), *options)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)

    def score(self, lines: Sequence[str]) -> Scores:
        """Score lines of the form `reference ||| ... ||| candidate`."""
        statistics = self._ask([f"SCORE ||| {line}" for line in lines], 1)
        distinct = list(dict.fromkeys(statistics))
        # The score of a pair is answered twice.
        values = self._ask([f"EVAL ||| {each}" for each in distinct], 2)[::2]
        known = dict(zip(distinct, map(float, values), strict=True))
        return np.array([known[each] for each in statistics])

    def _ask(self, lines: Sequence[str], answers: int) -> list[str]:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin
        assert stdout
        text = "".join(f"{line}\n" for line in lines).encode()
        writer = Thread(target=lambda: (stdin.write(text), stdin.flush()))
        writer.start()
        found = [stdout.readline().decode().strip() for _ in range(answers * len(lines))]
        writer.join()
        return found
