"""What the verbs of training share: options from the trainer's own dataclass, its errors, its lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

import typer
from pydantic import BaseModel, ConfigDict, Field, create_model

from relabel.errors import CheckError, MissingError, UsageError
from relabel.runtime import Device

T = TypeVar("T")


class Machine(BaseModel):
    """What training may use and how it speaks; its --data and --labels are its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    device: Device = Field("auto", description="auto takes a GPU where there is one.")
    threads: int | None = Field(None, ge=1, description="CPU threads; as torch has it by default.")
    as_json: bool = Field(False, description="Print the result as JSON.", json_schema_extra={"name": "--json"})
    quiet: bool = Field(False, description="No progress.", json_schema_extra={"flags": ["-q"]})
    verbose: bool = Field(False, description="Show tracebacks.", json_schema_extra={"flags": ["-v"]})

    def tell(self) -> Callable[[str], None]:
        """Make what gets the trainer's lines: stderr, or nothing. Sets threads on the way."""
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)
        return (lambda _: None) if self.quiet else lambda line: typer.echo(line, err=True)

    def show(self, value: Any, text: str) -> None:
        """Print a result on stdout: as JSON or as text."""
        typer.echo(json.dumps(value, indent=1, ensure_ascii=False) if self.as_json else text)


def model_of(options: type) -> type[BaseModel]:
    """Make a parameter model of a dataclass whose fields say their help: the trainer has no pydantic.

    Fields that must be given are None where they were not; see `filled`.
    """
    hints = get_type_hints(options)
    made: dict[str, Any] = {}
    for one in fields(options):
        kind, field = hints[one.name], Field(one.default, description=one.metadata["help"])
        made[one.name] = (kind | None if one.metadata["needed"] else kind, field)
    return create_model(options.__name__, __config__=ConfigDict(extra="forbid", frozen=True), **made)


def filled(options: type[T], given: BaseModel) -> T:
    """Make the dataclass of what was given.

    Raises
    ------
    UsageError
        If an option that must be given was not, or the dataclass refuses a value.
    """
    values = {one.name: getattr(given, one.name) for one in fields(options)}  # type: ignore[arg-type]
    lacking = [f"--{one.name}" for one in fields(options) if one.metadata["needed"] and values[one.name] is None]  # type: ignore[arg-type]
    if lacking:
        raise UsageError(f"give {', '.join(lacking)}", where="command line")
    with trainer_errors():
        return options(**values)


@contextmanager
def trainer_errors() -> Iterator[None]:
    """Turn what the trainer raises for a user's mistakes into errors with an exit code."""
    from relabel_train.features import FeaturesError
    from relabel_train.lookup.format import LookupFileError
    from relabel_train.training.errors import FitError

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
        raise MissingError(str(error), todo="Run `pip install 'relabel-itr[train]'`.") from error
