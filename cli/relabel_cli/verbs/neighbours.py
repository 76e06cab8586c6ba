"""`relabel neighbours`."""

from __future__ import annotations

from relabel.neighbours.spec import NeighboursParams
from relabel_cli.options import Overrides, label_option, verb
from relabel_cli.shared_options import TASKS, SharedOptions


def neighbours(
    common: SharedOptions,
    label: list[str] = label_option("to search with", default="all that have neighbours"),
) -> None:
    """Find the most relevant captions of every caption or image."""
    from relabel import stages
    from relabel_cli.output import neighbours_text

    project = common.project()
    for name in label or stages.labels_with_neighbours(project):
        common.run(stages.neighbours(project, name), neighbours_text)


app = verb(neighbours, TASKS, Overrides(NeighboursParams, "k of within split index", "neighbours"))
