"""Artefacts that a stage is ready to build, and protection of results from trials.

The artefacts of a label follow the parameter file: after an edit of the file, whatever it changed is built again. A
trial overrides the file by options or settings. It does not replace results of the file, and neither the file nor
another trial replaces the results of a trial, unless `--replace` is given.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from relabel.config import Config
from relabel.core.errors import CheckError, MissingError, RelabelError, UsageError
from relabel.core.runtime import SILENT, Progress, release_memory
from relabel.stages.project import Project
from relabel.store.artefact import Guard, build
from relabel.store.manifest import ArtefactSpec, Manifest, read_manifest
from relabel.store.tasks import Tasks, make_all
from relabel.store.workdir import Work
from relabel.store.workers.remote_job import RemoteJob

Values = dict[str, Any]
Advice = Callable[[Sequence[Any]], str]
_KEY = "variant"


@dataclass(frozen=True)
class Variant:
    """Parameters of one artefact.

    `values`: dotted names to values that JSON can hold.
    `trial`: whether the command overrides any of the parameter file's values.
    `replace`: whether to replace other variants.
    `advice`: returns the advice for keeping both variants, given the current values that differ.
    """

    values: Values
    trial: bool
    replace: bool
    advice: Advice = field(default=lambda _: "Edit params.yaml, which replaces results.")

    def folder(self, name: str) -> str:
        """Return the name of a folder; for a trial, it ends in a digest of the parameters."""
        text = json.dumps(self.values, sort_keys=True)
        return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}" if self.trial else name

    def record(self) -> dict[str, Any]:
        """Return the entry of a manifest's `runtime` that `check` reads."""
        return {_KEY: {"values": self.values, "trial": self.trial}}

    def check(self, previous: Manifest) -> None:
        """Raise if this variant must not replace an artefact."""
        record = previous.runtime.get(_KEY)
        # Two variants of the parameter file may replace each other: the file was edited.
        if self.replace or record is None or record["values"] == self.values or not (self.trial or record["trial"]):
            return
        names = [n for n in {**record["values"], **self.values} if record["values"].get(n) != self.values.get(n)]
        cause = "overridden by the command" if self.trial else "of a trial, which overrode the parameter file"
        text = differing(names, record["values"], self.values)
        message = f"{previous.kind} {previous.name} would be replaced, and parameters are {cause}: {text}"
        if not self.trial:
            raise UsageError(message, todo="Replace it with --replace, or repeat the options of the trial.")
        advice = self.advice([self.values[name] for name in names if name in self.values])
        raise UsageError(message, todo=f"{advice} Or replace it with --replace.")


