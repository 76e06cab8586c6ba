"""`relabel encode`."""

from __future__ import annotations

from typing import Annotated

import typer

from relabel import stages
from relabel_cli.options import LABELLED, TASKS, SharedOptions, label_option, verb


def encode(
    common: SharedOptions,
    label: Annotated[list[str], label_option("to encode", "all of params.yaml")] = [],
    split: Annotated[str | None, typer.Option(help=LABELLED)] = None,
) -> None:
    """Encode every caption with a source."""
    project = common.project()
    names = common.chosen(project, label) or project.available(project.config.sources)
    parts = project.label_splits(split)
    for part in parts:
        for name in names:
            # A share waits for the parts of a label, which another command builds.
            if project.runtime.shard is None:
                stages.build_inputs(project, name, part)
            common.run(stages.encode(project, name, part))
    # All labels are encoded before the first failure ends the command.
    for part in parts:
        for _, error in stages.find_failed_rows(project, names, part):
            raise error


app = verb(encode, (*TASKS, "skip_missing"))
