"""Contract: the model is loaded before any shard is made, and a faulty one is reported before any work. Its properties
are facts of the manifest, the way it runs is recorded, and the file of both is no part of the artefact.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from relabel.core.errors import CheckError
from relabel.core.runtime import SILENT, Advance
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.sources.models.files import ModelFiles
from relabel.sources.models.tasks import MODEL, ModelTasks
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import Manifest
from relabel.store.tasks import make_all
from relabel.store.workdir import Work

FILES = ModelFiles("some/model", Path("/models/some"), "folder")


class CountingTasks(ModelTasks):
    """Tasks that log each step."""

    title = "rows"
    files = FILES

    def __init__(self, corpus: Corpus, log: list[str], faulty: bool = False) -> None:
        super().__init__(corpus, range(len(corpus)), 3)
        self.log, self.faulty = log, faulty

    def load_model(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self.log.append("model")
        if self.faulty:
            raise CheckError("a faulty model")
        return {"width": 7}, {"backend": "plain", "device": "cpu", "left_out": []}

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        self.log.append(f"{rows.start}")
        return pa.table({"row": np.arange(rows.start, rows.stop, dtype=np.int32)})


def run(out: Path, log: list[str], **options: Any) -> Manifest:
    corpus = Corpus.from_captions(Caption(f"t:{i}", f"t:{i}", "test", "a dog") for i in range(6))
    tasks = CountingTasks(corpus, log, **options)
    return build(out, Recipe("encoding", "counting", dict, {}, lambda work: make_all(tasks, work, SILENT)))[0]


def test_the_model_is_loaded_first_and_recorded(tmp_path: Path) -> None:
    log: list[str] = []
    manifest = run(tmp_path / "out", log)
    assert log == ["model", "0", "3"]
    assert manifest.facts["model"] == "some/model"
    assert (manifest.facts["width"], manifest.facts["captions"]) == (7, 6)
    assert manifest.runtime["model"] == FILES.record()
    assert (manifest.runtime["backend"], manifest.runtime["device"]) == ("plain", "cpu")
    assert MODEL not in manifest.files
    assert not (tmp_path / "out" / MODEL).exists()


def test_a_faulty_model_is_reported_before_any_work(tmp_path: Path) -> None:
    log: list[str] = []
    with pytest.raises(CheckError, match="a faulty model"):
        run(tmp_path / "out", log, faulty=True)
    assert log == ["model"]
    assert not (tmp_path / "out").exists()
