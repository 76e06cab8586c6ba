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
    """Train or fit the model of a source."""


def cbow(
    options: Annotated[dict[str, Any], Overrides(TuneCbowParams, "tune.cbow")],
    common: GlobalOptions,
    on: Annotated[
        str | None, typer.Option("--on", help="Dataset of the corpus to train on; the same as --dataset.")
    ] = None,
) -> None:
    """Train word vectors on a corpus, for labels of cbow with `vectors: word2vec`."""
    from relabel import stages

    project = common.project(options | {"ingest.dataset": on or common.dataset})
    manifest, built = stages.tune_cbow(project).run()
    common.show(manifest.facts, stages.status_line(built, manifest, project.word2vec))


def bert_sts(
    options: Annotated[dict[str, Any], Overrides(TuneBertStsParams, "tune.bert_sts")],
    common: GlobalOptions,
    out: Path | None = typer.Option(
        None, "--out", help="Folder of the model; by default the one that labels with `model: tuned` use."
    ),
) -> None:
    """Train a cross-encoder on human scores of sentence pairs, for labels of bert_sts."""
    from relabel import stages

    project = common.project(options)
    manifest, built = stages.tune_bert_sts(project, out).run()
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
    """Fit a combination of other labels to human scores of CxC's val pairs, for labels of fuse."""
    from relabel import stages

    project = common.project(_split_labels(options))
    folder = out or project.runtime.data / "fuse"
    manifest, built = stages.tune_fuse(project, folder).run()
    common.show(
        manifest.facts, "\n".join([*_fuse_figures(manifest.facts), stages.status_line(built, manifest, folder)])
    )


def best(common: GlobalOptions) -> None:
    """Make the models of the recommended label: `tune sbert`, then `tune fuse`, with measured parameters."""
    from relabel import stages

    project = common.project()
    models = stages.tune_best(project)
    figures = {"tuned": _sbert_figures, "fuse": _fuse_figures}
    lines = [line for label, (manifest, _, _) in models.items() for line in figures[label](manifest.facts)]
    lines += [stages.status_line(built, manifest, folder) for manifest, built, folder in models.values()]
    facts = {label: manifest.facts for label, (manifest, _, _) in models.items()}
    common.show(facts, "\n".join([*lines, "Label with it: --label fuse"]))


def _split_labels(options: dict[str, Any]) -> dict[str, Any]:
    """Split labels at commas, so that `--parts a,b --parts c` names three."""
    for key in ("tune.fuse.parts", "tune.fuse.free"):
        if values := options.get(key):
            options[key] = [label for text in values for label in text.split(",") if label]
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
    """Fine-tune a sentence encoder on human scores of CxC's val pairs, for labels of sbert."""
    from relabel import stages

    project = common.project(options)
    folder = out or project.sentence_encoder
    manifest, built = stages.tune_sbert(project, folder).run()
    lines = [*_sbert_figures(manifest.facts), stages.status_line(built, manifest, folder)]
    setting = "" if out is None else f" --set 'sources.tuned={{source: sbert, model: {folder}}}'"
    advice = f"Label with it: --label tuned{setting}"
    common.show(manifest.facts, "\n".join([*lines, advice]))


def _sbert_figures(facts: dict[str, Any]) -> list[str]:
    """Return one line per model and task: its correlation with human scores of val."""
    # The figures of `seen` are too high, since the model has trained on these pairs.
    models = {
        "base": "the base model",
        "out_of_fold": "held-out folds",
        "seen": "the model itself, on its training pairs",
    }
    lines = []
    for name, model in models.items():
        for task, pairs in facts["val"].get(name, {}).items():
            figures = ", ".join(f"{k} {v:.4f}" for k, v in pairs.items() if isinstance(v, float))
            lines.append(f"{task} val, {model}, Pearson's r of {pairs['pairs']:,} pairs: {figures}")
    return lines


app = group(tune, best=verb(best), cbow=verb(cbow), bert_sts=verb(bert_sts), fuse=verb(fuse), sbert=verb(sbert))
