"""`relabel false-negatives`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relabel.core.tables import align, csv_text
from relabel.stages.false_negatives import find_false_negatives
from relabel.store.files import write_text
from relabel_cli.options import COMPUTE, SharedOptions, label_option, split_option, verb

DEFAULT = "export.labels that have neighbours"
SPLIT = "[default: judge.split for coco, flickr8k, flickr30k; otherwise the first]"
PROBABILITY = "Minimum probability of a human score of 4 or more, by the label's calibration. [default: 0.8]"
THRESHOLD = "Minimum relevance of a pair, instead of a probability."
OUT = "Write all pairs into this file (CSV)."
NONE = "a lower --probability or --threshold lists less certain pairs"
IMAGE = "each image is shown with its most similar caption"


def false_negatives(
    common: SharedOptions,
    label: Annotated[list[str], label_option("to show (the first selects the pairs)", DEFAULT)] = [],
    split: Annotated[str | None, split_option(SPLIT)] = None,
    probability: Annotated[float | None, typer.Option(metavar="<float>", min=0, max=1, help=PROBABILITY)] = None,
    threshold: Annotated[float | None, typer.Option(metavar="<float>", help=THRESHOLD)] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of pairs to show.")] = 20,
    out: Annotated[Path | None, typer.Option(metavar="<file>", dir_okay=False, help=OUT)] = None,
) -> None:
    """List captions of other images that people would probably accept for an image."""
    session = common.session()
    found = find_false_negatives(session, label, split, probability, threshold)
    for text in found.warnings:
        session.note_once(f"warning: {text}")
    if out is not None:
        write_text(out, csv_text([*found.records()]) + "\n")
    shown = [*found.records(slice(k))]
    # Two lines per pair align the texts below each other, in full and at any width of the terminal.
    rows = [("rank", *found.labels, "", "id", "text")]
    for rank, pair in enumerate(shown, 1):
        own, other = (" ".join(str(pair[name]).split()) for name in ("own_caption", "caption"))
        scores = [f"{pair[name]:.3f}" for name in found.labels]
        rows.append((str(rank), *scores, "image", str(pair["image_id"]), own))
        rows.append(("", *[""] * len(scores), "caption", str(pair["caption_id"]), other))
    limits = {"threshold": found.threshold, "probability": found.probability}
    counts = {"captions": len(found.rows), "captions_with_pairs": found.described}
    counts |= {"pairs": len(found.scores), "cut": found.cut}
    data = {"split": found.split, **limits, **counts, "shown": shown}
    table = [IMAGE, "", *align(rows, right=range(1 + len(found.labels)))] if shown else [NONE]
    common.show(data, "\n".join([*found.summary(), *table]))


app = verb(false_negatives, COMPUTE)
