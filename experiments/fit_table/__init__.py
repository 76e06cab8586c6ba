"""The table of losses: every loss trained with a chosen setting on proxy features, and the papers' claims."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.fit_table.claims import claims_tables, judge_claims
from experiments.fit_table.labels import draw_labels, label_agreement, label_points
from experiments.fit_table.search import Setting, choose_setting
from experiments.fit_table.table import figures, summary, to_csv, to_table
from experiments.params import Experiments, FitTableParams
from experiments.proxy_features import proxy_features, remaining_project
from relabel.core.errors import MissingError, PartialError
from relabel.core.tables import Table, markdown, text
from relabel.neighbours.spec import NeighboursParams
from relabel.stages import Job, Project, build_encoding, export_lookup, ingest, log_status, neighbours, run_logged
from relabel.store.files import write_text
from relabel.store.manifest import ArtefactSpec, Manifest, open_artefact
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from experiments.fit_table.trials import Inputs, Record, Trial, TrialFile

TABLE, LABELS, TRIALS = "table", "labels.png", "trials.jsonl"


def fit_table(project: Project, experiments: Experiments, trials: Path | None = None) -> Job:
    """Prepare to train the rows of the table and to write it.

    This builds the inputs: proxy features, the corpus of the remaining captions, its encodings and lookups. The result
    of every training is a line of a file, under a digest of its parameters and inputs, so that no training is repeated.

    Parameters
    ----------
    project : Project
    experiments : Experiments
    trials : Path, optional
        File of finished trainings, which is continued; `runs/trials.jsonl` of the dataset by default.

    Raises
    ------
    UsageError
        If a row or label is not valid.
    MissingError
        If the corpus or a label's model is missing.
    CheckError
        If the file of trainings is damaged.
    """
    from experiments.fit_table.trials import Inputs, TrialFile

    params = experiments.fit_table
    remaining, features = remaining_project(project), proxy_features(project, experiments)
    # A label may train, judge and rank.
    labels = list(dict.fromkeys([*params.train_labels, params.judge, params.ncs]))
    manifests = {"features": run_logged(project, features)}
    log_status(remaining, ingest(remaining), remaining.layout.corpus)
    split = {
        label: "all" if label in (params.train_labels[0], params.judge, params.ncs) else "train" for label in labels
    }
    manifests |= {label: _export_lookup(remaining, label, split[label], params) for label in labels}
    digests = {name: manifest.identity for name, manifest in manifests.items()} | {"corpus": remaining.corpus.digest}
    layout = remaining.layout
    lookups = {label: layout.lookup(split[label], label) for label in labels}
    sources = {label: type(remaining.config.source(label)) for label in labels}
    runs = layout.root / "runs"
    inputs = Inputs(features.out, layout.corpus, runs, lookups, _eccv(project), digests, sources)
    records = TrialFile(trials or runs / TRIALS)
    artefact = table_spec(project, params, digests, inputs.eccv is not None)

    def fill(work: Work) -> None:
        results = run_table(project, params, inputs, records)
        points = []
        if any(budget.by_label for budget in params.models.values()):
            points = label_points(results, params, label_agreement(project, params.train_labels))
        _write(results, points, params, features.out, work)

    variant = experiments.variant(project, lambda e: e.fit_table)
    return Job(layout.root / params.name, artefact, fill, project.runtime.progress, variant=variant)


Results = dict[str, dict[str, list[dict[str, Any]]]]
"""Records of the table's trainings, by model and row, one per seed."""


