"""`relabel encode`."""

from __future__ import annotations

from typing import Annotated

from relabel import stages
from relabel_cli.options import label_option, verb
from relabel_cli.shared_options import TASKS, SharedOptions, Split


def encode(
    common: SharedOptions,
    label: Annotated[list[str], label_option("to encode", "all of params.yaml")] = [],
    split: Split = None,
) -> None:
    """Encode every caption with a source."""
    project = common.project()
    names = label or list(project.config.sources)
    split = project.choose_split(split, "test", names)
    for name in names:
        # A share waits for the parts of a label, which another command builds.
        if project.runtime.shard is None:
            stages.build_inputs(project, name, split)
        common.run(stages.encode(project, name, split))
    # All labels are encoded before the first failure ends the command.
    for _, error in stages.find_failed_rows(project, names, split):
        raise error


app = verb(encode, TASKS)
