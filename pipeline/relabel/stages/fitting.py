"""fit-table: every loss trained with one budget on proxy features, and one table of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relabel.errors import MissingError
from relabel.fitting.params import FitTableParams
from relabel.neighbours.params import NeighboursParams
from relabel.stages.captions import ingest
from relabel.stages.exporting import export_lookup
from relabel.stages.job import Job, note
from relabel.stages.label import prepare_encoding
from relabel.stages.project import Project
from relabel.stages.proxying import left_project, proxy_features
from relabel.stages.searching import neighbours
from relabel.store.atomic import write_text
from relabel.store.manifest import Draft, Manifest, read_manifest
from relabel.store.work import Work

TABLE = "table"


def fit_table(project: Project) -> Job:
    """Prepare to train the rows of `fit_table` and to write their table.

    Makes what is lacking on the way: proxy features, the corpus of the captions that are left, its encodings and
    lookups. A run is a folder of its own beside the table, found again by what it was trained with.

    Raises
    ------
    UsageError
        If a label or row makes no sense.
    MissingError
        If the corpus or a label's model is not there.
    """
    from relabel.fitting.trials import Places, make_trials

    params = project.config.fit_table
    left, features = left_project(project), proxy_features(project)
    wanted = list(dict.fromkeys([*params.train_labels, params.judge, params.ncs]))
    made = {"features": _done(project, features)}
    note(left, ingest(left), left.layout.corpus)
    made |= {label: _lookup(left, label, params) for label in wanted}
    inputs = {name: manifest.identity for name, manifest in made.items()} | {"corpus": left.corpus.digest}
    layout = left.layout
    lookups = {label: layout.lookup("all", label) for label in wanted}
    runs, identity = layout.root / "runs", json.dumps(inputs, sort_keys=True)
    places = Places(features.out, layout.corpus, runs, lookups, _eccv(project), identity)
    sources = {label: type(left.config.source(label)) for label in wanted}
    trials = make_trials(params, places, sources)
    draft = table_draft(project, inputs, places.eccv is not None)

    def fill(work: Work) -> None:
        from relabel_train.training.trial import run_trials

        all_trials = [trial for some in trials.values() for trial in some]
        with project.runtime.progress.task("trainings", len(all_trials), "runs") as task:
            found = run_trials(all_trials, project.runtime.threads, lambda *_: task.advance(1))
        results = {name: [found[trial.name] for trial in some] for name, some in trials.items()}
        _write(results, params, work)

    return Job(layout.root / "fit", draft, fill, project.runtime.progress)


def table_draft(project: Project, inputs: dict[str, str], eccv: bool) -> Draft:
    """Say what a table is made of."""
    params = project.config.fit_table
    rows = {name: row.model_dump(mode="json") for name, row in params.settled().items()}
    semantic = {"version": 1, **params.model_dump(mode="json", exclude={"rows"}), "rows": rows, "eccv": eccv}
    return Draft("fit_table", project.config.ingest.dataset, semantic, inputs)


def _write(results: Mapping[str, list[dict[str, Any]]], params: FitTableParams, work: Work) -> None:
    from relabel.fitting.table import summary, to_csv, to_table
    from relabel.judge.tables import markdown, text

    rows = summary(results, params)
    evaluation = next(iter(results.values()))[0]["evaluation"]
    notes = [evaluation["stand_in"], *evaluation["notes"]] if evaluation["stand_in"] else list(evaluation["notes"])
    notes += [
        f"Mean ± standard deviation over seeds {', '.join(map(str, params.seeds))}; the model of the best RSUM on val.",
        f"RSUM, nDCG, CS@100, Kendall tau-b ({params.judge}) and NCS ({params.ncs}, own items left out) are of the "
        f"first {params.graded:,} test images, ECCV is mAP@R on all.",
        f"Rows are trained with {params.train_labels[0]} where they name no label.",
    ]
    table = to_table(rows, params, notes)
    body = {"notes": notes, "params": params.model_dump(mode="json"), "rows": rows}
    files = {
        f"{TABLE}.json": json.dumps(body, indent=1, ensure_ascii=False) + "\n",
        f"{TABLE}.csv": to_csv(rows),
        f"{TABLE}.md": markdown(table) + "\n",
        f"{TABLE}.txt": text(table) + "\n",
    }
    for name, content in files.items():
        work.drop(name)
        work.file(name, lambda path, content=content: write_text(path, content))  # type: ignore[misc]
    work.facts |= {"rows": len(rows), "notes": notes}


def read_table(folder: Path) -> tuple[Manifest, dict[str, Any], str]:
    """Read a table: its manifest, its numbers, its text."""
    manifest = read_manifest(folder, "fit_table")
    body = json.loads((folder / f"{TABLE}.json").read_text(encoding="utf-8"))
    return manifest, body, (folder / f"{TABLE}.txt").read_text(encoding="utf-8").rstrip()


def _lookup(left: Project, label: str, params: FitTableParams) -> Manifest:
    """Make a label's lookup over all captions that are left; the first label's with neighbours in train."""
    prepare_encoding(left, label, "all")
    if label != params.train_labels[0]:
        return _done(left, export_lookup(left, label, "all"))
    asked = NeighboursParams(k=params.neighbours, of="captions", within="train", split="all")
    _done(left, neighbours(left, label, asked))
    return _done(left, export_lookup(left, label, "all", "train"))


def _eccv(project: Project) -> Path | None:
    """Find ECCV Caption's positives, for COCO alone; None where they are nowhere."""
    from relabel.datasets import locate
    from relabel.judge.eccv_queries import FILES

    if project.config.ingest.prefix != "coco":
        return None
    try:
        return locate("eccv", FILES["i2t"], project.runtime.data).parent
    except MissingError:
        return None


def _done(project: Project, job: Job) -> Manifest:
    made = job.run()
    note(project, made, job.out)
    return made[0]
