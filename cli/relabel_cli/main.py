"""The entry point of the command `relabel`, which imports as little as possible before Ctrl-C is handled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from relabel_cli.interrupt import exit_on_interrupt, ignore_interrupts


def load_root() -> Any:
    """Import and return the root command."""
    from relabel_cli.root import app

    return app


def main(load: Callable[[], Any] = load_root) -> None:
    """Run a command line with relabel's handling of errors and Ctrl-C, and exit.

    `load`: returns the Typer app to run.
    """
    exit_on_interrupt()
    # Imported after the handler is set: an interrupted import ends as one line, too.
    from relabel_cli.border import run

    code = run(load)
    ignore_interrupts()
    sys.exit(code)