def differing(names: Iterable[str], previous: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """Describe the parameters in which an existing artefact differs from the requested one.

    `names`: parameters to describe. `previous`, `current`: values of the existing and of the requested artefact; a
    missing name counts as None.
    """
    return ", ".join(f"{name} ({previous.get(name)} there, {current.get(name)} here)" for name in names)


def variant(
    project: Project, values: Callable[[Config], Values], call: Values | None = None, advice: Advice | None = None
) -> Variant:
    """Compare the parameters of a project with those of the parameter file.

    `values`: returns the parameters of an artefact, given all parameters. `call`: parameters that come from the call
    rather than the file. They make no trial. `advice`: see `Variant`.
    """
    requested = values(project.config)
    trial = requested != _file_values(project.config, values)
    result = Variant(requested | (call or {}), trial, project.runtime.replace)
    return result if advice is None else replace(result, advice=advice)


def encoding_variant(project: Project, label: str) -> Variant:
    """Return the parameters of a label's encoding; a refused trial is advised to use a label of its own."""

    def values(config: Config) -> Values:
        return label_values(config, label) | {"encode.rows_per_shard": config.encode.rows_per_shard}

    return variant(project, values, advice=partial(_new_label_advice, project.config, label))


def label_values(config: Config, label: str) -> Values:
    """Return the parameters of a label and of all labels that it is composed of."""
    params = config.params(label).model_dump(mode="json")
    values = {f"sources.{label}.{name}": value for name, value in params.items()}
    for part in config.source(label).input_labels():
        values |= label_values(config, part)
    return values


def report_variant(project: Project, labels: Sequence[str]) -> Variant:
    """Return the parameters of a report, which is a trial if its labels are not exactly those of the file.

    `labels`: labels of the report; all if empty.
    """

    def values(config: Config) -> Values:
        sources = {name: params.model_dump(mode="json") for name, params in config.sources.items()}
        judge = config.judge.model_dump(mode="json", exclude={"split"})
        return {"labels": sorted(labels or sources), "sources": sources, "judge": judge}

    complete = not labels or set(labels) == set(project.config.file.sources)
    result = variant(project, values)
    return replace(result, trial=result.trial or not complete)


def model_guard(
    project: Project, section: str, keep: str = "Give the new model a folder of its own with --out"
) -> Guard | None:
    """Return a guard that protects a model of other parameters; None if the parameters are those of the file.

    `section`: the model's block of `tune` in the parameter file. `keep`: advice for keeping both models.
    """
    requested = variant(project, lambda config: getattr(config.tune, section).model_dump(mode="json"))

    def check(previous: Manifest) -> None:
        if text := differing_model(previous, requested.values):
            message = f"model {previous.name} would be replaced, and the command overrides the file: {text}"
            raise UsageError(message, todo=f"{keep}, or replace the model with --replace.")

    return check if requested.trial and not requested.replace else None


def differing_model(model: Manifest, values: Values) -> str:
    """Describe the parameters of `tune` in which a model differs from given ones; empty if there are none."""
    recorded = model.semantic
    # The manifest identifies a base model by its content, so that a copy elsewhere is the same model.
    if "base" in values and _has_other_base(values, model):
        recorded = recorded | {"base": model.facts["base"]}
    # A parameter that the manifest does not record cannot have changed the model.
    return differing([n for n, value in values.items() if recorded.get(n, value) != value], recorded, values)


def _has_other_base(values: Values, previous: Manifest) -> bool:
    """Return whether a model was tuned from a base model of other content, regardless of names and paths."""
    from relabel.sources.models.files import find_model

    try:
        return previous.inputs["base"] != find_model(values["base"], values["revision"]).sha256()
    except MissingError:
        # A model may be used where its base is not.
        return False


def _file_values(config: Config, values: Callable[[Config], Values]) -> Values | None:
    """Return the parameters that the file gives; None if it has no such label."""
    try:
        return values(config.file)
    except RelabelError:
        return None


def _new_label_advice(config: Config, label: str, values: Sequence[Any]) -> str:
    """Return the options that name the trial as a new label, after the last value that differs."""
    params = config.params(label)
    stem = Path(str(values[-1])).stem.lower() if values else ""
    # --set splits names at dots, so the new name has none.
    ending = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:30] or "trial"
    changed = {"source": params.source} | params.model_dump(mode="json", exclude_defaults=True)
    body = yaml.safe_dump(changed, default_flow_style=True, sort_keys=False, width=10_000).strip()
    return f"Name the trial: --label {label}-{ending} --set 'sources.{label}-{ending}={body}'."


@dataclass(frozen=True)
class Job:
    """An artefact to be built.

    `fill`: writes the files through the Work that it receives.
    `tasks`: returns the work as tasks that any worker may run; `fill` passes them to `run_tasks`.
    `variant`: parameters of the artefact, if it must not be replaced by a trial.
    """

    out: Path
    artefact: ArtefactSpec
    fill: Callable[[Work], None]
    progress: Progress = SILENT
    tasks: Callable[[], Tasks] | None = None
    variant: Variant | None = None

    def run(self) -> tuple[Manifest, bool]:
        """Build the artefact unless it is up to date; return its manifest and whether it was built."""
        guard = None if self.variant is None else self.variant.check
        result = build(self.out, self.artefact, self._fill, self.progress, guard)
        # A run builds many artefacts in one process: freed memory goes back to the system in between.
        release_memory()
        return result

    def check(self) -> None:
        """Raise if `run` would refuse to replace the existing artefact."""
        if self.variant is None:
            return
        try:
            previous = read_manifest(self.out, self.artefact.kind)
        except (MissingError, CheckError):
            return
        self.variant.check(previous)

    def _fill(self, work: Work) -> None:
        if self.variant is not None:
            work.runtime |= self.variant.record()
        self.fill(work)


