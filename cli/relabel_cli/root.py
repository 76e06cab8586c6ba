"""The root command. Verbs are imported when they are called, to keep `relabel --help` fast."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from relabel.core.errors import UsageError, choices
from relabel_cli import completion

VERBS = {
    "init": "Write a commented params.yaml into this folder; with --dvc, also dvc.yaml.",
    "doctor": "Check Java, libraries and data; show what is missing, its effect and the fix.",
    "run": "Do everything: fetch, ingest, tune, encode, evaluate, export; then print which label to use.",
    "fetch": "Download datasets and assets, and verify known sha256 sums; without a name, list all files.",
    "ingest": "Convert captions of any common format into a corpus.",
    "encode": "Encode every caption with a source.",
    "neighbours": "Find the most relevant captions of every caption or image.",
    "nearest": "Show the captions that each label ranks closest to a caption.",
    "false-negatives": "List captions of other images that people would probably accept for an image.",
    "audit": "Count equal captions and false negatives of a benchmark, and correct the results of a run.",
    "report": "Write one HTML page of results, judged pairs, relevance and nearest captions.",
    "correlate": "Report the agreement of each label with human judgements.",
    "export": "Write the files that other code reads: lookups, precomputed batches, and formats of other tools.",
    "fit": "Train a retrieval model with graded labels, or resume its training.",
    "eval": "Compute every metric of a trained model.",
    "tune": "Train or fit the model of a source.",
    "verify": "Compare all files with their manifests, and list every file that differs.",
}
"""Verb to its line of help, the first line of its docstring."""

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 1000}
"""Settings of every command. Help is as wide as the terminal, for which click's limit of 80 columns is raised."""


class LazyGroup(TyperGroup):
    """A group that knows its verbs by name and imports `relabel_cli.verbs.VERB` when one is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the verbs."""
        return list(VERBS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the verb of a command line; a stand-in without imports if a shell completes a value that it knows."""
        if ctx.resilient_parsing and args[-1] in completion.OPTIONS and args[0] in VERBS:
            return args[0], typer.main.get_command(completion.app), args[1:]
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import one verb; raise with similar verbs if it does not exist."""
        if cmd_name not in VERBS:
            advice = f"{choices(cmd_name, VERBS)} See `relabel --help`."
            raise UsageError(f"no such command {cmd_name!r}", hint=advice)
        # Verbs load torch, pyarrow and other large libraries, so only the called one is imported.
        command = import_module(f"relabel_cli.verbs.{cmd_name.replace('-', '_')}").app
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs and their help, without an import of any verb."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


Version = Annotated[bool, typer.Option("--version", help="Print the version.")]
app = typer.Typer(cls=LazyGroup, rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=CONTEXT)


@app.callback(invoke_without_command=True)
def root(context: typer.Context, show_version: Version = False) -> None:
    """Graded relevance labels for image-text retrieval, judged against human scores."""
    if show_version:
        from importlib.metadata import version

        typer.echo(f"relabel {version('relabel-itr')}")
    # `relabel` without arguments shows the help and succeeds, as a first try should.
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
