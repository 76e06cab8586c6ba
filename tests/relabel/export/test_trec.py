"""Contract: ir_measures reads the run and the qrels; the run holds the neighbours by id, the qrels their grades by cut
points; ids with spaces and missing neighbours are refused."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from tests.relabel.export.formats import in_folder, with_params

from relabel import stages
from relabel.core.errors import UsageError
from relabel.stages import Project
from relabel.store.manifest import read_parts
from relabel_train.lookup import open_lookup

ir_measures = pytest.importorskip("ir_measures")


@pytest.fixture(scope="module")
def exported(small_project: Project) -> tuple[Path, list[float]]:
    job = stages.export(with_params(small_project, "trec", quantiles=(0.5, 0.9)), "trec", "cbow", "all")
    return job.out, job.run()[0].metadata["levels"]


def test_ir_measures_reads_both_files(small_project: Project, exported: tuple[Path, list[float]]) -> None:
    folder, levels = exported
    lookup, corpus = open_lookup(small_project.folder("exports", "all", "lookup", "cbow")), small_project.corpus
    for split, rows in corpus.splits.items():
        run = list(ir_measures.read_trec_run(str(folder / f"{split}.run")))
        qrels = list(ir_measures.read_trec_qrels(str(folder / f"{split}.qrels")))
        near, scores, _ = lookup.neighbours(np.arange(rows.start, rows.stop))
        expected = [
            (corpus.caption_ids[row], corpus.caption_ids[j], float(score))
            for row, line, values in zip(rows, near.tolist(), scores, strict=True)
            for j, score in zip(line, values, strict=True)
        ]
        assert [(doc.query_id, doc.doc_id) for doc in run] == [pair[:2] for pair in expected]
        assert [np.float32(doc.score) for doc in run] == [np.float32(pair[2]) for pair in expected]
        graded = {(q.query_id, q.doc_id): q.relevance for q in qrels}
        for query, caption, score in expected:
            assert graded.get((query, caption), 0) == sum(np.float32(score) >= np.float32(cut) for cut in levels)
        # A ranking by the scores from which the grades are made is ideal.
        measures = ir_measures.calc_aggregate([ir_measures.nDCG @ 8], qrels, run)
        assert measures[ir_measures.nDCG @ 8] == pytest.approx(1.0)


def test_named_levels_replace_quantiles(small_project: Project) -> None:
    job = stages.export(with_params(small_project, "trec", levels=(0.5, 0.8)), "trec", "cbow", "val")
    assert job.run()[0].metadata["levels"] == [0.5, 0.8]
    counts: dict[int, int] = defaultdict(int)
    for line in (job.out / "val.qrels").read_text(encoding="utf-8").splitlines():
        counts[int(line.split()[3])] += 1
    scores = [float(line.split()[4]) for line in (job.out / "val.run").read_text(encoding="utf-8").splitlines()]
    assert counts == {1: sum(0.5 <= s < 0.8 for s in scores), 2: sum(s >= 0.8 for s in scores)}
    with pytest.raises(UsageError, match="cut points must rise"):
        stages.export(with_params(small_project, "trec", levels=(0.8, 0.5)), "trec", "cbow", "val").run()


def test_images_are_queries(small_project: Project, tmp_path: Path) -> None:
    project = in_folder(small_project, tmp_path / "labels")
    table = stages.neighbours(project, "cbow", "all", "images")
    table.run()
    job = stages.export(with_params(project, "trec", queries="images"), "trec", "cbow", "val")
    job.run()
    corpus = project.corpus
    images = corpus.images(["val"])
    rows = read_parts(table.out, table.open()).slice(images.start, len(images)).to_pylist()
    found = [(doc.query_id, doc.doc_id) for doc in ir_measures.read_trec_run(str(job.out / "val.run"))]
    assert found == [(corpus.image_ids[r["row"]], corpus.caption_ids[near]) for r in rows for near in r["neighbours"]]
