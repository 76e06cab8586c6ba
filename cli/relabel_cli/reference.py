"""Generator of docs/reference.md: ``python -m relabel_cli.reference > docs/reference.md``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import typer
from pydantic import BaseModel

from relabel.config import DEFAULT_SOURCES, EncodeParams
from relabel.core.tables import markdown_row
from relabel.corpus.params import IngestParams
from relabel.export import EXPORTS
from relabel.export.params import ExportLookupParams, ExportPlanParams, ExportWdsParams, format_params
from relabel.judge import JudgeParams
from relabel.neighbours.spec import NeighboursParams
from relabel.sources import SOURCES, source_class
from relabel.sources.bert_sts.tune import TuneBertStsParams
from relabel.sources.cbow.tune import TuneCbowParams
from relabel.sources.fuse.tune import TuneFuseParams
from relabel.sources.sbert.tune import TuneSbertParams
from relabel_cli.root import VERBS

_HEAD = """# Reference

Generated from the verbs and parameter models by `python -m relabel_cli.reference > docs/reference.md`.

Exit codes: 0 success, 1 bug, 2 wrong usage, 3 something is missing, 4 a check failed, 5 partial result (run again), 130
interrupted, 141 the reader of a pipe has gone. An error is one line on stderr. The line of a bug names the file of
its traceback."""


def reference() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, "", *_verbs(), *_parameters()]) + "\n"


def _verbs() -> Iterator[str]:
    # doctor has no options of its own, so its options are those of every verb.
    doctor: Any = typer.main.get_command(import_module("relabel_cli.verbs.doctor").app)
    common = {(p.opts[0], p.help) for p in doctor.params}
    yield "## Verbs"
    for verb, line in VERBS.items():
        command: Any = typer.main.get_command(import_module(f"relabel_cli.verbs.{verb.replace('-', '_')}").app)
        yield from ["", f"### `relabel {verb}`", "", line, *_options(command, common)]
        for name, one in getattr(command, "commands", {}).items():
            yield from ["", f"#### `relabel {verb} {name}`", "", str(one.help), *_options(one, common)]
    yield from ["", "### Options of every verb", "", "| option | default | |", "|---|---|---|"]
    yield from (_option_row(p) for p in doctor.params if p.name != "help")


def _options(command: Any, common: set[tuple[str, str]]) -> Iterator[str]:
    options = [p for p in command.params if (p.opts[0], getattr(p, "help", "")) not in common and p.name != "help"]
    if options:
        yield from ["", "| option | default | |", "|---|---|---|"]
        yield from map(_option_row, options)


def _option_row(parameter: Any) -> str:
    """Return the row of an option: its flags, its default and its help."""
    text = getattr(parameter, "help", "") or ""
    # An option of a parameter file has its default in the help, and is itself unset.
    match = re.search(r" \[(?:required|default: (.*))\]$", text)
    default = match[1] if match else parameter.default
    shown = "required" if parameter.required else "" if default in (None, False, "", [], ()) else f"`{default}`"
    return markdown_row([f"`{_flags(parameter)}`", shown, text.removesuffix(match[0]) if match else text])


def _parameters() -> Iterator[str]:
    yield from ["", "## params.yaml", "", "Every parameter can be set by `--set NAME=VALUE`."]
    sections: list[tuple[str, type[BaseModel]]] = [
        ("ingest", IngestParams),
        ("tune.cbow", TuneCbowParams),
        ("tune.fuse", TuneFuseParams),
        ("tune.bert_sts", TuneBertStsParams),
        ("tune.sbert", TuneSbertParams),
        ("encode", EncodeParams),
        ("neighbours", NeighboursParams),
        ("export.lookup", ExportLookupParams),
        ("export.plan", ExportPlanParams),
        ("export.wds", ExportWdsParams),
        *((f"export.{kind}", format_params(kind)) for kind in EXPORTS),
        ("judge", JudgeParams),
    ]
    for section, model in sections:
        yield from ["", f"### `{section}`", "", *_table(model)]
    yield from [
        "",
        "### `sources`",
        "",
        "Label name to the parameters of its source. Default labels:",
        "",
    ]
    yield from (f"- `{label}`: `{params}`" for label, params in DEFAULT_SOURCES.items())
    for name in SOURCES:
        source = source_class(name)
        low, high = source.spec.bounds
        symmetric = "symmetric" if source.spec.symmetric else "not symmetric"
        yield from [
            "",
            f"#### `source: {name}`",
            "",
            f"Kind {source.spec.kind}, relevance {low:g} to {high:g}, {symmetric}.",
        ]
        yield from (f"No pooling `{pooling}`: {reason}." for pooling, reason in source.spec.refused_poolings.items())
        yield from ["", *_table(source.spec.params)]


def _table(model: type[BaseModel]) -> Iterator[str]:
    yield from ["| parameter | default | |", "|---|---|---|"]
    for name, info in model.model_fields.items():
        default = info.get_default(call_default_factory=True)
        shown = "" if default is None else f"`{list(default) if isinstance(default, tuple) else default}`"
        yield markdown_row([f"`{name}`", shown, info.description or ""])


def _flags(parameter: Any) -> str:
    if not parameter.opts[0].startswith("-"):
        return str(parameter.name).upper()
    return ", ".join([*parameter.opts, *parameter.secondary_opts])


if __name__ == "__main__":
    sys.stdout.write(reference())
