"""`relabel neighbours`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from relabel import stages
from relabel.neighbour_tables.spec import NeighboursParams
from relabel_cli.options import TASKS, SharedOptions, label_option, verb


def neighbours(
    common: SharedOptions,
    label: Annotated[list[str], label_option("to search with", "all that have neighbours")] = [],
) -> None:
    """Find the most relevant captions of every caption or image."""
    session = common.session()
    config = session.config
    able = [name for name in config.sources if config.source(name).supports("neighbours") is None]
    for name in common.chosen(session, label) or stages.available_labels(session, able):
        common.run(stages.neighbour_table(session, name), neighbours_text)


def neighbours_text(metadata: Mapping[str, Any]) -> str:
    """Describe a table of neighbours and its recall."""
    recall = metadata["recall"]
    about = recall and f"recall@{recall['at']} {recall['value']:.4f} against exact, on {recall['queries']:,} queries"
    queries = f"{metadata['query_count']:,} {metadata['queries']}"
    found = f"{metadata['label']}: {metadata['width']:,} neighbours of each of {queries}"
    return f"{found}; {about or 'exact'}"


app = verb(neighbours, (*TASKS, "skip_missing"), NeighboursParams, "neighbours")
