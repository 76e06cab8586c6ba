"""judge: a label's agreement with human scores, and its rankings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from relabel.config import Config
from relabel.core.errors import UsageError
from relabel.datasets.judged import set_names
from relabel.stages.encode import encode, open_label
from relabel.stages.job import Job, Values, label_values
from relabel.stages.project import Project
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import Manifest
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from relabel.judge.eccv import Gate


def judge(project: Project, label: str) -> Job:
    """Prepare to score CxC's human-judged pairs with a label, and to rank ECCV Caption with it (test split).

    A label that scores pair by pair, or is composed of one that does, ranks only the best candidates of the gate
    (`judge.gate`). Without a gate it is not ranked.
    """
    from relabel.datasets import cxc
    from relabel.judge.cxc import score_cxc
    from relabel.judge.eccv import read_eccv, score_eccv

    config, corpus, params = project.config, project.corpus, project.config.judge
    check_judged(project)
    source, split = config.source(label), params.split
    encoding = encode(project, label, split)
    inputs: Inputs = {"corpus": corpus.digest, "encoding": encoding.identity}
    inputs |= {f"cxc {task}": partial(cxc.sha256, task, split) for task in cxc.TASKS}
    # A ranking takes all pairs of images and captions, too many for a source that scores pair by pair.
    slow = source.is_pairwise()
    gate = (params.gate or None) if slow else None
    ranked = split == "test" and (not slow or gate is not None)
    semantic = {"source": source.spec.name, "pooling": source.params.pooling, **params.model_dump(include=_JUDGED)}
    if ranked and gate is not None:
        # The candidates are the gate's best ones, which depend on its pooling; its encoding does not.
        inputs["gate"] = encode(project, gate, split).identity
        semantic["pooling of the gate"] = config.source(gate).params.pooling

    def fill(work: Work) -> None:
        project.note_single_captions(label)
        relevance, manifest = open_label(project, label, split), encoding.open()
        progress = project.runtime.progress
        work.facts |= {"label": label, "params": config.params(label).model_dump(mode="json"), "uses": _uses(manifest)}
        work.facts |= {"own_model": _own_model(manifest), "image_vectors": _image_vectors(project, label)}
        score_cxc(corpus, relevance, source, split, work, progress, include_self=params.include_self)
        if ranked:
            opened = _open_gate(project, gate) if gate else None
            eccv = read_eccv(corpus, project.runtime.data)
            score_eccv(corpus, relevance, source, eccv, work, progress, ties=params.ties, gate=opened)

    def values(config: Config) -> Values:
        judge = config.judge.model_dump(mode="json", include=_JUDGED - {"split"} | {"gate"})
        return label_values(config, label) | {f"judge.{name}": value for name, value in judge.items()}

    recipe = Recipe("judgement", label, lambda: semantic, inputs, fill)
    out, command = project.layout.judgement(split, label), project.command("judge", label=label)
    return Job(project, out, recipe, command, values)


def check_judged(project: Project) -> None:
    """Raise if people have not judged captions of the dataset."""
    if project.namespace != "coco":
        sets = ", ".join(set_names())
        todo = f"Judge labels on pairs of texts with `--on SET` (one of {sets}), or on a file of judgements."
        raise UsageError(
            f"CxC and ECCV Caption judge COCO's captions, not {project.config.ingest.dataset}'s", todo=todo
        )


def _open_gate(project: Project, gate: str) -> Gate:
    from relabel.judge.eccv import Gate

    params, scale = project.config.judge, max(map(abs, project.config.source(gate).spec.bounds))
    return Gate(gate, open_label(project, gate, params.split), params.gate_top, scale)


def _uses(encoding: Manifest) -> str | None:
    """Return the name of the model or word vectors that an encoding was made with; None if it has neither."""
    facts = encoding.facts
    return facts["vectors"]["name"] if "vectors" in facts else facts.get("model")


def _own_model(encoding: Manifest) -> bool:
    """Return whether the model of an encoding was in a folder, rather than named on the Hugging Face hub."""
    model = encoding.runtime.get("model")
    return isinstance(model, dict) and model.get("place") == "folder"


def _image_vectors(project: Project, label: str) -> list[str]:
    """Return the labels, among a label and its parts, that compare a vector of the image itself."""
    source = project.config.source(label)
    labels = [label] if source.spec.image_vectors else []
    for part in source.input_labels():
        labels += _image_vectors(project, part)
    # Two parts may share one of their own parts.
    return list(dict.fromkeys(labels))


_JUDGED = {"split", "include_self", "ties", "gate_top"}
"""Parameters of `judge` that can change a score or a ranking; the others concern the report."""
