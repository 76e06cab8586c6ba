"""The verbs of `relabel export`: lookup, neighbours, batches, wds, and one per format of other tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from relabel import stages
from relabel.core.types import Queries
from relabel.export import EXPORTS
from relabel.export.params import ExportBatchesParams, ExportLookupParams, ExportParams, ExportWdsParams, block_of
from relabel.stages import Job
from relabel_cli.options import AGAIN, BUILD, READ, TASKS, SharedOptions, group, label_option, split_option, verb

WRITE = (*BUILD, "skip_missing")
Labels = Annotated[list[str], label_option("to write")]
SplitOption = Annotated[str | None, split_option("[default: train, the only split, or all]")]

Neighbours = Annotated[str | None, split_option("[default: that of --split]", "Split of the neighbours: ")]
QueriesOption = Annotated[Queries, typer.Option(help="Neighbours of captions or of images.")]
Name = Annotated[str | None, typer.Option(help="Name of the batches. [default: from its parameters]")]


def lookup(common: SharedOptions, label: Labels, split: SplitOption = None, candidates: Neighbours = None) -> None:
    """Write arrays that give the relevance of any images and captions, with their neighbours if these exist."""
    write(common, label, split, stages.lookup_export, candidates)


def neighbours(
    common: SharedOptions, label: Labels, split: SplitOption = None, queries: QueriesOption = "captions"
) -> None:
    """Write the neighbours that `relabel neighbours` found, with the ids of captions and images."""
    write(common, label, split, stages.neighbours_export, queries)


def batches(common: SharedOptions, label: Labels, split: SplitOption = None, name: Name = None) -> None:
    """Write a seeded list of batches with their exact blocks."""
    write(common, label, split, stages.batches_export, name)


def wds(common: SharedOptions, label: Labels, split: SplitOption = None) -> None:
    """Write side-car shards of webdataset: the labels of every sample, by its key."""
    write(common, label, split, stages.wds_export)


def write(common: SharedOptions, labels: list[str], split: str | None, export: Callable[..., Job], *more: Any) -> None:
    """Run the job of an export for each label; `more`: further arguments of `export`."""
    session = common.session()
    labels = common.chosen(session, labels)
    chosen = split or stages.training_split(stages.open_corpus(session))
    for label in labels:
        common.run(export(session, label, chosen, *more))


def format_verb(kind: str) -> Any:
    """Return the verb of one of `relabel.export.EXPORTS`. Its options are the parameters of the format."""

    def call(common: SharedOptions, label: Labels, split: SplitOption = None) -> None:
        write(common, label, split, lambda session, *rest: stages.format_export(session, kind, *rest))

    block = block_of(kind)
    call.__doc__ = EXPORTS[kind][2]
    return verb(call, WRITE, type(getattr(ExportParams(), block)), f"export.{block}")


app = group(
    "Write the files that other code reads: lookups, precomputed batches, and formats of other tools.",
    lookup=verb(lookup, WRITE, ExportLookupParams, "export.lookup"),
    neighbours=verb(neighbours, (*READ, *AGAIN)),
    batches=verb(batches, (*TASKS, "skip_missing"), ExportBatchesParams, "export.batches"),
    wds=verb(wds, TASKS, ExportWdsParams, "export.wds"),
    **{kind: format_verb(kind) for kind in EXPORTS},
)
