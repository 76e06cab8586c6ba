"""`relabel tune SOURCE`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from relabel.sources.bert_sts.tune import TuneBertStsParams
from relabel.sources.cbow.tune import TuneCbowParams
from relabel.sources.fuse.tune import TuneFuseParams
from relabel.sources.sbert.tune import TuneSbertParams
from relabel_cli.options import Overrides, group, verb
from relabel_cli.shared_options import READ, WORKERS, SharedOptions

TRAIN = (*READ, "device", "threads", "replace")
CBOW = "splits tokenizer context window architecture width epochs min_count seed"
BERT_STS = "on base revision epochs batch_size rate max_length precision seed"
FUSE = "on parts model free altered folds seed"
SBERT = "on base revision folds merge layers epochs rate also dtype seed"
Out = Annotated[Path | None, typer.Option("--out", help="Folder of the model. [default: where labels read it]")]


def tune() -> None:
    """Train or fit the model of a source."""


def cbow(common: SharedOptions) -> None:
    """Train word vectors on a corpus, for labels of cbow with `vectors: word2vec`."""
    from relabel import stages

    project = common.project()
    manifest, built = stages.tune_cbow(project).run()
    common.show(manifest.facts, stages.status_line(built, manifest, project.word2vec))


def bert_sts(
    common: SharedOptions,
    out: Out = None,
) -> None:
    """Train a cross-encoder on human scores of sentence pairs, for labels of bert_sts."""
    from relabel import stages

    project = common.project()
    manifest, built = stages.tune_bert_sts(project, out).run()
    figures = "; ".join(f"{split} Pearson {s['pearson']:.4f}" for split, s in manifest.facts["stsb"].items())
    status = stages.status_line(built, manifest, out or project.cross_encoder)
    common.show(manifest.facts, f"{status}\nSTS-B {figures}")


def fuse(
    common: SharedOptions,
    out: Out = None,
) -> None:
    """Fit a combination of other labels to human scores of CxC's val pairs, for labels of fuse."""
    from relabel import stages

    project = common.project()
    folder = out or project.runtime.data / "fuse"
    manifest, built = stages.tune_fuse(project, folder).run()
    lines = [*_fuse_figures(manifest.facts), stages.status_line(built, manifest, folder)]
    common.show(manifest.facts, "\n".join(lines))


def sbert(
    common: SharedOptions,
    out: Out = None,
) -> None:
    """Fine-tune a sentence encoder on human scores of CxC's val pairs, for labels of sbert."""
    from relabel import stages

    project = common.project()
    folder = out or project.sentence_encoder
    manifest, built = stages.tune_sbert(project, folder).run()
    lines = [*_sbert_figures(manifest.facts), stages.status_line(built, manifest, folder)]
    common.show(manifest.facts, "\n".join(lines))


def best(common: SharedOptions) -> None:
    """Make the models of the recommended label: `tune sbert`, then `tune fuse`, with measured parameters."""
    from relabel import stages

    models = stages.tune_best(common.project())
    lines = [*_sbert_figures(models["tuned"].facts), *_fuse_figures(models["fuse"].facts), "Label with it: --label fuse"]
    common.show({label: manifest.facts for label, manifest in models.items()}, "\n".join(lines))


def _fuse_figures(facts: dict[str, Any]) -> Iterator[str]:
    """Yield one line per task and step of the fit: its correlation on pairs of held-out images."""
    for task, fit in facts["tasks"].items():
        yield f"{task} {facts['split']}, cross-validated over images, Pearson's r of {fit['pairs']:,} pairs:"
        for step in fit["cross_validated"]:
            figures = ", ".join(f"{k} {v:.4f}" for k, v in step["pearson"].items() if v is not None)
            yield f"  {' + '.join(step['parts'])}: {figures}"


def _sbert_figures(facts: dict[str, Any]) -> Iterator[str]:
    """Yield one line per model and task: its correlation with human scores of val."""
    # The figures of `seen` are too high, since the model has trained on these pairs.
    models = {"base": "the base model", "out_of_fold": "held-out folds", "seen": "its training pairs"}
    for name, model in models.items():
        for task, pairs in facts["val"].get(name, {}).items():
            figures = ", ".join(f"{k} {v:.4f}" for k, v in pairs.items() if isinstance(v, float))
            yield f"{task} val, {model}, Pearson's r of {pairs['pairs']:,} pairs: {figures}"


app = group(
    tune,
    best=verb(best, WORKERS),
    cbow=verb(cbow, (*READ, "replace"), Overrides(TuneCbowParams, CBOW, "tune.cbow")),
    bert_sts=verb(bert_sts, TRAIN, Overrides(TuneBertStsParams, BERT_STS, "tune.bert_sts")),
    fuse=verb(fuse, WORKERS, Overrides(TuneFuseParams, FUSE, "tune.fuse")),
    sbert=verb(sbert, TRAIN, Overrides(TuneSbertParams, SBERT, "tune.sbert")),
)
