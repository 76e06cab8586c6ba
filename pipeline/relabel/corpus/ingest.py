"""Ingest: captions of any supported format become a corpus, checked and described."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from relabel.core.errors import CheckError, UsageError
from relabel.core.progress import SILENT
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.build import SCHEMA
from relabel.corpus.params import IngestParams
from relabel.corpus.readers import Input, open_input
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec, Manifest
from relabel.store.workdir import Work, part_name, part_ranges

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
        If parameters are lacking, or `out` holds captions of another source and `runtime.replace` is not set.
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
    artefact = ArtefactSpec("corpus", params.dataset, semantic, source.files)
    origin = _origin(params, out)
    fill, guard = partial(_fill, params, source, runtime, origin), partial(_refuse_other_origin, out, origin)
    manifest, built = build(out, artefact, fill, runtime.progress, None if runtime.replace else guard)
    if not built:
        _check_counts(params, manifest.facts["report"])
    return manifest, built


def _origin(params: IngestParams, out: Path) -> dict[str, str | None]:
    """Return where captions come from; relative to the corpus, so that a folder with both can be moved."""
    path = None if params.path is None else os.path.relpath(params.path.resolve(), out.resolve())
    return {"format": params.format, "path": path}


def _refuse_other_origin(out: Path, origin: dict[str, str | None], previous: Manifest) -> None:
    """Refuse to replace captions that come from elsewhere.

    Raises
    ------
    UsageError
        With the number of captions that would be lost, and where they came from.
    """
    known = previous.runtime.get("origin")
    if known == origin:
        return
    path, count = (known or {}).get("path"), previous.facts.get("rows", (0, 0))[1]
    place = f"{known['format']}: {os.path.normpath(out.resolve() / path)}" if known and path else "as fetched"
    raise UsageError(
        f"the corpus {previous.name} holds {count:,} captions of another source ({place})",
        where=str(out),
        todo="Use another name with --dataset NAME to keep both, or replace the corpus with --replace.",
    )


def _fill(params: IngestParams, source: Input, runtime: Runtime, origin: dict[str, str | None], work: Work) -> None:
    work.runtime["origin"] = origin
    from relabel.corpus.report import counts, describe

    try:
        corpus = Corpus.from_captions(source.read())
    except CheckError as error:
        raise CheckError(
            error.problem, where=error.where or str(params.path or params.dataset), todo=error.todo
        ) from error
    _check_counts(params, counts(corpus))
    shards = part_ranges(range(len(corpus)), params.rows_per_shard)
    with runtime.progress.bar(f"ingest {params.dataset}", len(corpus), "captions") as bar:
        for i, rows in enumerate(shards):
            work.part(i, len(shards), partial(_shard, corpus, rows, params.tokenizer, runtime))
            bar.advance(len(rows))
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
    from relabel.corpus.tokenizers import tokenize

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
                    todo="Name captions of your own with --dataset NAME. If the counts are right, give them as "
                    "ingest.expected, or {} for none.",
                )
