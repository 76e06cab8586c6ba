"""The results of a comparison with people: tables on stdout, files and problems on stderr."""

from __future__ import annotations

import shutil

import typer

from relabel.core.tables import WIDTH, Style, align
from relabel.stages.correlate import EvaluationResult
from relabel_cli.options import SharedOptions


def show_outcome(common: SharedOptions, result: EvaluationResult, style: Style = "text") -> None:
    """Print the tables, as wide as the terminal; then as `report_outcome`."""
    width = shutil.get_terminal_size((WIDTH, 40)).columns
    data = result.report.data | {"warnings": named_warnings(result)}
    common.show(data, result.report.render(style, width))
    report_outcome(result)


def named_warnings(result: EvaluationResult) -> list[dict[str, str]]:
    """Return the warnings for JSON, each with the name of its artefact."""
    return [{"name": name, "warning": text} for name, text in result.warnings]


def report_outcome(result: EvaluationResult) -> None:
    """List written files, warnings and failed labels on stderr; exit with the code of the first failure."""
    for line in align([(description, str(path)) for description, path in result.paths.items()]):
        typer.echo(line, err=True)
    for name, text in result.warnings:
        typer.echo(f"warning: {name}: {text}", err=True)
    for label, error in result.problems:
        typer.echo(f"error: {label}: {error}", err=True)
    if result.problems:
        raise typer.Exit(result.problems[0][1].exit_code)
