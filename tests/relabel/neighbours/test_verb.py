"""Contract: `relabel neighbours` takes a label by any of its names, makes the table and says what it holds; what a user
can cause ends in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from relabel_cli.verbs.neighbours import app


def run(dataset: Any, *arguments: str) -> Any:
    body: dict[str, Any] = {}
    for setting in (*dataset.all_settings, "neighbours.k=100"):
        name, _, value = setting.partition("=")
        *parents, last = name.split(".")
        inner = body
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = yaml.safe_load(value)
    Path("params.yaml").write_text(yaml.safe_dump(body), encoding="utf-8")
    return CliRunner().invoke(app, ["--quiet", *arguments])


def test_the_table_is_made_and_said(dataset: Any, make_lines: Any, block_finder: None) -> None:
    dataset.encoded(make_lines(6, "train") + make_lines(4, "val", 50), labels=["near", "cider"])
    for flag in ("--source", "--label", "-l"):
        made = run(dataset, flag, "near", "-k", "3", "--of", "images", "--within", "val")
        assert made.exit_code == 0, made.output
        assert "3 neighbours of each of 4 images; exact" in made.stdout
    assert Path("labels/coco/neighbours/val/images/near/manifest.json").exists()
    made = run(dataset, "-k", "3", "--json", "--source", "near", "--index", "IVF2,Flat")
    facts = json.loads(made.stdout)
    assert 0 < facts["recall"]["value"] <= 1
    assert facts["exact"] is False
    kept = run(dataset)
    assert kept.exit_code == 2
    assert "of a trial" in kept.stderr
    every = run(dataset, "--replace")
    assert [line.split(":")[0] for line in every.stdout.splitlines()[::2]] == ["neighbours cider", "neighbours near"]


def test_a_source_without_neighbours_ends_in_one_line(dataset: Any, make_lines: Any) -> None:
    dataset.encoded(make_lines(2, "train"))
    made = run(dataset, "--source", "words")
    assert made.exit_code == 2
    assert made.stderr.strip().count("\n") == 0
    assert "words has no neighbours: it scores pair by pair" in made.stderr
