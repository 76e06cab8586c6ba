"""`python -m experiments.fit_table`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from experiments.fit_table import TABLE, fit_table, read_table
from experiments.params import FILE_OPTION, FitTableParams, load_experiments
from relabel import stages
from relabel_cli.global_options import GlobalOptions
from relabel_cli.main import main
from relabel_cli.options import Overrides, verb
from relabel_cli.trainer_options import trainer_errors


def command(
    options: Annotated[dict[str, Any], Overrides(FitTableParams, "fit_table")],
    common: GlobalOptions,
    experiments: Annotated[Path | None, FILE_OPTION] = None,
) -> None:
    """Train every loss with the same budget on proxy features, and write one table."""
    project = common.project()
    # Trainings run inside the job, and raise the trainer's own exceptions.
    with trainer_errors():
        job = fit_table(project, load_experiments(experiments, options))
        built = job.run()[1]
    manifest, body, text = read_table(job.out)
    files = ", ".join(f"{TABLE}.{suffix}" for suffix in ("txt", "md", "csv", "json"))
    done = f"{stages.status_line(built, manifest, job.out)}\n{manifest.facts['rows']} rows in {files}"
    common.show(body, f"{text}\n\n{done}\ntrainings: {job.out.parent / 'runs'}")


app = verb(command)
if __name__ == "__main__":
    main(lambda: app)
