"""`relabel tune bert_sts`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from relabel.tuning.bert_sts import TuneBertStsParams
from relabel_cli.bridge import Overrides, verb
from relabel_cli.common import Common


def bert_sts(
    options: Annotated[dict[str, Any], Overrides(TuneBertStsParams, "tune.bert_sts")],
    common: Common,
    out: Path | None = typer.Option(
        None, "--out", help="Folder of the model; by default the one that labels with `model: tuned` take."
    ),
) -> None:
    """Tune a cross-encoder on people's scores of sentence pairs, for labels of bert_sts."""
    from relabel import stages

    project = common.project(options)
    manifest, built = stages.tune_bert_sts(project, out)
    found = "; ".join(f"{split} Pearson {s['pearson']:.4f}" for split, s in manifest.facts["stsb"].items())
    said = stages.status(built, manifest, out or project.cross_encoder)
    common.show(manifest.facts, f"{said}\nSTS-B {found}")


app = verb(bert_sts)
