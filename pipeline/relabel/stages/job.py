"""Jobs: the place, identity and work of an artefact, and the rule for artefacts that exist already.

To read an artefact, a stage prepares the job that would build it now, and opens it. This raises if the manifest does
not match the current parameters and inputs. To build one, it runs the job. This replaces an artefact of other
parameters or inputs and logs the parameters that differ.
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
    """An artefact as defined by the current parameters and inputs.

    `command`: the command that builds the artefact, for messages.
    `parameters`: parameters by the dotted names that users write.
    `steps`: returns the steps of the work. Any process may do them; the recipe passes them to `make_steps`.
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
        """Build the artefact unless it is up to date, and log its state. Returns its manifest, and True if built."""
        session, runtime, record = self.session, self.session.runtime, {PARAMETERS: self.parameters}

        def again(manifest: Manifest) -> bool:
            # Rebuild only once per command, because several stages may need the artefact.
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
        """Make share i of n of the files, for a later build to collect; return a message."""
        spec, runtime = self.spec(), self.session.runtime
        if current_manifest(self.out, spec) is not None:
            return f"{spec.kind} {spec.name}: up to date ({self.out})"
        check_place(self.out, spec, self.announce)
        work = Work(work_folder(self.out, spec.fingerprint))
        self.recipe.check_inputs()
        make_folder(work.folder)
        make_share(self.warned_steps(work), work, share, runtime)
        done = f"{spec.kind} {spec.name}: share {share[0]} of {share[1]} is done"
        return f"{done}; when all are, run the command without --shard"

    def warned_steps(self, work: Work) -> Steps:
        """Yield the steps of the work, and show new warnings before each step."""
        for step in self.steps(work):
            self._warn(work.metadata.get("warnings", ()))
            yield step

    def _warn(self, texts: Iterable[str]) -> None:
        """Show warnings that were not shown before."""
        for text in texts:
            self.session.note_once(f"warning: {self.recipe.kind} {self.recipe.name}: {text}")

    def announce(self, previous: Manifest) -> None:
        """Log the differences in parameters to an artefact that will be replaced."""
        if changed := differences(previous.provenance.get(PARAMETERS, {}), self.parameters):
            self.session.note_once(f"{self.recipe.kind} {self.recipe.name} is built again: {', '.join(changed)}")

    def open(self) -> Manifest:
        """Return the manifest of the artefact. Raises CheckError unless it matches the current parameters and inputs.

        An input that is missing cannot be checked. This is logged, and the manifest is trusted.
        """
        try:
            manifest = open_artefact(self.out, self.recipe.kind, self.command)
        except MissingError as error:
            problem = f"no {self.recipe.kind} {self.recipe.name}"
            raise MissingError(problem, where=error.where, hint=f"Run {self.command}.") from error
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
            artefact = f"{self.recipe.kind} {self.recipe.name}"
            self.session.note_once(f"cannot check {artefact} ({absent[0]}); using the files on disk")
        # Convert tuples to lists, as in a manifest.
        config, inputs = json.loads(json.dumps([config, inputs]))
        causes = differences(manifest.config, config)
        causes += [f"another {n}" for n in {**manifest.inputs, **inputs} if manifest.inputs.get(n) != inputs.get(n)]
        if not causes and not manifest.is_current:
            causes = ["made by another version of relabel"]
        if causes:
            problem = f"does not match the current parameters and inputs: {', '.join(causes)}"
            hint = f"Run {self.command}."
            # Parameters cannot restore other inputs, except tokens: these depend on the tokenizer.
            compared = [{n: v for n, v in each.items() if n != "tokens"} for each in (inputs, manifest.inputs)]
            if compared[0] == compared[1] and (keep := self._settings(manifest)):
                hint = f"Add `{keep}` to keep it, or run {self.command} to build it again."
            raise CheckError(problem, where=str(self.out), hint=hint)
        return manifest

    def _settings(self, manifest: Manifest) -> str:
        """Return the options `--set NAME=VALUE` that restore the parameters of an artefact, or "" if none can."""
        previous, now = manifest.provenance.get(PARAMETERS, {}), self.parameters
        # The path of captions is recorded relative to the corpus.
        if previous.keys() != now.keys() or previous.get("ingest.path") != now.get("ingest.path"):
            return ""
        settings = (setting(name, value) for name, value in previous.items() if value != now[name])
        return " ".join(f"--set {shlex.quote(text)}" for text in settings)

    def __call__(self) -> str:
        """Return the identity of the artefact on disk, for use as an input of another one."""
        return self.open().identity

    def check_bytes(self) -> None:
        """Raise CheckError if a file was changed, also in encodings that are opened with this one."""
        open_artefact(self.out, self.recipe.kind, self.command, content=True)
        if self.recipe.kind == "encoding":
            self.recipe.check_inputs()

    def state(self) -> Literal["done", "partly", "to do"]:
        """Return the state on disk. "partly" means that an interrupted run left work to continue."""
        if current_manifest(self.out, self.spec()) is not None:
            return "done"
        return "partly" if work_folder(self.out, self.spec().fingerprint).exists() else "to do"


