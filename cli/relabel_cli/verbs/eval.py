"""`relabel eval`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from relabel_cli.options import verb
from relabel_cli.trainer_options import RunOptions, parameter_model, parse, trainer_errors
from relabel_train.training.options import EvalOptions

if TYPE_CHECKING:
    Options = BaseModel
else:
    Options = parameter_model(EvalOptions)


def eval(options: Options, machine: RunOptions) -> None:
    """Compute every metric of a trained model."""
    parsed = parse(EvalOptions, options)
    log = machine.logger()
    with trainer_errors():
        from relabel_train.evaluate import evaluate

        report = evaluate(parsed, machine.device, log)
    machine.show(report.to_json(), report.text())


app = verb(eval)
