"""`relabel tune SOURCE`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from relabel import stages
from relabel.sources.bert_sts.tune import TuneBertStsParams
from relabel.sources.cbow.tune import TuneWord2vecParams
from relabel.sources.fuse.fit import TuneFuseParams
from relabel.sources.sbert.tune import TuneSbertParams
from relabel_cli.options import READ, WORKERS, SharedOptions, group, verb

TRAIN = (*READ, "device", "threads", "rebuild")
Out = Annotated[Path | None, typer.Option("--out", help="Folder of the model. [default: the folder that labels read]")]


def word2vec(common: SharedOptions) -> None:
    """Train word vectors on a corpus, for the label word2vec: cbow with `vectors: word2vec`."""
    common.run(stages.word2vec_model(common.session()))


def best(common: SharedOptions) -> None:
    """Train the models of the recommended label: `tune sbert`, then `tune fuse`, with tested parameters."""
    models = stages.tune_best(common.session())
    metadata = {label: manifest.metadata for label, manifest in models.items()}
    common.show(metadata, "\n".join([*map(model_text, metadata.values()), "Label with it: --label fuse"]))


def bert_sts(common: SharedOptions, out: Out = None) -> None:
    """Train a cross-encoder on human scores of sentence pairs, for labels of bert_sts."""
    common.run(stages.bert_sts_model(common.session(), out), model_text)


def fuse(common: SharedOptions, out: Out = None) -> None:
    """Fit a combination of other labels to human scores of CxC's val pairs, for labels of fuse."""
    common.run(stages.fuse_model(common.session(), out), model_text)


def sbert(common: SharedOptions, out: Out = None) -> None:
    """Fine-tune a sentence encoder on human scores of CxC's val pairs, for labels of sbert."""
    common.run(stages.sbert_model(common.session(), out), model_text)


def model_text(metadata: Mapping[str, Any]) -> str:
    """Return one line per model and task: correlations with human scores, Pearson's r unless named."""
    groups = {f"STS-B {split}": measured for split, measured in metadata.get("stsb", {}).items()}
    # The model has trained on the pairs of `seen`, so their figures are too high.
    for name, tasks in metadata.get("val", {}).items():
        groups |= {f"{task} val ({name})": measured for task, measured in tasks.items()}
    for task, fit in metadata.get("tasks", {}).items():
        groups[f"{task} {metadata['split']}, cross-validated"] = fit["cross_validated"]
    lines = []
    for title, measured in groups.items():
        values = [f"{name} {value:.4f}" for name, value in measured.items() if isinstance(value, float)]
        lines.append(f"  {title}: {', '.join(values)}")
    return "\n".join(lines)


app = group(
    "Train or fit the model of a source.",
    best=verb(best, WORKERS),
    word2vec=verb(word2vec, (*READ, "rebuild"), TuneWord2vecParams, "tune.word2vec"),
    bert_sts=verb(bert_sts, TRAIN, TuneBertStsParams, "tune.bert_sts"),
    fuse=verb(fuse, WORKERS, TuneFuseParams, "tune.fuse"),
    sbert=verb(sbert, TRAIN, TuneSbertParams, "tune.sbert"),
)
