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
from relabel_cli.root import CONTEXT

_CHOICES = 40  # columns of the list of choices beside an option's name


@dataclass(frozen=True)
class Overrides:
    """Marks a parameter of a verb that collects the options of one section of params.yaml.

    ``options: Annotated[dict[str, Any], Overrides(IngestParams, "ingest")]`` gives the verb one option per field of the
    model. The options are unset by default, and the help shows the defaults. The function receives a dict of the
    options that are set: ``{"ingest.path": ...}``.

    `section`: dotted name of the section.
    `without`: fields that become no options.
    """

    model: type[BaseModel]
    section: str
    without: tuple[str, ...] = ()

    def fields(self) -> list[tuple[str, FieldInfo]]:
        """List the fields that become options."""
        fields = self.model.model_fields.items()
        return [(name, info) for name, info in fields if name not in self.without and _settable(info)]


def verb(function: Callable[..., None]) -> typer.Typer:
    """Return a Typer app of one command.

    Parameters of `function` that are pydantic models become one option per field, with the model's name, type, help
    and default; so do those marked with `Overrides`. All other parameters are Typer's. The help lists these first, then
    the options of sections, then those of models, which verbs share. An exception ends in one line on stderr and an
    exit code, as in `relabel_cli.border.report`.
    """
    hints = get_type_hints(function, include_extras=True)
    specific: list[inspect.Parameter] = []
    sectional: list[inspect.Parameter] = []
    shared: list[inspect.Parameter] = []
    models: dict[str, type[BaseModel]] = {}
    sections: dict[str, Overrides] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = hints[name]
        marks = [m for m in getattr(annotation, "__metadata__", ()) if isinstance(m, Overrides)]
        if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
            models[name] = annotation
            shared += [_option(f, info) for f, info in annotation.model_fields.items()]
        elif marks:
            sections[name] = marks[0]
            sectional += [_option(f, info, unset=True) for f, info in marks[0].fields()]
        else:
            # Keyword-only parameters may follow any default, whatever their order in `function`.
            specific.append(parameter.replace(annotation=annotation, kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(function)
    def call(**values: Any) -> None:
        try:
            function(**_collect(models, sections, values))
        except typer.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:
            raise typer.Exit(report(error, values.get("verbose", False))) from None

    # Typer reads the options from the signature, which `wraps` has copied from the function.
    call.__signature__ = inspect.Signature([*specific, *sectional, *shared])  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in (*specific, *sectional, *shared)}
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command(context_settings=CONTEXT)(call)
    return app


def label_option(purpose: str, default: str | None = None) -> Any:
    """Return the option of a verb that chooses labels: `--label a,b`, or `--label a --label b`.

    The name is singular, because `--labels` is the folder of all artefacts.

    `purpose`: infinitive that completes the help text "Labels ...". `default`: labels that the verb chooses without the
    option, for which it receives an empty list. Required if None.
    """
    help_text = f"Labels {purpose}, by comma or repeated. [{'required' if default is None else f'default: {default}'}]"
    unset: Any = ... if default is None else []
    return typer.Option(unset, "--label", "-l", metavar="<label>", help=help_text, callback=split_names)


def split_names(values: list[str] | None) -> list[str]:
    """Split the values of an option that may be repeated, and lists names by commas."""
    names = [name.strip() for text in values or [] for name in text.split(",") if name.strip()]
    if values and not names:
        raise typer.BadParameter("no name is given")
    return names


def group(function: Callable[[], None], **verbs: typer.Typer) -> typer.Typer:
    """Return a Typer app of several verbs by name, as in `relabel export lookup`.

    `function`: its docstring is the help. `verbs`: apps of one command each.
    """
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.callback(context_settings=CONTEXT)(function)
    for name, one in verbs.items():
        # The command itself rather than its app, which would add another level of `relabel export lookup lookup`.
        (command,) = one.registered_commands
        command.name = name
        app.registered_commands.append(command)
    return app


def _collect(
    models: dict[str, type[BaseModel]], sections: dict[str, Overrides], values: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments of the verb's function, made from the values of all options."""
    rest = dict(values)
    arguments: dict[str, Any] = {}
    for name, mark in sections.items():
        options = {f: rest.pop(f) for f, _ in mark.fields()}
        # An option that is not set leaves the parameter file's value.
        arguments[name] = {f"{mark.section}.{f}": v for f, v in options.items() if v is not None and v != []}
    for name, model in models.items():
        options = {f: rest.pop(f) for f in model.model_fields}
        try:
            arguments[name] = model(**{f: v for f, v in options.items() if v is not None})
        except ValidationError as error:
            raise UsageError(describe(error), where="command line") from error
    return {**rest, **arguments}


def _settable(info: FieldInfo) -> bool:
    """Return whether a field is a value or a list of values; mappings and models are set in params.yaml only."""
    kind = _inner(info.annotation)
    if get_origin(kind) in (tuple, list):
        kind = _inner(get_args(kind)[0])
    return get_origin(kind) is Literal or kind in (str, int, float, bool, Path)


def _option(name: str, info: FieldInfo, unset: bool = False) -> inspect.Parameter:
    """Return the option of a field.

    `unset`: whether the option is None by default, and the help text shows the field's default.
    """
    default = info.get_default(call_default_factory=True)
    extra: Any = info.json_schema_extra or {}
    flag = extra.get("name", f"--{name.replace('_', '-')}")
    kind = _plain(info.annotation)
    # A flag that is true or unset by default needs a second form for false.
    if _inner(info.annotation) is bool and (unset or default):
        flag = f"{flag}/--no-{flag[2:]}"
    help_text, metavar = info.description or "", None
    choices = get_args(_inner(info.annotation)) if get_origin(_inner(info.annotation)) is Literal else ()
    if len("|".join(map(str, choices))) > _CHOICES:
        # Click breaks no line within a list of choices.
        help_text, metavar = f"{help_text} One of: {', '.join(choices)}.", f"<{name}>"
    elif get_origin(_inner(info.annotation)) in (tuple, list):
        # Typer would show the type of the list; the option takes one value at a time.
        metavar = f"<{getattr(get_args(_plain(info.annotation))[0], '__name__', 'value').lower()}>"
    if unset and default not in (None, "", ()):
        shown = ", ".join(map(str, default)) if isinstance(default, tuple | list) else default
        help_text = f"{help_text} [default: {shown}]"
    if isinstance(default, tuple | list):
        default = list(default) or None
    option = typer.Option(
        flag,
        *extra.get("flags", []),
        help=help_text,
        metavar=metavar,
        show_default=not unset and default not in (None, False),
    )
    if unset:
        default, kind = None, Union[kind, None]  # noqa: UP007
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _inner(annotation: Any) -> Any:
    """Return a type without None and without the bounds of a number."""
    if get_origin(annotation) is Annotated:
        return _inner(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return next(a for a in get_args(annotation) if a is not type(None))
    return annotation


def _plain(annotation: Any) -> Any:
    """Reduce a field's type to a type that Typer supports."""
    inner = _inner(annotation)
    if get_origin(inner) in (tuple, list):
        element = _inner(get_args(inner)[0])
        # Typer supports no list of choices: the model checks them.
        return list[str if get_origin(element) is Literal else _plain(element)]  # type: ignore[misc]
    return Union[inner, None] if inner is not annotation else inner  # noqa: UP007
