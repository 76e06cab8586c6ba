"""Contract: the model is loaded before any shard is made, and a faulty one is reported before any work. Its properties
are facts of the manifest, the way it runs is recorded, and the file of both is no part of the artefact.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.relabel.sources.encodings import make_steps

from relabel.core.errors import CheckError
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.sources.models.files import ModelFiles
from relabel.sources.models.tasks import MODEL, model_step, record_model
from relabel.sources.shards import Shards
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import Manifest
from relabel.store.workdir import Work

FILES = ModelFiles("some/model", Path("/models/some"), "folder")


def run(out: Path, log: list[str], faulty: bool = False) -> Manifest:
    shards = Shards(
        Corpus.from_captions(Caption(f"t:{i}", f"t:{i}", "test", "a dog") for i in range(6)), range(6), size=3
    )

    def load() -> tuple[dict[str, Any], dict[str, Any]]:
        log.append("model")
        if faulty:
            raise CheckError("a faulty model")
        return {"width": 7}, {"backend": "plain", "device": "cpu", "left_out": []}

    def make(rows: range) -> pa.Table:
        log.append(f"{rows.start}")
        return pa.table({"row": np.arange(rows.start, rows.stop, dtype=np.int32)})

    def fill(work: Work) -> None:
        make_steps([model_step(FILES, load), shards.step("rows", make)], work)
        record_model(FILES, 6, work)

    return build(out, Recipe("encoding", "counting", dict, {}, fill))[0]


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
