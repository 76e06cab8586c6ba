"""Contract: a report is one page of a dataset's labels, written once per state of its inputs with equal bytes; it shows
the judgements of COCO, and is made for captions that nobody judged, too. A label that cannot be built is left out."""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relabel
from relabel import stages
from relabel.config import Config, load_config
from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.corpus import References
from relabel.stages import Project
from relabel.stages.run import report

# Each test computes figures of several labels again, with their intervals.
pytestmark = pytest.mark.slow


@pytest.fixture
def folder(all_artefacts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a finished project, whose run has written its page."""
    copy = shutil.copytree(all_artefacts, tmp_path / "made")
    monkeypatch.chdir(copy)
    monkeypatch.delenv("RELABEL_MIRROR", raising=False)
    return copy


def project(*settings: str) -> Project:
    """Return the project of the folder, with parameters as a file gives them."""
    config = Config(**load_config(Path("params.yaml"), ["judge.draws=5", *settings]).model_dump())
    return Project(config, Runtime(data=Path("data"), threads=1))


def data_of(path: Path) -> dict[str, Any]:
    body = re.search(r'id="blob-data">([^<]*)<', path.read_text(encoding="utf-8"))
    assert body is not None
    data: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(body[1])))
    return data


def test_a_run_has_written_the_page_and_a_report_repeats_nothing(folder: Path) -> None:
    path = Path("labels/coco/page/val/report.html")
    assert path.exists()
    result = report(project())
    assert result.problems == []
    assert result.paths["report"] == path
    before, written = path.read_bytes(), path.stat().st_mtime_ns
    report(project())
    assert path.stat().st_mtime_ns == written
    # Neighbours are the same, whether a table holds them or the page searches for them.
    shutil.rmtree("labels/coco/page")
    shutil.rmtree("labels/coco/neighbours")
    report(project())
    assert path.read_bytes() == before


def test_the_page_shows_captions_neighbours_and_judged_pairs_of_the_labels(folder: Path) -> None:
    one, path = project(), Path("labels/coco/page/val/report.html")
    data, corpus = data_of(path), one.corpus
    assert data["ids"] == corpus.caption_ids
    assert data["captions"] == [" ".join(text.split()) for text in corpus.texts]
    assert list(data["labels"]) == ["same_image", "cider", "cbow"]
    assert set(data["distributions"]) == {"cider", "cbow"}
    assert set(data["judged"]) == {"sits", "sts"} | ({"sis"} & set(data["judged"]))
    judged = data["judged"]["sts"]
    sample, (trace, *_) = judged["sample"], judged["scatter"]["cider"]["data"]
    relevance = stages.open_label(one, "cider", "val")
    for number, value in list(zip(trace["customdata"], trace["x"], strict=True))[:20]:
        a, b = (np.array([sample[side][number]], np.int32) for side in ("left", "right"))
        score = relevance.pairs(References.single(a), b, "first") + relevance.pairs(References.single(b), a, "first")
        # Scores are rounded to 1e-5 of the largest, and then to four decimals.
        assert value == pytest.approx(float(score[0]) / 2, abs=3e-4)
    text = path.read_text(encoding="utf-8")
    assert "CxC val, caption and image (SITS)" in text


def test_a_page_of_some_labels_lies_beside_that_of_all(folder: Path) -> None:
    path = Path("labels/coco/page/val/report.html")
    before = path.read_bytes()
    result = report(project(), labels=["cider"])
    assert result.paths["report"].parent.name.startswith("val-")
    assert list(data_of(result.paths["report"])["labels"]) == ["same_image", "cider"]
    assert path.read_bytes() == before
    with pytest.raises(UsageError, match="nosuch"):
        report(project(), labels=["nosuch"])


def test_captions_that_nobody_judged_have_a_page(folder: Path) -> None:
    path = relabel.report("labels/mine", "val", settings={"export.labels": ["cider"]})
    assert path == Path("labels/mine/page/val/report.html")
    data = data_of(path)
    assert data["judged"] == {}
    assert set(data["distributions"]) == {"cider"}
    hidden = re.findall(r'<section id="(\w+)"[^>]* hidden>', path.read_text(encoding="utf-8"))
    assert hidden == ["agreement", "pairs", "disagreement"]
