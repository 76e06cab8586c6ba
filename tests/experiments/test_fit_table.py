"""Contract: the table trains every loss with a chosen setting and the same seeds. Labels are scaled to 1 and have their
range. Means and standard deviations are those over the seeds.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import fit_table
from experiments.fit_table import FitTable
from experiments.fit_table.search import Setting
from experiments.fit_table.table import COLUMNS, figures, summary, to_table
from experiments.fit_table.trials import Trial, TrialFile, make_trial
from experiments.params import Experiments, FitTableParams, ModelBudget
from relabel.sources import source_class
from relabel.stages import Project
from relabel_train.reference.objective import LOSSES, Objective


def bounds(label: str | None) -> tuple[float, float]:
    return source_class(label or "sbert").spec.bounds


def trial(name: str, params: FitTableParams | None = None, test: bool = True, seed: int = 1) -> Trial:
    params = params or FitTableParams()
    row = params.rows_of("vsepp")[name]
    setting = Setting(1e-3, row.values[0] if row.values else None)
    return make_trial(params, "vsepp", name, bounds(row.label), setting, seed, test)


def test_every_loss_and_every_value_can_be_trained() -> None:
    params = FitTableParams()
    rows = params.rows_of("vsepp")
    assert {item.partition(":")[0] for row in rows.values() for item in row.loss} == set(LOSSES)
    for name, row in rows.items():
        assert len(set(row.values)) == len(row.values) >= 4, name
        for value in row.values:
            made = make_trial(params, "vsepp", name, bounds(row.label), Setting(1e-3, value), 1, True).training
            low, _ = bounds(row.label)
            Objective(made["loss"], made["loss_kwargs"]).check_bounds(low / made["scale"], 1.0)


def test_labels_have_their_range() -> None:
    params = FitTableParams(models={"vsepp": ModelBudget(by_label=("smooth_ndcg_triplet",))})
    by_cider, by_sbert = (trial(f"smooth_ndcg_triplet{label}", params) for label in (", cider", ""))
    assert (by_cider.training["scale"], by_cider.label) == (10.0, "cider")
    assert (by_sbert.training["scale"], by_sbert.label) == (1.0, "sbert")
    assert by_cider.training["loss_kwargs"][-1] == "smooth_ndcg_triplet.labels=unit"
    assert by_sbert.training["loss_kwargs"][-1] == "smooth_ndcg_triplet.labels=cosine"


def test_other_parameters_are_new_trials() -> None:
    key = trial("bcls").key
    assert trial("bcls").key == key
    others = [trial("bcls", FitTableParams(epochs=3)), trial("bcls", seed=2), trial("bcls", FitTableParams(graded=7))]
    budgets = [{"embed_dim": 64}, {"epochs": 2}, {"batch_size": 32}]
    others += [trial("bcls", FitTableParams(models={"vsepp": ModelBudget(**budget)})) for budget in budgets]
    others += [trial("triplet, warm-up"), trial("triplet")]
    assert len({key, *(other.key for other in others)}) == len(others) + 1
    # A search reads no test split: other judges of it change nothing.
    search = trial("bcls", test=False)
    assert (search.evaluation, trial("bcls", FitTableParams(graded=7), test=False).key) == (None, search.key)


@pytest.fixture
def project(small_project: Project, tmp_path: Path) -> Project:
    shutil.copytree(small_project.folder("corpus"), tmp_path / "coco" / "corpus")
    return replace(small_project, labels=tmp_path)


def run(
    project: Project, monkeypatch: pytest.MonkeyPatch, best: dict[str, Setting], **values: Any
) -> tuple[dict[str, Any], list[Trial]]:
    """Run a table with trainings whose RSUM falls with the distance from a row's best setting; return what ran."""
    ran: list[Trial] = []

    def train(trials: Iterable[Trial], _: Any, __: Any, records: TrialFile, ___: Any) -> None:
        for made in trials:
            if made.key in records.records:
                continue
            ran.append(made)
            wanted, facts = best[made.facts["row"]], made.facts
            apart = abs(np.log((facts["lr"] or wanted.lr) / wanted.lr)) + abs(
                (facts["value"] or 0) - (wanted.value or 0)
            )
            seen = {} if made.evaluation is None else {"figures": dict.fromkeys(COLUMNS, float(facts["seed"]))}
            records.add({"key": made.key, **facts, "val": 300 - float(apart), **seen})

    monkeypatch.setattr(fit_table, "run_trials", train)
    monkeypatch.setattr(FitTable, "inputs", (None, "digest"))
    monkeypatch.setattr(
        fit_table, "label_agreement", lambda _, labels: {x: dict.fromkeys(("pearson", "low", "high")) for x in labels}
    )
    table = FitTable(project, Experiments(fit_table=FitTableParams(**values)))
    return table.run()[0]["rows"], ran


