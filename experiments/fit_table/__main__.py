"""`python -m experiments.fit_table`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from experiments.fit_table import TABLE, fit_table, read_table
from experiments.params import FILE_OPTION, Experiments, FitTableParams, load_experiments
from experiments.proxy_features import proxy_features, remaining_project
from experiments.proxy_features.__main__ import fit_commands
from relabel import stages
from relabel.stages import Project
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
        parameters = load_experiments(experiments, options)
        job = fit_table(project, parameters)
        built = job.run()[1]
    manifest, body, text = read_table(job.out)
    files = ", ".join(f"{TABLE}.{suffix}" for suffix in ("txt", "md", "csv", "json"))
    done = f"{stages.status_line(built, manifest, job.out)}\n{manifest.facts['rows']} rows in {files}"
    following = "\n".join(next_commands(project, parameters, body["rows"]))
    common.show(body, f"{text}\n\n{done}\ntrainings: {job.out.parent / 'runs'}\nNext:\n{following}")


def next_commands(project: Project, parameters: Experiments, rows: Mapping[str, Any]) -> list[str]:
    """Return the commands that train the row of the best RSUM in the default size, and evaluate it."""
    best = max(rows, key=lambda name: rows[name]["RSUM"]["mean"])
    row = parameters.fit_table.all_rows()[best]
    words = [word for loss in row.loss for word in ("--loss", loss)]
    words += [word for value in row.loss_set for word in ("--loss-set", value)]
    label = row.label or parameters.fit_table.train_labels[0]
    features = proxy_features(project, parameters).out
    return fit_commands(remaining_project(project), features, label, shlex.join(words), f"runs/{'-'.join(row.loss)}")


app = verb(command)
if __name__ == "__main__":
    main(lambda: app)
