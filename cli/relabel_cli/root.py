"""The root command. Verbs load when they are called, so that `relabel --help` answers at once."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

VERBS = {
    "run": "Do everything: fetch, ingest, tune, encode, judge; then print the tables.",
    "fetch": "Get datasets and assets, verified against their sha256.",
    "ingest": "Turn captions of any common format into a corpus.",
    "tune": "Make the model that a source takes.",
    "encode": "Compute every caption's encoding for a source.",
    "neighbours": "Find the most relevant captions of every caption or image.",
    "judge": "Score the human-judged pairs with a source.",
    "export": "Write what training code reads: a lookup, or a batch plan.",
    "fit": "Train a retrieval model with graded labels, or go on training it.",
    "eval": "Take every metric of a trained model.",
    "correlate": "Show how well each label agrees with human judgement.",
    "verify": "Read everything back against its manifest; name every file that is not as it was written.",
    "nearest": "Show what each source finds closest to a caption.",
    "doctor": "Check Java, models, data, disk and memory; show the cost of each gap and its fix.",
}
"""Verb to its one line of help, the first line of the verb's docstring."""


class LazyGroup(TyperGroup):
    """A group that knows its verbs by name and imports `relabel_cli.verbs.VERB` when one is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """List the verbs in the order of the work."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import one verb."""
        if cmd_name not in VERBS:
            return None
        app: typer.Typer = import_module(f"relabel_cli.verbs.{cmd_name.replace('-', '_')}").app
        command = typer.main.get_command(app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List verbs and their help without importing any."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(show: bool) -> None:
    if show:
        from importlib.metadata import version

        typer.echo(f"relabel {version('relabel-itr')}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_version, is_eager=True),
) -> None:
    """Graded relevance labels for image-text retrieval, judged against human scores."""
