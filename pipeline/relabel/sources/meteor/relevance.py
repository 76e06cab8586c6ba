"""METEOR of any captions of an encoding, by the jar."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from relabel.core.errors import PartialError
from relabel.core.line_process import SILENCE
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.core.worker_pool import LineError
from relabel.corpus import Corpus, References
from relabel.corpus.tokenizers import tokenize
from relabel.sources.base import SourceParams
from relabel.sources.meteor.encode import MeteorTables
from relabel.sources.meteor.jar import MeteorScorer, normalise, scorer_command
from relabel.sources.relevance import Relevance, pool
from relabel.store.manifest import Manifest
from relabel.store.reading import refuse_replaced

BEAM = 40
"""METEOR keeps this many alignments: in a text of no more words, the one of the text with itself is always kept."""


class MeteorParams(SourceParams):
    """Parameters of meteor. Those below `language` change no score and are in no fingerprint."""

    source: Literal["meteor"] = "meteor"
    pooling: Pooling = "refs"
    language: Literal["en"] = Field("en", description="The one whose paraphrases pycocoevalcap brings.")
    heap: str = Field("2G", pattern=r"^[1-9][0-9]{0,8}[kKmMgG]$", description="Most memory of one Java process.")
    processes: int | None = Field(None, ge=1, le=4096, description="Java processes; none: one a CPU thread.")
    silence: float = Field(
        SILENCE, gt=0, le=1e6, description="Seconds without an answer after which Java counts as hung."
    )


@dataclass(frozen=True, eq=False)
class MeteorRelevance(Relevance):
    """METEOR of any captions, asked of Java pair by pair; a caption among its own references scores 1 without asking.

    Attributes
    ----------
    words : list of str
        Distinct texts, normalised as METEOR does; the first is empty.
    text : (len(rows),) int32
        Which of `words` each encoded row reads.
    scorers : MeteorScorer
    params : MeteorParams
    runtime : Runtime
    """

    corpus: Corpus
    rows: range
    pooling: Pooling
    words: list[str]
    text: Rows
    scorers: MeteorScorer
    params: MeteorParams
    runtime: Runtime

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """`max` is `refs`: METEOR's own score of several references is that of the best.

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

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        """Takes seconds: the paraphrase table is cut anew, for the words of the text."""
        tokens = tokenize([text], self.runtime)
        asked = normalise(tokens, self.params.language, self.params.silence)[0] if tokens[0].strip() else ""
        read = [self.words[i] for i in self._text(captions)]
        distinct = dict.fromkeys(w for w in read if w)
        if not asked or not distinct:
            return np.zeros(len(captions))
        with tempfile.TemporaryDirectory(prefix="relabel-") as folder:
            MeteorTables(self.params.language, [asked, *distinct]).write_all(Path(folder))
            scorers = scorers_of(self.params, Path(folder), self.runtime)
            try:
                found = scorers.score([f"{asked} ||| {w}" for w in distinct])
            except LineError as error:
                row = captions[read.index(list(distinct)[error.index])]
                where = f"reference {text!r}; caption {self.corpus.caption_ids[row]}"
                raise PartialError(error.problem, where=where, todo=error.todo) from error
            finally:
                scorers.close()
        score = dict(zip(distinct, found, strict=True)) | {"": 0.0}
        return np.array([score[w] for w in read])

    def close(self) -> None:
        """End the Java processes; they start again when needed."""
        self.scorers.close()

    def _text(self, rows: Rows) -> list[int]:
        texts: list[int] = self.text[self.positions(rows)].tolist()
        return texts

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
            raise PartialError(error.problem, where=where, todo=error.todo) from error
        for score, places in zip(found, asked.values(), strict=True):
            scores[places] = score
        return scores


def scorers_of(params: MeteorParams, tables: Path, runtime: Runtime, manifest: Manifest | None = None) -> MeteorScorer:
    """Make the processes that score; tables of an encoding must be those of its manifest when a process starts."""

    def command() -> list[str]:
        if manifest is not None:
            refuse_replaced(tables, manifest)
        return scorer_command(params.language, tables, params.heap)

    return MeteorScorer(command, params.processes or runtime.threads, params.silence)
