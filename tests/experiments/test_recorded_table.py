"""Contract: the recorded table follows from the recorded trainings, and the page on comparing losses shows it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from experiments.fit_table.claims import judge_claims
from experiments.fit_table.search import Setting, choose_setting
from experiments.params import FitTableParams, load_experiments

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"

Trainings = dict[tuple[str, str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    body: dict[str, Any] = json.loads((RESULTS / "fit_full.json").read_text(encoding="utf-8"))
    return body


@pytest.fixture(scope="module")
def trainings() -> Trainings:
    found: Trainings = {}
    for line in (RESULTS / "fit_trials.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        found.setdefault((record["model"], record["row"]), []).append(record)
    return found


def search_scores(records: list[dict[str, Any]]) -> dict[tuple[Setting, int], float]:
    """Return the RSUM on val of the trainings that choose; those of the table have figures on test."""
    chosen = [record for record in records if "figures" not in record]
    scores = {
        (Setting(r["lr"], r["value"]), r["seed"]): -math.inf if r["val"] is None else float(r["val"]) for r in chosen
    }
    assert len(scores) == len(chosen), "a setting has two trainings"
    return scores


def finals(records: list[dict[str, Any]], row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [r for r in records if "figures" in r and (r["lr"], r["value"]) == (row["lr"], row["value"])]


def test_settings_are_those_that_the_search_chooses(table: dict[str, Any], trainings: Trainings) -> None:
    params = FitTableParams(**table["params"])
    for model, rows in table["rows"].items():
        budget, further = params.models[model], params.label_rows(model)
        if budget.average:
            continue  # the settings are those of its parts
        for name, row in rows.items():
            lrs = (rows[further[name][0]]["lr"],) if name in further else budget.lrs or params.lrs
            values, finalists = params.rows_of(model)[name].values, budget.finalists or params.finalists
            scores = search_scores(trainings[model, name])
            found = choose_setting(lrs, values, params.extend, finalists, params.search_seeds, scores)
            assert found == (Setting(row["lr"], row["value"]), []), (model, name)


def test_figures_and_claims_are_those_of_the_trainings(table: dict[str, Any], trainings: Trainings) -> None:
    for model, rows in table["rows"].items():
        records = {name: finals(trainings[model, name], row) for name, row in rows.items()}
        for name, row in rows.items():
            by_seed = {r["seed"]: r["figures"]["RSUM"] for r in records[name]}
            assert sorted(by_seed.values()) == sorted(row["RSUM"]["seeds"]), (model, name)
        judged = json.loads(json.dumps(judge_claims(model, records)))
        recorded = [claim for claim in table["claims"] if claim["model"] == model]
        for ours, theirs in zip(judged, recorded, strict=True):
            assert ours.pop("difference") == pytest.approx(theirs["difference"])
            assert ours.pop("interval") == pytest.approx(theirs["interval"])
            assert ours.pop("baseline_mean") == pytest.approx(theirs["baseline_mean"])
            assert ours.items() <= theirs.items()


def test_the_page_shows_the_table() -> None:
    page = (ROOT / "docs" / "loss-comparison.md").read_text(encoding="utf-8")
    blocks = re.findall(r"### .+\n\n(?:\|.*\n)+", (RESULTS / "fit_full.md").read_text(encoding="utf-8"))
    assert len(blocks) >= 2
    for block in blocks:
        assert block in page, block


def test_the_table_is_that_of_the_full_budget(table: dict[str, Any]) -> None:
    full = load_experiments(budget="full").fit_table.model_dump(mode="json")
    assert table["params"] == json.loads(json.dumps(full))
