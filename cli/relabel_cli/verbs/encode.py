"""`relabel encode`."""

from __future__ import annotations

from typing import Annotated

from relabel import stages
from relabel_cli.options import LABELLED, TASKS, SharedOptions, label_option, split_option, verb


def encode(
    common: SharedOptions,
    label: Annotated[list[str], label_option("to encode", "all of params.yaml")] = [],
    split: Annotated[str | None, split_option(LABELLED)] = None,
) -> None:
    """Encode every caption with a source."""
    session = common.session()
    names = common.chosen(session, label) or stages.available_labels(session, session.config.sources)
    parts = stages.label_splits(session, split)
    for part in parts:
        for name in names:
            # A share waits for the parts of a label that another command builds.
            if session.runtime.shard is None:
                stages.build_inputs(session, name, part)
            common.run(stages.encoding(session, name, part))
    # All labels are encoded before the first failure ends the command.
    for part in parts:
        for _, error in stages.find_failed_rows(session, names, part):
            raise error


app = verb(encode, (*TASKS, "skip_missing"))
