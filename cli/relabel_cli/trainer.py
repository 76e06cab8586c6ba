"""Options of the verbs that train and evaluate: `fit` and `eval`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

from pydantic import Field, create_model

from relabel.core.parameters import Parameters, validate, with_settings
from relabel_cli.shared_options import OUTPUT, SharedOptions

T = TypeVar("T")
SHARED = ("set", "device", "threads", *OUTPUT)


def parameter_model(options: type) -> type[Parameters]:
    """Return a pydantic model of a dataclass of the trainer, which checks the bounds of numbers by itself."""
    hints = get_type_hints(options)
    definitions: dict[str, Any] = {}
    for one in fields(options):
        default = ... if one.metadata["needed"] else one.default
        definitions[one.name] = hints[one.name], Field(default, description=one.metadata["help"])
    return create_model(options.__name__, __base__=Parameters, **definitions)


def parse(options: type[T], common: SharedOptions) -> T:
    """Return the dataclass of the options of the verb and of --set, and set the number of threads."""
    given = validate(parameter_model(options), with_settings({}, common.set, common.overrides), "command line")
    parsed = options(**given.model_dump())
    if common.threads is not None:
        import torch

        torch.set_num_threads(common.threads)
    return parsed
