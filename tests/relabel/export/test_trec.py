"""Contract: ir_measures reads the run and the qrels; the run holds the neighbours by id, the qrels their grades by cut
points; ids with spaces and missing neighbours are refused."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.export.formats import with_params

from relabel import stages
from relabel.config import load_config
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.runtime import Runtime
from relabel.stages import Project
from relabel_train.lookup import open_lookup

ir_measures = pytest.importorskip("ir_measures")


@pytest.fixture(scope="module")
def exported(small_project: Project) -> tuple[Path, list[float]]:
    job = stages.export(with_params(small_project, "trec", quantiles=(0.5, 0.9)), "trec", "cbow", "all")
    return job.out, job.run()[0].facts["levels"]


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
    assert job.run()[0].facts["levels"] == [0.5, 0.8]
    counts: dict[int, int] = defaultdict(int)
    for line in (job.out / "val.qrels").read_text(encoding="utf-8").splitlines():
        counts[int(line.split()[3])] += 1
    scores = [float(line.split()[4]) for line in (job.out / "val.run").read_text(encoding="utf-8").splitlines()]
    assert counts == {1: sum(0.5 <= s < 0.8 for s in scores), 2: sum(s >= 0.8 for s in scores)}
    with pytest.raises(UsageError, match="cut points must rise"):
        stages.export(with_params(small_project, "trec", levels=(0.8, 0.5)), "trec", "cbow", "val").run()


def test_missing_neighbours_are_refused(small_project: Project) -> None:
    images: dict[str, Any] = {"of": "images"}
    with pytest.raises(MissingError, match="relabel neighbours --label cbow --within all --of images"):
        stages.export(with_params(small_project, "trec", **images), "trec", "cbow", "all").run()


def test_images_are_queries_and_ids_with_spaces_are_refused(tmp_path: Path) -> None:
    words = tmp_path / "vectors.txt"
    words.write_text("dog 1 0\ncat 0 1\nred 0.6 0.8\n")

    def project(name: str) -> Project:
        captions = tmp_path / f"{name.strip()}.csv"
        lines = [f"{name}{i},m{i // 2},test,{text}" for i, text in enumerate(("dog", "red dog", "cat", "red cat"))]
        captions.write_text("\n".join(["caption_id,image_id,split,text", *lines]) + "\n")
        settings = ["ingest.dataset=mine", f"ingest.path={captions}", "ingest.tokenizer=none", "neighbours.of=images"]
        settings += ["export.trec.of=images", "export.trec.levels=[0.9]"]
        settings += [f"sources={{cbow: {{source: cbow, vectors: {words}, tokenizer: lower_split}}}}"]
        built = Project(load_config(None, settings), Runtime(threads=1), tmp_path / f"labels-{name.strip()}")
        stages.ingest(built).run()
        stages.encode(built, "cbow", "test").run()
        stages.neighbours(built, "cbow").run()
        return built

    job = stages.export(project("c"), "trec", "cbow", "test")
    job.run()
    run = list(ir_measures.read_trec_run(str(job.out / "test.run")))
    assert {doc.query_id for doc in run} == {"mine:m0", "mine:m1"}
    assert run[0].doc_id in ("mine:c0", "mine:c1")
    with pytest.raises(CheckError, match="an id with a space"):
        stages.export(project("c "), "trec", "cbow", "test").run()
