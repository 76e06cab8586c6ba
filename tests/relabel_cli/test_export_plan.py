"""Contract: `relabel export plan` writes a plan of the size that it estimates; a missing input or a limit is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.relabel_cli.runner import invoke

from relabel_train.plan import open_plan

COMMON = ["--dataset", "mine", "--set", "ingest.format=jsonl", "--set", "ingest.path=captions.jsonl"]
COMMON += ["--set", "ingest.tokenizer=none", "--set", "sources.cider.tokenizer=lower_split"]


def relabel(*arguments: str) -> tuple[int, str]:
    return invoke(*arguments, *COMMON)


def test_a_plan_has_the_size_that_it_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Path("captions.jsonl").open("w", encoding="utf-8") as file:
        for row in range(60):
            text = f"a {('dog', 'cat', 'bird')[row % 3]} on a {('chair', 'hill')[row % 2]} number {row // 5}"
            line = {"caption_id": str(row), "image_id": str(row // 5), "split": "train", "text": text}
            file.write(json.dumps(line) + "\n")
    assert relabel("ingest")[0] == 0
    assert relabel("encode", "--label", "cider", "--split", "train")[0] == 0
    plan = ["export", "plan", "--label", "cider", "--batch-size", "8", "--epochs", "2", "--seed", "3"]
    code, output = invoke(*plan, *COMMON, quiet=False)
    assert code == 0, output
    assert "14 batches of 8, 0.000 GB, 896 pairs to score" in output
    folder = Path("labels/mine/exports/train/plan/cider-random-b8-e2-s3")
    assert (len(open_plan(folder)), open_plan(folder).epochs) == (14, 2)
    assert "up to date" in invoke(*plan, *COMMON, quiet=False)[1]
    code, output = relabel(*plan, "--sampler", "graded")
    assert (code, "relabel neighbours --label cider --within train" in output) == (3, True)
    code, output = relabel(*plan, "--max-bytes", "1kB", "--name", "other")
    assert (code, "--max-bytes" in output) == (2, True)
    assert not (folder.parent / "other").exists()
