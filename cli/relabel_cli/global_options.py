"""Options of every verb of the pipeline, and the project and runtime that they define."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from relabel.config import load_config, params_file
from relabel.core.errors import UsageError
from relabel.core.parameters import Parameters
from relabel.core.runtime import Device, Runtime, default_data, parse_memory
from relabel.stages import Job, Project, status_line
from relabel_cli.progress import make_progress
from relabel_cli.streams import write_result


class GlobalOptions(Parameters):
    """Options of every verb of the pipeline."""

    params: Path | None = Field(
        None, description="Parameter file. [default: ./params.yaml, else the one beside --labels]"
    )
    set: list[str] = Field([], description="Set one parameter, as in judge.seed=1, or a label of a trial. Repeatable.")
    dataset: str | None = Field(None, description="Dataset; by default that of the parameter file, else coco.")
    data: Path = Field(default_factory=default_data, description="Folder of fetched files.")
    labels: Path = Field(Path("labels"), description="Folder of all artefacts.")
    device: Device = Field("auto", description="auto uses a GPU if there is one.")
    threads: int | None = Field(
        None, ge=1, le=4096, description="CPU threads; all by default. Local workers share them."
    )
    memory: str = Field(
        "4GiB", description="Working memory, beside the data itself: 4GiB, 512MiB. Local workers share it."
    )
    workers: int = Field(
        0, ge=0, le=4096, description="Processes of a local Dask cluster, one GPU each; 0 for this process alone."
    )
    scheduler: str | None = Field(
        None, description="Dask scheduler whose workers share this file system, as in tcp://HOST:8786."
    )
    replace: bool = Field(
        False, description="Replace artefacts of other captions, or of other parameters than those of the file."
    )
    as_json: bool = Field(False, description="Print the result as JSON.", json_schema_extra={"name": "--json"})
    quiet: bool = Field(False, description="Show no progress.", json_schema_extra={"flags": ["-q"]})
    verbose: bool = Field(False, description="Show tracebacks.", json_schema_extra={"flags": ["-v"]})

    def project(self, overrides: Mapping[str, Any] = {}) -> Project:
        """Return the project of the defaults, then the file, then --set, then the options of the verb."""
        config = load_config(
            self.params or params_file(self.labels), self.set, {"ingest.dataset": self.dataset, **overrides}
        )
        return Project(config, self.runtime(), self.labels)

    def runtime(self) -> Runtime:
        """Return the runtime of the options."""
        if self.workers and self.scheduler is not None:
            message = "--workers and --scheduler exclude each other"
            raise UsageError(message, where="command line", todo="Give one of them.")
        # Runtime counts the CPUs itself.
        threads: dict[str, Any] = {} if self.threads is None else {"threads": self.threads}
        return Runtime(
            data=self.data,
            device=self.device,
            memory=parse_memory(self.memory),
            workers=self.workers,
            scheduler=self.scheduler,
            replace=self.replace,
            progress=make_progress(self.quiet),
            **threads,
        )

    def run(self, job: Job) -> None:
        """Run the job of a stage, and print the facts or the status of its artefact."""
        manifest, built = job.run()
        self.show(manifest.facts, status_line(built, manifest, job.out))

    def show(self, value: Any, text: str) -> None:
        """Print a result on stdout, as JSON or as text."""
        write_result(value, text, self.as_json)
