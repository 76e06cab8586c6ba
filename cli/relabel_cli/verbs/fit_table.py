"""`relabel fit-table`."""

from __future__ import annotations

from typing import Annotated, Any

from relabel.fitting.params import FitTableParams
from relabel_cli.bridge import Overrides, verb
from relabel_cli.common import Common
from relabel_cli.training import trainer_errors


def fit_table(options: Annotated[dict[str, Any], Overrides(FitTableParams, "fit_table")], common: Common) -> None:
    """Train every loss with one budget on proxy features, and write one table."""
    from relabel import stages
    from relabel.stages.fitting import read_table

    project = common.project(options)
    with trainer_errors():
        job = stages.fit_table(project)
        job.run()
    manifest, body, text = read_table(job.out)
    common.show(body, f"{text}\n\n{stages.status(False, manifest, job.out)}")


app = verb(fit_table)
