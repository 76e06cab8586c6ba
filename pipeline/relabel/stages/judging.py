"""judge: a label against human scores, and as a ranker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relabel.errors import UsageError
from relabel.sources.tally import Counting, take_tally
from relabel.stages.encoding import encoded, open_label
from relabel.stages.job import Job
from relabel.stages.project import Project
from relabel.store.manifest import Draft, Manifest
from relabel.store.work import Work

if TYPE_CHECKING:
    from relabel.judge.eccv import Gate


def judge(project: Project, label: str) -> Job:
    """Prepare to score CxC's human-judged pairs with a label, and to rank ECCV Caption with it (test split).

    A label that scores pair by pair, or is made of one that does, ranks only what the gate (`judge.gate`) finds best;
    with no gate it is not ranked.

    Raises
    ------
    UsageError
        If the corpus is not COCO.
    MissingError
        If the encoding is not there.
    """
    from relabel.judge import human
    from relabel.judge.cxc import score_cxc
    from relabel.judge.eccv import score_eccv
    from relabel.judge.eccv_queries import read_eccv

    config, corpus, params = project.config, project.corpus, project.config.judge
    if config.ingest.prefix != "coco":
        raise UsageError(f"CxC and ECCV Caption judge COCO's captions, not {config.ingest.dataset}'s")
    source, split = config.source(label), params.split
    encoding = encoded(project, label, split)
    inputs = {"corpus": corpus.digest, "encoding": encoding.identity}
    inputs |= {f"cxc {task}": human.sha256(task, split) for task in human.TASKS}
    slow = source.pair_by_pair()
    gate = (params.gate or None) if slow else None
    ranked = split == "test" and (not slow or gate is not None)
    if ranked and gate is not None:
        inputs["gate"] = encoded(project, gate, split).identity
    semantic = {"source": source.name, "pooling": source.params.pooling, **params.model_dump(include=_JUDGED)}

    def fill(work: Work) -> None:
        own = params.include_self
        relevance = open_label(project, label, split)
        progress = project.runtime.progress
        work.facts |= {"label": label, "params": source.params.model_dump(mode="json"), "uses": _uses(encoding)}
        if source.name == "bert_sts":
            from relabel.sources.cross_encoder.forecast import foretold

            foretold(relevance, lambda twin, at: score_cxc(corpus, twin, source, split, at, include_self=own))
        work = Counting.of(work, relevance)
        score_cxc(corpus, relevance, source, split, work, progress, include_self=own)
        if ranked:
            opened = _open_gate(project, gate) if gate else None
            eccv = read_eccv(corpus, project.runtime.data)
            score_eccv(corpus, relevance, source, eccv, work, progress, ties=params.ties, gate=opened)
        if (refined := take_tally(work)) is not None:
            work.facts["refined"] = refined

    draft = Draft("judgement", label, semantic, inputs)
    return Job(project.layout.judgement(split, label), draft, fill, project.runtime.progress)


def _open_gate(project: Project, gate: str) -> Gate:
    from relabel.judge.eccv import Gate

    params, scale = project.config.judge, max(map(abs, project.config.source(gate).bounds))
    return Gate(gate, open_label(project, gate, params.split), params.gate_top, scale)


def _uses(encoding: Manifest) -> str | None:
    """Name the model or the word vectors that an encoding was made with."""
    facts = encoding.facts
    return facts["vectors"]["name"] if "vectors" in facts else facts.get("model")


_JUDGED = {"split", "include_self", "ties", "gate_top"}
