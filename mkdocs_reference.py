"""MkDocs hook: docs/reference.md gets tables of the options of every verb and of the parameters of every section."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import typer
from pydantic import BaseModel

from relabel.config import DEFAULT_SOURCES, Config
from relabel.sources import SOURCES, source_class
from relabel_cli.options import SHARED
from relabel_cli.root import VERBS, app


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Append the tables to the page."""
    if page.file.src_uri != "reference.md":
        return markdown
    return "\n".join([markdown, *_verbs(), "", "## params.yaml", *_sections(Config), *_sources()])


def _verbs() -> Iterator[str]:
    root: Any = typer.main.get_command(app)
    context = typer.Context(root)
    # encode has all of them; its own options follow below.
    yield from ["", f"## {SHARED}", *_table("option", _options(root.get_command(context, "encode"), SHARED))]
    yield from ["", "## Verbs"]
    for verb, line in VERBS.items():
        command = root.get_command(context, verb)
        yield from ["", f"### `relabel {verb}`", "", line]
        yield from _table("option", _options(command))
        for name, one in getattr(command, "commands", {}).items():
            yield from ["", f"#### `relabel {verb} {name}`", "", one.help]
            yield from _table("option", _options(one))


def _options(command: Any, panel: str | None = None) -> list[tuple[str, str]]:
    """Return the flags and the help of the options of one section, as `--help` shows them."""
    context = typer.Context(command)
    chosen = [parameter for parameter in command.params if getattr(parameter, "rich_help_panel", None) == panel]
    records = (parameter.get_help_record(context) for parameter in chosen)
    return [(flags.replace("|", ", "), text) for flags, text in filter(None, records)]


def _sections(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the parameters of the sections that a model has as fields, and of the sections in these."""
    for name, info in model.model_fields.items():
        section = info.get_default(call_default_factory=True)
        if isinstance(section, BaseModel):
            if rows := _parameters(type(section)):
                yield from ["", f"### `{prefix}{name}`", *_table("parameter", rows)]
            yield from _sections(type(section), f"{prefix}{name}.")


def _sources() -> Iterator[str]:
    yield from ["", "### `sources`", "", "Label name to the parameters of its source. Default labels:", ""]
    yield from (f"- `{label}`: `{params}`" for label, params in DEFAULT_SOURCES.items())
    for name in SOURCES:
        spec = source_class(name).spec
        low, high = spec.bounds
        symmetric = "symmetric" if spec.symmetric else "not symmetric"
        yield from ["", f"#### `source: {name}`", "", f"Kind {spec.kind}, relevance {low:g} to {high:g}, {symmetric}."]
        yield from (f"No pooling `{pooling}`: {reason}." for pooling, reason in spec.refused_poolings.items())
        yield from _table("parameter", _parameters(spec.params))


def _parameters(model: type[BaseModel]) -> list[tuple[str, str]]:
    """Return the name and default, and the description, of every parameter that is no section itself."""
    defaults = {name: info.get_default(call_default_factory=True) for name, info in model.model_fields.items()}
    return [
        (f"{name}: {json.dumps(default, default=str)}", model.model_fields[name].description or "")
        for name, default in defaults.items()
        if not isinstance(default, BaseModel)
    ]


def _table(name: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    if rows:
        yield from ["", f"| {name} | |", "|---|---|", *(_row(f"`{key}`", text) for key, text in rows)]


def _row(*cells: str) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
