"""Command-line options generated from pydantic models, and the options that verbs share."""

from __future__ import annotations

import inspect
import json
import re
import sys
import types
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from pydantic import AfterValidator, BaseModel, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from relabel.config import load_config, params_file
from relabel.core.errors import RelabelError, UsageError, choices
from relabel.core.parameters import Parameters, validate
from relabel.core.runtime import SILENT, Device, Runtime, default_data, parse_size
from relabel.corpus.params import IngestParams
from relabel.corpus.splits import named_split
from relabel.stages import Job, Session, available_labels, check_label_names, datasets_in
from relabel_cli.progress import Display
from relabel_cli.root import CONTEXT

SHARED = "Shared options"

OUTPUT = ("as_json", "quiet")
READ = ("params", "set", "dataset", "data", "labels", *OUTPUT)
"""Verbs that read a project."""
COMPUTE = (*READ, "device", "threads", "memory")
"""Verbs that compute with it."""
AGAIN = ("rebuild", "retry_failed")
BUILD = (*COMPUTE, *AGAIN)
"""Verbs that make an artefact."""
WORKERS = (*BUILD, "workers", "scheduler")
"""Verbs that make artefacts by tasks among others."""
TASKS = (*WORKERS, "shard")
"""Verbs that make artefacts by tasks."""
Mirror = Annotated[Path | None, typer.Option(envvar="RELABEL_MIRROR", help="Read files from this folder; no download.")]
SPLITS = ("train", "val", "test", "all")
LABELLED = "[default: judge.split for coco, flickr8k, flickr30k; otherwise each]"
"""Help of the option --split of the verbs that label."""
MIN_MEMORY = 256 << 20
"""Bytes. A smaller budget can only be a mistake."""


def _check_memory(text: str) -> str:
    if parse_size(text) < MIN_MEMORY:
        raise ValueError(f"too little to work in; give at least {MIN_MEMORY >> 20}MiB")
    return text


Memory = Annotated[str, AfterValidator(_check_memory)]
_SHARE = r"^[1-9]\d{0,8}/[1-9]\d{0,8}$"


class SharedOptions(Parameters):
    """Options that verbs share."""

    params: Path | None = Field(None, description="Parameter file. [default: params.yaml]")
    set: list[str] = Field([], description="Set any parameter: NAME=VALUE. Repeatable.")
    dataset: str | None = Field(None, description="Dataset. [default: that of --params, or the only one]")
    data: Path = Field(default_factory=default_data, description="Fetched files. [default: $RELABEL_DATA or data]")
    labels: Path = Field(Path("labels"), description="Folder of all artefacts.")
    device: Device = Field("auto", description="auto: a GPU if available.")
    threads: int | None = Field(None, ge=1, le=4096, description="Number of CPU threads. [default: all]")
    memory: Memory = Field("4GiB", description="Working memory, in addition to the data.")
    workers: int = Field(0, ge=0, le=4096, description="Worker processes on this machine.")
    scheduler: str | None = Field(None, description="Dask scheduler: tcp://HOST:8786.")
    shard: str | None = Field(None, pattern=_SHARE, description="I/N: process every N-th task, from task I on.")
    rebuild: bool = Field(False, description="Rebuild results that are up to date.")
    retry_failed: bool = Field(False, description="Rebuild results that have failed rows.")
    as_json: bool = Field(False, description="Print the result as JSON.", json_schema_extra={"flags": ["--json"]})
    skip_missing: bool = Field(False, description="Skip labels that need missing files of `relabel fetch`.")
    quiet: bool = Field(False, description="Do not show progress.", json_schema_extra={"flags": ["--quiet", "-q"]})

    overrides: dict[str, Any] = Field({}, description="Own options of the verb that are set, by dotted name.")

    def session(self) -> Session:
        """Return the session of the defaults, then the file, then --set, then the options of the verb."""
        file = self.params or params_file(self.labels)
        config = load_config(file, self.set, {"ingest.dataset": self.dataset, **self.overrides})
        if self.labels.name in config.sources and not self.labels.exists():
            where, hint = f"--labels {self.labels}", f"To select a label, pass `--label {self.labels.name}`."
            raise UsageError("expected a folder, found the name of a label", where=where, hint=hint)
        named = config.ingest.has_location or "dataset" in config.ingest.model_fields_set
        held = [] if named else datasets_in(self.labels)
        if len(held) > 1 and config.ingest.dataset not in held:
            hint = f"Pass --dataset with one of {', '.join(held)}, or with {config.ingest.dataset}."
            raise UsageError("several datasets are in this folder", where=f"--labels {self.labels}", hint=hint)
        if len(held) == 1:
            config = load_config(file, self.set, {"ingest.dataset": held[0], **self.overrides})
        return Session(config, self.runtime(), self.labels)

    def runtime(self) -> Runtime:
        """Return the runtime of the options."""
        if sum(map(bool, (self.workers, self.scheduler, self.shard))) > 1:
            raise UsageError("--workers, --scheduler and --shard are mutually exclusive", where="command line")
        names = {"data", "device", "threads", "workers", "scheduler", *AGAIN}
        same = self.model_dump(include=names, exclude_none=True)
        index, count = map(int, self.shard.split("/")) if self.shard else (0, 0)
        if index > count:
            raise UsageError("expected I/N with I up to N, such as 2/8", where=f"--shard {self.shard}")
        shard = (index, count) if self.shard else None
        progress = SILENT if self.quiet else Display(Console(file=getattr(sys.stderr, "raw", sys.stderr)))
        return Runtime(**same, memory=parse_size(self.memory), shard=shard, progress=progress)

    def chosen(self, session: Session, labels: list[str]) -> list[str]:
        """Return the labels that the command names, without those that `--skip-missing` leaves out."""
        check_label_names(session.config, labels)
        return available_labels(session, labels) if self.skip_missing else labels

    def run(self, job: Job, describe: Callable[[Mapping[str, Any]], str] = lambda _: "") -> None:
        """Run the job of a stage, or its share, and print the metadata of its artefact.

        `describe`: returns lines of text about the metadata.
        """
        if (share := job.session.runtime.shard) is not None:
            line = job.share(share)
            self.show(line, line)
            return
        metadata = job.run()[0].metadata
        self.show(metadata, describe(metadata))

    def show(self, value: Any, text: str) -> None:
        """Print a result on stdout, as JSON or as text."""
        if shown := json.dumps(value, indent=1, ensure_ascii=False) if self.as_json else text:
            typer.echo(shown)


