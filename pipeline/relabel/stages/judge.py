"""judge: a label's scores of human-judged pairs, its agreement with people, and its rankings of ECCV Caption."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from relabel.config import Config
from relabel.core.errors import UsageError
from relabel.datasets.judged import set_names
from relabel.judge.compare import compare
from relabel.judge.cxc_report import FIGURES, PairScores
from relabel.judge.report import JudgedLabel, label_fields
from relabel.stages.encode import encode, open_label
from relabel.stages.job import Job, Values, label_values
from relabel.stages.project import Project
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import Manifest
from relabel.store.workdir import Work

_FIGURES = ("resamples", "seed", "draws", "draw_side", "draw_unit")


def judge(project: Project, label: str) -> Job:
    """Prepare to score CxC's human-judged pairs with a label."""
    from relabel.datasets import cxc
    from relabel.judge.cxc import score_cxc

    check_judged(project)
    corpus, params, source = project.corpus, project.config.judge, project.config.source(label)
    split, include_self = params.split, params.include_self
    encoding = encode(project, label, split)
    semantic = {"source": source.spec.name, "pooling": source.params.pooling}
    semantic |= {"split": split, "include_self": include_self}
    inputs: Inputs = {"corpus": corpus.digest, "encoding": encoding.identity}
    inputs |= {f"cxc {task}": partial(cxc.sha256, task, split) for task in cxc.TASKS}

    def fill(work: Work) -> None:
        project.note_single_captions(label)
        relevance = open_label(project, label, split)
        work.facts |= vars(describe(project, label, encoding.open()))
        score_cxc(corpus, relevance, source, split, work, project.runtime.progress, include_self=include_self)

    recipe = Recipe("judgement", label, lambda: semantic, inputs, fill)
    out, command = project.layout.judgement(split, label), project.command("judge", label=label, split=split)
    return judged_job(project, label, out, recipe, command, ("include_self",))


def figures(project: Project, label: str) -> Job:
    """Prepare to compare a label's scores of CxC's pairs with the human scores."""
    params, runtime, scores = project.config.judge, project.runtime, judge(project, label)

    def fill(work: Work) -> None:
        compared = compare(open_scores(project, label), params, runtime.progress, runtime.threads)
        work.facts |= label_fields(compared) | {"split": compared.split, "include_self": compared.include_self}
        parts = {name: getattr(compared, name) for name in ("agreement", "sampled", "calibration")}
        work.file(FIGURES, lambda path: path.write_text(json.dumps(parts, indent=1), encoding="utf-8"))

    semantic = params.model_dump(mode="json", include={*_FIGURES})
    recipe = Recipe("figures", label, lambda: semantic, {"judgement": scores.identity}, fill)
    out = project.layout.figures(params.split, label)
    return judged_job(project, label, out, recipe, scores.command, ("include_self", *_FIGURES))


def open_scores(project: Project, label: str) -> PairScores:
    """Open a label's scores of CxC's pairs."""
    job = judge(project, label)
    return PairScores.open(job.out, job.open().facts)


def ranking(project: Project, label: str) -> Job:
    """Prepare to rank ECCV Caption with a label (see `is_ranked`)."""
    from relabel.judge.eccv import Gate, read_eccv, score_eccv

    check_judged(project)
    corpus, params, source = project.corpus, project.config.judge, project.config.source(label)
    gate = params.gate if source.is_pairwise() else None
    encoding = encode(project, label, "test")
    semantic: Values = {"source": source.spec.name, "pooling": source.params.pooling, "ties": params.ties}
    inputs: Inputs = {"corpus": corpus.digest, "encoding": encoding.identity}
    if gate:
        # The candidates are the gate's best ones, which depend on its pooling; its encoding does not.
        inputs["gate"] = encode(project, gate, "test").identity
        semantic |= {"gate_top": params.gate_top, "pooling of the gate": project.config.source(gate).params.pooling}

    def fill(work: Work) -> None:
        opened = None
        if gate:
            scale = max(map(abs, project.config.source(gate).spec.bounds))
            opened = Gate(gate, open_label(project, gate, "test"), params.gate_top, scale)
        work.facts |= vars(describe(project, label, encoding.open()))
        eccv, relevance = read_eccv(corpus, project.runtime.data), open_label(project, label, "test")
        score_eccv(corpus, relevance, source, eccv, work, project.runtime.progress, ties=params.ties, gate=opened)

    recipe, names = Recipe("ranking", label, lambda: semantic, inputs, fill), ("gate", "gate_top") if gate else ()
    out, command = project.layout.ranking("test", label), project.command("correlate", on="eccv", label=label)
    return judged_job(project, label, out, recipe, command, ("ties", *names))


def is_ranked(project: Project, label: str) -> bool:
    """Return whether a label ranks ECCV Caption.

    A ranking takes all pairs of images and captions. A label that scores pair by pair, or is composed of one that does,
    ranks only the best candidates of the gate (`judge.gate`).
    """
    return bool(project.config.judge.gate) or not project.config.source(label).is_pairwise()


def check_judged(project: Project, on: str = "cxc") -> None:
    """Raise if people have not judged captions of the dataset, or not those of the split on a set."""
    if project.namespace != "coco":
        sets = ", ".join(set_names())
        todo = f"Judge labels on pairs of texts with `--on SET` (one of {sets}), or on a file of judgements."
        raise UsageError(
            f"CxC and ECCV Caption judge COCO's captions, not {project.config.ingest.dataset}'s", todo=todo
        )
    if on == "eccv" and project.config.judge.split != "test":
        raise UsageError("ECCV Caption covers the test split only", todo="Use --split test.")


def describe(project: Project, label: str, encoding: Manifest) -> JudgedLabel:
    """Return a label as reports name it."""
    facts, model = encoding.facts, encoding.runtime.get("model")
    sources = project.config.with_parts(label)
    return JudgedLabel(
        label=label,
        params=project.config.params(label).model_dump(mode="json"),
        own_model=isinstance(model, dict) and model.get("place") == "folder",
        image_vectors=[name for name, source in sources.items() if source.spec.image_vectors],
        uses=facts["vectors"]["name"] if "vectors" in facts else facts.get("model"),
    )


def judged_job(
    project: Project, label: str, out: Path, recipe: Recipe, command: str, names: tuple[str, ...] = ()
) -> Job:
    """Return the job of a label's scores or figures; `names` are the parameters of `judge` that decide them."""
    return Job(project, out, recipe, command, partial(_values, label=label, names=names), "Edit the parameter file")


def _values(config: Config, label: str, names: tuple[str, ...]) -> Values:
    judge = config.judge.model_dump(mode="json", include={*names})
    return label_values(config, label) | {f"judge.{name}": value for name, value in judge.items()}