@dataclass(frozen=True)
class PendingJob:
    """A job to run after others. These may still have to build its inputs.

    `label`: the label that needs the artefact.
    `stage`, `name`: verb that builds the artefact, and the label or model that it belongs to.
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
    `warnings`: warnings, each with the name of its artefact.
    `paths`: written files and folders, by description.
    """

    problems: list[tuple[str, RelabelError]] = field(default_factory=list)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    paths: dict[str, Path] = field(default_factory=dict)


def run_jobs(pending: Iterable[PendingJob], outcome: Outcome) -> None:
    """Run jobs in order. If a job fails, its error is added to the problems, and its label's other jobs are skipped."""
    done, failed = set[Path](), {label for label, _ in outcome.problems}
    for job in pending:
        # Several labels may share a part.
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
    # Shorten the values, because those of a nested parameter would fill the screen.
    return [f"{name} ({short(previous.get(name))} there, {short(current.get(name))} here)" for name in names]


def label_values(config: Config, label: str) -> Values:
    """Return the parameters of a label and of all its parts."""
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
    """Return the job of an export. Its parameters are those of the label and of its section of `export`."""
    kind = recipe.kind
    values = label_values(session.config, label) | section_values(session.config, f"export.{block_of(kind)}")
    command = session.command(f"export {kind}", label=label, split=split)
    return Job(session, session.folder("exports", split, kind, recipe.name), recipe, command, values, steps)


def make_steps(job: Job, work: Work, stage: Callable[..., Job], *arguments: Any) -> None:
    """Make the files of a job's steps, in this process or in the worker processes of the runtime.

    `stage`, `arguments`: ``stage(session, *arguments)`` returns the same job in any process. The stage must be a
    function that can be imported by its module and name, and the arguments must be plain values.
    """
    session, runtime, steps = job.session, job.session.runtime, job.warned_steps(work)
    if not runtime.workers and runtime.scheduler is None:
        for step in steps:
            make_step(step, work, runtime.progress)
        return
    # The progress display and the open corpus cannot be sent to other processes.
    silent = replace(runtime, progress=SILENT)
    sent = replace(session, runtime=silent, labels=session.labels.absolute(), notes=Notes())
    worker = partial(_prepare, sent, stage, arguments)
    make_elsewhere(steps, work, Call(worker, job.spec().fingerprint, work.folder.absolute()), runtime)


def _prepare(
    session: Session, stage: Callable[..., Job], arguments: tuple[Any, ...], runtime: Runtime
) -> tuple[Spec, Callable[[Work], Steps]]:
    """Prepare a job in a worker process, with the resources of the worker."""
    job = stage(replace(session, runtime=runtime), *arguments)
    return job.spec(), job.steps
