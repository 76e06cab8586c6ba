"""Options that every verb has, and what they make: a Config, a Runtime and a way to print."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel, ConfigDict, Field

from relabel.config import load_config
from relabel.errors import UsageError
from relabel.runtime import Device, Runtime, default_data, parse_memory
from relabel.stages import Project
from relabel_cli.progress import make_progress


class Common(BaseModel):
    """Options that every verb has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    params: Path | None = Field(None, description="Parameter file; ./params.yaml if there is one, else the defaults.")
    set: list[str] = Field([], description="Override one parameter: sources.cbow.vectors=glove. Repeatable.")
    dataset: str | None = Field(None, description="Dataset; the one of params.yaml by default (coco).")
    data: Path = Field(default_factory=default_data, description="Folder of fetched files.")
    labels: Path = Field(Path("labels"), description="Folder of everything that is built.")
    device: Device = Field("auto", description="auto takes a GPU where there is one.")
    threads: int | None = Field(None, ge=1, description="CPU threads; all by default. Local workers share them.")
    memory: str = Field("4GiB", description="Memory beside what must be read whole: 4GiB, 512MiB. Shared like threads.")
    workers: int = Field(0, ge=0, description="Processes of a local Dask cluster, a GPU each; 0: this process alone.")
    scheduler: str | None = Field(
        None, description="Dask scheduler whose workers share this file system: tcp://HOST:8786."
    )
    as_json: bool = Field(False, description="Print the result as JSON.", json_schema_extra={"name": "--json"})
    quiet: bool = Field(False, description="No progress.", json_schema_extra={"flags": ["-q"]})
    verbose: bool = Field(False, description="Show tracebacks.", json_schema_extra={"flags": ["-v"]})

    def project(self, overrides: Mapping[str, Any] = {}) -> Project:
        """Read parameters: the defaults, then the file, then --set, then a verb's own options."""
        config = load_config(self.params, self.set, {"ingest.dataset": self.dataset, **overrides})
        return Project(config, self.runtime(), self.labels)

    def runtime(self) -> Runtime:
        """Say what a run may use."""
        if self.workers and self.scheduler is not None:
            raise UsageError("--workers and --scheduler say two things", where="command line", todo="Give one of them.")
        more: dict[str, Any] = {} if self.threads is None else {"threads": self.threads}
        return Runtime(
            data=self.data,
            device=self.device,
            memory=parse_memory(self.memory),
            workers=self.workers,
            scheduler=self.scheduler,
            progress=make_progress(self.quiet),
            **more,
        )

    def show(self, value: Any, text: str) -> None:
        """Print a result on stdout: as JSON or as text."""
        typer.echo(json.dumps(value, indent=1, ensure_ascii=False) if self.as_json else text)
