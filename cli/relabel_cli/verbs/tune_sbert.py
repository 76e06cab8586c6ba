"""`relabel tune sbert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from relabel.tuning.sbert import TuneSbertParams
from relabel_cli.bridge import Overrides, verb
from relabel_cli.common import Common


def sbert(
    options: Annotated[dict[str, Any], Overrides(TuneSbertParams, "tune.sbert")],
    common: Common,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the model; `sbert-cxc` among the fetched files by default.")
    ] = None,
) -> None:
    """Fine-tune a sentence encoder on what people said of CxC's val pairs, for labels of sbert."""
    from relabel import stages

    project = common.project(options)
    folder = out or project.runtime.data / "sbert-cxc"
    manifest, built = stages.tune_sbert(project, folder)
    lines = [*_figures(manifest.facts), stages.status(built, manifest, folder)]
    common.show(manifest.facts, "\n".join([*lines, f"Label with it: --set sources.sbert.model={folder}"]))


def _figures(facts: dict[str, Any]) -> list[str]:
    """Say how well the models agree with people on val."""
    said = {
        "base": "the base",
        "out_of_fold": "held-out folds",
        "seen": "the model itself, on pairs it has learned from",
    }
    lines = []
    for name, what in said.items():
        for task, found in facts["val"].get(name, {}).items():
            figures = ", ".join(f"{k} {v:.4f}" for k, v in found.items() if isinstance(v, float))
            lines.append(f"{task} val, {what}, Pearson's r of {found['pairs']:,} pairs: {figures}")
    return lines


app = verb(sbert)
