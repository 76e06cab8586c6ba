"""The table of losses: every loss trained with the same budget on proxy features."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.fit_table.table import summary, to_csv, to_table
from experiments.params import Experiments, FitTableParams
from experiments.proxy_features import proxy_features, remaining_project
from relabel.core.errors import MissingError, PartialError
from relabel.core.tables import markdown, text
from relabel.neighbours.spec import NeighboursParams
from relabel.stages import Job, Project, build_encoding, export_lookup, ingest, log_status, neighbours, run_logged
from relabel.store.files import write_text
from relabel.store.manifest import ArtefactSpec, Manifest, open_artefact
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from experiments.fit_table.trials import Trial

TABLE = "table"


def fit_table(project: Project, experiments: Experiments) -> Job:
    """Prepare to train the rows of the table and to write it.

    This builds the inputs: proxy features, the corpus of the remaining captions, its encodings and lookups. Each
    training has a folder that is named by a digest of its parameters and inputs, so that finished trainings are found.

    Raises
    ------
    UsageError
        If a row or label is not valid.
    MissingError
        If the corpus or a label's model is missing.
    """
    from experiments.fit_table.trials import Inputs, make_trials

    params = experiments.fit_table
    remaining, features = remaining_project(project), proxy_features(project, experiments)
    # A label may train, judge and rank.
    labels = list(dict.fromkeys([*params.train_labels, params.judge, params.ncs]))
    manifests = {"features": run_logged(project, features)}
    log_status(remaining, ingest(remaining), remaining.layout.corpus)
    manifests |= {label: _export_lookup(remaining, label, params) for label in labels}
    # Identities of all inputs name the folders of trainings, so that a changed input starts new ones.
    digests = {name: manifest.identity for name, manifest in manifests.items()} | {"corpus": remaining.corpus.digest}
    layout = remaining.layout
    lookups = {label: layout.lookup("all", label) for label in labels}
    runs, identity = layout.root / "runs", json.dumps(digests, sort_keys=True)
    inputs = Inputs(features.out, layout.corpus, runs, lookups, _eccv(project), identity)
    trials = make_trials(params, inputs, {label: type(remaining.config.source(label)) for label in labels})
    artefact = table_spec(project, params, digests, inputs.eccv is not None)

    def fill(work: Work) -> None:
        all_trials = [trial for row in trials.values() for trial in row]
        with project.runtime.progress.bar("trainings", len(all_trials), "runs") as bar:
            results = run_all(all_trials, runs, project.runtime.threads, lambda *_: bar.advance(1))
        _write({name: [results[trial.name] for trial in row] for name, row in trials.items()}, params, work)

    variant = experiments.variant(project, lambda e: e.fit_table)
    return Job(layout.root / "fit", artefact, fill, project.runtime.progress, variant=variant)


def run_all(
    trials: Sequence[Trial], runs: Path, threads: int, advance: Callable[[str, bool], None]
) -> dict[str, dict[str, Any]]:
    """Run trials, `threads` at a time; return the result of each by its name.

    Raises
    ------
    PartialError
        If a training process is killed, for example when the machine is out of memory.
    """
    from experiments.fit_table.trials import run_trials

    try:
        return run_trials(trials, threads, advance)
    except BrokenProcessPool as error:
        todo = "Run it again; finished trainings are kept."
        raise PartialError("a training process was killed", where=str(runs), todo=todo) from error


def table_spec(project: Project, params: FitTableParams, inputs: dict[str, str], eccv: bool) -> ArtefactSpec:
    """Return the parameters and inputs that determine a table."""
    rows = {name: row.model_dump(mode="json") for name, row in params.all_rows().items()}
    semantic = {"version": 1, **params.model_dump(mode="json", exclude={"rows"}), "rows": rows, "eccv": eccv}
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


def _write(results: Mapping[str, list[dict[str, Any]]], params: FitTableParams, work: Work) -> None:
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
    # A resumed work folder may hold a table of fewer rows: every file is written again.
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


def _export_lookup(remaining: Project, label: str, params: FitTableParams) -> Manifest:
    """Export a label's lookup of all remaining captions; that of the first label holds neighbours within train."""
    build_encoding(remaining, label, "all")
    if label != params.train_labels[0]:
        return run_logged(remaining, export_lookup(remaining, label, "all"))
    # Graded batches are drawn from neighbours among the training captions.
    within_train = NeighboursParams(k=params.neighbours, of="captions", within="train", split="all")
    run_logged(remaining, neighbours(remaining, label, within_train))
    return run_logged(remaining, export_lookup(remaining, label, "all", "train"))


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
