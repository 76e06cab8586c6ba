"""Completion of the values of --label, --dataset and --split in a shell.

Only the parameter file and the names of folders are read. No verb is imported, since that would take a second for each
press of the key. Whatever cannot be read completes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

OPTIONS = {"--label", "-l", "--dataset", "--split"}


def _labels(context: typer.Context) -> Iterator[str]:
    yield from _parameters(context, "sources")
    yield from (folder.name for folder in _folder(context).glob("*/encodings/*/*") if folder.is_dir())


def _datasets(context: typer.Context) -> Iterator[str]:
    if dataset := _parameters(context, "ingest").get("dataset"):
        yield dataset
    yield from (folder.parent.name for folder in _folder(context).glob("*/corpus"))


def _splits(_: typer.Context) -> Iterator[str]:
    yield from ("train", "val", "test", "all")


def _folder(context: typer.Context) -> Path:
    return Path(context.params.get("labels") or "labels")


def _parameters(context: typer.Context, section: str) -> dict[str, Any]:
    import yaml

    file = Path(context.params.get("params") or "params.yaml")
    body = yaml.safe_load(file.read_bytes()) if file.is_file() else {}
    return dict(body.get(section) or {})


def _complete(names: Callable[[typer.Context], Iterator[str]], *flags: str) -> Any:
    """Return an option that completes its value from names; after a comma, the next name of a list."""

    def matching(context: typer.Context, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        # A damaged file, or a folder without permission: the shell must not show a traceback.
        with suppress(Exception):
            return [f"{before}{comma}{name}" for name in dict.fromkeys(names(context)) if name.startswith(last)]
        return []

    return typer.Option(*flags, autocompletion=matching)


def any_verb(
    label: Annotated[list[str], _complete(_labels, "--label", "-l")] = [],
    dataset: Annotated[str | None, _complete(_datasets)] = None,
    split: Annotated[str | None, _complete(_splits)] = None,
    params: str | None = None,
    labels: str | None = None,
) -> None:
    """Stand for any verb while a value is completed."""


app = typer.Typer(add_completion=False)
app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(any_verb)
