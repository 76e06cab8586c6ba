"""`python -m experiments.fit_table`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.fit_table import FitTable
from experiments.params import FILE_OPTION, Budget, load_experiments
from relabel.core.tables import text
from relabel_cli.main import main
from relabel_cli.options import BUILD, SharedOptions, verb


def command(
    common: SharedOptions,
    experiments: Annotated[Path | None, FILE_OPTION] = None,
    budget: Annotated[Budget, typer.Option(help="Parameters of experiments/small.yaml or full.yaml.")] = "small",
    trials: Annotated[Path | None, typer.Option(help="File of finished trainings, which is continued.")] = None,
) -> None:
    """Train every loss with a chosen setting on proxy features, and write one table and the papers' claims."""
    table = FitTable(common.session(), load_experiments(experiments, budget), trials)
    body, tables = table.run()
    common.show(body, "\n\n".join([*map(text, tables), f"written to {table.out}"]))


app = verb(command, BUILD)
if __name__ == "__main__":
    main(lambda: app)
