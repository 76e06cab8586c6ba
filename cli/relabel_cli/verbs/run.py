"""`relabel run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal as size

from relabel.core.errors import MissingError
from relabel.core.tables import align, duration
from relabel.corpus.params import captions_at, dataset_name
from relabel.judge import JudgeParams
from relabel.judge.tables import headline_report
from relabel.stages.ingest import FETCHED, reads_again
from relabel.stages.run import EACH_SPLIT, PlannedJob, plan_run
from relabel.stages.run import run as run_stages
from relabel_cli.options import LABELLED, WORKERS, Mirror, SharedOptions, label_option, split_option, verb
from relabel_cli.output import named_warnings, report_outcome, show_outcome

TRAIN = """\
import torch
from torch.utils.data import DataLoader
from relabel_train.lookup import RelevanceCollate, open_lookup
from relabel_train.losses import BCLSLoss

lookup = open_lookup("{}")
dataset = lookup.samples()  # or your own: dicts with image_id and text, or caption_id
collate = RelevanceCollate(lookup, image_id="image_id", text="text")
loader = DataLoader(dataset, batch_size=128, shuffle=True, collate_fn=collate)
criterion = BCLSLoss(reduction="mean")
for batch, _ in zip(loader, range(3)):
    scores = torch.rand(batch["relevance"].shape, requires_grad=True)  # your model: images are rows, captions columns
    loss = criterion(scores, batch["relevance"], batch["same_image"])
    loss.backward()
    print(loss.item())"""
"""A script that reads a lookup and takes three steps of a loss."""


def run(
    common: SharedOptions,
    captions: Annotated[str | None, typer.Argument(help="Your captions: a file, folder or URL.")] = None,
    split: Annotated[str | None, split_option(LABELLED)] = None,
    label: Annotated[list[str], label_option("to build", "all for val and test of coco, otherwise export.labels")] = [],
    limit: Annotated[int | None, typer.Option(min=1, help="First images of each split, as a separate dataset.")] = None,
    mirror: Mirror = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the work, with rows, bytes and time.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Print all tables, not only the first.")] = False,
) -> None:
    """Do everything: fetch, ingest, tune, encode, evaluate, export; then print which label to use."""
    if captions is not None:
        check_captions(captions, common.labels)
        # A parameter file describes its own captions.
        common = common.model_copy(update={"dataset": common.dataset or dataset_name(captions)})
    common = common.model_copy(update={"overrides": common.overrides | {"ingest.limit": limit}})
    session = common.session()
    # Captions that were read before are read with the same parameters.
    if captions is not None and not reads_again(session, captions):
        session = common.model_copy(update={"overrides": common.overrides | captions_at(captions)}).session()
    if dry_run:
        steps = plan_run(session, split, label)
        common.show([asdict(step) for step in steps], plan_text(steps))
        return
    outcome = run_stages(session, split, label, mirror)
    # Tables are the result of a judged split; of others it is the lookup.
    if not outcome.report.tables and outcome.lookups:
        data = {"lookups": [str(path) for path in outcome.lookups], "warnings": named_warnings(outcome)}
        common.show(data, TRAIN.format(outcome.lookups[0]))
        report_outcome(outcome)
    else:
        if outcome.report.tables and not full:
            outcome.report = headline_report(outcome.report, outcome.rates)
        show_outcome(common, outcome)


def check_captions(captions: str, labels: Path) -> None:
    """Raise MissingError unless captions are a file, folder or URL. The message suggests similar names."""
    path = Path(captions)
    if "://" in captions or path.exists():
        return
    existing = sorted(file.name for file in path.parent.iterdir()) if path.parent.is_dir() else []
    # Compare with the names of files, with and without their ending.
    stems = {Path(name).stem.lower(): str(path.parent / name) for name in existing if not name.startswith(".")}
    names = {Path(file).name.lower(): file for file in stems.values()} | stems
    names |= {name: f"--dataset {name}" for name in {*FETCHED, *(one.parent.name for one in labels.glob("*/corpus"))}}
    close = dict.fromkeys(names[name] for name in get_close_matches(path.name.lower(), names))
    hint = f"Did you mean {' or '.join(close)}?" if close else "Pass a file, a folder or a URL of captions."
    raise MissingError("no such file or folder", where=captions, hint=hint)


def plan_text(steps: Sequence[PlannedJob]) -> str:
    """List the steps of a run with their state, size and time, and the totals of the remaining steps."""

    def about(value: Any, show: Callable[[Any], str], exact: bool) -> str:
        return "" if value is None else ("" if exact else "~") + show(value)

    notes = [f"{step.name}: {step.note}".replace("; ", "\n  ") for step in steps if step.note]
    cells = [("stage", "name", "state", "rows", "size", "time", "basis", "where")]
    for step in steps:
        rows = about(step.rows, "{:,}".format, step.state == "done" or not notes)
        room, time = about(step.bytes, size, step.state == "done"), about(step.seconds, duration, False)
        cells.append((step.stage, step.name, step.state, rows, room, time, step.basis or "", step.out))
    left = [step for step in steps if step.state != "done"]

    def total(values: Sequence[float | None]) -> float | None:
        # Unknown values count as 0, so a total is a lower bound.
        numbers = [value for value in values if value is not None]
        return sum(numbers) if numbers or not left else None

    room = about(total([step.bytes for step in left]), size, not left)
    time = about(total([step.seconds for step in left]), duration, not left)
    table = align([*cells, ("remaining", "", "", "", room, time, "", "")], right=[3, 4, 5])
    notes += ["", *table, "~ is approximate; empty cells are unknown. Typical times are of 2 cores of an AMD EPYC."]
    if any(EACH_SPLIT in Path(step.out).parts for step in steps):
        notes.append(f"{EACH_SPLIT} stands for each split of the captions, and rows are those of all splits.")
    return "\n".join(notes).lstrip("\n")


app = verb(run, WORKERS, JudgeParams, "judge")
