"""Source `meteor`: METEOR 1.5 of a caption against references, with the same scores as the jar used in papers.

Denkowski and Lavie: "Meteor Universal: Language Specific Translation Evaluation for Any Target Language", WMT 2014.

The words of two captions are aligned by surface form, stem, WordNet synonym and paraphrase. The score is a weighted
harmonic mean of precision and recall, reduced for fragmentation. With several references, the maximum is taken.
Captions are read as PTB tokens, as in pycocoevalcap. A text without words has relevance 0.

Encoding runs the jar's normaliser and stemmer, and stores METEOR's tables for the words of the captions (see
`relabel.sources.meteor.tables`). Scoring does not need Java.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.corpus.tokenizers import tokenize_text
from relabel.sources.base import Encoding, Source, SourceParams, SourceSpec
from relabel.sources.meteor.jar import LONGEST, normalise, paraphrase_file, stem
from relabel.sources.meteor.relevance import MeteorRelevance
from relabel.sources.scripts import warn_unspaced
from relabel.sources.shards import Shards, mark_failed, read_failed_rows
from relabel.sources.wordnet import find_meteor_jar
from relabel.store.files import input_sha256
from relabel.store.manifest import read_columns, read_parts
from relabel.store.workdir import Step, Steps, Work, table_task


class MeteorParams(SourceParams):
    """Parameters of meteor."""

    source: Literal["meteor"] = "meteor"
    pooling: Pooling = "set"
    gate: str | None = Field(
        None, description="Label that selects 1,000 candidates for neighbour search; null: no neighbours."
    )


class Meteor(Source[MeteorParams]):
    """METEOR 1.5."""

    spec = SourceSpec(name="meteor", kind="pairs", bounds=(0.0, 1.0), symmetric=False, params=MeteorParams)

    def __init__(self, params: MeteorParams) -> None:
        super().__init__(params)
        if params.gate is None:
            reason = "it scores pair by pair, and there are too many pairs; set `gate`"
            self.spec = replace(self.spec, refused={"neighbours": reason})

    @override
    def tokenizer(self) -> str | None:
        return "ptb"

    @override
    def gate(self) -> str | None:
        return self.params.gate

    @override
    def input_labels(self) -> tuple[str, ...]:
        return () if self.params.gate is None else (self.params.gate,)

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        files = {"jar": find_meteor_jar(), "paraphrases": paraphrase_file()}
        hashes = {name: input_sha256(path) for name, path in files.items()}
        gate = {"gate": self.params.gate} if self.params.gate else {}
        return {"source": self.spec.name, **hashes, **gate}

    @override
    def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
        """Yield the steps of shards of normalised texts (row int32, words string), and of the tables of their words."""
        # Imported here, because compiled functions are not needed to read parameters.
        from relabel.sources.meteor.tables import make_tables

        shards = Shards(corpus, rows, rows_per_shard)

        def make_shard(part: range) -> pa.Table:
            words = normalise(corpus.words("ptb", part), runtime)
            row = np.arange(part.start, part.stop, dtype=np.int32)
            long = {i: f"more than {LONGEST:,} words" for i, text in enumerate(words) if text.count(" ") >= LONGEST}
            return mark_failed(pa.table({"row": row, "words": pa.array(words, pa.string())}), long)

        def texts() -> list[str]:
            return [text for column in shards.read_column(work, "words") for text in column.to_pylist()]

        warn_unspaced(shards, work)
        yield shards.step("METEOR's words", make_shard, last=False)
        tables = make_tables(texts, partial(stem, runtime=runtime))
        yield Step("METEOR's tables", "files", [table_task(name, make) for name, make in tables.items()], last=True)
        work.metadata["tokenizer"] = "ptb"
        shards.record_failed(work)

    @override
    def open(self, encoding: Encoding) -> MeteorRelevance:
        """Open an encoding. Java is only needed for new texts."""
        from relabel.sources.meteor.tables import Tables, make_tables

        folder, runtime, gate = encoding.folder, encoding.runtime, self.params.gate
        words = cache(lambda: read_parts(folder, encoding.manifest, ["words"])["words"])

        def with_text(text: str, positions: NDArray[np.int64]) -> Tables:
            new = normalise([tokenize_text(text)], runtime)
            tables = make_tables(lambda: new + words().take(positions).to_pylist(), partial(stem, runtime=runtime))
            return Tables.of(lambda name: tables[name]())

        return MeteorRelevance(
            corpus=encoding.corpus,
            rows=encoding.rows,
            pooling=self.params.pooling,
            tables=Tables.of(lambda name: read_columns(folder / name)),
            with_text=with_text,
            threads=runtime.threads,
            gate=None if gate is None else encoding.inputs[gate],
            failed=read_failed_rows(folder, encoding.manifest),
        )
