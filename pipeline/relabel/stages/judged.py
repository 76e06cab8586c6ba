"""Judgements of labels on COCO's captions: scores of CxC's pairs, agreement with people, and rankings on ECCV Caption.

Other evaluation sets have their own texts: see `text_sets`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from relabel.core.errors import UsageError
from relabel.datasets.evaluation_sets import set_names
from relabel.judge import GATE_TOP
from relabel.judge.cxc_figures import PairScores, compare
from relabel.judge.report import JudgedLabel, LabelFigures
from relabel.stages.corpus import open_corpus
from relabel.stages.encode import encoding, encoding_jobs, open_label
from relabel.stages.ingest import namespace
from relabel.stages.job import Job, PendingJob, Values, label_values
from relabel.stages.session import Session
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import Manifest
from relabel.store.workdir import Work

ENCODED = ("cxc", "eccv")
"""Sets that are judged with encodings of COCO's captions."""
_FIGURES = ("resamples", "seed")


def judgement(session: Session, label: str) -> Job:
    """Prepare to score CxC's judged pairs with a label."""
    from relabel.datasets import cxc
    from relabel.judge.cxc import score_cxc

    check_judged(session)
    corpus, params, source = open_corpus(session), session.config.judge, session.config.source(label)
    split, leave_one_out = params.split, params.leave_one_out
    encoded = encoding(session, label, split)
    config = {"source": source.spec.name, "pooling": source.params.pooling}
    config |= {"split": split, "leave_one_out": leave_one_out}
    inputs: Inputs = {"corpus": corpus.digest, "encoding": encoded}
    inputs |= {f"cxc {task}": partial(cxc.sha256, task, split) for task in params.tasks}

    def fill(work: Work) -> None:
        relevance = open_label(session, label, split)
        work.metadata["about"] = vars(describe(session, label, encoded.open()))
        progress = session.runtime.progress
        score = partial(score_cxc, leave_one_out=leave_one_out, tasks=params.tasks)
        score(corpus, relevance, source.spec.symmetric, split, work, progress)

    recipe = Recipe("judgement", label, lambda: config, inputs, fill)
    out, command = session.folder("judgements", split, label), session.command("correlate", label=label, split=split)
    return judge_job(session, out, recipe, command, ("leave_one_out", "tasks"))


def figures(session: Session, label: str) -> Job:
    """Prepare to compare a label's scores of CxC's pairs with the human scores."""
    params, runtime, scores = session.config.judge, session.runtime, judgement(session, label)

    def fill(work: Work) -> None:
        compare(open_scores(session, label), params, runtime.progress, runtime.threads).write(work)

    config = params.model_dump(mode="json", include={*_FIGURES})
    recipe = Recipe("figures", label, lambda: config, {"judgement": scores}, fill)
    out = session.folder("figures", params.split, label)
    return judge_job(session, out, recipe, scores.command, ("leave_one_out", "tasks", *_FIGURES))


def open_scores(session: Session, label: str) -> PairScores:
    """Open a label's scores of CxC's pairs."""
    job, params = judgement(session, label), session.config.judge
    return PairScores.open(job.out, JudgedLabel(**job.open().metadata["about"]), params.split, params.leave_one_out)


def ranking(session: Session, label: str) -> Job:
    """Prepare to rank ECCV Caption with a label (see `is_ranked`)."""
    from relabel.judge.eccv import Gate, Ranker, read_eccv, score_eccv

    check_judged(session)
    corpus, params, source = open_corpus(session), session.config.judge, session.config.source(label)
    gate = params.gate if source.is_pairwise() else None
    encoded = encoding(session, label, "test")
    config: Values = {"source": source.spec.name, "pooling": source.params.pooling, "ties": params.ties}
    inputs: Inputs = {"corpus": corpus.digest, "encoding": encoded}
    if gate:
        # The gate's pooling determines the candidates, but it is not part of the identity of the gate's encoding.
        inputs["gate"] = encoding(session, gate, "test")
        config |= {"gate_top": GATE_TOP, "pooling of the gate": session.config.source(gate).params.pooling}

    def ranker(name: str) -> Ranker:
        return Ranker(open_label(session, name, "test"), max(map(abs, session.config.source(name).spec.bounds)))

    def fill(work: Work) -> None:
        opened = Gate(gate, ranker(gate), GATE_TOP) if gate else None
        eccv, progress = read_eccv(corpus, session.runtime.data), session.runtime.progress
        records = score_eccv(ranker(label), eccv, work, progress, ties=params.ties, gate=opened)
        LabelFigures(describe(session, label, encoded.open()), records).write(work)

    recipe, names = Recipe("ranking", label, lambda: config, inputs, fill), ("gate",) if gate else ()
    out, command = session.folder("rankings", "test", label), session.command("correlate", on="eccv", label=label)
    return judge_job(session, out, recipe, command, ("ties", *names))


def is_ranked(session: Session, label: str) -> bool:
    """Return True if a label can rank ECCV Caption.

    A ranking needs all pairs of images and captions. A label that scores pair by pair, or has such a part, needs a gate
    (`judge.gate`), and re-ranks only its best candidates.
    """
    return bool(session.config.judge.gate) or not session.config.source(label).is_pairwise()


def label_jobs(
    session: Session, labels: Iterable[str], split: str, against: Collection[str] = ()
) -> Iterator[PendingJob]:
    """Yield the jobs of models, encodings and judgements of labels. Jobs that several labels need are repeated.

    `against`: "cxc" and "eccv", if labels are judged on them.
    """
    for label in labels:
        yield from encoding_jobs(session, label, split)
        kinds = [("judgements", judgement), ("figures", figures)] if "cxc" in against else []
        if "eccv" in against and is_ranked(session, label):
            gate = session.config.judge.gate
            if gate and session.config.source(label).is_pairwise():
                for job in encoding_jobs(session, gate, split):
                    yield replace(job, label=label)
            kinds.append(("rankings", ranking))
        for folder, prepare in kinds:
            out = session.folder(folder, split, label)
            yield PendingJob(label, "correlate", label, out, partial(prepare, session, label))


def check_judged(session: Session, on: str = "cxc") -> None:
    """Raise UsageError if a set has no human judgements for captions of the dataset or split."""
    if namespace(session) != "coco":
        sets = ", ".join(set_names())
        hint = f"Evaluate on a set of texts, with --on and one of {sets}, or on a file of judgements."
        problem = f"CxC and ECCV Caption score only captions of coco, not those of {session.config.ingest.dataset}"
        raise UsageError(problem, hint=hint)
    if on == "eccv" and session.config.judge.split != "test":
        raise UsageError("ECCV Caption covers only the test split", hint="Use --split test.")


def describe(session: Session, label: str, encoding: Manifest) -> JudgedLabel:
    """Return the description of a label for reports."""
    params, sources = session.config.params(label), session.config.with_parts(label)
    return JudgedLabel.from_encoding(label, params, sources, encoding)


def judge_job(session: Session, out: Path, recipe: Recipe, command: str, names: tuple[str, ...] = ()) -> Job:
    """Return the job of a label's scores or figures. `names`: the parameters of `judge` that affect them."""
    judge = session.config.judge.model_dump(mode="json", include={*names})
    values = label_values(session.config, recipe.name) | {f"judge.{name}": value for name, value in judge.items()}
    return Job(session, out, recipe, command, values)
