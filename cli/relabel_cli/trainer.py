"""Options of the verbs that train and evaluate: `fit` and `eval`."""

from __future__ import annotations

from typing import TypeVar

from relabel.core.parameters import Parameters, validate, with_settings
from relabel.corpus.splits import named_split
from relabel_cli.options import OUTPUT, SharedOptions
from relabel_train.reference import options

T = TypeVar("T", bound=Parameters)
SHARED = ("set", "device", "threads", *OUTPUT)
CHOICES = ("model", "loss")
"""Options that are the name of a choice; `--set loss.margin=0.1` sets its parameters."""


class FitParameters(Parameters, options.FitOptions):
    """Options of a training run, with the checks of all parameters."""


class EvalParameters(Parameters, options.EvalOptions):
    """Options of an evaluation, with the checks of all parameters."""


def parse(model: type[T], common: SharedOptions) -> T:
    """Return the options of the verb and of --set, and set the number of threads."""
    named = {f"{name}.name" if name in CHOICES else name: value for name, value in common.overrides.items()}
    values = with_settings({}, common.set, named)
    values |= {name: named_split(values[name]) for name in ("split", "val") if name in values}
    parsed = validate(model, values, "command line")
    if common.threads is not None:
        import torch

        torch.set_num_threads(common.threads)
    return parsed
