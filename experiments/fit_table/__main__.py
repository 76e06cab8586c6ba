"""`python -m experiments.fit_table`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.fit_table import TABLE, fit_table, read_table
from experiments.params import FILE_OPTION, Budget, Experiments, FitTableParams, load_experiments
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
    budget: Annotated[Budget, typer.Option(help="Parameters of experiments/small.yaml or full.yaml.")] = "small",
    trials: Annotated[Path | None, typer.Option(help="File of finished trainings to continue.")] = None,
) -> None:
    """Train every loss with a chosen setting on proxy features, and write one table and the papers' claims."""
    project = common.project()
    # Trainings run inside the job, and raise the trainer's own exceptions.
    with trainer_errors():
        parameters = load_experiments(experiments, options, budget)
        job = fit_table(project, parameters, trials)
        built = job.run()[1]
    manifest, body, text = read_table(job.out)
    files = ", ".join(f"{TABLE}.{suffix}" for suffix in ("txt", "md", "csv", "json"))
    done = f"{stages.status_line(built, manifest, job.out)}\n{manifest.facts['rows']} rows in {files}"
    following = "\n".join(next_commands(project, parameters, body["rows"]))
    common.show(body, f"{text}\n\n{done}\ntrainings: {job.out.parent / 'runs'}\nNext:\n{following}")


def next_commands(project: Project, parameters: Experiments, rows: Mapping[str, Any]) -> list[str]:
    """Return the commands that train the row of the best RSUM in the default size, and evaluate it."""
    params = parameters.fit_table
    model, name = max(
        ((model, name) for model, of_model in rows.items() if not params.models[model].average for name in of_model),
        key=lambda pair: rows[pair[0]][pair[1]]["RSUM"]["mean"],
    )
    row, columns = params.rows_of(model)[name], rows[model][name]
    loss, loss_set = row.at(columns["value"])
    words = [*(w for item in loss for w in ("--loss", item)), *(w for item in loss_set for w in ("--loss-set", item))]
    words += ["--model", model, "--lr", f"{columns['lr']:g}"]
    words += ["--sampler", row.sampler] if row.sampler != "random" else []
    words += ["--warm-up", str(row.warm_up)] if row.warm_up else []
    label = row.label or params.train_labels[0]
    features = proxy_features(project, parameters).out
    folder = "-".join(item.partition(":")[0] for item in loss)
    return fit_commands(remaining_project(project), features, label, shlex.join(words), f"runs/{folder}")


app = verb(command)
if __name__ == "__main__":
    main(lambda: app)
