"""The command line in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from typer.testing import CliRunner

from relabel_cli.root import app

ALONE = (["fetch"], ["ingest"], ["tune", "word2vec"], ["export", "neighbours"])
"""Commands that compute nothing in threads."""


def invoke(*arguments: str, quiet: bool = True) -> tuple[int, str]:
    """Run a command; return its exit code and output. An exception that would be a traceback fails the test."""
    run = CliRunner().invoke(app, [*arguments, *(["--quiet"] if quiet else [])])
    if (code := getattr(run.exception, "exit_code", None)) is not None:
        return code, f"{run.output}error: {run.exception}\n"
    assert run.exception is None or isinstance(run.exception, SystemExit), run.exception
    return run.exit_code, run.output


def one_thread(command: Sequence[str]) -> list[str]:
    """Return a command that computes in one thread."""
    return [*command] if [*command[:1]] in ALONE or [*command[:2]] in ALONE else [*command, "--threads", "1"]


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return everything below a folder except locks, by path: the bytes of files, None for folders."""
    below = [path for path in folder.rglob("*") if path.suffix != ".lock" and path.name != ".work"]
    return {p.relative_to(folder).as_posix(): p.read_bytes() if p.is_file() else None for p in below}
