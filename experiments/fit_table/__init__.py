"""The table of losses: every loss trained with a chosen setting on proxy features, and the papers' claims."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.fit_table.claims import claims_table, judge_claims
from experiments.fit_table.labels import draw_labels, label_agreement, label_points
from experiments.fit_table.search import Setting, best_setting, finalists, missing_settings
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
    from experiments.fit_table.trials import Inputs, Trial, TrialFile

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

    For each model, the settings of all rows are chosen first: the best ones of a search with one seed are trained again
    with further seeds, and the best mean is chosen. Then the rows are trained with the seeds of the table.

    Raises
    ------
    PartialError
        If a training process is killed, for example when the machine is out of memory.
    """
    from experiments.fit_table.trials import make_trial, run_trials

    def run(trials: Iterable[Trial], title: str) -> None:
        todo = [trial for trial in trials if trial.key not in records.records]
        with project.runtime.progress.bar(title, len(todo), "runs") as bar:
            try:
                run_trials(todo, records, project.runtime.threads, measure, lambda _: bar.advance(1))
            except BrokenProcessPool as error:
                advice = "Run it again; finished trainings are kept."
                raise PartialError("a training process was killed", where=str(inputs.runs), todo=advice) from error

    measure = partial(figures, params=params)
    results: Results = {}
    for model, budget in params.models.items():
        make = partial(make_trial, params, inputs, model)
        seeds = budget.seeds or params.seeds

        rows = params.rows_of(model)
        scores: dict[str, dict[Setting, float]] = {name: {} for name in rows}
        while True:
            # The settings of a round depend on the scores of the round before.
            todo = {
                (name, setting): make(name, setting, params.search_seed, test=False)
                for name, row in rows.items()
                for setting in missing_settings(budget.lrs or params.lrs, row.values, params.extend, scores[name])
            }
            if not todo:
                break
            run(todo.values(), f"{model}, search")
            for (name, setting), trial in todo.items():
                scores[name][setting] = _score(records, trial)
        again = {
            name: {
                setting: [make(name, setting, seed, test=False) for seed in params.final_seeds]
                for setting in finalists(scores[name], params.finalists)
            }
            for name in rows
        }
        run((t for of_row in again.values() for trials in of_row.values() for t in trials), f"{model}, finalists")
        chosen: dict[str, Setting] = {}
        for name, of_row in again.items():
            means = {s: [scores[name][s], *(_score(records, t) for t in trials)] for s, trials in of_row.items()}
            chosen[name] = best_setting(means)
        finals = {name: [make(name, chosen[name], seed, test=True) for seed in seeds] for name in rows}
        run((trial for row in finals.values() for trial in row), f"{model}, seeds")
        results[model] = {name: [records.records[t.key] for t in row] for name, row in finals.items()}
    return results


def _score(records: TrialFile, trial: Trial) -> float:
    """Return the RSUM of a trial on the validation split; -inf if its loss was not finite."""
    val = records.records[trial.key]["val"]
    return float("-inf") if val is None else float(val)


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
        f"{', '.join(map(str, (params.search_seed, *params.final_seeds)))}.",
        f"RSUM, nDCG, CS@100, Kendall tau-b ({params.judge}) and NCS ({params.ncs}, own items left out) are of the "
        f"first {params.graded:,} test images, ECCV is mAP@R on all.",
        f"Rows are trained with {params.train_labels[0]} where they name no label.",
    ]
    tables = [*to_table(rows, params, notes), *([claims_table(claims)] if claims else [])]
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
