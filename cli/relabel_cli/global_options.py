"""Options of every verb of the pipeline, and the project and runtime that they define."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from relabel.config import load_config
from relabel.core.errors import UsageError
from relabel.core.parameters import Parameters
from relabel.core.runtime import Device, Runtime, default_data, parse_memory
from relabel.stages import Project
from relabel_cli.progress import make_progress
from relabel_cli.streams import write_result


class GlobalOptions(Parameters):
    """Options of every verb of the pipeline."""

    params: Path | None = Field(None, description="Parameter file; ./params.yaml if there is one, else the defaults.")
    set: list[str] = Field([], description="Set one parameter: judge.seed=1, or a label of a trial. Repeatable.")
    dataset: str | None = Field(None, description="Dataset; the one of params.yaml by default (coco).")
    data: Path = Field(default_factory=default_data, description="Folder of fetched files.")
    labels: Path = Field(Path("labels"), description="Folder of everything that is built.")
    device: Device = Field("auto", description="auto takes a GPU where there is one.")
    threads: int | None = Field(
        None, ge=1, le=4096, description="CPU threads; all by default. Local workers share them."
    )
    memory: str = Field("4GiB", description="Memory beside what must be read whole: 4GiB, 512MiB. Shared like threads.")
    workers: int = Field(
        0, ge=0, le=4096, description="Processes of a local Dask cluster, a GPU each; 0: this process alone."
    )
    scheduler: str | None = Field(
        None, description="Dask scheduler whose workers share this file system: tcp://HOST:8786."
    )
    replace: bool = Field(
        False, description="Replace what was made of other captions, or under other parameters than the file's."
    )
    as_json: bool = Field(False, description="Print the result as JSON.", json_schema_extra={"name": "--json"})
    quiet: bool = Field(False, description="No progress.", json_schema_extra={"flags": ["-q"]})
    verbose: bool = Field(False, description="Show tracebacks.", json_schema_extra={"flags": ["-v"]})

    def project(self, overrides: Mapping[str, Any] = {}) -> Project:
        """Make a project of the defaults, then the file, then --set, then the options of the verb."""
        config = load_config(self.params, self.set, {"ingest.dataset": self.dataset, **overrides})
        return Project(config, self.runtime(), self.labels)

    def runtime(self) -> Runtime:
        """Make the runtime of the options.

        Raises
        ------
        UsageError
            If the options contradict each other, or memory is not an amount.
        """
        if self.workers and self.scheduler is not None:
            raise UsageError("--workers and --scheduler say two things", where="command line", todo="Give one of them.")
        more: dict[str, Any] = {} if self.threads is None else {"threads": self.threads}
        return Runtime(
            data=self.data,
            device=self.device,
            memory=parse_memory(self.memory),
            workers=self.workers,
            scheduler=self.scheduler,
            replace=self.replace,
            progress=make_progress(self.quiet),
            **more,
        )

    def show(self, value: Any, text: str) -> None:
        """Print a result on stdout: as JSON or as text."""
        write_result(value, text, self.as_json)