def run_table(project: Project, params: FitTableParams, inputs: Inputs, records: TrialFile) -> Results:
    """Run every training of the table that has no record, and return the records of the rows.

    For each model, the settings of all rows are chosen first. Rows of further labels keep the learning rate of their
    loss; their main parameter is chosen for each label. Then all rows are trained with the seeds of the table.

    Raises
    ------
    PartialError
        If a training process is killed, for example when the machine is out of memory.
    """
    from experiments.fit_table.trials import average_trial, make_trial

    train = partial(_train, project, params, inputs, records)
    finals: dict[str, dict[tuple[str, int], Trial]] = {}
    results: Results = {}
    # An average is made of the trainings of other models, which come first.
    for model, budget in sorted(params.models.items(), key=lambda item: bool(item[1].average)):
        rows, seeds = params.rows_of(model), budget.seeds or params.seeds
        if budget.average:
            parts = [finals[part] for part in budget.average]
            shared = [(name, seed) for name in rows for seed in seeds if all((name, seed) in part for part in parts)]
            finals[model] = {key: average_trial(model, [part[key] for part in parts]) for key in shared}
        else:
            make = partial(make_trial, params, inputs, model)
            chosen = _choose_settings(params, model, make, train)
            finals[model] = {(name, seed): make(name, chosen[name], seed, test=True) for name in rows for seed in seeds}
        trained = train(finals[model], f"{model}, seeds")
        results[model] = {name: [trained[key] for key in trained if key[0] == name] for name in rows}
    return {model: results[model] for model in params.models}


def _choose_settings(
    params: FitTableParams,
    model: str,
    make: Callable[..., Trial],
    train: Callable[[Mapping[Any, Trial], str], dict[Any, Record]],
) -> dict[str, Setting]:
    """Return the setting of each row of a model."""
    label_rows, lrs = params.label_rows(model), params.models[model].lrs or params.lrs
    rates = {name: lrs for name in params.rows_of(model) if name not in label_rows}
    chosen = _search_settings(params, model, rates, make, train)
    rates = {name: (chosen[row].lr,) for name, (row, _) in label_rows.items()}
    return chosen | _search_settings(params, model, rates, make, train)


def _search_settings(
    params: FitTableParams,
    model: str,
    rates: Mapping[str, Sequence[float]],
    make: Callable[..., Trial],
    train: Callable[[Mapping[Any, Trial], str], dict[Any, Record]],
) -> dict[str, Setting]:
    """Return the setting of each row, chosen from its learning rates; trainings of all rows run side by side."""
    rows, finalists = params.rows_of(model), params.models[model].finalists or params.finalists
    scores: dict[str, dict[tuple[Setting, int], float]] = {name: {} for name in rates}
    while True:
        # The trainings of a round depend on the scores of the round before.
        chosen: dict[str, Setting] = {}
        todo: dict[tuple[str, Setting, int], Trial] = {}
        for name, lrs in rates.items():
            values, seeds = rows[name].values, params.search_seeds
            found, missing = choose_setting(lrs, values, params.extend, finalists, seeds, scores[name])
            if found is not None:
                chosen[name] = found
            todo |= {(name, setting, seed): make(name, setting, seed, test=False) for setting, seed in missing}
        if not todo:
            return chosen
        for (name, setting, seed), record in train(todo, f"{model}, search").items():
            scores[name][setting, seed] = -math.inf if record["val"] is None else record["val"]


def _train(
    project: Project,
    params: FitTableParams,
    inputs: Inputs,
    records: TrialFile,
    trials: Mapping[Any, Trial],
    title: str,
) -> dict[Any, Record]:
    """Run the trials that have no record, and return the records of all under the same keys."""
    from experiments.fit_table.trials import run_trials

    todo = [trial for trial in trials.values() if trial.key not in records.records]
    if todo:
        with project.runtime.progress.bar(title, len(todo), "runs") as bar:
            try:
                measure = partial(figures, params=params)
                run_trials(todo, records, project.runtime.threads, measure, lambda _: bar.advance(1))
            except BrokenProcessPool as error:
                advice = "Run it again; finished trainings are kept."
                raise PartialError("a training process was killed", where=str(inputs.runs), todo=advice) from error
    return {name: records.records[trial.key] for name, trial in trials.items()}


