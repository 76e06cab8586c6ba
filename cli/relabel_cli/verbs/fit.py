"""`relabel fit`."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING

from pydantic import BaseModel

from relabel.core.tables import align
from relabel_cli.options import verb
from relabel_cli.trainer_options import RunOptions, parameter_model, parse, trainer_errors
from relabel_train.training.options import FitOptions

if TYPE_CHECKING:
    from relabel_train.fit import TrainState

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
    machine.show({**asdict(result), "out": str(run.out)}, _summary(result, run))


def _summary(result: TrainState, run: FitOptions) -> str:
    """Return the outcome of a training, its files, and the command that evaluates it."""
    from relabel_train.fit import BEST, LAST
    from relabel_train.training.files import NAME

    evaluate = ["eval", "--run", str(run.out), "--data", str(run.data), "--captions", str(run.captions)]
    if run.labels is not None:
        evaluate += ["--labels", str(run.labels)]
    lines = [
        ("best RSUM", f"{result.best:.1f} on {run.val}, after {result.step:,} steps in {result.seconds:.0f} s"),
        ("model", str(run.out / BEST)),
        ("to resume", f"{run.out / LAST}, by the same command; a larger --epochs continues"),
        ("log", str(run.out / NAME)),
        ("next", f"`relabel {shlex.join(evaluate)}`"),
    ]
    return "\n".join(align(lines))


app = verb(fit)