class Command(TyperCommand):
    """A command with a separate section for the shared options in its help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section each for arguments, options and shared options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], SHARED: []}
        for parameter in self.get_params(ctx):
            title = getattr(parameter, "rich_help_panel", None) or f"{parameter.param_type_name.title()}s"
            if (record := parameter.get_help_record(ctx)) is not None:
                sections[title].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def verb(
    function: Callable[..., None],
    shared: Collection[str],
    model: type[BaseModel] | None = None,
    section: str = "",
) -> Any:
    """Return a command.

    `function`: its parameter `common` receives the shared options, and with them the fields of `model` that are set, by
    dotted name: ``{"ingest.path": ...}``. All other parameters are Typer's. `shared`: fields of `SharedOptions` that
    become options. `model`: its fields become options, except those named as a parameter of `function`, and those that
    `json_schema_extra` marks: ``{"option": False}`` (`SET_ONLY`), or ``{"option": VERB}`` for a single verb.
    `section`: dotted name of the section of params.yaml that has them.
    """
    common = {name: info for name, info in SharedOptions.model_fields.items() if name in shared}
    hints, verbs = get_type_hints(function, include_extras=True), (True, function.__name__)
    fields = {} if model is None else model.model_fields
    own = {
        name: info for name, info in fields.items() if _extra(info).get("option", True) in verbs and name not in hints
    }
    # Keyword-only parameters may follow any default, whatever their order in `function`.
    options = [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "common"
    ]
    options += [_option(name, info) for name, info in own.items()]
    options += [_option(name, info, SHARED) for name, info in common.items()]

    def call(**values: Any) -> None:
        # An option that is not set leaves the parameter file's value.
        given = {name: value for name in (*own, *common) if (value := values.pop(name)) not in (None, [])}
        chosen = {f"{section}.{name}".removeprefix("."): given.pop(name) for name in own if name in given}
        try:
            function(common=validate(SharedOptions, given | {"overrides": chosen}, "command line"), **values)
        except RelabelError as error:
            error.hint = error.hint and with_settings(error.hint, {option.name for option in options})
            raise

    # Typer reads the options from the signature.
    call.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    call.__annotations__ = {option.name: option.annotation for option in options}
    call.__doc__ = function.__doc__
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command(cls=Command, context_settings=CONTEXT)(call)
    return typer.main.get_command(app)


def with_settings(advice: str, names: Collection[str]) -> str:
    """Return advice about captions, with settings instead of options that a verb lacks. `names`: those that it has."""

    def replace(match: re.Match[str]) -> str:
        name, value = match[2].replace("-", "_"), (match[3] or "").strip("'")
        if name in names or name not in IngestParams.model_fields:
            return match[0]
        if IngestParams.model_fields[name].annotation is bool:
            return f"--set ingest.{name}=true{(match[3] and ' ' + match[3]) or ''}"
        value = f"[{value}]" if "," in value else value or "VALUE"
        return f"--set 'ingest.{name}={value}'"

    return re.sub(r"(`[^`]*`)|--([a-z-]*[a-z])(?: ('[^']*'|[A-Za-z,]+))?", lambda m: m[1] or replace(m), advice)


def group(purpose: str, **verbs: Any) -> Any:
    """Return a command of several verbs by name, as in `relabel export lookup`; `purpose`: its help."""
    return TyperGroup(help=purpose, commands=verbs, rich_markup_mode=None, context_settings=CONTEXT)


def label_option(purpose: str, default: str = "") -> Any:
    """Return the option of a verb that chooses labels: `--label a,b`, or `--label a --label b`.

    The name is singular, because `--labels` is the folder of all artefacts.

    `purpose`: infinitive that completes the help text "Labels ...". `default`: labels that the verb chooses without the
    option, for which it receives an empty list.
    """
    help_text = f"Labels {purpose}, comma-separated or repeated.{f' [default: {default}]' if default else ''}"
    return typer.Option("--label", "-l", metavar="<label>", help=help_text, callback=split_names)


def split_option(default: str, purpose: str = "") -> Any:
    """Return an option that names a split; `purpose`, `default`: begin and end of its help."""
    help_text = f"{purpose}train, val, test or all. {default}"
    return typer.Option(metavar="<split>", help=help_text, callback=check_split, show_default=False)


def check_split(name: str | None) -> str | None:
    """Return the split that a word means, as "validation" means val; raise for any other word."""
    split: str | None = named_split(name)
    if split is not None and split not in SPLITS:
        raise UsageError(f"no split {name!r}", hint=choices(split, SPLITS))
    return split


def split_names(values: list[str] | None) -> list[str]:
    """Split the values of an option that may be repeated, and lists names by commas."""
    names = [name.strip() for text in values or [] for name in text.split(",") if name.strip()]
    if values and not names:
        raise typer.BadParameter("no name is given")
    return names


def _option(name: str, info: FieldInfo, panel: str | None = None) -> inspect.Parameter:
    """Return the option of a field. Its value is None by default; its help shows the field's default."""
    flags = _extra(info).get("flags", [f"--{name.replace('_', '-')}"])
    default = None if info.default is PydanticUndefined else info.default
    kind = _inner(info.annotation)
    help_text, metavar = info.description or "", None
    callback: Callable[..., Any] | None = None
    if kind is bool and default:
        # A flag that is true by default needs a second form for false.
        flags = [f"{flags[0]}/--no-{flags[0][2:]}"]
    if get_origin(kind) is Literal and "val" in get_args(kind):
        # A split: several words are accepted for it.
        help_text, metavar, callback = f"{help_text} One of: {', '.join(get_args(kind))}.", "<split>", check_split
        kind = str
    elif get_origin(kind) is Literal:
        # Click does not break lines within a list of choices next to the name.
        help_text, metavar = f"{help_text} One of: {', '.join(get_args(kind))}.", f"<{name}>"
    elif get_origin(kind) is tuple or get_origin(kind) is list:
        # The option takes one value at a time. Typer supports no list of choices: the model checks them.
        element = _inner(get_args(kind)[0])
        element = str if get_origin(element) is Literal else element
        kind, metavar = list[element], f"<{element.__name__.lower()}>"  # type: ignore[valid-type]
        callback = split_names if element is str and panel is None else None
    if info.is_required():
        help_text = f"{help_text} [required]"
    elif kind is not bool and default not in (None, "", (), []):
        shown = ", ".join(map(str, default)) if isinstance(default, tuple | list) else default
        help_text = f"{help_text} [default: {shown}]"
    details: dict[str, Any] = {"help": help_text, "metavar": metavar, "rich_help_panel": panel, "show_default": False}
    option: Any = typer.Option(*flags, callback=callback, **details)
    kind = Union[kind, None]  # noqa: UP007
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _extra(info: FieldInfo) -> dict[str, Any]:
    """Return what a field says about its option."""
    return info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}


def _inner(annotation: Any) -> Any:
    """Return a type without None and without the bounds of a number."""
    if get_origin(annotation) is Annotated:
        return _inner(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return _inner(next(a for a in get_args(annotation) if a is not type(None)))
    return annotation
