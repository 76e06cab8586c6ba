"""Ingestion of captions in any supported format into a checked corpus with a report."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.core.tables import plural
from relabel.corpus.build import SCHEMA, SPLITS, CaptionRows, RowIds, arrange
from relabel.corpus.params import IngestParams
from relabel.corpus.readers import Input, open_input
from relabel.corpus.table import Corpus, table_digest
from relabel.store.arrays import map_tables
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import read_columns
from relabel.store.workdir import Work, part_name, part_ranges

_SPILL = ".captions.arrow"  # holds the captions during ingestion, because they may not fit into memory


def ingest(params: IngestParams, runtime: Runtime) -> Recipe:
    """Return the recipe of a corpus, for `Corpus.open`.

    The metadata entry `report` describes the corpus (see `describe`).
    """
    source = open_input(params, runtime)
    config = {
        "namespace": params.prefix,
        "rows_per_shard": runtime.rows_per_shard,
        "duplicates": params.duplicates,
        **source.config,
    }
    inputs: Inputs = {name: partial(source.sha256, path) for name, path in source.files.items()}
    fill = partial(_fill, params, source, runtime)
    return Recipe("corpus", params.dataset, lambda: config, inputs, fill)


def _fill(params: IngestParams, source: Input, runtime: Runtime, work: Work) -> None:
    if source.note:
        # The whole note is wider than a terminal.
        runtime.progress.note(f"reading {params.path}: " + source.note.replace("; ", "\n  "))
    where = str(params.path or params.dataset)
    captions = arrange(source.read(), work.folder / _SPILL, where, params.duplicates == "drop")
    report = describe(captions)
    if len(captions.repeats):
        first = captions.columns["where"][int(captions.repeats[0])].as_py()
        report["repeated"] = {"count": len(captions.repeats), "first": first, "duplicates": params.duplicates}
    _check_counts(params, report)
    shards = part_ranges(range(len(captions)), runtime.rows_per_shard)
    names = [part_name(i, len(shards)) for i in range(len(shards))]
    with runtime.progress.bar(f"ingest {params.dataset}", len(captions), "captions") as bar:
        for name, rows in zip(names, shards, strict=True):
            work.table(name, partial(captions.table, rows))
            bar.advance(len(rows))
    splits = {split: [rows.start, rows.stop] for split, rows in captions.splits.items()}
    # Release the captions, because their file is now overwritten with the rows of the shards.
    del captions
    table = map_tables(work.folder / _SPILL, (read_columns(work.folder / name) for name in names), SCHEMA)
    # `left_out` is complete only after the captions have been read.
    left_out = {reason: {"count": count, "first": where} for reason, (count, where) in source.left_out.items()}
    report |= {"left_out": left_out} if left_out else {}
    work.metadata |= {"warnings": source.warnings} if source.warnings else {}
    work.metadata |= {"digest": table_digest(table), "rows": [0, len(table)], "splits": splits, "report": report}


def row_ids(params: IngestParams, runtime: Runtime, corpus: Corpus) -> list[RowIds]:
    """Read the ingested table again and return the caption ids of each of its rows."""
    ids = list[RowIds]()
    for _ in open_input(params, runtime, ids).read():
        pass

    def without_dropped(row: RowIds) -> Any:
        # Captions that repeat a text may have been dropped.
        return [without_dropped(i) for i in row] if isinstance(row, list) else row if row in corpus.row_of else None

    return [without_dropped(row) for row in ids]


def _check_counts(params: IngestParams, report: dict[str, Any]) -> None:
    for scope, expected in params.counts.items():
        # The report has no entry for a split without captions.
        actual = report if scope == "all" else report["splits"].get(scope, {"images": 0, "captions": 0})
        for quantity, number in expected.model_dump(exclude_none=True).items():
            if actual[quantity] != number:
                place = "" if scope == "all" else f" in {scope}"
                raise CheckError(
                    f"expected {number:,} {quantity}{place}, found {actual[quantity]:,}",
                    where=f"{params.dataset} ({params.path or 'fetched'})",
                    hint="For your own captions, pass --dataset NAME. If these counts are right, set ingest.expected "
                    "to them, or to {} to skip the check.",
                )


def describe(captions: CaptionRows) -> dict[str, Any]:
    """Count `images` and `captions`, in total and by `splits`, and return the range of `captions_per_image`."""
    image, per_image = captions.image, np.bincount(captions.image)
    sizes = {
        split: {"images": int(image[rows.stop - 1] - image[rows.start]) + 1, "captions": len(rows)}
        for split, rows in captions.splits.items()
    }
    spread = [int(per_image.min()), int(per_image.max())]
    return {"images": len(per_image), "captions": len(image), "splits": sizes, "captions_per_image": spread}


def report_lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Format a report as pairs of a title and a value."""
    sizes = {split: report["splits"][split] for split in SPLITS if split in report["splits"]} | {"all": report}
    lines = [(name, f"{size['captions']:,} captions of {size['images']:,} images") for name, size in sizes.items()]
    lines.append(("captions per image", " to ".join(f"{count:,}" for count in report["captions_per_image"])))
    return lines + losses(report)


def losses(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Format the counts of records that were left out or that repeat others, as pairs of a title and a value."""
    left_out = sorted(report.get("left_out", {}).items())
    lines = [("left out", f"{entry['count']:,} {reason} (first: {entry['first']})") for reason, entry in left_out]
    if repeated := report.get("repeated"):
        number = plural(repeated["count"], "caption", "captions")
        count = f"{number} with a text that the image already has (first: {repeated['first']})"
        keep = "kept, which raises the consensus of cider; --set ingest.duplicates=drop leaves them out"
        lines.append(("repeated", f"{count}; {keep if repeated['duplicates'] == 'keep' else 'left out'}"))
    return lines
