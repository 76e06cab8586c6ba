"""Command-line options generated from pydantic models."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.core import TyperCommand, TyperGroup

from relabel.core.parameters import validate
from relabel_cli.root import CONTEXT
from relabel_cli.shared_options import SharedOptions

SHARED = "Shared options"


class Command(TyperCommand):
    """A command whose help lists the shared options in a section below its own."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section each for arguments, options and shared options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], SHARED: []}
        for parameter in self.get_params(ctx):
            title = getattr(parameter, "rich_help_panel", None) or f"{parameter.param_type_name.title()}s"
            if (record := parameter.get_help_record(ctx)) is not None:
                sections[title].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def verb(
    function: Callable[..., None],
    shared: Collection[str],
    model: type[BaseModel] | None = None,
    names: str = "",
    section: str = "",
) -> Any:
    """Return a command.

    `function`: its parameter `common` receives the shared options, and with them the fields of `model` that are set, by
    dotted name: ``{"ingest.path": ...}``. All other parameters are Typer's. `shared`: fields of `SharedOptions` that
    become options. `names`: fields of `model` that become options, separated by spaces; `--set` reaches all others.
    `section`: dotted name of the section of params.yaml that has them.
    """
    own = {} if model is None else {name: model.model_fields[name] for name in names.split()}
    common = {name: info for name, info in SharedOptions.model_fields.items() if name in shared}
    hints = get_type_hints(function, include_extras=True)
    # Keyword-only parameters may follow any default, whatever their order in `function`.
    options = [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "common"
    ]
    options += [_option(name, info) for name, info in own.items()]
    options += [_option(name, info, SHARED) for name, info in common.items()]

    def call(**values: Any) -> None:
        # An option that is not set leaves the parameter file's value.
        given = {name: value for name in (*own, *common) if (value := values.pop(name)) not in (None, [])}
        chosen = {f"{section}.{name}".removeprefix("."): given.pop(name) for name in own if name in given}
        function(common=validate(SharedOptions, given | {"overrides": chosen}, "command line"), **values)

    # Typer reads the options from the signature.
    call.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    call.__annotations__ = {option.name: option.annotation for option in options}
    call.__doc__ = function.__doc__
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command(cls=Command, context_settings=CONTEXT)(call)
    return typer.main.get_command(app)


def group(purpose: str, **verbs: Any) -> Any:
    """Return a command of several verbs by name, as in `relabel export lookup`; `purpose`: its help."""
    return TyperGroup(help=purpose, commands=verbs, rich_markup_mode=None, context_settings=CONTEXT)


def label_option(purpose: str, default: str = "") -> Any:
    """Return the option of a verb that chooses labels: `--label a,b`, or `--label a --label b`.

    The name is singular, because `--labels` is the folder of all artefacts.

    `purpose`: infinitive that completes the help text "Labels ...". `default`: labels that the verb chooses without the
    option, for which it receives an empty list.
    """
    help_text = f"Labels {purpose}, by comma or repeated.{f' [default: {default}]' if default else ''}"
    return typer.Option("--label", "-l", metavar="<label>", help=help_text, callback=split_names)


def split_names(values: list[str] | None) -> list[str]:
    """Split the values of an option that may be repeated, and lists names by commas."""
    names = [name.strip() for text in values or [] for name in text.split(",") if name.strip()]
    if values and not names:
        raise typer.BadParameter("no name is given")
    return names


def _option(name: str, info: FieldInfo, panel: str | None = None) -> inspect.Parameter:
    """Return the option of a field, which is None by default; its help shows the field's default."""
    extra: Any = info.json_schema_extra or {}
    flags = extra.get("flags", [f"--{name.replace('_', '-')}"])
    default = None if info.is_required() else info.get_default(call_default_factory=True)
    kind = _inner(info.annotation)
    help_text, metavar, callback = info.description or "", None, None
    if kind is bool and default:
        # A flag that is true by default needs a second form for false.
        flags = [f"{flags[0]}/--no-{flags[0][2:]}"]
    if get_origin(kind) is Literal:
        # Click breaks no line within a list of choices beside the name.
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
    details: dict[str, Any] = {"help": help_text, "metavar": metavar, "rich_help_panel": panel, "show_default": False}
    option: Any = typer.Option(*flags, callback=callback, **details)
    kind = Union[kind, None]  # noqa: UP007
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _inner(annotation: Any) -> Any:
    """Return a type without None and without the bounds of a number."""
    if get_origin(annotation) is Annotated:
        return _inner(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return _inner(next(a for a in get_args(annotation) if a is not type(None)))
    return annotation
