"""`relabel tune SOURCE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from relabel.sources.bert_sts.tune import TuneBertStsParams
from relabel.sources.cbow.tune import TuneCbowParams
from relabel.sources.fuse.tune import TuneFuseParams
from relabel.sources.sbert.tune import TuneSbertParams
from relabel_cli.global_options import GlobalOptions
from relabel_cli.options import Overrides, group, verb


def tune() -> None:
    """Make the model that a source takes."""


def cbow(
    options: Annotated[dict[str, Any], Overrides(TuneCbowParams, "tune.cbow")],
    common: GlobalOptions,
    on: Annotated[
        str | None, typer.Option("--on", help="Dataset whose corpus it is trained on; --dataset says the same.")
    ] = None,
) -> None:
    """Train word vectors on a corpus, for labels of cbow with `vectors: word2vec`."""
    from relabel import stages

    project = common.project(options | {"ingest.dataset": on or common.dataset})
    manifest, built = stages.tune_cbow(project)
    common.show(manifest.facts, stages.status_line(built, manifest, project.word2vec))


def bert_sts(
    options: Annotated[dict[str, Any], Overrides(TuneBertStsParams, "tune.bert_sts")],
    common: GlobalOptions,
    out: Path | None = typer.Option(
        None, "--out", help="Folder of the model; by default the one that labels with `model: tuned` take."
    ),
) -> None:
    """Tune a cross-encoder on people's scores of sentence pairs, for labels of bert_sts."""
    from relabel import stages

    project = common.project(options)
    manifest, built = stages.tune_bert_sts(project, out)
    figures = "; ".join(f"{split} Pearson {s['pearson']:.4f}" for split, s in manifest.facts["stsb"].items())
    status = stages.status_line(built, manifest, out or project.cross_encoder)
    common.show(manifest.facts, f"{status}\nSTS-B {figures}")


def fuse(
    options: Annotated[dict[str, Any], Overrides(TuneFuseParams, "tune.fuse")],
    common: GlobalOptions,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the model; `fuse` among the fetched files by default.")
    ] = None,
) -> None:
    """Fit a fuse of other labels to what people said of CxC's val pairs, for labels of source fuse."""
    from relabel import stages

    project = common.project(_split_parts(options))
    folder = out or project.runtime.data / "fuse"
    manifest, built = stages.tune_fuse(project, folder)
    common.show(
        manifest.facts, "\n".join([*_fuse_figures(manifest.facts), stages.status_line(built, manifest, folder)])
    )


def _split_parts(options: dict[str, Any]) -> dict[str, Any]:
    """Split labels that are separated by commas: `--parts a,b --parts c` names three."""
    if given := options.get("tune.fuse.parts"):
        options["tune.fuse.parts"] = [label for text in given for label in text.split(",") if label]
    return options


def _fuse_figures(facts: dict[str, Any]) -> list[str]:
    """Return one line per task and step of the fit: its correlation on pairs of held-out images."""
    lines = []
    for task, fit in facts["tasks"].items():
        lines.append(f"{task} {facts['split']}, cross-validated over images, Pearson's r of {fit['pairs']:,} pairs:")
        for step in fit["cross_validated"]:
            figures = ", ".join(f"{k} {v:.4f}" for k, v in step["pearson"].items() if v is not None)
            lines.append(f"  {' + '.join(step['parts'])}: {figures}")
    return lines


def sbert(
    options: Annotated[dict[str, Any], Overrides(TuneSbertParams, "tune.sbert")],
    common: GlobalOptions,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the model; `sbert-cxc` among the fetched files by default.")
    ] = None,
) -> None:
    """Fine-tune a sentence encoder on what people said of CxC's val pairs, for labels of sbert."""
    from relabel import stages

    project = common.project(options)
    folder = out or project.runtime.data / "sbert-cxc"
    manifest, built = stages.tune_sbert(project, folder)
    lines = [*_sbert_figures(manifest.facts), stages.status_line(built, manifest, folder)]
    advice = f"Label with it: --label tuned --set 'sources.tuned={{source: sbert, model: {folder}}}'"
    common.show(manifest.facts, "\n".join([*lines, advice]))


def _sbert_figures(facts: dict[str, Any]) -> list[str]:
    """Return one line per model and task: its correlation with human scores of val."""
    models = {
        "base": "the base",
        "out_of_fold": "held-out folds",
        "seen": "the model itself, on pairs it has learned from",
    }
    lines = []
    for name, model in models.items():
        for task, pairs in facts["val"].get(name, {}).items():
            figures = ", ".join(f"{k} {v:.4f}" for k, v in pairs.items() if isinstance(v, float))
            lines.append(f"{task} val, {model}, Pearson's r of {pairs['pairs']:,} pairs: {figures}")
    return lines


app = group(tune, cbow=verb(cbow), bert_sts=verb(bert_sts), fuse=verb(fuse), sbert=verb(sbert))
