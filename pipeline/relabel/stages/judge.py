"""judge: a label's scores of human-judged pairs, its agreement with people, and its rankings of ECCV Caption."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

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

KEEP = "Edit the parameter file"
_FIGURES = ("resamples", "seed", "draws", "draw_side", "draw_unit")


def judge(project: Project, label: str) -> Job:
    """Prepare to score CxC's human-judged pairs with a label."""
    from relabel.datasets import cxc
    from relabel.judge.cxc import score_cxc

    check_judged(project)
    corpus, params, source = project.corpus, project.config.judge, project.config.source(label)
    encoding = encode(project, label, params.split)
    semantic = {"source": source.spec.name, "pooling": source.params.pooling}
    semantic |= {"split": params.split, "include_self": params.include_self}
    inputs: Inputs = {"corpus": corpus.digest, "encoding": encoding.identity}
    inputs |= {f"cxc {task}": partial(cxc.sha256, task, params.split) for task in cxc.TASKS}

    def fill(work: Work) -> None:
        project.note_single_captions(label)
        relevance = open_label(project, label, params.split)
        work.facts |= describe(project, label, encoding.open())
        progress, include_self = project.runtime.progress, params.include_self
        score_cxc(corpus, relevance, source, params.split, work, progress, include_self=include_self)

    return Job(
        project,
        project.layout.judgement(params.split, label),
        Recipe("judgement", label, lambda: semantic, inputs, fill),
        project.command("judge", label=label, split=params.split),
        partial(judged_values, label=label, names=("include_self",)),
        KEEP,
    )


def figures(project: Project, label: str) -> Job:
    """Prepare to compare a label's scores of CxC's pairs with the human scores."""
    params, runtime, scores = project.config.judge, project.runtime, judge(project, label)

    def fill(work: Work) -> None:
        compared = compare(open_scores(project, label), params, runtime.progress, runtime.threads)
        work.facts |= label_fields(compared) | {"split": compared.split, "include_self": compared.include_self}
        parts = {name: getattr(compared, name) for name in ("agreement", "sampled", "calibration")}
        work.file(FIGURES, lambda path: path.write_text(json.dumps(parts, indent=1), encoding="utf-8"))

    semantic = params.model_dump(mode="json", include={*_FIGURES})
    return Job(
        project,
        project.layout.figures(params.split, label),
        Recipe("figures", label, lambda: semantic, {"judgement": scores.identity}, fill),
        project.command("judge", label=label, split=params.split),
        partial(judged_values, label=label, names=("include_self", *_FIGURES)),
        KEEP,
    )


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
        work.facts |= describe(project, label, encoding.open())
        eccv, relevance = read_eccv(corpus, project.runtime.data), open_label(project, label, "test")
        score_eccv(corpus, relevance, source, eccv, work, project.runtime.progress, ties=params.ties, gate=opened)

    return Job(
        project,
        project.layout.ranking("test", label),
        Recipe("ranking", label, lambda: semantic, inputs, fill),
        project.command("correlate", on="eccv", label=label),
        partial(judged_values, label=label, names=("ties", *(("gate", "gate_top") if gate else ()))),
        KEEP,
    )


def is_ranked(project: Project, label: str) -> bool:
    """Return whether a label ranks ECCV Caption.

    A ranking takes all pairs of images and captions. A label that scores pair by pair, or is composed of one that does,
    ranks only the best candidates of the gate (`judge.gate`).
    """
    return bool(project.config.judge.gate) or not project.config.source(label).is_pairwise()


def check_judged(project: Project) -> None:
    """Raise if people have not judged captions of the dataset."""
    if project.namespace != "coco":
        sets = ", ".join(set_names())
        todo = f"Judge labels on pairs of texts with `--on SET` (one of {sets}), or on a file of judgements."
        raise UsageError(
            f"CxC and ECCV Caption judge COCO's captions, not {project.config.ingest.dataset}'s", todo=todo
        )


def describe(project: Project, label: str, encoding: Manifest) -> dict[str, Any]:
    """Return a label as reports name it: the fields of `JudgedLabel`."""
    facts, model = encoding.facts, encoding.runtime.get("model")
    described = JudgedLabel(
        label=label,
        params=project.config.params(label).model_dump(mode="json"),
        own_model=isinstance(model, dict) and model.get("place") == "folder",
        image_vectors=_image_vectors(project, label),
        uses=facts["vectors"]["name"] if "vectors" in facts else facts.get("model"),
    )
    return label_fields(described)


def _image_vectors(project: Project, label: str) -> list[str]:
    """Return the labels, among a label and its parts, that compare a vector of the image itself."""
    source = project.config.source(label)
    labels = [label] if source.spec.image_vectors else []
    for part in source.input_labels():
        labels += _image_vectors(project, part)
    # Two parts may share one of their own parts.
    return list(dict.fromkeys(labels))


def judged_values(config: Config, label: str, names: tuple[str, ...]) -> Values:
    """Return the parameters of a label, and those of `judge` that are named."""
    judge = config.judge.model_dump(mode="json", include={*names})
    return label_values(config, label) | {f"judge.{name}": value for name, value in judge.items()}