def refuse_stale(manifest: Manifest, folder: Path, artefact: ArtefactSpec, todo: str) -> None:
    """Raise CheckError, which names what differs, unless an artefact has the fingerprint of a spec made today."""
    if manifest.fingerprint == artefact.fingerprint:
        return
    # As a manifest holds them: a tuple is a list there.
    parameters, inputs = json.loads(json.dumps([artefact.semantic, artefact.inputs]))
    made = manifest.semantic
    changed = [name for name in {**made, **parameters} if made.get(name) != parameters.get(name)]
    # The values of a nested parameter would fill the screen.
    nested = {name for name in changed if dict in (type(made.get(name)), type(parameters.get(name)))}
    causes = [name if name in nested else differing([name], made, parameters) for name in changed]
    causes += [f"another {n}" for n in {**manifest.inputs, **inputs} if manifest.inputs.get(n) != inputs.get(n)]
    raise CheckError(f"not of the current parameters and inputs: {', '.join(causes)}", where=str(folder), todo=todo)


def check_current(
    project: Project,
    manifest: Manifest,
    folder: Path,
    prepare: Callable[[], Job],
    todo: str,
    own: Sequence[str] = (),
) -> None:
    """Compare a label's artefact with what its stage would make today; raise as `refuse_stale`.

    `prepare`: returns the job of the stage. Where it lacks an input, captions and pooling alone are compared, and a
    note is shown. `own`: parameters that are taken from the artefact, since an option of its command may have set them.
    """
    corpus, pooling = project.corpus.digest, project.config.params(manifest.name).pooling
    try:
        artefact = prepare().artefact
        kept = {name: manifest.semantic[name] for name in own if name in manifest.semantic}
        artefact = replace(artefact, semantic=artefact.semantic | kept)
    except MissingError as error:
        project.runtime.progress.note(f"{manifest.kind} {manifest.name} is taken as it is: {error}")
        semantic, inputs = manifest.semantic | {"pooling": pooling}, manifest.inputs | {"corpus": corpus}
        artefact = ArtefactSpec(manifest.kind, manifest.name, semantic, inputs)
    refuse_stale(manifest, folder, artefact, todo)


def run_tasks(
    project: Project, tasks: Tasks, artefact: ArtefactSpec, work: Work, stage: Callable[..., Job], *arguments: Any
) -> None:
    """Run all tasks that are not done, in this process or by workers, where the runtime requests it.

    `artefact`: the artefact that the tasks make. `stage`, `arguments`: ``stage(project, *arguments)`` returns the same
    artefact and tasks in any process. The stage is a function that can be imported by its module and name; the
    arguments are plain values.
    """
    runtime = project.runtime
    if not runtime.workers and runtime.scheduler is None:
        make_all(tasks, work, runtime.progress)
        return
    from relabel.store.workers.dask_run import make_on_cluster

    make_on_cluster(tasks, work, RemoteJob(project, stage, arguments, artefact, work.folder))


def run_logged(project: Project, job: Job) -> Manifest:
    """Run a job, log its status and return the manifest."""
    result = job.run()
    log_status(project, result, job.out)
    return result[0]


def log_status(project: Project, result: tuple[Manifest, bool], folder: Path) -> None:
    """Log the status of an artefact to the progress.

    `result`: (Manifest, bool); the manifest, and whether the artefact was built by this run.
    """
    manifest, built = result
    project.runtime.progress.note(status_line(built, manifest, folder))


def status_line(built: bool, manifest: Manifest, folder: Path) -> str:
    """Return one line about an artefact."""
    seconds = manifest.runtime.get("seconds", 0)
    state = f"built in {seconds:.1f} s" if built else "up to date"
    state += f", {manifest.failed:,} rows failed" if manifest.failed else ""
    return f"{manifest.kind} {manifest.name}: {state} ({folder})"
