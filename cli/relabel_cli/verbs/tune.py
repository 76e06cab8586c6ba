"""`relabel tune SOURCE`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from relabel.core.parameters import Parameters
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

    common.run(stages.tune_cbow(common.project()))


def best(common: SharedOptions) -> None:
    """Make the models of the recommended label: `tune sbert`, then `tune fuse`, with measured parameters."""
    from relabel import stages

    models = stages.tune_best(common.project())
    lines = [line for manifest in models.values() for line in figures(manifest.facts)]
    facts = {label: manifest.facts for label, manifest in models.items()}
    common.show(facts, "\n".join([*lines, "Label with it: --label fuse"]))


def model_verb(source: str, purpose: str, model: type[Parameters], names: str, shared: Collection[str]) -> typer.Typer:
    """Return the verb that makes the model of a source; `purpose`: its help, `names`: parameters that are options."""

    def call(common: SharedOptions, out: Out = None) -> None:
        from relabel import stages

        project = common.project()
        if source == "bert_sts":
            job = stages.tune_bert_sts(project, out)
        elif source == "sbert":
            job = stages.tune_sbert(project, out or project.sentence_encoder)
        else:
            job = stages.tune_fuse(project, out or project.runtime.data / "fuse")
        common.run(job, lambda facts: "\n".join(figures(facts)))

    call.__name__, call.__doc__ = source, purpose
    return verb(call, shared, Overrides(model, names, f"tune.{source}"))


def figures(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line per model and task: correlations with human scores, Pearson's r unless named."""
    groups = {f"STS-B {split}": measured for split, measured in facts.get("stsb", {}).items()}
    # The model has trained on the pairs of `seen`, whose figures are too high.
    for name, tasks in facts.get("val", {}).items():
        groups |= {f"{task} val ({name})": measured for task, measured in tasks.items()}
    for task, fit in facts.get("tasks", {}).items():
        for step in fit["cross_validated"]:
            groups[f"{task} {facts['split']}, cross-validated, {' + '.join(step['parts'])}"] = step["pearson"]
    for title, measured in groups.items():
        values = [f"{name} {value:.4f}" for name, value in measured.items() if isinstance(value, float)]
        yield f"  {title}: {', '.join(values)}"


BERT_STS_HELP = "Train a cross-encoder on human scores of sentence pairs, for labels of bert_sts."
FUSE_HELP = "Fit a combination of other labels to human scores of CxC's val pairs, for labels of fuse."
SBERT_HELP = "Fine-tune a sentence encoder on human scores of CxC's val pairs, for labels of sbert."

app = group(
    tune,
    best=verb(best, WORKERS),
    cbow=verb(cbow, (*READ, "replace"), Overrides(TuneCbowParams, CBOW, "tune.cbow")),
    bert_sts=model_verb("bert_sts", BERT_STS_HELP, TuneBertStsParams, BERT_STS, TRAIN),
    fuse=model_verb("fuse", FUSE_HELP, TuneFuseParams, FUSE, WORKERS),
    sbert=model_verb("sbert", SBERT_HELP, TuneSbertParams, SBERT, TRAIN),
)
