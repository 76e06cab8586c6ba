"""What a stage makes: its place, its identity and its work; and the one rule for what exists already.

Every reader of an artefact prepares the job that would make it today, and opens it: the manifest must be that of
today's parameters and inputs. A build replaces an artefact of other parameters or inputs, and says which parameters
differ.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from relabel.config import Config
from relabel.core.errors import CheckError, MissingError, RelabelError
from relabel.core.parameters import setting, short
from relabel.core.runtime import SILENT, Runtime
from relabel.core.tables import plural
from relabel.export.params import block_of
from relabel.stages.session import Notes, Session
from relabel.store.artefact import PARAMETERS, Recipe, build, check_place, current_manifest, work_folder
from relabel.store.executors import Call, make_elsewhere, make_share
from relabel.store.files import make_folder
from relabel.store.manifest import Manifest, Spec, open_artefact
from relabel.store.workdir import Steps, Work, make_step

Values = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """An artefact as today's parameters and inputs define it.

    `command`: the command that makes the artefact, for messages.
    `parameters`: as a user writes them, by dotted name.
    `steps`: returns the steps of the work, which any process may work on; the recipe passes them to `make_steps`.
    """

    session: Session
    out: Path
    recipe: Recipe
    command: str
    parameters: Values = field(default_factory=dict)
    steps: Callable[[Work], Steps] = field(default=lambda _: iter(()))

    def spec(self) -> Spec:
        """Return the identity of the artefact. The first call reads and hashes the inputs."""
        return self.recipe.spec()

    def run(self) -> tuple[Manifest, bool]:
        """Build the artefact unless it is up to date, and log its state; return its manifest and if it was built."""
        session, runtime, record = self.session, self.session.runtime, {PARAMETERS: self.parameters}

        def again(manifest: Manifest) -> bool:
            # Once per command: several stages need one artefact.
            rebuilt = runtime.rebuild and self.out not in session.notes.rebuilt
            return rebuilt or (runtime.retry_failed and manifest.failed > 0)

        with runtime.progress.status(f"{self.recipe.kind} {self.recipe.name}"):
            manifest, built = build(self.out, self.recipe, runtime.progress, again, self.announce, record)
        session.notes.rebuilt.add(self.out)
        state = f"built in {manifest.provenance['seconds']:.1f} s" if built else "up to date"
        state += f", {plural(manifest.failed, 'row', 'rows')} failed" if manifest.failed else ""
        runtime.progress.made(self.out, f"{manifest.kind} {manifest.name}: {state} ({self.out})")
        if built:
            self._warn(manifest.warnings)
        return manifest, built

    def share(self, share: tuple[int, int]) -> str:
        """Make share i of n of the files, and leave it to a later build to collect them; return a line of text."""
        spec, runtime = self.spec(), self.session.runtime
        if current_manifest(self.out, spec) is not None:
            return f"{spec.kind} {spec.name}: up to date ({self.out})"
        check_place(self.out, spec, self.announce)
        work = Work(work_folder(self.out, spec.fingerprint))
        self.recipe.check_inputs()
        make_folder(work.folder)
        make_share(self.warned_steps(work), work, share, runtime)
        return f"{spec.kind} {spec.name}: share {share[0]} of {share[1]} is made; the command without --shard collects"

    def warned_steps(self, work: Work) -> Steps:
        """Yield the steps of the work, each after the warnings that are known before it."""
        for step in self.steps(work):
            self._warn(work.metadata.get("warnings", ()))
            yield step

    def _warn(self, texts: Iterable[str]) -> None:
        """Show warnings, each once."""
        for text in texts:
            self.session.note_once(f"warning: {self.recipe.kind} {self.recipe.name}: {text}")

    def announce(self, previous: Manifest) -> None:
        """Log the parameters in which an artefact that will be replaced differs from this one."""
        if changed := differences(previous.provenance.get(PARAMETERS, {}), self.parameters):
            self.session.note_once(f"{self.recipe.kind} {self.recipe.name} is built again: {', '.join(changed)}")

    def open(self) -> Manifest:
        """Return the manifest of the artefact, which must be that of today's parameters and inputs.

        An input that is absent is not compared, which is logged: the manifest's word is taken.
        """
        try:
            manifest = open_artefact(self.out, self.recipe.kind, self.command)
        except MissingError as error:
            problem = f"no {self.recipe.kind} {self.recipe.name}"
            raise MissingError(problem, where=error.where, todo=f"Run {self.command}.") from error
        absent: list[MissingError] = []

        def known(find: Callable[[], Any], recorded: Any) -> Any:
            try:
                return find()
            except MissingError as error:
                absent.append(error)
                return recorded

        config = known(self.recipe.config, manifest.config)
        inputs = {n: known(partial(self.recipe.identity_of, n), manifest.inputs.get(n)) for n in self.recipe.inputs}
        if absent:
            self.session.note_once(f"{self.recipe.kind} {self.recipe.name} is taken as it is: {absent[0]}")
        # As a manifest holds them: a tuple is a list there.
        config, inputs = json.loads(json.dumps([config, inputs]))
        causes = differences(manifest.config, config)
        causes += [f"another {n}" for n in {**manifest.inputs, **inputs} if manifest.inputs.get(n) != inputs.get(n)]
        if not causes and not manifest.is_current:
            causes = ["made by another version of relabel"]
        if causes:
            problem = f"not of the current parameters and inputs: {', '.join(causes)}"
            todo = f"Run {self.command}."
            # No parameter brings another input back, except tokens, which follow from the tokenizer.
            others = [{n: v for n, v in each.items() if n != "tokens"} for each in (inputs, manifest.inputs)]
            if others[0] == others[1] and (keep := self._settings(manifest)):
                todo = f"Add `{keep}` to keep it, or run {self.command} to make it again."
            raise CheckError(problem, where=str(self.out), todo=todo)
        return manifest

    def _settings(self, manifest: Manifest) -> str:
        """Return the options `--set NAME=VALUE` with which the parameters are those of an artefact; "" if none are."""
        made, now = manifest.provenance.get(PARAMETERS, {}), self.parameters
        # The path of captions is recorded relative to the corpus.
        if made.keys() != now.keys() or made.get("ingest.path") != now.get("ingest.path"):
            return ""
        settings = (setting(name, value) for name, value in made.items() if value != now[name])
        return " ".join(f"--set {shlex.quote(text)}" for text in settings)

    def __call__(self) -> str:
        """Return the identity of the artefact on disk, as an input of another one."""
        return self.open().identity

    def check_bytes(self) -> None:
        """Raise if a file has other bytes than were written, also in encodings that are opened with this one."""
        open_artefact(self.out, self.recipe.kind, self.command, content=True)
        if self.recipe.kind == "encoding":
            self.recipe.check_inputs()

    def state(self) -> Literal["done", "partly", "to do"]:
        """Return the state on disk: "partly" if an interrupted run left work that the next one continues."""
        if current_manifest(self.out, self.spec()) is not None:
            return "done"
        return "partly" if work_folder(self.out, self.spec().fingerprint).exists() else "to do"


@dataclass(frozen=True)
class PendingJob:
    """A job among several that run in order, before its inputs exist.

    `label`: the label that needs the artefact.
    `stage`, `name`: verb that makes the artefact, and its own label or model.
    `prepare`: returns the job; raises if one of its inputs is missing.
    """

    label: str
    stage: str
    name: str
    out: Path
    prepare: Callable[[], Job]


@dataclass
class Outcome:
    """Result of several jobs.

    `problems`: labels that could not be built or judged, each with its error.
    `warnings`: names of artefacts, each with a warning.
    `paths`: written files and folders, by their description.
    """

    problems: list[tuple[str, RelabelError]] = field(default_factory=list)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    paths: dict[str, Path] = field(default_factory=dict)


def run_jobs(pending: Iterable[PendingJob], outcome: Outcome) -> None:
    """Run jobs in order. If a job fails, its error is added to the problems, and its label has no further jobs."""
    done, failed = set[Path](), {label for label, _ in outcome.problems}
    for job in pending:
        # Several labels may have a part in common.
        if job.label in failed or job.out in done:
            continue
        try:
            manifest, _ = job.prepare().run()
            outcome.warnings += [(job.name, text) for text in manifest.warnings]
            done.add(job.out)
        except RelabelError as error:
            failed.add(job.label)
            outcome.problems.append((job.label, error))


def differences(previous: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Describe the parameters in which an existing artefact differs from the requested one."""
    names = [name for name in {**previous, **current} if previous.get(name) != current.get(name)]
    # In short: the values of a nested parameter would fill the screen.
    return [f"{name} ({short(previous.get(name))} there, {short(current.get(name))} here)" for name in names]


