"""Ingest: captions of any known format in, a corpus out, checked and described."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from relabel.captions import SCHEMA
from relabel.corpus import Corpus
from relabel.errors import CheckError
from relabel.ingest_params import IngestParams
from relabel.progress import SILENT
from relabel.readers.open import Input, open_input
from relabel.runtime import Runtime
from relabel.store.artefact import build
from relabel.store.manifest import Draft, Manifest
from relabel.store.work import Work, part_name, part_ranges

__all__ = ["IngestParams", "ingest"]

VERSION = 1
"""Goes up when the same files and parameters come to give another corpus."""


def ingest(params: IngestParams, out: Path, runtime: Runtime) -> tuple[Manifest, bool]:
    """Make a corpus.

    Parameters
    ----------
    params : IngestParams
    out : Path
        Folder of the corpus; see Corpus.open.
    runtime : Runtime

    Returns
    -------
    manifest : Manifest
        ``facts["report"]`` describes the corpus (see `corpus_report.describe`).
    built : bool
        False if it was there already, of the same files and parameters.

    Raises
    ------
    UsageError
        If parameters are lacking.
    MissingError
        If a file is not there, or there is no Java for PTB tokens.
    CheckError
        If the captions are not of the format, fail a check (see Corpus.from_captions), or are not as many as expected.
    """
    source = open_input(params, runtime)
    semantic = {
        "version": VERSION,
        "namespace": params.prefix,
        "format": params.format,
        "tokenizer": params.tokenizer,
        "rows_per_shard": params.rows_per_shard,
        **source.semantic,
    }
    draft = Draft("corpus", params.dataset, semantic, source.files)
    manifest, built = build(out, draft, partial(_fill, params, source, runtime), runtime.progress)
    if not built:
        _check_counts(params, manifest.facts["report"])
    return manifest, built


def _fill(params: IngestParams, source: Input, runtime: Runtime, work: Work) -> None:
    from relabel.corpus_report import counts, describe

    corpus = Corpus.from_captions(source.read())
    _check_counts(params, counts(corpus))
    shards = part_ranges(range(len(corpus)), params.rows_per_shard)
    with runtime.progress.task(f"ingest {params.dataset}", len(corpus), "captions") as task:
        for i, rows in enumerate(shards):
            work.part(i, len(shards), partial(_shard, corpus, rows, params.tokenizer, runtime))
            task.advance(len(rows))
    if params.tokenizer != "none":
        corpus = _read_back(work, len(shards))
    work.facts |= {
        "digest": corpus.digest,
        "rows": [0, len(corpus)],
        "splits": {split: [rows.start, rows.stop] for split, rows in corpus.splits.items()},
        "report": describe(corpus),
    }


def _shard(corpus: Corpus, rows: range, tokenizer: str, runtime: Runtime) -> pa.Table:
    table = corpus.table.slice(rows.start, len(rows))
    if tokenizer == "none":
        return table
    from relabel.ptb import tokenize

    quiet = replace(runtime, progress=SILENT)  # the bar of the whole corpus is enough
    tokens = pa.array(tokenize(table["text"].to_pylist(), quiet), pa.string())
    return table.set_column(SCHEMA.get_field_index("tokens"), SCHEMA.field("tokens"), tokens)


def _read_back(work: Work, shards: int) -> Corpus:
    import pyarrow.parquet as pq

    names = [part_name(i, shards) for i in range(shards)]
    return Corpus.from_table(pa.concat_tables([pq.read_table(work.folder / name) for name in names]))


def _check_counts(params: IngestParams, report: dict[str, Any]) -> None:
    for scope, wanted in params.counts.items():
        found = report if scope == "all" else report["splits"].get(scope, {"images": 0, "captions": 0})
        for what, number in wanted.model_dump(exclude_none=True).items():
            if found[what] != number:
                place = "" if scope == "all" else f" in {scope}"
                raise CheckError(
                    f"expected {number:,} {what}{place}, found {found[what]:,}",
                    where=f"{params.dataset} ({params.path or 'fetched'})",
                    todo="If that is what you mean to ingest, give `expected` the true counts, or {} for none.",
                )
