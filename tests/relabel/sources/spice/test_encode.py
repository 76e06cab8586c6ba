"""Contract: row r of the encoding holds the tuples of caption r, and each distinct text of a shard is parsed once. A
caption that fails to parse is a failed row. With a cache, only new and failed captions are parsed.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.relabel.sources.encodings import corpus_of, make_steps
from tests.relabel.sources.spice.stand_in import RecordedParser, words_parser

from relabel.core.runtime import SILENT
from relabel.corpus import Corpus
from relabel.sources.shards import FAILED, Shards
from relabel.sources.spice import encode as module
from relabel.sources.spice.encode import collapsed, encoding_steps
from relabel.sources.spice.parse_cache import CachedParser
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import Manifest
from relabel.store.workdir import Work

WORDS = ("dog", "cat", "man", "horse", "tree")
LINES = [f"a {WORDS[i % 5]}  near\n{i // 7} {WORDS[i % 3]}s" for i in range(95)] + [".", " a dog "] + ["a  dog"] * 3


pytestmark = pytest.mark.usefixtures("meteor_jar")


def encode(out: Path, parser: Any, per_shard: int = 30, lines: Sequence[str] = LINES) -> Manifest:
    """Encode all but the first two captions, and failed ones again."""
    corpus = corpus_of([lines])
    rows = range(2, len(lines))
    shards = Shards(corpus, rows, per_shard)
    config = {"rows_per_shard": per_shard, "rows": [rows.start, rows.stop]}

    def fill(work: Work) -> None:
        work.metadata["rows"] = [rows.start, rows.stop]
        make_steps(encoding_steps(shards, partial(read, corpus), parser, work, SILENT), work)

    recipe = Recipe("encoding", "spice", lambda: config, {"corpus": corpus.digest}, fill)
    return build(out, recipe, again=lambda manifest: manifest.failed > 0)[0]


def read(corpus: Corpus) -> list[str]:
    """Return a preprocessed text; a full stop alone leaves an empty text, as with PTB tokens."""
    return [text.replace(".", "") for text in corpus.texts]


def digests(manifest: Manifest) -> dict[str, str]:
    return {name: entry.sha256 for name, entry in manifest.files.items()}


def test_rows_hold_their_captions_tuples_and_equal_texts_are_parsed_once(tmp_path: Path) -> None:
    parser = words_parser()
    manifest = encode(tmp_path / "e", CachedParser(parser, tmp_path / "kept", SILENT))  # type: ignore[arg-type]
    assert len(manifest.parts) == 4
    rows_found: list[tuple[int, list[list[str]]]] = []
    for name in manifest.parts:
        table = pq.read_table(tmp_path / "e" / name)
        assert table.column_names == ["row", "tuples"]
        assert table.schema.field("tuples").type == module.TUPLES
        rows_found += zip(table["row"].to_pylist(), table["tuples"].to_pylist(), strict=True)
    texts = [collapsed(line.replace(".", "")) for line in LINES[2:]]
    assert rows_found == list(enumerate(words_parser().parse(texts), start=2))
    assert parser.requests == Counter(set(texts))
    assert set(manifest.files) == {*manifest.parts, module.WORDS}


def test_only_an_unparsable_caption_fails_and_is_retried(tmp_path: Path) -> None:
    odd = collapsed(LINES[40])
    manifest = encode(tmp_path / "e", words_parser([odd]))
    assert manifest.failed == 1
    assert manifest.metadata[FAILED]["first"] == [["c:0-40", "it is odd"]]
    tables = [pq.read_table(tmp_path / "e" / name) for name in manifest.parts]
    assert [FAILED in table.column_names for table in tables] == [False, True, False, False]
    row = tables[1].slice(40 - 32, 1).to_pylist()[0]
    assert row == {"row": 40, "tuples": None, FAILED: "it is odd"}
    assert digests(encode(tmp_path / "e", words_parser())) == digests(encode(tmp_path / "whole", words_parser()))


def test_only_new_and_failed_captions_are_parsed(tmp_path: Path) -> None:
    odd, more = collapsed(LINES[40]), [*LINES[:50], "a new horse", *LINES[50:], "another  tree"]

    def cached(parser: RecordedParser) -> CachedParser:
        return CachedParser(parser, tmp_path / "kept", SILENT)  # type: ignore[arg-type]

    encode(tmp_path / "e", cached(words_parser([odd])))
    retry, later = words_parser([odd]), words_parser()
    encode(tmp_path / "e", cached(retry))
    assert retry.requests == Counter([odd])
    shutil.rmtree(tmp_path / "e")  # as DVC does before a stage
    manifest = encode(tmp_path / "e", cached(later), per_shard=40, lines=more)
    assert later.requests == Counter([odd, "a new horse", "another tree"])
    assert digests(manifest) == digests(encode(tmp_path / "whole", words_parser(), per_shard=40, lines=more))
