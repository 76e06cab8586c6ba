"""`relabel eval`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from relabel_cli.options import verb
from relabel_cli.trainer_options import RunOptions, parameter_model, parse, trainer_errors
from relabel_train.evaluate import EvalOptions

if TYPE_CHECKING:
    Options = BaseModel
else:
    Options = parameter_model(EvalOptions)


def eval(options: Options, machine: RunOptions) -> None:
    """Take every metric of a trained model."""
    asked = parse(EvalOptions, options)
    tell = machine.tell()
    with trainer_errors():
        from relabel_train.evaluate import evaluate

        found = evaluate(asked, machine.device, tell)
    machine.show(found.to_json(), found.text())


app = verb(eval)