def label_values(config: Config, label: str) -> Values:
    """Return the parameters of a label and of all labels that it is composed of."""
    blocks = {one: config.params(one).model_dump(mode="json") for one in config.with_parts(label)}
    return {f"sources.{one}.{name}": value for one, params in blocks.items() for name, value in params.items()}


def section_values(config: Config, section: str) -> Values:
    """Return the parameters of a section of the parameter file, such as `export.batches`."""
    block: Any = config
    for name in section.split("."):
        block = getattr(block, name)
    return {f"{section}.{name}": value for name, value in block.model_dump(mode="json").items()}


def export_job(
    session: Session, label: str, split: str, recipe: Recipe, steps: Callable[[Work], Steps] = lambda _: iter(())
) -> Job:
    """Return the job of an export, whose parameters are those of the label and of its block of `export`."""
    kind = recipe.kind
    values = label_values(session.config, label) | section_values(session.config, f"export.{block_of(kind)}")
    command = session.command(f"export {kind}", label=label, split=split)
    return Job(session, session.folder("exports", split, kind, recipe.name), recipe, command, values, steps)


def make_steps(job: Job, work: Work, stage: Callable[..., Job], *arguments: Any) -> None:
    """Make the files of a job's steps, in this process or in those that the runtime requests.

    `stage`, `arguments`: ``stage(session, *arguments)`` returns the same job in any process. The stage is a function
    that can be imported by its module and name; the arguments are plain values.
    """
    session, runtime, steps = job.session, job.session.runtime, job.warned_steps(work)
    if not runtime.workers and runtime.scheduler is None:
        for step in steps:
            make_step(step, work, runtime.progress)
        return
    # A display and an open corpus cannot be sent to other processes.
    silent = replace(runtime, progress=SILENT)
    sent = replace(session, runtime=silent, labels=session.labels.absolute(), notes=Notes())
    worker = partial(_prepare, sent, stage, arguments)
    make_elsewhere(steps, work, Call(worker, job.spec().fingerprint, work.folder.absolute()), runtime)


def _prepare(
    session: Session, stage: Callable[..., Job], arguments: tuple[Any, ...], runtime: Runtime
) -> tuple[Spec, Callable[[Work], Steps]]:
    """Prepare a job in a worker, with the worker's own resources."""
    job = stage(replace(session, runtime=runtime), *arguments)
    return job.spec(), job.steps
