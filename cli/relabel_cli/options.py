"""Command-line options generated from pydantic models."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from relabel.core.errors import UsageError
from relabel.core.parameters import describe
from relabel_cli.root import CONTEXT
from relabel_cli.shared_options import SharedOptions

SHARED = "Shared options"
_CHOICES = 24  # columns of the list of choices beside an option's name


@dataclass(frozen=True)
class Overrides:
    """Fields of one section of params.yaml that are options of a verb; `--set` reaches all others.

    `names`: the fields, separated by spaces.
    `section`: dotted name of the section; "" for names without one.
    """

    model: type[BaseModel]
    names: str
    section: str = ""

    def options(self) -> list[inspect.Parameter]:
        """Return an option per field."""
        return [_option(name, self.model.model_fields[name]) for name in self.names.split()]

    def collect(self, values: dict[str, Any]) -> dict[str, Any]:
        """Take the fields out of the values of all options; return those that are set by their dotted name."""
        # An option that is not set leaves the parameter file's value.
        chosen = {name: values.pop(name) for name in self.names.split()}
        prefix = f"{self.section}." if self.section else ""
        return {f"{prefix}{name}": value for name, value in chosen.items() if value is not None and value != []}


class Command(TyperCommand):
    """A command whose help lists the shared options in a section below its own."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section each for arguments, options and shared options."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            title = getattr(parameter, "rich_help_panel", None) or f"{parameter.param_type_name.title()}s"
            if (record := parameter.get_help_record(ctx)) is not None:
                sections.setdefault(title, []).append(record)
        for title, records in sorted(sections.items(), key=lambda section: section[0] == SHARED):
            with formatter.section(title):
                formatter.write_dl(records)


def verb(function: Callable[..., None], shared: Collection[str], overrides: Overrides | None = None) -> typer.Typer:
    """Return a Typer app of one command.

    `function`: its parameter `common` receives the shared options, and with them those of `overrides` that are set, by
    dotted name: ``{"ingest.path": ...}``. All other parameters are Typer's. `shared`: fields of `SharedOptions` that
    become options.
    """
    hints = get_type_hints(function, include_extras=True)
    # Keyword-only parameters may follow any default, whatever their order in `function`.
    options = [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "common"
    ]
    if overrides is not None:
        options += overrides.options()
    fields = {name: info for name, info in SharedOptions.model_fields.items() if name in shared}
    options += [_option(name, info, SHARED) for name, info in fields.items()]

    @functools.wraps(function)
    def call(**values: Any) -> None:
        chosen = {} if overrides is None else overrides.collect(values)
        given = {name: value for name in fields if (value := values.pop(name)) is not None}
        try:
            common = SharedOptions(**given, overrides=chosen)
        except ValidationError as error:
            raise UsageError(describe(error), where="command line") from error
        function(common=common, **values)

    # Typer reads the options from the signature, which `wraps` has copied from the function.
    call.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    call.__annotations__ = {option.name: option.annotation for option in options}
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command(cls=Command, context_settings=CONTEXT)(call)
    return app


def label_option(purpose: str, default: str | None = None) -> Any:
    """Return the option of a verb that chooses labels: `--label a,b`, or `--label a --label b`.

    The name is singular, because `--labels` is the folder of all artefacts.

    `purpose`: infinitive that completes the help text "Labels ...". `default`: labels that the verb chooses without the
    option, for which it receives an empty list. Required if None.
    """
    help_text = f"Labels {purpose}, by comma or repeated.{'' if default is None else f' [default: {default}]'}"
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


def _option(name: str, info: FieldInfo, panel: str | None = None) -> inspect.Parameter:
    """Return the option of a field, which is None by default; its help shows the field's default."""
    extra: Any = info.json_schema_extra or {}
    flag = extra.get("name", f"--{name.replace('_', '-')}")
    default = None if info.is_required() else info.get_default(call_default_factory=True)
    kind = _inner(info.annotation)
    help_text, metavar, callback = info.description or "", None, None
    if kind is bool and default:
        # A flag that is true by default needs a second form for false.
        flag = f"{flag}/--no-{flag[2:]}"
    if get_origin(kind) is Literal and len("|".join(map(str, get_args(kind)))) > _CHOICES:
        # Click breaks no line within a list of choices.
        help_text, metavar = f"{help_text} One of: {', '.join(get_args(kind))}.", f"<{name}>"
    elif get_origin(kind) is tuple or get_origin(kind) is list:
        # The option takes one value at a time. Typer supports no list of choices: the model checks them.
        element = _inner(get_args(kind)[0])
        element = str if get_origin(element) is Literal else element
        kind, metavar = list[element], f"<{element.__name__.lower()}>"  # type: ignore[valid-type]
        callback = split_names if element is str and panel is None else None
    if info.is_required():
        help_text = f"{help_text} [required]"
    elif kind is not bool and default not in (None, "", (), []):
        shown = ", ".join(map(str, default)) if isinstance(default, tuple | list) else default
        help_text = f"{help_text} [default: {shown}]"
    option = typer.Option(
        flag,
        *extra.get("flags", []),
        help=help_text,
        metavar=metavar,
        callback=callback,
        show_default=False,
        rich_help_panel=panel,
    )
    kind = Union[kind, None]  # noqa: UP007
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _inner(annotation: Any) -> Any:
    """Return a type without None and without the bounds of a number."""
    if get_origin(annotation) is Annotated:
        return _inner(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return next(a for a in get_args(annotation) if a is not type(None))
    return annotation
