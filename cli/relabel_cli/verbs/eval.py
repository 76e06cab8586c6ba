"""`relabel eval`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from relabel_cli.bridge import verb
from relabel_cli.training import Machine, filled, model_of, trainer_errors
from relabel_train.evaluate import EvalOptions

if TYPE_CHECKING:
    Options = BaseModel
else:
    Options = model_of(EvalOptions)


def eval(options: Options, machine: Machine) -> None:
    """Take every metric of a trained model."""
    asked = filled(EvalOptions, options)
    tell = machine.tell()
    with trainer_errors():
        from relabel_train.evaluate import evaluate

        found = evaluate(asked, machine.device, tell)
    machine.show(found.to_json(), found.text())


app = verb(eval)
