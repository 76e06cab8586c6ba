"""Contract: the table trains every loss with one budget, once a seed; labels come scaled to 1 and with their range;
means and spreads are those of the seeds."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relabel.errors import UsageError
from relabel.fitting.params import FitTableParams, Row
from relabel.fitting.table import COLUMNS, summary, to_csv, to_table
from relabel.fitting.trials import Places, make_trials
from relabel.sources import source_class
from relabel_train.training.objective import LOSSES, Objective

SOURCES = {"sbert": source_class("sbert"), "cider": source_class("cider")}


def places(identity: str = "x") -> Places:
    lookups = {name: Path("lookup") / name for name in SOURCES}
    return Places(Path("features"), Path("corpus"), Path("runs"), lookups, None, identity)


def test_every_loss_with_one_budget_and_the_same_seeds() -> None:
    params = FitTableParams(seeds=(0, 1))
    rows = make_trials(params, places(), SOURCES)
    assert {row.loss[0] for row in params.settled().values()} == set(LOSSES)
    budgets = set()
    for some in rows.values():
        assert [trial.train.seed for trial in some] == [0, 1]
        for trial in some:
            t = trial.train
            budgets.add((t.epochs, t.batch_size, t.lr, t.embed, t.word, t.decay_at, t.model))
            Objective(t.loss, t.loss_set)
    assert len(budgets) == 1
    folders = [trial.train.out for some in rows.values() for trial in some]
    assert len(set(folders)) == len(folders)
    assert {row for row in rows if "graded" in row} == {"bcls, graded batches", "smooth_ndcg_triplet, graded batches"}


def test_labels_come_with_their_range() -> None:
    rows = make_trials(FitTableParams(), places(), SOURCES)
    by_cider, by_sbert = rows["smooth_ndcg_triplet, cider"][0].train, rows["smooth_ndcg_triplet"][0].train
    assert (by_cider.scale, by_cider.loss_set) == (10.0, ("smooth_ndcg_triplet.labels=unit",))
    assert (by_sbert.scale, by_sbert.loss_set) == (1.0, ("smooth_ndcg_triplet.labels=cosine",))
    assert rows["sam"][0].train.labels == Path("lookup/cider")
    given = FitTableParams(rows={"one": Row(loss=("smooth_ndcg",), loss_set=("labels=unit",))})
    assert make_trials(given, places(), SOURCES)["one"][0].train.loss_set == ("labels=unit",)


def test_other_inputs_or_parameters_are_other_runs() -> None:
    one = make_trials(FitTableParams(), places(), SOURCES)["bcls"][0].train.out
    assert make_trials(FitTableParams(), places(), SOURCES)["bcls"][0].train.out == one
    assert make_trials(FitTableParams(), places("y"), SOURCES)["bcls"][0].train.out != one
    assert make_trials(FitTableParams(lr=0.1), places(), SOURCES)["bcls"][0].train.out != one
    with pytest.raises(UsageError, match="trained with tuned"):
        make_trials(FitTableParams(rows={"a": Row(loss=("bcls",), label="tuned")}), places(), SOURCES)


def result(value: float, eccv: bool = True) -> dict[str, Any]:
    two = {"i2t": value, "t2i": value + 2}
    labels = {"ndcg": two, "cs100": two, "kendall_tau_b": two, "nsum_without_gt_percent": {"both": 6 * value}}
    graded = {"figures": {"all": {"rsum_percent": {"both": value * 10}}, "labels": labels}}
    retrieval = {"figures": {"eccv": {"map_at_r_percent": two}} if eccv else {}}
    evaluation = {"graded": {"sbert": graded, "cider": graded}, "retrieval": retrieval}
    return {"training": {"seconds": 1.0}, "evaluation": evaluation}


def test_means_and_spreads() -> None:
    rows = summary({"a": [result(1), result(2), result(6)], "b": [result(5, eccv=False)]}, FitTableParams())
    wanted = {"RSUM": 30, "nDCG": 4, "CS@100": 4, "Kendall tau": 4, "NCS": 3, "ECCV i2t": 3, "ECCV t2i": 5}
    assert {name: rows["a"][name]["mean"] for name in COLUMNS} == pytest.approx(wanted)
    assert rows["a"]["nDCG"]["sd"] == pytest.approx(np.std([1, 2, 6], ddof=1))
    assert rows["b"]["nDCG"]["sd"] is None
    assert rows["b"]["ECCV i2t"]["mean"] is None
    read = list(csv.DictReader(to_csv(rows).splitlines()))
    assert float(read[0]["RSUM mean"]) == pytest.approx(30)
    assert read[1]["ECCV t2i mean"] == ""
    table = to_table(rows, FitTableParams(), ["a stand-in"])
    assert table.rows[0][1] == "30.0 ± 26.5"
    assert table.notes == ("a stand-in",)