def table_spec(project: Project, params: FitTableParams, inputs: dict[str, str], eccv: bool) -> ArtefactSpec:
    """Return the parameters and inputs that determine a table."""
    semantic = {"version": 2, **params.model_dump(mode="json"), "eccv": eccv}
    return ArtefactSpec("fit_table", project.config.ingest.dataset, semantic, inputs)


def read_table(folder: Path) -> tuple[Manifest, dict[str, Any], str]:
    """Read a table: its manifest, its numbers and its text.

    Raises
    ------
    MissingError
        If there is no table.
    CheckError
        If a file differs from its manifest.
    """
    manifest = open_artefact(folder, "fit_table")
    body = json.loads((folder / f"{TABLE}.json").read_text(encoding="utf-8"))
    return manifest, body, (folder / f"{TABLE}.txt").read_text(encoding="utf-8").rstrip()


def _write(results: Results, points: list[dict[str, Any]], params: FitTableParams, features: Path, work: Work) -> None:
    from relabel_train.features import open_features

    rows = {model: summary(of_model) for model, of_model in results.items()}
    claims = [claim for model, of_model in results.items() for claim in judge_claims(model, of_model)]
    stand_in = open_features(features).stand_in
    notes = [
        *([stand_in] if stand_in else []),
        f"Mean ± standard deviation over seeds {', '.join(map(str, params.seeds))}; the model of the best RSUM on val.",
        f"Learning rate and main parameter have the best mean RSUM on val over seeds "
        f"{', '.join(map(str, params.search_seeds))}.",
        f"RSUM, nDCG, CS@100, Kendall tau-b ({params.judge}) and NCS ({params.ncs}, own items left out) are of the "
        f"first {params.graded:,} test images, ECCV is mAP@R on all.",
        f"Rows are trained with {params.train_labels[0]} where they name no label.",
    ]
    tables = [*to_table(rows, params, notes), *claims_tables(claims)]
    body = {"notes": notes, "params": params.model_dump(mode="json"), "rows": rows, "claims": claims}
    body["labels"] = points
    # A resumed work folder may hold a table of fewer rows: every file is written again.
    files = {
        f"{TABLE}.json": json.dumps(body, indent=1, ensure_ascii=False) + "\n",
        f"{TABLE}.csv": to_csv(rows),
        f"{TABLE}.md": _joined(tables, markdown),
        f"{TABLE}.txt": _joined(tables, text),
    }
    for name, content in files.items():
        work.drop(name)
        work.file(name, lambda path, content=content: write_text(path, content))  # type: ignore[misc]
    if points:
        work.drop(LABELS)
        work.file(LABELS, partial(draw_labels, points))
    work.facts |= {"rows": sum(map(len, rows.values())), "notes": notes}


def _joined(tables: list[Table], form: Callable[[Table], str]) -> str:
    return "\n\n".join(map(form, tables)) + "\n"


def _export_lookup(remaining: Project, label: str, split: str, params: FitTableParams) -> Manifest:
    """Export a label's lookup of the remaining captions; that of the first label holds neighbours within train."""
    build_encoding(remaining, label, split)
    if label != params.train_labels[0]:
        return run_logged(remaining, export_lookup(remaining, label, split))
    # Graded batches are drawn from neighbours among the training captions.
    within_train = NeighboursParams(k=params.neighbours, of="captions", within="train", split="all")
    run_logged(remaining, neighbours(remaining, label, within_train))
    return run_logged(remaining, export_lookup(remaining, label, split, "train"))


def _eccv(project: Project) -> Path | None:
    """Return the folder of ECCV Caption's positives; None for datasets other than COCO, or if they were not fetched."""
    from relabel.datasets import locate
    from relabel.judge.eccv import FILES

    if project.namespace != "coco":
        return None
    try:
        return locate("eccv", FILES["i2t"], project.runtime.data).parent
    except MissingError:
        return None
