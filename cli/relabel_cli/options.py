"""Command-line options generated from pydantic models."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from relabel.core.errors import UsageError
from relabel.core.parameters import describe
from relabel_cli.border import report


@dataclass(frozen=True)
class Overrides:
    """Marks a verb's parameter that collects the options of one section of params.yaml.

    ``options: Annotated[dict[str, Any], Overrides(IngestParams, "ingest")]`` gives the verb one option a field of the
    model (unset by default, the default shown in the help), and the function a dict of those given:
    ``{"ingest.path": ...}``.
    """

    model: type[BaseModel]
    section: str
    without: tuple[str, ...] = ()

    def fields(self) -> list[tuple[str, FieldInfo]]:
        """List the fields that become options."""
        named = self.model.model_fields.items()
        return [(name, info) for name, info in named if name not in self.without and _settable(info)]


def verb(function: Callable[..., None]) -> typer.Typer:
    """Make a Typer app of one command.

    Parameters of `function` that are pydantic models become one option a field (name, type, help and default are the
    model's), those marked with `Overrides` likewise; all others are Typer's own. An exception ends in one line on
    stderr and an exit code, as `relabel_cli.border.report` does it.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters: list[inspect.Parameter] = []
    models: dict[str, type[BaseModel]] = {}
    sections: dict[str, Overrides] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = hints[name]
        marks = [m for m in getattr(annotation, "__metadata__", ()) if isinstance(m, Overrides)]
        if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
            models[name] = annotation
            parameters += [_option(f, info) for f, info in annotation.model_fields.items()]
        elif marks:
            sections[name] = marks[0]
            parameters += [_option(f, info, unset=True) for f, info in marks[0].fields()]
        else:
            parameters.append(parameter.replace(annotation=annotation, kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(function)
    def call(**given: Any) -> None:
        try:
            function(**_collect(models, sections, given))
        except typer.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:
            raise typer.Exit(report(error, given.get("verbose", False))) from None

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command(context_settings={"help_option_names": ["-h", "--help"]})(call)
    return app


def group(function: Callable[[], None], **verbs: typer.Typer) -> typer.Typer:
    """Make a Typer app of several verbs by name: `relabel export lookup`; the function's docstring is its help."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.callback(context_settings={"help_option_names": ["-h", "--help"]})(function)
    for name, one in verbs.items():
        (command,) = one.registered_commands
        command.name = name
        app.registered_commands.append(command)
    return app


def _collect(
    models: dict[str, type[BaseModel]], sections: dict[str, Overrides], given: dict[str, Any]
) -> dict[str, Any]:
    rest = dict(given)
    made: dict[str, Any] = {}
    for name, mark in sections.items():
        values = {f: rest.pop(f) for f, _ in mark.fields()}
        made[name] = {f"{mark.section}.{f}": v for f, v in values.items() if v is not None and v != []}
    for name, model in models.items():
        values = {f: rest.pop(f) for f in model.model_fields}
        try:
            made[name] = model(**{f: v for f, v in values.items() if v is not None})
        except ValidationError as error:
            raise UsageError(describe(error), where="command line") from error
    return {**rest, **made}


def _settable(info: FieldInfo) -> bool:
    """Say whether a field is one value or a list of values: mappings and models are for params.yaml alone."""
    kind = _inner(info.annotation)
    if get_origin(kind) in (tuple, list):
        kind = _inner(get_args(kind)[0])
    return get_origin(kind) is Literal or kind in (str, int, float, bool, Path)


def _option(name: str, info: FieldInfo, unset: bool = False) -> inspect.Parameter:
    default = info.get_default(call_default_factory=True)
    extra: Any = info.json_schema_extra or {}
    flag = extra.get("name", f"--{name.replace('_', '-')}")
    kind = _plain(info.annotation)
    if _inner(info.annotation) is bool and (unset or default):
        flag = f"{flag}/--no-{flag[2:]}"
    help_text = info.description or ""
    if unset and default not in (None, "", ()):
        shown = ", ".join(map(str, default)) if isinstance(default, tuple | list) else default
        help_text = f"{help_text} [default: {shown}]"
    if isinstance(default, tuple | list):
        default = list(default) or None
    option = typer.Option(
        flag, *extra.get("flags", []), help=help_text, show_default=not unset and default not in (None, False)
    )
    if unset:
        default, kind = None, Union[kind, None]  # noqa: UP007
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _inner(annotation: Any) -> Any:
    """Drop None from a union, and bounds from a number."""
    if get_origin(annotation) is Annotated:
        return _inner(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return next(a for a in get_args(annotation) if a is not type(None))
    return annotation


def _plain(annotation: Any) -> Any:
    """Reduce a field's type to what Typer takes."""
    inner = _inner(annotation)
    if get_origin(inner) in (tuple, list):
        element = _inner(get_args(inner)[0])
        # Typer takes no list of choices: the model checks them.
        return list[str if get_origin(element) is Literal else _plain(element)]  # type: ignore[misc]
    return Union[inner, None] if inner is not annotation else inner  # noqa: UP007
