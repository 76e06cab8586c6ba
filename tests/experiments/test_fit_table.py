"""Contract: the table trains every loss with a chosen setting and the same seeds. Labels are scaled to 1 and have their
range. Means and standard deviations are those over the seeds.
"""

from __future__ import annotations

import csv
import json
import shlex
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from experiments.fit_table import read_table, run_table, table_spec
from experiments.fit_table.__main__ import next_commands
from experiments.fit_table.search import Setting
from experiments.fit_table.table import COLUMNS, figures, summary, to_csv, to_table
from experiments.fit_table.trials import Inputs, Trial, TrialFile, make_trial
from experiments.params import Experiments, FitTableParams, ModelBudget, ProxyFeaturesParams, load_experiments
from experiments.rows import Row
from relabel.core.errors import CheckError, PartialError
from relabel.sources import source_class
from relabel.stages import Project
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec
from relabel_train.training.objective import LOSSES, Objective

SOURCES = {"sbert": source_class("sbert"), "cider": source_class("cider")}
SETTING = Setting(1e-3, None)


def inputs(**digests: str) -> Inputs:
    lookups = {name: Path("lookup") / name for name in SOURCES}
    names = ("features", "corpus", *SOURCES)
    known = dict.fromkeys(names, "x") | digests
    return Inputs(Path("features"), Path("corpus"), Path("runs"), lookups, None, known, SOURCES)


def trial(name: str, params: FitTableParams | None = None, test: bool = True, seed: int = 1, **digests: str) -> Trial:
    params = params or FitTableParams()
    row = params.rows_of("vsepp")[name]
    setting = Setting(1e-3, row.values[0] if row.values else None)
    return make_trial(params, inputs(**digests), "vsepp", name, setting, seed, test)


def test_every_loss_and_every_value_can_be_trained() -> None:
    params = FitTableParams()
    rows = params.rows_of("vsepp")
    assert {item.partition(":")[0] for row in rows.values() for item in row.loss} == set(LOSSES)
    for name, row in rows.items():
        assert len(set(row.values)) == len(row.values) >= 4, name
        low, _ = SOURCES[row.label or "sbert"].spec.bounds
        for value in row.values:
            made = make_trial(params, inputs(), "vsepp", name, Setting(1e-3, value), 1, True).train
            Objective(made.loss, made.loss_set).check_bounds(low / made.scale, 1.0)


def test_budgets_are_valid_and_share_their_features() -> None:
    small, full = (load_experiments(budget=name) for name in ("small", "full"))  # type: ignore[arg-type]
    assert small.proxy_features == full.proxy_features
    assert small.fit_table.name != full.fit_table.name
    assert len(full.fit_table.lrs) >= 5
    assert len(full.fit_table.seeds) == 5
    assert not set(full.fit_table.search_seeds) & set(full.fit_table.seeds)


def test_labels_have_their_range() -> None:
    params = FitTableParams(models={"vsepp": ModelBudget(by_label=("smooth_ndcg_triplet",))})
    by_cider, by_sbert = (trial(name, params).train for name in ("smooth_ndcg_triplet, cider", "smooth_ndcg_triplet"))
    assert (by_cider.scale, by_cider.loss_set[-1]) == (10.0, "smooth_ndcg_triplet.labels=unit")
    assert (by_sbert.scale, by_sbert.loss_set[-1]) == (1.0, "smooth_ndcg_triplet.labels=cosine")
    assert trial("sam").train.labels == Path("lookup/cider")
    params = FitTableParams(rows={"one": Row(loss=("smooth_ndcg",), loss_set=("labels=unit",))})
    assert trial("one", params).train.loss_set == ("labels=unit",)


