"""The command line in this process."""

from __future__ import annotations

from typer.testing import CliRunner

from relabel.core.errors import RelabelError
from relabel_cli.root import app


def invoke(*arguments: str) -> tuple[int, str]:
    """Run a command; return its exit code and output. An exception that would be a traceback fails the test."""
    run = CliRunner().invoke(app, [*arguments, "--quiet"])
    if isinstance(run.exception, RelabelError):
        return run.exception.exit_code, f"{run.output}error: {run.exception}\n"
    assert run.exception is None or isinstance(run.exception, SystemExit), run.exception
    return run.exit_code, run.output
