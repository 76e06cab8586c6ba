"""Contract: the table trains every loss with one budget, once per seed. Labels are scaled to 1 and have their range.
Means and standard deviations are those over the seeds.
"""

from __future__ import annotations

import csv
import shlex
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.fit_table import read_table, run_all, table_spec
from experiments.fit_table.__main__ import next_commands
from experiments.fit_table.table import COLUMNS, summary, to_csv, to_table
from experiments.fit_table.trials import Inputs, make_trials
from experiments.params import Experiments, FitTableParams, ProxyFeaturesParams, Row
from relabel.core.errors import CheckError, PartialError, UsageError
from relabel.sources import source_class
from relabel.stages import Project
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec
from relabel_train.training.objective import LOSSES, Objective

SOURCES = {"sbert": source_class("sbert"), "cider": source_class("cider")}


def inputs(identity: str = "x") -> Inputs:
    lookups = {name: Path("lookup") / name for name in SOURCES}
    return Inputs(Path("features"), Path("corpus"), Path("runs"), lookups, None, identity)


def test_every_loss_with_one_budget_and_the_same_seeds() -> None:
    params = FitTableParams(seeds=(0, 1))
    rows = make_trials(params, inputs(), SOURCES)
    assert {row.loss[0] for row in params.all_rows().values()} == set(LOSSES)
    budgets = set()
    for trials_of_row in rows.values():
        assert [trial.train.seed for trial in trials_of_row] == [0, 1]
        for trial in trials_of_row:
            t = trial.train
            budgets.add((t.epochs, t.batch_size, t.lr, t.embed, t.word, t.decay_at, t.model))
            Objective(t.loss, t.loss_set)
    assert len(budgets) == 1
    folders = [trial.train.out for trials_of_row in rows.values() for trial in trials_of_row]
    assert len(set(folders)) == len(folders)
    assert {row for row in rows if "graded" in row} == {"bcls, graded batches", "smooth_ndcg_triplet, graded batches"}


def test_labels_have_their_range() -> None:
    rows = make_trials(FitTableParams(), inputs(), SOURCES)
    by_cider, by_sbert = rows["smooth_ndcg_triplet, cider"][0].train, rows["smooth_ndcg_triplet"][0].train
    assert (by_cider.scale, by_cider.loss_set) == (10.0, ("smooth_ndcg_triplet.labels=unit",))
    assert (by_sbert.scale, by_sbert.loss_set) == (1.0, ("smooth_ndcg_triplet.labels=cosine",))
    assert rows["sam"][0].train.labels == Path("lookup/cider")
    params = FitTableParams(rows={"one": Row(loss=("smooth_ndcg",), loss_set=("labels=unit",))})
    assert make_trials(params, inputs(), SOURCES)["one"][0].train.loss_set == ("labels=unit",)


def test_other_inputs_or_parameters_are_new_runs() -> None:
    one = make_trials(FitTableParams(), inputs(), SOURCES)["bcls"][0].train.out
    assert make_trials(FitTableParams(), inputs(), SOURCES)["bcls"][0].train.out == one
    assert make_trials(FitTableParams(), inputs("y"), SOURCES)["bcls"][0].train.out != one
    assert make_trials(FitTableParams(lr=0.1), inputs(), SOURCES)["bcls"][0].train.out != one
    with pytest.raises(UsageError, match="trained with tuned"):
        make_trials(FitTableParams(rows={"a": Row(loss=("bcls",), label="tuned")}), inputs(), SOURCES)


def test_every_parameter_changes_the_fingerprint(small_project: Project) -> None:
    def fingerprint(**values: Any) -> str:
        return table_spec(small_project, FitTableParams(**values), {"features": "x"}, True).fingerprint

    other: dict[str, Any] = {
        "train_labels": ("cider",),
        "judge": "cider",
        "ncs": "sbert",
        "rows": {"one": {"loss": ["bcls"]}},
        "seeds": (0,),
        "model": "vse_inf",
        "lr": 0.1,
    }
    names = FitTableParams.model_fields
    fingerprints = {fingerprint(**{name: other.get(name, 7)}) for name in names}
    assert len(fingerprints | {fingerprint()}) == len(names) + 1


def result(value: float, eccv: bool = True) -> dict[str, Any]:
    two = {"i2t": value, "t2i": value + 2}
    labels = {"ndcg": two, "cs100": two, "kendall_tau_b": two, "nsum_without_gt_percent": {"both": 6 * value}}
    graded = {"figures": {"all": {"rsum_percent": {"both": value * 10}}, "labels": labels}}
    retrieval = {"figures": {"eccv": {"map_at_r_percent": two}} if eccv else {}}
    evaluation = {"graded": {"sbert": graded, "cider": graded}, "retrieval": retrieval}
    return {"training": {"seconds": 1.0}, "evaluation": evaluation}


def test_means_and_spreads() -> None:
    rows = summary({"a": [result(1), result(2), result(6)], "b": [result(5, eccv=False)]}, FitTableParams())
    expected = {"RSUM": 30, "nDCG": 4, "CS@100": 4, "Kendall tau": 4, "NCS": 3, "ECCV i2t": 3, "ECCV t2i": 5}
    assert {name: rows["a"][name]["mean"] for name in COLUMNS} == pytest.approx(expected)
    assert rows["a"]["nDCG"]["sd"] == pytest.approx(np.std([1, 2, 6], ddof=1))
    assert rows["b"]["nDCG"]["sd"] is None
    assert rows["b"]["ECCV i2t"]["mean"] is None
    read = list(csv.DictReader(to_csv(rows).splitlines()))
    assert float(read[0]["RSUM mean"]) == pytest.approx(30)
    assert read[1]["ECCV t2i mean"] == ""
    table = to_table(rows, FitTableParams(), ["a stand-in"])
    assert table.rows[0][1] == "30.0 ± 26.5"
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


def test_a_killed_training_process_is_an_error_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise BrokenProcessPool("a process ended abruptly")

    monkeypatch.setattr("experiments.fit_table.trials.run_trials", killed)
    with pytest.raises(PartialError, match="a training process was killed"):
        run_all([], tmp_path, 1, lambda *_: None)


def test_the_next_commands_train_the_best_row(small_project: Project) -> None:
    parameters = Experiments(proxy_features=ProxyFeaturesParams(train=3, val=2, test=2))
    rows = {name: {"RSUM": {"mean": float(name == "sam")}} for name in parameters.fit_table.all_rows()}
    fit, evaluate = (shlex.split(line) for line in next_commands(small_project, parameters, rows))
    assert fit[:2] == ["relabel", "fit"]
    assert fit[fit.index("--loss") + 1] == "sam"
    assert fit[fit.index("--out") + 1] == evaluate[evaluate.index("--run") + 1] == "runs/sam"
    assert "--labels" in fit
