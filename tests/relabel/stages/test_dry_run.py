"""Contract: a dry run states the rows of a published dataset, and the state, rows and bytes of what exists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relabel import stages
from relabel.config import load_config
from relabel.core.runtime import Runtime
from relabel.stages import Project
from relabel.stages.run import plan_run, run
from relabel.store.artefact import work_folder


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_empty_project_states_the_rows_of_a_published_dataset() -> None:
    steps = plan_run(Project(load_config(None), Runtime(data=Path("data"))), "train", ["cider"])
    assert {(step.stage, step.name): step.rows for step in steps} == {
        ("fetch", "coco-captions"): None,
        ("ingest", "coco"): 616_767,
        ("encode", "cider"): 566_747,
        ("neighbours", "cider"): 566_747,
        ("export", "cider"): 566_747,
        ("report", "train"): None,
    }


def test_states_and_rows_follow_the_artefacts() -> None:
    lines = [{"caption_id": str(i), "image_id": str(i // 5), "text": f"dog {i}"} for i in range(10)]
    Path("captions.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    settings = ["ingest.path=captions.jsonl", "ingest.format=jsonl", "ingest.dataset=mine"]
    settings.append("sources={mine: {source: cider, tokenizer: lower_split}}")
    project = Project(load_config(None, settings), Runtime())
    stages.ingest(project).run()

    def states() -> dict[str, tuple[str, int | None]]:
        return {step.stage: (step.state, step.rows) for step in plan_run(project, "all", ["mine"])}

    ahead = dict.fromkeys(("encode", "neighbours", "export"), ("to do", 10)) | {"report": ("to do", None)}
    assert states() == {"ingest": ("done", 10), **ahead}
    job = stages.encode(project, "mine", "all")
    begun = work_folder(job.out, job.spec.fingerprint)
    begun.mkdir(parents=True)
    assert states() == {"ingest": ("done", 10), **ahead, "encode": ("partly", 10)}
    begun.rmdir()
    assert run(project, "all", ["mine"]).problems == []
    steps = plan_run(project, "all", ["mine"])
    assert {step.state for step in steps} == {"done"}
    for step in steps:
        files = [path for path in Path(step.out).rglob("*") if path.is_file() and path.name != "manifest.json"]
        assert step.bytes == sum(path.stat().st_size for path in files)
