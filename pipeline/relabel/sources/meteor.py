"""meteor: METEOR 1.5 (Denkowski and Lavie, WMT 2014) of a caption against references, by the jar that made the papers.

An alignment of the words of two captions by surface form, stem, WordNet synonym and paraphrase gives a harmonic mean
of precision and recall, weighted towards recall and cut for fragmentation; of several references the best counts. PTB
tokens go in, as in pycocoevalcap. A text without words has relevance 0.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from relabel.corpus import Corpus, References
from relabel.errors import PartialError
from relabel.line_process import SILENCE
from relabel.ptb import tokenize
from relabel.runtime import Runtime
from relabel.sources.base import NO_PARTS, Kind, Pooling, Relevance, Rows, Scores, Source, SourceParams, pool
from relabel.sources.meteor_jar import jar, normalise, paraphrases, scorer_command
from relabel.sources.meteor_process import LineError, MeteorPool
from relabel.sources.meteor_units import MeteorTables, MeteorUnits
from relabel.store.atomic import sha256_file
from relabel.store.manifest import Manifest, read_parts

BEAM = 40
"""METEOR keeps this many alignments: in a text of no more words, the one of the text with itself is always kept."""
_BLOCK = 200_000  # pairs of a block scored at once


class MeteorParams(SourceParams):
    """Parameters of meteor. Those below `language` change no score and are in no fingerprint."""

    source: Literal["meteor"] = "meteor"
    pooling: Pooling = "refs"
    language: Literal["en"] = Field("en", description="The one whose paraphrases pycocoevalcap brings.")
    heap: str = Field("2G", pattern=r"^[1-9]\d*[kKmMgG]$", description="Most memory of one Java process.")
    processes: int | None = Field(None, ge=1, description="Java processes; none: one a CPU thread.")
    silence: float = Field(SILENCE, gt=0, description="Seconds without an answer after which Java counts as hung.")


@dataclass(frozen=True, eq=False)
class MeteorRelevance(Relevance):
    """METEOR of any captions, asked of Java pair by pair; a caption among its own references scores 1 without asking.

    Attributes
    ----------
    words : list of str
        Distinct texts, normalised as METEOR does; the first is empty.
    text : (len(rows),) int32
        Which of `words` each encoded row reads.
    scorers : MeteorPool
    params : MeteorParams
    runtime : Runtime
    """

    corpus: Corpus
    rows: range
    pooling: Pooling
    words: list[str]
    text: Rows
    scorers: MeteorPool
    params: MeteorParams
    runtime: Runtime

    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """See Relevance.pairs. `max` is `refs`: METEOR's own score of several references is that of the best.

        Raises
        ------
        PartialError
            If Java dies or falls silent again and again; names the pair.
        """
        how = pooling or self.pooling
        if how == "paired":
            references = References.single(references.rows[references.indptr[:-1]])
        if how != "mean":
            return self._best(references, captions)
        each = np.repeat(captions, references.indptr[1:] - references.indptr[:-1])
        return pool(self._best(References.single(references.rows), each), references.indptr, "mean")

    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """See Relevance.block. Every cell is a question to Java: thousands a second, not millions."""
        out = np.empty((len(references), len(captions)))
        step = max(1, _BLOCK // max(1, len(captions)))
        for a in range(0, len(references), step):
            images = np.arange(a, min(a + step, len(references)))
            every = references.take(np.repeat(images, len(captions)))
            found = self.pairs(every, np.tile(captions, len(images)), pooling)
            out[a : a + step] = found.reshape(len(images), len(captions))
        return out

    def query(self, text: str, captions: Rows) -> Scores:
        """See Relevance.query. Takes seconds: the paraphrase table is cut anew, for the words of the text."""
        tokens = tokenize([text], self.runtime)
        asked = normalise(tokens, self.params.language, self.params.silence)[0] if tokens[0].strip() else ""
        read = [self.words[i] for i in self._text(captions)]
        distinct = dict.fromkeys(w for w in read if w)
        if not asked or not distinct:
            return np.zeros(len(captions))
        with tempfile.TemporaryDirectory(prefix="relabel-") as folder:
            MeteorTables(self.params.language, [asked, *distinct]).write_all(Path(folder))
            scorers = _scorers(self.params, Path(folder), self.runtime)
            try:
                found = scorers.score([f"{asked} ||| {w}" for w in distinct])
            except LineError as error:
                row = captions[read.index(list(distinct)[error.index])]
                where = f"reference {text!r}; caption {self.corpus.caption_ids[row]}"
                raise PartialError(error.what, where=where, todo=error.todo) from error
            finally:
                scorers.close()
        score = dict(zip(distinct, found, strict=True)) | {"": 0.0}
        return np.array([score[w] for w in read])

    def close(self) -> None:
        """End the Java processes; they start again when needed."""
        self.scorers.close()

    def _text(self, rows: Rows) -> list[int]:
        if len(rows) and (rows.min() < self.rows.start or rows.max() >= self.rows.stop):
            raise IndexError(f"rows {rows.min()} to {rows.max()} asked, {self.rows.start} to {self.rows.stop} encoded")
        found: list[int] = self.text[rows - self.rows.start].tolist()
        return found

    def _best(self, references: References, captions: Rows) -> Scores:
        """Score against the best of the references, each distinct question once."""
        refs, cands, bounds = self._text(references.rows), self._text(captions), references.indptr.tolist()
        scores = np.zeros(len(cands))
        asked: dict[tuple[int, ...], list[int]] = {}
        for p, cand in enumerate(cands):
            group = set(refs[bounds[p] : bounds[p + 1]]) - {0}
            if cand in group and self.words[cand].count(" ") < BEAM:
                scores[p] = 1.0
            elif cand and group:
                asked.setdefault((*sorted(group), cand), []).append(p)
        lines = [" ||| ".join(self.words[i] for i in key) for key in asked]
        try:
            found = self.scorers.score(lines)
        except LineError as error:
            p = list(asked.values())[error.index][0]
            ids = [self.corpus.caption_ids[row] for row in references[p]]
            where = f"references {', '.join(ids)}; caption {self.corpus.caption_ids[captions[p]]}"
            raise PartialError(error.what, where=where, todo=error.todo) from error
        for score, places in zip(found, asked.values(), strict=True):
            scores[places] = score
        return scores


class Meteor(Source[MeteorParams]):
    """METEOR 1.5."""

    name: ClassVar[str] = "meteor"
    kind: ClassVar[Kind] = "pairs"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    symmetric: ClassVar[bool] = False
    version: ClassVar[int] = 1
    no_neighbours: ClassVar[str | None] = "it scores pair by pair, and all pairs are too many"
    params_model: ClassVar[type[SourceParams]] = MeteorParams

    def tokenizer(self) -> str | None:
        """METEOR reads PTB tokens."""
        return "ptb"

    def semantic(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """See Source.semantic."""
        files = {"jar": jar(), "paraphrases": paraphrases(self.params.language)}
        hashes = {name: sha256_file(path) for name, path in files.items()}
        return {"source": self.name, "language": self.params.language, **hashes}

    def units(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> MeteorUnits:
        """What METEOR would otherwise do again for every pair; the pairs themselves are scored when asked.

        That is `words`, each row's text normalised, and METEOR's tables cut to these texts (see `meteor_tables`).

        Raises
        ------
        MissingError
            If the corpus has no PTB tokens, or there is no Java or no pycocoevalcap.
        PartialError
            If Java dies or falls silent.
        """
        return MeteorUnits(corpus, rows, rows_per_shard, self.params.language, self.params.silence)

    def open(
        self,
        corpus: Corpus,
        folder: Path,
        manifest: Manifest,
        runtime: Runtime,
        parts: Mapping[str, Relevance] = NO_PARTS,
    ) -> MeteorRelevance:
        """See Source.open. Java starts with the first question."""
        words = {"": 0}
        read = read_parts(folder, manifest, ["words"])["words"].to_pylist()
        text = np.fromiter((words.setdefault(w, len(words)) for w in read), np.int32, len(read))
        return MeteorRelevance(
            corpus=corpus,
            rows=range(*manifest.facts["rows"]),
            pooling=self.params.pooling,
            words=list(words),
            text=text,
            scorers=_scorers(self.params, folder, runtime),
            params=self.params,
            runtime=runtime,
        )


def _scorers(params: MeteorParams, tables: Path, runtime: Runtime) -> MeteorPool:
    command = partial(scorer_command, params.language, tables, params.heap)
    return MeteorPool(command, params.processes or runtime.threads, params.silence)
