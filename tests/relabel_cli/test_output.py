"""Contract: the plan of a run marks estimates. JSON holds the characters of every script."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from relabel.stages.run import PlannedStep
from relabel_cli.shared_options import SharedOptions
from relabel_cli.verbs.run import plan_text


def test_the_table_marks_estimates() -> None:
    ingest = PlannedStep("ingest", "coco", "corpus", rows=616_767, bytes=32_000_000, seconds=10.5)
    encode = PlannedStep("encode", "sbert", "vectors", "partly", rows=616_767, bytes=1_900_000_000, seconds=608.0)
    text = plan_text([ingest, encode])
    assert "~1.9 GB ~0:10:08" in " ".join(text.split())
    assert "~0:10:18" in text.split("still")[1]
    assert "partly" in text
    done = [replace(step, state="done", seconds=None) for step in (ingest, encode)]
    assert plan_text(done).count("~") == 1
    assert "judge" in plan_text([PlannedStep("judge", "sbert", "scores")])


def test_a_result_is_json_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    SharedOptions(as_json=True).show({"text": "café 图"}, "text")
    SharedOptions().show({}, "café 图")
    out = capsys.readouterr().out
    assert out.endswith("\ncafé 图\n")
    assert json.loads(out.removesuffix("café 图\n")) == {"text": "café 图"}
