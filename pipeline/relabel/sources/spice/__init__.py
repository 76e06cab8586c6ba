"""Source `spice`: exact SPICE of a caption against an image's references. Java is only needed for parsing.

A caption's scene graph is a set of tuples: objects, attributes and relations. Relevance is the F1 score of the
caption's tuples against those of all references merged into one graph. Tuples match by the WordNet synonyms in METEOR's
tables. Captions are parsed by SPICE's own parser (CoreNLP 3.6.0), each distinct text once. Scores are equal to those of
SPICE's jar.

Anderson, Fernando, Johnson, Gould: "SPICE: Semantic Propositional Image Caption Evaluation", ECCV 2016.

Relevance is 0 if the references or the caption have no tuples, and NaN only for failed rows. The jar returns NaN only
for its separate scores of objects, attributes and relations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field
from typing_extensions import override

from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.sources.base import Encoding, Source, SourceParams, SourceSpec
from relabel.sources.scripts import warn_unspaced
from relabel.sources.shards import Shards, read_failed_rows
from relabel.sources.spice.encode import SHARD, WORDS, collapsed, encoding_steps, spelled, words_table
from relabel.sources.spice.parse_cache import cached_parser
from relabel.sources.spice.parser import ParseFailure, Tuples, parser_files
from relabel.sources.wordnet import find_meteor_jar
from relabel.store.files import input_sha256
from relabel.store.manifest import read_parts
from relabel.store.workdir import Steps, Work

if TYPE_CHECKING:
    from relabel.sources.spice.load import Scenes
    from relabel.sources.spice.relevance import SceneGraphRelevance


class SpiceParams(SourceParams):
    """Parameters of spice."""

    source: Literal["spice"] = "spice"
    pooling: Pooling = Field("set", description="set merges the references into one graph, as SPICE is defined.")
    text: Literal["raw", "ptb"] = Field(
        "raw",
        description="Input of the parser: captions as written, or their PTB tokens (needs Java at ingest).",
    )


class Spice(Source[SpiceParams]):
    """SPICE from sparse rows of tuples."""

    spec = SourceSpec(
        name="spice",
        kind="features",
        bounds=(0.0, 1.0),
        symmetric=False,
        params=SpiceParams,
    )

    @override
    def tokenizer(self) -> str | None:
        return "ptb" if self.params.text == "ptb" else None

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return the parameters, and the hashes of the synonyms and of the parser."""
        parameters = {"source": self.spec.name, "text": self.params.text}
        return parameters | {"synonyms": input_sha256(find_meteor_jar())} | parser_files()

    @override
    def steps(self, corpus: Corpus, rows: range, rows_per_shard: int, work: Work, runtime: Runtime) -> Steps:
        """Yield the steps of shards of tuples, with at most `SHARD` captions, and of `words.parquet`."""
        p = self.params
        parser = cached_parser(runtime)
        shards = Shards(corpus, rows, min(rows_per_shard, SHARD))
        warn_unspaced(shards, work)

        def texts() -> list[str]:
            return corpus.tokens if p.text == "ptb" else corpus.texts

        yield from encoding_steps(shards, texts, parser, work, runtime.progress)

    @override
    def open(self, encoding: Encoding) -> SceneGraphRelevance:
        from relabel.sources.spice.load import scenes_of
        from relabel.sources.spice.relevance import SceneGraphRelevance

        tuples = read_parts(encoding.folder, encoding.manifest, ["tuples"])["tuples"]
        words = pq.read_table(encoding.folder / WORDS)

        def with_text(text: str) -> Scenes:
            parsed = pa.chunked_array([pa.array([self._parse(text, encoding.runtime)], tuples.type)])
            # Add new words. Concepts are numbered again, and this takes as long as opening the encoding.
            new = set(spelled(parsed)[2].to_pylist()).difference(words["word"].to_pylist())
            table = pa.concat_tables([words, words_table(new, find_meteor_jar()).cast(words.schema)])
            return scenes_of(pa.chunked_array([*tuples.chunks, *parsed.chunks]), table)

        return SceneGraphRelevance(
            corpus=encoding.corpus,
            rows=encoding.rows,
            pooling=self.params.pooling,
            scenes=scenes_of(tuples, words),
            with_text=with_text,
            threads=encoding.runtime.threads,
            failed=read_failed_rows(encoding.folder, encoding.manifest),
        )

    def _parse(self, text: str, runtime: Runtime) -> Tuples:
        """Parse a new text. Raises UsageError if the parser fails."""
        if self.params.text == "ptb":
            from relabel.corpus.tokenizers import tokenize_text

            text = tokenize_text(text)
        # Close the process after the text, because an opened encoding does not keep a parser.
        parser = cached_parser(runtime)
        try:
            parsed = parser.parse([collapsed(text)])[0]
        finally:
            parser.close()
        if isinstance(parsed, ParseFailure):
            raise UsageError(f"SPICE cannot parse {text!r}: {parsed.reason}", hint="Rephrase the text.")
        return parsed
