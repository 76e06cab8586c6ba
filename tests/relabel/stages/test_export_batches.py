"""Contract: a plan holds the batches of its sampler over the neighbours of its label. The encoding of all captions
serves a split, and inputs that are missing or too few are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from tests.relabel.export.formats import in_folder, with_params

from relabel import stages
from relabel.core.errors import MissingError, UsageError
from relabel.core.runtime import SILENT
from relabel.stages import Project
from relabel_train.lookup import open_lookup
from relabel_train.precomputed import open_batches
from relabel_train.samplers import Captions, GradedBatchSampler, NeighbourBatchSampler


@pytest.fixture
def project(small_project: Project, tmp_path: Path) -> Project:
    return in_folder(small_project, tmp_path / "labels", "neighbours")


@pytest.mark.parametrize("sampler", ["neighbour", "graded"])
def test_batches_are_those_of_the_sampler_over_a_lookup(small_project: Project, project: Project, sampler: str) -> None:
    params = with_params(project, "batches", sampler=sampler, batch_size=12, epochs=2, k=3, levels=(0.8, 0.2), group=6)
    job = stages.export_batches(params, "cider", "all")
    metadata = job.run()[0].metadata
    assert (metadata["neighbours"], metadata["sampler"]["depth"]) == ("cider", 8)  # all that there are
    plan, lookup = open_batches(job.out), open_lookup(small_project.folder("exports", "all", "lookup", "cider"))
    captions, given = Captions.of(project.corpus.image), {"seed": 0, "drop_last": True, "siblings": False, "depth": 8}
    graded: Any = GradedBatchSampler(captions, lookup, 12, **given, levels=(0.8, 0.2), group=6)  # type: ignore[arg-type]
    nearest: Any = NeighbourBatchSampler(captions, lookup, 12, **given, k=3, anchors=None)  # type: ignore[arg-type]
    expected = [rows for epoch in range(2) for rows in (graded if sampler == "graded" else nearest).epoch(epoch)]
    assert [plan.rows(n).tolist() for n in range(len(plan))] == [rows.tolist() for rows in expected]


def test_the_encoding_of_all_captions_serves_a_split(project: Project) -> None:
    notes = Mock(wraps=SILENT)
    one = with_params(project, "batches", batch_size=12)
    job = stages.export_batches(replace(one, runtime=replace(one.runtime, progress=notes)), "same_image", "val")
    assert "encodings/all/same_image serves split val" in notes.note.call_args.args[0]
    job.run()
    plan, inside = open_batches(job.out), project.corpus.rows(["val"])
    rows = np.concatenate([plan.rows(n) for n in range(len(plan))])
    assert inside.start <= rows.min() <= rows.max() < inside.stop


def test_missing_inputs_are_named(project: Project) -> None:
    graded = with_params(project, "batches", sampler="graded", batch_size=12)
    with pytest.raises(MissingError, match=r"relabel neighbours --label cider_plain --candidates all"):
        stages.export_batches(graded, "cider_plain", "all").run()
    with pytest.raises(MissingError, match="relabel encode --label meteor --split val"):
        stages.export_batches(with_params(project, "batches"), "meteor", "val").run()
    with pytest.raises(UsageError, match=r"20 neighbours per caption are needed, the table has 8.*depth"):
        stages.export_batches(with_params(graded, "batches", depth=20), "cider", "all").run()
