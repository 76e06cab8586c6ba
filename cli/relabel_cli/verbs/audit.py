"""`relabel audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relabel.core.tables import csv_text, text
from relabel.stages.audit import audit as examine
from relabel.store.files import write_text
from relabel_cli.options import COMPUTE, SharedOptions, label_option, split_option, verb
from relabel_cli.verbs.false_negatives import DEFAULT, PROBABILITY, SPLIT

OUT = "Write the false negatives (CSV)."
RUN = "Scores of a model: images x captions of the split (.npy), a TREC run, or a label with vectors of images."


def audit(
    common: SharedOptions,
    label: Annotated[list[str], label_option("to show (the first selects the pairs)", DEFAULT)] = [],
    split: Annotated[str | None, split_option(SPLIT)] = None,
    probability: Annotated[float | None, typer.Option(metavar="<float>", min=0, max=1, help=PROBABILITY)] = None,
    run: Annotated[str | None, typer.Option(metavar="<file or label>", help=RUN)] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of queries to show.")] = 10,
    out: Annotated[Path | None, typer.Option(metavar="<file>", dir_okay=False, help=OUT)] = None,
) -> None:
    """Count equal captions and false negatives of a benchmark, and correct the results of a run."""
    session = common.session()
    found = examine(session, label, split, probability, run, k)
    for warning in found.pairs.warnings:
        session.note_once(f"warning: {warning}")
    if out is not None:
        write_text(out, csv_text([*found.pairs.records()]) + "\n")
    common.show(dict(found.data), "\n\n".join(map(text, found.tables)))


app = verb(audit, COMPUTE)
