"""The root command. Verbs are imported when they are called, so that `relabel --help` answers within a moment."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from relabel.core.errors import UsageError, choices

GROUPS = {
    "Start": {
        "init": "Write a commented params.yaml into this folder; with --dvc, also dvc.yaml.",
        "doctor": "Check Java, models, data and disk; show the cost of each gap and its fix.",
    },
    "Build labels": {
        "run": "Do everything: fetch, ingest, tune, encode, judge, export; then print the tables.",
        "fetch": "Download datasets and assets, verified against their sha256.",
        "ingest": "Convert captions of any common format into a corpus.",
        "encode": "Encode every caption with a source.",
        "neighbours": "Find the most relevant captions of every caption or image.",
    },
    "Look": {
        "nearest": "Show the captions that each label ranks closest to a caption.",
        "report": "Write one HTML page of figures, judged pairs, relevance and nearest captions.",
    },
    "Judge": {
        "correlate": "Report how well each label agrees with human judgement.",
        "judge": "Score human-judged pairs with a source, and compare the scores with people's.",
    },
    "Export": {"export": "Write the files that other code reads: lookups, batch plans, and formats of other tools."},
    "Train": {
        "fit": "Train a retrieval model with graded labels, or resume its training.",
        "eval": "Compute every metric of a trained model.",
        "tune": "Train or fit the model of a source.",
    },
    "Maintain": {
        "verify": "Read everything back against its manifest; name every file that differs.",
    },
}
"""Group to verb to the verb's line of help, which is the first line of its docstring."""
VERBS = {verb: line for verbs in GROUPS.values() for verb, line in verbs.items()}

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 1000}
"""Settings of every command. Help is as wide as the terminal, for which click's limit of 80 columns is raised."""


class LazyGroup(TyperGroup):
    """A group that knows its verbs by name and imports `relabel_cli.verbs.VERB` when one is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the verbs, by group."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import one verb; return None if there is no such verb."""
        if cmd_name not in VERBS:
            return None
        # Verbs load torch, pyarrow and other large libraries, so only the called one is imported.
        app: typer.Typer = import_module(f"relabel_cli.verbs.{cmd_name}").app
        command = typer.main.get_command(app)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the verb of the arguments; raise with similar verbs if there is no such verb."""
        if args[0] not in VERBS and not args[0].startswith("-"):
            advice = f"{choices(args[0], VERBS)} See `relabel --help`."
            raise UsageError(f"no such command {args[0]!r}", todo=advice)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs and their help by group, without an import of any verb."""
        width = max(map(len, VERBS))
        for group, verbs in GROUPS.items():
            with formatter.section(group):
                # Names of equal width align the help of all groups.
                formatter.write_dl([(f"{verb:{width}}", line) for verb, line in verbs.items()])


app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context, show_version: bool = typer.Option(False, "--version", help="Print the version.")
) -> None:
    """Graded relevance labels for image-text retrieval, judged against human scores."""
    if show_version:
        from importlib.metadata import version

        typer.echo(f"relabel {version('relabel-itr')}")
    # `relabel` alone shows the help and succeeds, as a first try should.
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
