"""Contract: a row that a source cannot encode is a failed row, which the manifest counts and lists with its reason. A
later run leaves it as it is unless it is told to retry; once it succeeds, the files equal those of a run without
failures.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.relabel.sources.encodings import corpus_of, in_images, make_steps

from relabel.sources.shards import Shards, mark_failed, read_failed_rows
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import Manifest, open_artefact
from relabel.store.workdir import Step, Steps, Work, table_task

CORPUS, ROWS = corpus_of(in_images(["x" * length for length in range(1, 14)], 2)), range(2, 12)
SUM = "sum.parquet"


def lengths(bad: set[str], made: list[str], work: Work) -> Steps:
    """Yield shards of the lengths of texts, which fail for texts in `bad`, and a file of their sum."""
    shards = Shards(CORPUS, ROWS, 3)

    def make(rows: range) -> pa.Table:
        made.append(f"{rows.start}")
        texts = shards.corpus.texts[rows.start : rows.stop]
        column = [np.nan if text in bad else len(text) for text in texts]
        table = pa.table({"row": np.arange(rows.start, rows.stop, dtype=np.int32), "length": column})
        return mark_failed(table, {i: f"no {text}" for i, text in enumerate(texts) if text in bad})

    def total() -> pa.Table:
        made.append("sum")
        return pa.table({"sum": [np.nansum([np.nansum(c.to_numpy()) for c in shards.read_column(work, "length")])]})

    yield shards.step("lengths", make, last=False)
    yield Step("sum", "files", [table_task(SUM, total)], last=True)
    shards.record_failed(work)


def run(out: Path, bad: set[str], retry: bool = False) -> tuple[Manifest, list[str]]:
    made: list[str] = []
    recipe = Recipe("encoding", "flaky", dict, {}, lambda work: make_steps(lengths(bad, made, work), work))
    return build(out, recipe, again=lambda manifest: retry and manifest.failed > 0)[0], made


BAD = {"x" * 6, "x" * 12}  # rows 5 and 11, in the second and the last of four shards


def test_failed_rows_are_counted_listed_and_read_back(tmp_path: Path) -> None:
    manifest, shards_made = run(tmp_path / "e", BAD)
    assert shards_made == ["2", "5", "8", "11", "sum"]
    assert manifest.failed == 2
    assert manifest.metadata["failed"]["first"] == [["c:2-1", f"no {'x' * 6}"], ["c:5-1", f"no {'x' * 12}"]]
    assert read_failed_rows(tmp_path / "e", manifest).tolist() == [5, 11]
    assert pq.read_table(tmp_path / "e" / manifest.parts[1])["failed"].to_pylist() == [f"no {'x' * 6}", None, None]
    assert "failed" not in pq.read_schema(tmp_path / "e" / manifest.parts[0]).names
    assert open_artefact(tmp_path / "e", "encoding") == manifest


def test_failed_rows_are_tried_again_on_request(tmp_path: Path) -> None:
    complete, every = run(tmp_path / "whole", set())
    assert "failed" not in complete.metadata
    assert len(read_failed_rows(tmp_path / "whole", complete)) == 0
    run(tmp_path / "e", BAD)
    assert run(tmp_path / "e", set())[1] == []
    second, shards_made = run(tmp_path / "e", {"x" * 12}, retry=True)
    assert (second.failed, shards_made) == (1, every)
    third, _ = run(tmp_path / "e", set(), retry=True)
    assert (third.files, third.metadata) == (complete.files, complete.metadata)
    assert run(tmp_path / "e", set(), retry=True)[1] == []
