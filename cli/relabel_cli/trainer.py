"""Options, errors and messages of the verbs that train and evaluate: `fit` and `eval`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import typer
from pydantic import Field, ValidationError, create_model

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.parameters import Parameters, describe, with_settings
from relabel_cli.shared_options import OUTPUT, SharedOptions

T = TypeVar("T")
SHARED = ("set", "device", "threads", *OUTPUT)


def parameter_model(options: type) -> type[Parameters]:
    """Return a pydantic model of a dataclass of the trainer, which does not depend on pydantic."""
    hints = get_type_hints(options)
    definitions: dict[str, Any] = {}
    for one in fields(options):
        default = ... if one.metadata["needed"] else one.default
        least, most = one.metadata["least"], one.metadata["most"]
        definitions[one.name] = hints[one.name], Field(default, ge=least, le=most, description=one.metadata["help"])
    return create_model(options.__name__, __base__=Parameters, **definitions)


def parse(options: type[T], common: SharedOptions) -> T:
    """Return the dataclass of the options of the verb and of --set."""
    try:
        model = parameter_model(options)(**with_settings({}, common.set, common.overrides))
    except ValidationError as error:
        raise UsageError(describe(error), where="command line") from error
    # The dataclass checks combinations of options, which the model cannot.
    with trainer_errors():
        return options(**model.model_dump())


def logger(common: SharedOptions) -> Callable[[str], None]:
    """Set the number of threads; return the function that receives the trainer's messages."""
    if common.threads is not None:
        import torch

        torch.set_num_threads(common.threads)
    return (lambda _: None) if common.quiet else partial(typer.echo, err=True)


def check_labels(common: SharedOptions, captions: Path, folders: Sequence[Path]) -> None:
    """Refuse labels of the project that are not those of today's parameters, where the pipeline is installed."""
    try:
        from relabel.stages.training import check_labels
    except ModuleNotFoundError:
        return
    check_labels(captions, folders, common.runtime())


@contextmanager
def trainer_errors() -> Iterator[None]:
    """Convert the trainer's exceptions for mistakes of users into errors with an exit code."""
    from relabel_train.features import FeaturesError
    from relabel_train.lookup.format import LookupFileError
    from relabel_train.training.options import FitError

    # Only exceptions that a user can cause; any other one is a bug.
    try:
        yield
    except FitError as error:
        raise UsageError(str(error).rstrip(".")) from error
    except FileNotFoundError as error:
        raise MissingError(str(error).rstrip(".")) from error
    except (FeaturesError, LookupFileError) as error:
        raise CheckError(str(error).rstrip(".")) from error
    except KeyError as error:
        todo = "Features, captions and labels must be of the same corpus."
        raise CheckError(str(error.args[0]), todo=todo) from error
    except ModuleNotFoundError as error:
        # torch belongs to `pipeline`, too, which is much larger.
        if error.name != "torch":
            raise
        raise MissingError(str(error), todo="Run `pip install 'relabel-itr[train]'`.") from error
