"""Options, errors and messages of the verbs that train and evaluate: `fit` and `eval`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, Field, create_model

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.parameters import Parameters
from relabel.core.runtime import Device
from relabel_cli.streams import write_message, write_result

T = TypeVar("T")


class RunOptions(Parameters):
    """Options of `fit` and `eval` for the machine and the output."""

    device: Device = Field("auto", description="auto uses a GPU if there is one.")
    threads: int | None = Field(None, ge=1, le=4096, description="CPU threads; torch's own choice by default.")
    as_json: bool = Field(False, description="Print the result as JSON.", json_schema_extra={"name": "--json"})
    quiet: bool = Field(False, description="Show no progress.", json_schema_extra={"flags": ["-q"]})
    verbose: bool = Field(False, description="Show tracebacks.", json_schema_extra={"flags": ["-v"]})

    def logger(self) -> Callable[[str], None]:
        """Set the number of threads; return the function that receives the trainer's messages."""
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)
        return (lambda _: None) if self.quiet else write_message

    def show(self, value: Any, text: str) -> None:
        """Print a result on stdout, as JSON or as text."""
        write_result(value, text, self.as_json)


def parameter_model(options: type) -> type[Parameters]:
    """Return a pydantic model of a dataclass of the trainer, which does not depend on pydantic.

    A required field is None by default, for which `parse` raises.
    """
    hints = get_type_hints(options)
    definitions: dict[str, Any] = {}
    for one in fields(options):
        least, most = one.metadata["least"], one.metadata["most"]
        kind, field = hints[one.name], Field(one.default, ge=least, le=most, description=one.metadata["help"])
        definitions[one.name] = (kind | None if one.metadata["needed"] else kind, field)
    return create_model(options.__name__, __base__=Parameters, **definitions)


def parse(options: type[T], values: BaseModel) -> T:
    """Return the dataclass of the values of its parameter model."""
    by_name = {one.name: getattr(values, one.name) for one in fields(options)}  # type: ignore[arg-type]
    missing = [f"--{one.name}" for one in fields(options) if one.metadata["needed"] and by_name[one.name] is None]  # type: ignore[arg-type]
    if missing:
        raise UsageError(f"required options are missing: {', '.join(missing)}", where="command line")
    # The dataclass checks combinations of options, which the model cannot.
    with trainer_errors():
        return options(**by_name)


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
    except (FeaturesError, LookupFileError) as error:
        raise CheckError(str(error).rstrip(".")) from error
    except FileNotFoundError as error:
        raise MissingError(str(error).rstrip(".")) from error
    except KeyError as error:
        raise CheckError(
            str(error.args[0]), todo="Features, captions and labels must be of the same corpus."
        ) from error
    except ModuleNotFoundError as error:
        # torch belongs to `pipeline`, too, which is much larger.
        if error.name != "torch":
            raise
        raise MissingError(str(error), todo="Run `pip install 'relabel-itr[train]'`.") from error
