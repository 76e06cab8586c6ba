"""Contract: the recorded trainings alone give the recorded table, and the page on comparing losses shows it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.fit_table import FitTable
from experiments.params import load_experiments
from relabel.stages import Project

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


@pytest.mark.slow
def test_the_trainings_give_the_table(small_project: Project, tmp_path: Path) -> None:
    """Check settings, figures, claims and points of the picture; a training that is missing would need features."""
    shutil.copytree(small_project.folder("corpus"), tmp_path / "coco" / "corpus")
    project = replace(small_project, labels=tmp_path)
    table = FitTable(project, load_experiments(budget="full"), RESULTS / "fit_trials.jsonl")
    table.run()
    for name, recorded in (("table.json", "fit_full.json"), ("table.md", "fit_full.md")):
        assert (table.out / name).read_text(encoding="utf-8") == (RESULTS / recorded).read_text(encoding="utf-8")
    assert (table.out / "labels.png").stat().st_size > 10_000


def test_a_search_of_the_table_has_seeds_of_its_own() -> None:
    params = load_experiments(budget="full").fit_table
    assert not set(params.search_seeds) & set(params.seeds)


def test_the_page_shows_the_table() -> None:
    page = (ROOT / "docs" / "loss-comparison.md").read_text(encoding="utf-8")
    blocks = re.findall(r"### .+\n\n(?:\|.*\n)+", (RESULTS / "fit_full.md").read_text(encoding="utf-8"))
    assert len(blocks) >= 2
    for block in blocks:
        assert block in page, block


def test_records_are_those_of_the_search_and_of_the_table() -> None:
    records = [json.loads(line) for line in (RESULTS / "fit_trials.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len({record["key"] for record in records}) == len(records)
    seeds = {record["seed"] for record in records if "figures" in record}
    assert not seeds & {record["seed"] for record in records if "figures" not in record and "seed" in record}
