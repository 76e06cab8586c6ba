"""The verbs of `relabel export`: lookup, neighbours, batches, wds, and one per format of other tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from relabel import stages
from relabel.core.types import Queries
from relabel.export import EXPORTS
from relabel.export.params import ExportBatchesParams, ExportLookupParams, ExportWdsParams, format_params
from relabel.stages import Job
from relabel_cli.options import AGAIN, BUILD, READ, TASKS, SharedOptions, group, label_option, split_option, verb

BATCHES = "items sampler batch_size epochs seed batches_per_epoch k neighbours"
WDS = "shards keys join layout dtype k captions_per_shard allow_missing"
WRITE = (*BUILD, "skip_missing")
Labels = Annotated[list[str], label_option("to write")]
SplitOption = Annotated[str | None, split_option("[default: train, the only split, or all]")]

Neighbours = Annotated[str | None, split_option("[default: that of --split]", "Split of the neighbours: ")]
QueriesOption = Annotated[Queries, typer.Option(help="Neighbours of captions or of images.")]
Name = Annotated[str | None, typer.Option(help="Name of the batches. [default: from its parameters]")]


def lookup(common: SharedOptions, label: Labels, split: SplitOption = None, candidates: Neighbours = None) -> None:
    """Write arrays that give the relevance of any images and captions, with their neighbours if these exist."""
    write(common, label, split, stages.export_lookup, candidates)


def neighbours(
    common: SharedOptions, label: Labels, split: SplitOption = None, queries: QueriesOption = "captions"
) -> None:
    """Write the neighbours that `relabel neighbours` found, with the ids of captions and images."""
    write(common, label, split, stages.export_neighbours, queries)


def batches(common: SharedOptions, label: Labels, split: SplitOption = None, name: Name = None) -> None:
    """Write a seeded list of batches with their exact blocks."""
    write(common, label, split, stages.export_batches, name)


def wds(common: SharedOptions, label: Labels, split: SplitOption = None) -> None:
    """Write side-car shards of webdataset: the labels of every sample, by its key."""
    write(common, label, split, stages.export_wds)


def write(common: SharedOptions, labels: list[str], split: str | None, stage: Callable[..., Job], *more: Any) -> None:
    """Run the stage of an export for each label; `more`: its further arguments."""
    session = common.session()
    labels = common.chosen(session, labels)
    chosen = session.training_split(split)
    for label in labels:
        common.run(stage(session, label, chosen, *more))


def format_verb(kind: str) -> Any:
    """Return the verb of one of `relabel.export.EXPORTS`, whose options are the parameters of the format."""

    def call(common: SharedOptions, label: Labels, split: SplitOption = None) -> None:
        write(common, label, split, lambda session, *rest: stages.export(session, kind, *rest))

    model = format_params(kind)
    call.__doc__ = EXPORTS[kind][2]
    return verb(call, WRITE, model, " ".join(model.model_fields), f"export.{kind}")


app = group(
    "Write the files that other code reads: lookups, precomputed batches, and formats of other tools.",
    lookup=verb(lookup, WRITE, ExportLookupParams, "dtype", "export.lookup"),
    neighbours=verb(neighbours, (*READ, *AGAIN)),
    batches=verb(batches, (*TASKS, "skip_missing"), ExportBatchesParams, BATCHES, "export.batches"),
    wds=verb(wds, TASKS, ExportWdsParams, WDS, "export.wds"),
    **{kind: format_verb(kind) for kind in EXPORTS},
)
