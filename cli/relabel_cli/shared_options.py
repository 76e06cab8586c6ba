"""The options that verbs share, each where it does something, and the project and runtime that they define."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import AfterValidator, Field
from rich.console import Console

from relabel.config import load_config, params_file
from relabel.core.errors import UsageError
from relabel.core.parameters import Parameters
from relabel.core.runtime import SILENT, Device, Runtime, default_data, parse_size
from relabel.stages import Job, Project, only_dataset
from relabel_cli.progress import Display

OUTPUT = ("as_json", "quiet")
READ = ("params", "set", "dataset", "data", "labels", *OUTPUT)
"""Verbs that read a project."""
COMPUTE = (*READ, "device", "threads", "memory")
"""Verbs that compute with it."""
BUILD = (*COMPUTE, "replace")
"""Verbs that make an artefact."""
WORKERS = (*BUILD, "workers", "scheduler")
"""Verbs that make artefacts by tasks among others."""
TASKS = (*WORKERS, "shard")
"""Verbs that make artefacts by tasks."""
Mirror = Annotated[Path | None, typer.Option(envvar="RELABEL_MIRROR", help="Folder of files to use, not download.")]
LABELLED = "train, val, test or all. [default: judge.split of a benchmark; each split of other data]"
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
    set: list[str] = Field([], description="Any parameter: NAME=VALUE. Repeatable.")
    dataset: str | None = Field(None, description="Dataset. [default: that of the file, or the only one]")
    data: Path = Field(default_factory=default_data, description="Folder of fetched files.")
    labels: Path = Field(Path("labels"), description="Folder of all artefacts.")
    device: Device = Field("auto", description="auto is a GPU if there is one.")
    threads: int | None = Field(None, ge=1, le=4096, description="CPU threads. [default: all]")
    memory: Memory = Field("4GiB", description="Working memory, beside the data.")
    workers: int = Field(0, ge=0, le=4096, description="Processes of this machine.")
    scheduler: str | None = Field(None, description="Dask scheduler: tcp://HOST:8786.")
    shard: str | None = Field(None, pattern=_SHARE, description="I/N: make every N-th task, from I on.")
    replace: bool = Field(False, description="Replace results of other parameters.")
    as_json: bool = Field(False, description="Print the result as JSON.", json_schema_extra={"flags": ["--json"]})
    quiet: bool = Field(False, description="Show no progress.", json_schema_extra={"flags": ["--quiet", "-q"]})

    overrides: dict[str, Any] = Field({}, description="Own options of the verb that are set, by dotted name.")

    def project(self) -> Project:
        """Return the project of the defaults, then the file, then --set, then the options of the verb."""
        file = self.params or params_file(self.labels)
        config = load_config(file, self.set, {"ingest.dataset": self.dataset, **self.overrides})
        if self.labels.name in config.sources and not self.labels.exists():
            where, todo = f"--labels {self.labels}", f"Choose a label by `--label {self.labels.name}`."
            raise UsageError("the folder of artefacts has the name of a label", where=where, todo=todo)
        named = config.ingest.has_location or "dataset" in config.ingest.model_fields_set
        if not named and (name := only_dataset(self.labels)):
            config = load_config(file, self.set, {"ingest.dataset": name, **self.overrides})
        return Project(config, self.runtime(), self.labels)

    def runtime(self) -> Runtime:
        """Return the runtime of the options."""
        if sum(map(bool, (self.workers, self.scheduler, self.shard))) > 1:
            raise UsageError("--workers, --scheduler and --shard exclude each other", where="command line")
        names = {"data", "device", "threads", "workers", "scheduler", "replace"}
        same = self.model_dump(include=names, exclude_none=True)
        index, count = map(int, self.shard.split("/")) if self.shard else (0, 0)
        if index > count:
            raise UsageError("2/8 is the second of eight shares", where=f"--shard {self.shard}")
        shard = (index, count) if self.shard else None
        progress = SILENT if self.quiet else Display(Console(stderr=True))
        return Runtime(**same, memory=parse_size(self.memory), shard=shard, progress=progress)

    def run(self, job: Job, describe: Callable[[Mapping[str, Any]], str] = lambda _: "") -> None:
        """Run the job of a stage, or its share, and print the metadata of its artefact.

        `describe`: returns lines of text about the metadata.
        """
        if (share := job.project.runtime.shard) is not None:
            line = job.share(share)
            self.show(line, line)
            return
        metadata = job.run()[0].metadata
        self.show(metadata, describe(metadata))

    def show(self, value: Any, text: str) -> None:
        """Print a result on stdout, as JSON or as text."""
        if shown := json.dumps(value, indent=1, ensure_ascii=False) if self.as_json else text:
            typer.echo(shown)
