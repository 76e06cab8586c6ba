"""meteor: METEOR 1.5 of a caption against references, computed by the jar that papers use.

Denkowski and Lavie: "Meteor Universal: Language Specific Translation Evaluation for Any Target Language", WMT 2014.

The words of two captions are aligned by surface form, stem, WordNet synonym and paraphrase. The score is a harmonic
mean of precision and recall, weighted towards recall and reduced for fragmentation. Of several references the best
counts. Captions are read as PTB tokens, as in pycocoevalcap. A text without words has relevance 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field
from typing_extensions import override

from relabel.core.errors import PartialError
from relabel.core.java import SILENCE, JavaError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.corpus.tokenizers import tokenize_text
from relabel.sources.base import Encoding, Source, SourceParams, SourceSpec
from relabel.sources.meteor.jar import MeteorScorer, normalise, normaliser, paraphrase_table, scorer_command
from relabel.sources.relevance import Relevance, pool
from relabel.sources.scripts import warn_unspaced
from relabel.sources.shards import Shards
from relabel.sources.wordnet import find_meteor_jar
from relabel.store.files import input_sha256
from relabel.store.manifest import read_parts
from relabel.store.workdir import Steps, Work

BEAM = 40
"""Partial alignments that METEOR keeps. In a text of no more words, the alignment with itself always survives."""


class MeteorParams(SourceParams):
    """Parameters of meteor. Those after `language` change no score and enter no fingerprint."""

    source: Literal["meteor"] = "meteor"
    pooling: Pooling = "set"
    language: Literal["en"] = Field("en", description="Language; pycocoevalcap has the paraphrases of this one.")
    heap: str = Field("2G", pattern=r"^[1-9][0-9]{0,8}[kKmMgG]$", description="Most memory of one Java process.")
    processes: int | None = Field(None, ge=1, le=4096, description="Java processes; none: one a CPU thread.")
    silence: float = Field(
        SILENCE, gt=0, le=1e6, description="Seconds without an answer after which Java counts as hung."
    )


class Meteor(Source[MeteorParams]):
    """METEOR 1.5."""

    spec = SourceSpec(
        name="meteor",
        kind="pairs",
        bounds=(0.0, 1.0),
        symmetric=False,
        params=MeteorParams,
        refused={"neighbours": "it scores pair by pair, and all pairs are too many"},
    )

    @override
    def tokenizer(self) -> str | None:
        return "ptb"

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        files = {"jar": find_meteor_jar(), "paraphrases": paraphrase_table(self.params.language)}
        hashes = {name: input_sha256(path) for name, path in files.items()}
        return {"source": self.spec.name, "language": self.params.language, **hashes}

    @override
    def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
        """Make the work that pairs share: each row's normalised text (row int32, words string)."""
        language = self.params.language
        run = runtime.keep(("normaliser", language), partial(normaliser, language, runtime.kept is not None))

        def make_shard(part: range) -> pa.Table:
            tokens = corpus.words("ptb", part)
            words = normalise(tokens, run, self.params.silence)
            row = np.arange(part.start, part.stop, dtype=np.int32)
            return pa.table({"row": row, "words": pa.array(words, pa.string())})

        shards = Shards(corpus, rows, rows_per_shard)
        warn_unspaced(shards, work)
        yield shards.step("METEOR's words", make_shard)
        work.metadata["tokenizer"] = "ptb"

    @override
    def open(self, encoding: Encoding) -> MeteorRelevance:
        """Open an encoding; Java starts with the first pair."""
        p, runtime = self.params, encoding.runtime
        command = partial(scorer_command, p.language, p.heap)
        processes = p.processes or runtime.threads
        # Number 0 is the empty text, which is scored without Java.
        words = {"": 0}
        read = read_parts(encoding.folder, encoding.manifest, ["words"])["words"].to_pylist()
        text = np.fromiter((words.setdefault(w, len(words)) for w in read), np.int32, len(read))
        return MeteorRelevance(
            corpus=encoding.corpus,
            rows=encoding.rows,
            pooling=self.params.pooling,
            words=list(words),
            text=text,
            scorer=runtime.keep(("scorer", p.language, p.heap), partial(MeteorScorer, command, processes, p.silence)),
            params=self.params,
        )


@dataclass(frozen=True, eq=False, repr=False)
class MeteorRelevance(Relevance):
    """METEOR of any captions, scored by Java pair by pair.

    A caption among its own references scores 1 and is not sent to Java.

    `words`: distinct normalised texts; the first is empty.
    `text`: index into `words` of each encoded row's text.
    """

    corpus: Corpus
    rows: range
    pooling: Pooling
    words: list[str]
    text: Rows
    scorer: MeteorScorer
    params: MeteorParams

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Score P pairs; `max` equals `set`, because METEOR takes the best of several references."""
        mode = pooling or self.pooling
        if mode == "first":
            references = references.first()
        if mode != "mean":
            return self._best(references, captions)
        each = np.repeat(captions, references.indptr[1:] - references.indptr[:-1])
        return pool(self._best(References.single(references.rows), each), references.indptr, "mean")

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        """Score N captions against one new text."""
        tokens = tokenize_text(text)
        run = normaliser(self.params.language)
        reference = normalise([tokens], run, self.params.silence)[0] if tokens.strip() else ""
        read = [self.words[i] for i in self._text(captions)]
        distinct = dict.fromkeys(w for w in read if w)
        if not reference or not distinct:
            return np.zeros(len(captions))
        try:
            values = self.scorer.score([f"{reference} ||| {w}" for w in distinct])
        except JavaError as error:
            row = captions[read.index(list(distinct)[error.answered])]
            where = f"reference {text!r}; caption {self.corpus.caption_ids[row]}"
            raise PartialError(error.problem, where=where, todo=error.todo) from error
        score = dict(zip(distinct, values, strict=True)) | {"": 0.0}
        return np.array([score[w] for w in read])

    def close(self) -> None:
        """End the Java processes; they start again when needed."""
        self.scorer.close()

    def _text(self, rows: Rows) -> list[int]:
        """Return the index into `words` of each row's text."""
        texts: list[int] = self.text[self.positions(rows)].tolist()
        return texts

    def _best(self, references: References, captions: Rows) -> Scores:
        """Score against the best of the references, each distinct (references, caption) once."""
        refs, cands, bounds = self._text(references.rows), self._text(captions), references.indptr.tolist()
        scores = np.zeros(len(cands))
        questions: dict[tuple[int, ...], list[int]] = {}
        for p, cand in enumerate(cands):
            # An empty reference matches nothing, and METEOR accepts no empty text.
            group = set(refs[bounds[p] : bounds[p + 1]]) - {0}
            # A caption among its references has METEOR 1 if the identity survives the beam.
            if cand in group and self.words[cand].count(" ") < BEAM:
                scores[p] = 1.0
            elif cand and group:
                questions.setdefault((*sorted(group), cand), []).append(p)
        lines = [" ||| ".join(self.words[i] for i in key) for key in questions]
        try:
            values = self.scorer.score(lines)
        except JavaError as error:
            p = list(questions.values())[error.answered][0]
            ids = [self.corpus.caption_ids[row] for row in references[p]]
            where = f"references {', '.join(ids)}; caption {self.corpus.caption_ids[captions[p]]}"
            raise PartialError(error.problem, where=where, todo=error.todo) from error
        for score, pairs in zip(values, questions.values(), strict=True):
            scores[pairs] = score
        return scores