def test_other_inputs_or_parameters_are_new_trials() -> None:
    key = trial("bcls").key
    assert trial("bcls").key == key
    assert trial("bcls", sbert="y").key != key
    assert trial("bcls", FitTableParams(epochs=3)).key != key
    assert trial("bcls", seed=2).key != key
    assert trial("triplet, warm-up").key != trial("triplet").key
    # A search reads no test split: other judges of it change nothing.
    search = trial("bcls", test=False)
    assert (search.held, trial("bcls", FitTableParams(graded=7), test=False).key) == (None, search.key)
    assert trial("bcls", FitTableParams(graded=7)).key != key


def test_a_model_may_have_a_budget_of_its_own() -> None:
    budget = {"embed": 64, "epochs": 2, "batch_size": 32}
    own, default = (trial("bcls", FitTableParams(models={"vsepp": values})).train for values in (budget, {}))
    assert {name: getattr(own, name) for name in budget} == budget
    assert default.batch_size == FitTableParams().batch_size != 32
    own_values = FitTableParams(models={"sgr": {"values": {"bcls": [0.1, 0.3]}, "by_label": ["bcls"]}, "vsepp": {}})
    assert [own_values.rows_of("sgr")[name].values for name in ("bcls", "bcls, cider")] == [(0.1, 0.3), (0.1, 0.3)]
    assert own_values.rows_of("vsepp")["bcls"].values[0] == 1


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rows": {"a": {"loss": ["bcls"], "label": "tuned"}}}, "trained with tuned; add it to train_labels"),
        ({"models": {"vsepp": {"rows": ["gone"]}}}, "trains row 'gone'"),
        ({"models": {"vsepp": {"by_label": ["gone"]}}}, "trains row 'gone'"),
        ({"models": {"vsepp": {"rows": ["bcls"], "values": {"sam": [1]}}}}, "values of row 'sam', which it does not"),
        ({"models": {"sgr": {}, "sgraf": {"average": ["sgr", "saf"]}}}, "averages 'saf', which is not trained"),
    ],
)
def test_rows_and_labels_must_exist(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        FitTableParams(**values)


def test_every_parameter_changes_the_fingerprint(small_project: Project) -> None:
    def fingerprint(**values: Any) -> str:
        return table_spec(small_project, FitTableParams(**values), {"features": "x"}, True).fingerprint

    other: dict[str, Any] = {
        "name": "other",
        "train_labels": ("sbert", "cider", "cbow"),
        "judge": "cider",
        "ncs": "sbert",
        "rows": {"one": {"loss": ["bcls"]}},
        "models": {"vse_inf": {}},
        "seeds": (0,),
        "search_seeds": (7,),
        "lrs": (0.1,),
    }
    names = FitTableParams.model_fields
    fingerprints = {fingerprint(**{name: other.get(name, 7)}) for name in names}
    assert len(fingerprints | {fingerprint()}) == len(names) + 1


def fake_records(monkeypatch: pytest.MonkeyPatch, best: dict[str, Setting]) -> list[Trial]:
    """Replace trainings: the RSUM falls with the distance from the best setting of a row. Returns the trials run."""
    run: list[Trial] = []

    def record(trials: Any, records: TrialFile, _: int, __: Any, notify: Any) -> None:
        for made in trials:
            run.append(made)
            wanted = best[made.facts["row"]]
            apart = abs(np.log((made.facts["lr"] or wanted.lr) / wanted.lr)) + abs(
                (made.facts["value"] or 0) - (wanted.value or 0)
            )
            result = {"val": 300 - float(apart), "steps": 3, "seconds": 1.0}
            if made.held is not None:
                result["figures"] = dict.fromkeys(COLUMNS, float(made.facts["seed"]))  # type: ignore[assignment]
            records.add({"key": made.key, **made.facts, **result})
            notify(result)

    monkeypatch.setattr("experiments.fit_table.trials.run_trials", record)
    return run


def test_rows_are_trained_with_their_best_setting(
    small_project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = {"bcls": Setting(2e-3, 0.3), "triplet": Setting(5e-4, 0.2)}
    run = fake_records(monkeypatch, best)
    params = FitTableParams(models={"vsepp": ModelBudget(rows=tuple(best))}, seeds=(1, 2))
    records = TrialFile(tmp_path / "trials.jsonl")
    results = run_table(small_project, params, inputs(), records)
    assert {name: {(r["lr"], r["value"]) for r in row} for name, row in results["vsepp"].items()} == {
        name: {tuple(setting)} for name, setting in best.items()
    }
    assert [r["seed"] for r in results["vsepp"]["bcls"]] == [1, 2]
    searched = [made for made in run if made.held is None]
    assert {made.facts["seed"] for made in searched} == {0, 101, 102}
    # Two rates of each row, then two values at the best rate: the default of bcls is not one of these.
    again = [
        (made.facts["row"], made.facts["lr"], made.facts["value"]) for made in searched if made.facts["seed"] == 101
    ]
    assert len(again) == len(set(again)) == 4 + 3
    count = len(run)
    # Nothing is trained again, and the file alone gives the same table.
    assert run_table(small_project, params, inputs(), TrialFile(tmp_path / "trials.jsonl")) == results
    assert len(run) == count
    assert json.loads((tmp_path / "trials.jsonl").read_text().splitlines()[0])["row"] == "bcls"


def test_rows_of_further_labels_keep_the_rate_of_their_loss(
    small_project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = {"bcls": Setting(2e-3, 0.3), "bcls, cider": Setting(5e-4, 3.0)}
    run = fake_records(monkeypatch, best)
    params = FitTableParams(models={"vsepp": ModelBudget(rows=(), by_label=("bcls",), finalists=1)}, seeds=(1,))
    results = run_table(small_project, params, inputs(), TrialFile(tmp_path / "trials.jsonl"))
    chosen = {name: (row[0]["lr"], row[0]["value"]) for name, row in results["vsepp"].items()}
    assert chosen == {"bcls": (2e-3, 0.3), "bcls, cider": (2e-3, 3.0)}
    assert {made.train.labels for made in run} == {Path("lookup/sbert"), Path("lookup/cider")}


def test_averages_follow_their_parts(small_project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check rows and seeds that all parts have trained, in the order of the models."""
    run = fake_records(monkeypatch, {name: Setting(2e-3, 0.3) for name in ("bcls", "triplet")})
    models = {
        "sgraf": ModelBudget(average=("sgr", "saf"), seeds=(1,)),
        "sgr": ModelBudget(rows=("bcls", "triplet"), images=7, seeds=(1, 2)),
        "saf": ModelBudget(rows=("bcls",), images=7, seeds=(1, 2)),
    }
    params = FitTableParams(models=models)
    results = run_table(small_project, params, inputs(), TrialFile(tmp_path / "trials.jsonl"))
    assert {model: {name: len(r) for name, r in rows.items()} for model, rows in results.items()} == {
        "sgraf": {"bcls": 1},
        "sgr": {"bcls": 2, "triplet": 2},
        "saf": {"bcls": 2},
    }
    average = run[-1]
    assert average.held is not None
    assert (average.facts["model"], average.train.model, average.averaged[0].model) == ("sgraf", "sgr", "saf")
    assert (average.held.average, average.held.images) == ((average.averaged[0].out,), 7)
    (table,) = [t for t in to_table({m: summary(r) for m, r in results.items()}, params, []) if "sgraf" in t.title]
    assert table.title.startswith("Losses and labels, sgraf (mean scores of sgr and saf) 128-d")
    assert table.rows[0][:2] == ("bcls", "")


def test_a_killed_training_process_is_an_error_and_resumes(
    small_project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise BrokenProcessPool("a process ended abruptly")

    monkeypatch.setattr("experiments.fit_table.trials.run_trials", killed)
    with pytest.raises(PartialError, match="a training process was killed"):
        run_table(small_project, FitTableParams(), inputs(), TrialFile(tmp_path / "trials.jsonl"))


def evaluation(value: float, eccv: bool = True) -> dict[str, Any]:
    two = {"i2t": value, "t2i": value + 2}
    labels = {"ndcg": two, "cs100": two, "kendall_tau_b": two, "nsum_without_gt_percent": {"both": 6 * value}}
    graded = {"figures": {"all": {"rsum_percent": {"both": value * 10}}, "labels": labels}}
    retrieval = {"figures": {"eccv": {"map_at_r_percent": two}} if eccv else {}}
    return {"graded": {"sbert": graded, "cider": graded}, "retrieval": retrieval}


def record(value: float, eccv: bool = True) -> dict[str, Any]:
    found = figures(evaluation(value, eccv), FitTableParams())
    return {"figures": found, "lr": 0.001, "value": 0.2, "steps": 10, "seconds": 1.0}


def test_means_and_spreads() -> None:
    rows = summary({"a": [record(1), record(2), record(6)], "b": [record(5, eccv=False)]})
    expected = {"RSUM": 30, "nDCG": 4, "CS@100": 4, "Kendall tau": 4, "NCS": 3, "ECCV i2t": 3, "ECCV t2i": 5}
    assert {name: rows["a"][name]["mean"] for name in COLUMNS} == pytest.approx(expected)
    assert rows["a"]["nDCG"]["sd"] == pytest.approx(np.std([1, 2, 6], ddof=1))
    assert rows["b"]["nDCG"]["sd"] is None
    assert rows["b"]["ECCV i2t"]["mean"] is None
    read = list(csv.DictReader(to_csv({"vsepp": rows}).splitlines()))
    assert float(read[0]["RSUM mean"]) == pytest.approx(30)
    assert (read[0]["model"], read[1]["ECCV t2i mean"]) == ("vsepp", "")
    (table,) = to_table({"vsepp": rows}, FitTableParams(), ["a stand-in"])
    assert table.rows[0][:3] == ("a", "0.001, 0.2", "30.0 ± 26.5")
    assert table.notes == ("a stand-in",)


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    def fill(work: Any) -> None:
        for name in ("table.json", "table.txt"):
            work.file(name, lambda path: path.write_text("{}") and None)

    build(tmp_path / "fit", ArtefactSpec("fit_table", "demo", {}, {}), fill)
    assert read_table(tmp_path / "fit")[2] == "{}"
    (tmp_path / "fit" / "table.txt").write_text("[]")
    with pytest.raises(CheckError, match="sha256"):
        read_table(tmp_path / "fit")


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        ("sam", {"--loss": "sam", "--loss-set": "tau=0.5"}),
        ("triplet, warm-up", {"--loss": "triplet", "--loss-set": "margin=0.5", "--warm-up": "1"}),
        ("bcls, graded batches", {"--loss": "bcls", "--loss-set": "weight=0.5", "--sampler": "graded"}),
    ],
)
def test_the_next_commands_train_the_best_row(best: str, expected: dict[str, str], small_project: Project) -> None:
    parameters = Experiments(proxy_features=ProxyFeaturesParams(train=3, val=2, test=2))
    names = parameters.fit_table.rows_of("vsepp")
    rows = {"vsepp": {n: {"RSUM": {"mean": float(n == best)}, "lr": 0.002, "value": 0.5} for n in names}}
    fit, evaluate = (shlex.split(line) for line in next_commands(small_project, parameters, rows))
    assert fit[:2] == ["relabel", "fit"]
    options = dict(zip(fit[2::2], fit[3::2], strict=True))
    chosen = ("--loss", "--loss-set", "--warm-up", "--sampler")
    assert {name: options[name] for name in chosen if name in options} == expected
    assert options["--lr"] == "0.002"
    assert options["--out"] == evaluate[evaluate.index("--run") + 1] == f"runs/{expected['--loss']}"
    assert "--labels" in fit
