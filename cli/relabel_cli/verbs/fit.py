"""`relabel fit`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from pydantic import BaseModel

from relabel_cli.options import verb
from relabel_cli.trainer_options import RunOptions, parameter_model, parse, trainer_errors
from relabel_train.training.options import FitOptions

if TYPE_CHECKING:
    Options = BaseModel
else:
    Options = parameter_model(FitOptions)


def fit(options: Options, machine: RunOptions) -> None:
    """Train a retrieval model with graded labels, or resume its training."""
    run = parse(FitOptions, options)
    log = machine.logger()
    with trainer_errors():
        from relabel_train.fit import fit as train
        from relabel_train.training.distributed import launched

        result = train(run, machine.device, log)
    # Under torchrun, only the first process reports.
    if launched()[0] != 0:
        return
    text = f"best RSUM {result.best:.1f} on {run.val} after {result.step:,} steps ({run.out})"
    machine.show({**asdict(result), "out": str(run.out)}, text)


app = verb(fit)
