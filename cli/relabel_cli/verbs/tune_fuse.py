"""`relabel tune fuse`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from relabel.tuning.fuse import TuneFuseParams
from relabel_cli.bridge import Overrides, verb
from relabel_cli.common import Common


def fuse(
    options: Annotated[dict[str, Any], Overrides(TuneFuseParams, "tune.fuse")],
    common: Common,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the model; `fuse` among the fetched files by default.")
    ] = None,
) -> None:
    """Fit a fuse of other labels to what people said of CxC's val pairs, for labels of source fuse."""
    from relabel import stages

    project = common.project(_split(options))
    folder = out or project.runtime.data / "fuse"
    manifest, built = stages.tune_fuse(project, folder)
    common.show(manifest.facts, "\n".join([*_figures(manifest.facts), stages.status(built, manifest, folder)]))


def _split(options: dict[str, Any]) -> dict[str, Any]:
    """Take `--parts a,b --parts c` as three."""
    if given := options.get("tune.fuse.parts"):
        options["tune.fuse.parts"] = [label for text in given for label in text.split(",") if label]
    return options


def _figures(facts: dict[str, Any]) -> list[str]:
    """Say how the fit does on pairs of held-out images of val, part by part."""
    lines = []
    for task, said in facts["tasks"].items():
        lines.append(f"{task} {facts['split']}, cross-validated over images, Pearson's r of {said['pairs']:,} pairs:")
        for step in said["cross_validated"]:
            figures = ", ".join(f"{k} {v:.4f}" for k, v in step["pearson"].items() if v is not None)
            lines.append(f"  {' + '.join(step['parts'])}: {figures}")
    return lines


app = verb(fuse)