def test_rows_are_trained_with_their_best_setting(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    best = {"bcls": Setting(2e-3, 0.3), "triplet": Setting(5e-4, 0.2)}
    values: dict[str, Any] = {"models": {"vsepp": ModelBudget(rows=tuple(best))}, "seeds": (1, 2)}
    rows, ran = run(project, monkeypatch, best, **values)
    assert {name: Setting(row["lr"], row["value"]) for name, row in rows["vsepp"].items()} == best
    assert rows["vsepp"]["bcls"]["RSUM"]["seeds"] == [1, 2]
    searched = [made.facts for made in ran if made.evaluation is None]
    assert {facts["seed"] for facts in searched} == {0, 101, 102}
    # Two rates of each row, then two values at the best rate: the default of bcls is not one of these.
    again = [(facts["row"], facts["lr"], facts["value"]) for facts in searched if facts["seed"] == 101]
    assert len(again) == len(set(again)) == 4 + 3
    # Nothing is trained again, and the file alone gives the same table.
    assert run(project, monkeypatch, best, **values) == (rows, [])


def test_averages_follow_their_parts(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the rows that all parts have trained, in the order of the models."""
    models = {
        "sgraf": ModelBudget(average=("sgr", "saf")),
        "sgr": ModelBudget(rows=("bcls", "triplet"), images=7),
        "saf": ModelBudget(rows=("bcls",), images=7),
    }
    best = {name: Setting(2e-3, 0.3) for name in ("bcls", "triplet")}
    rows, ran = run(project, monkeypatch, best, models=models, seeds=(1, 2))
    assert {model: list(of_model) for model, of_model in rows.items()} == {
        "sgraf": ["bcls"],
        "sgr": ["bcls", "triplet"],
        "saf": ["bcls"],
    }
    average = ran[-1]
    assert [part.facts["model"] for part in average.parts] == ["sgr", "saf"]
    assert (average.facts["model"], average.evaluation) == ("sgraf", average.parts[0].evaluation)
    (table,) = (t for t in to_table(rows, FitTableParams(models=models), []) if "sgraf" in t.title)
    assert table.title.startswith("Losses and labels, sgraf (mean scores of sgr and saf) 128-d")
    assert table.rows[0][:2] == ("bcls", "")


def record(value: float, eccv: bool = True) -> dict[str, Any]:
    two = {"i2t": value, "t2i": value + 2}
    labels = {"ndcg": two, "cs100": two, "kendall_tau_b": two, "nsum_without_gt_percent": {"both": 6 * value}}
    graded = {"figures": {"all": {"rsum_percent": {"both": value * 10}}, "labels": labels}}
    retrieval = {"figures": {"eccv": {"map_at_r_percent": two}} if eccv else {}}
    found = figures({"graded": {"sbert": graded, "cider": graded}, "retrieval": retrieval}, FitTableParams())
    return {"figures": found, "lr": 0.001, "value": 0.2}


def test_means_and_spreads() -> None:
    rows = summary({"a": [record(1), record(2), record(6)], "b": [record(5, eccv=False)]})
    expected = {"RSUM": 30, "nDCG": 4, "CS@100": 4, "Kendall tau": 4, "NCS": 3, "ECCV i2t": 3, "ECCV t2i": 5}
    assert {name: rows["a"][name]["mean"] for name in COLUMNS} == pytest.approx(expected)
    assert rows["a"]["nDCG"]["sd"] == pytest.approx(np.std([1, 2, 6], ddof=1))
    assert (rows["b"]["nDCG"]["sd"], rows["b"]["ECCV i2t"]["mean"]) == (None, None)
    (table,) = to_table({"vsepp": rows}, FitTableParams(), ["a stand-in"])
    assert table.rows[0][:3] == ("a", "0.001, 0.2", "30.0 ± 26.5")
    assert table.notes == ("a stand-in",)
