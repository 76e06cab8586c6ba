"""What people judged: a label's scores of their pairs, its agreement with them, and its rankings, as artefacts.

Crisscrossed Captions and ECCV Caption judge encodings of COCO's captions. All other sets have texts of their own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from relabel.core.errors import UsageError, choices
from relabel.core.numeric.statistics import Vector
from relabel.datasets.evaluation_file import JUDGEMENT_FILES, evaluation_file
from relabel.datasets.evaluation_sets import EvaluationSet, Judgements, evaluation_set, set_names
from relabel.judge import GATE_TOP
from relabel.judge.cxc_figures import PairScores, compare
from relabel.judge.figures import set_figures
from relabel.judge.report import Judged, JudgedLabel
from relabel.judge.scores import read_scores, score_judgements, write_scores
from relabel.sources.base import Source
from relabel.sources.texts import fingerprint_texts
from relabel.stages.encode import encode, encoding_steps, model_steps, open_label
from relabel.stages.job import Job, Step, Values, label_values
from relabel.stages.session import Session
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import MANIFEST, Manifest
from relabel.store.workdir import Work

ENCODED = ("cxc", "eccv")
"""Sets that judge encodings of COCO's captions."""
_FIGURES = ("resamples", "seed")


def judge(session: Session, label: str) -> Job:
    """Prepare to score CxC's human-judged pairs with a label."""
    from relabel.datasets import cxc
    from relabel.judge.cxc import score_cxc

    check_judged(session)
    corpus, params, source = session.corpus, session.config.judge, session.config.source(label)
    split, leave_one_out = params.split, params.leave_one_out
    encoding = encode(session, label, split)
    config = {"source": source.spec.name, "pooling": source.params.pooling}
    config |= {"split": split, "leave_one_out": leave_one_out}
    inputs: Inputs = {"corpus": corpus.digest, "encoding": encoding}
    inputs |= {f"cxc {task}": partial(cxc.sha256, task, split) for task in params.tasks}

    def fill(work: Work) -> None:
        relevance = open_label(session, label, split)
        work.metadata["about"] = vars(describe(session, label, encoding.open()))
        progress = session.runtime.progress
        score = partial(score_cxc, leave_one_out=leave_one_out, tasks=params.tasks)
        score(corpus, relevance, source.spec.symmetric, split, work, progress)

    recipe = Recipe("judgement", label, lambda: config, inputs, fill)
    out, command = session.folder("judgements", split, label), session.command("correlate", label=label, split=split)
    return _job(session, label, out, recipe, command, ("leave_one_out", "tasks"))


def figures(session: Session, label: str) -> Job:
    """Prepare to compare a label's scores of CxC's pairs with the human scores."""
    params, runtime, scores = session.config.judge, session.runtime, judge(session, label)

    def fill(work: Work) -> None:
        compare(open_scores(session, label), params, runtime.progress, runtime.threads).write(work)

    config = params.model_dump(mode="json", include={*_FIGURES})
    recipe = Recipe("figures", label, lambda: config, {"judgement": scores}, fill)
    out = session.folder("figures", params.split, label)
    return _job(session, label, out, recipe, scores.command, ("leave_one_out", "tasks", *_FIGURES))


def open_scores(session: Session, label: str) -> PairScores:
    """Open a label's scores of CxC's pairs."""
    job, params = judge(session, label), session.config.judge
    return PairScores.open(job.out, JudgedLabel(**job.open().metadata["about"]), params.split, params.leave_one_out)


def ranking(session: Session, label: str) -> Job:
    """Prepare to rank ECCV Caption with a label (see `is_ranked`)."""
    from relabel.judge.eccv import Gate, Ranker, read_eccv, score_eccv

    check_judged(session)
    corpus, params, source = session.corpus, session.config.judge, session.config.source(label)
    gate = params.gate if source.is_pairwise() else None
    encoding = encode(session, label, "test")
    config: Values = {"source": source.spec.name, "pooling": source.params.pooling, "ties": params.ties}
    inputs: Inputs = {"corpus": corpus.digest, "encoding": encoding}
    if gate:
        # The candidates are the gate's best ones, which depend on its pooling; its encoding does not.
        inputs["gate"] = encode(session, gate, "test")
        config |= {"gate_top": GATE_TOP, "pooling of the gate": session.config.source(gate).params.pooling}

    def ranker(name: str) -> Ranker:
        return Ranker(open_label(session, name, "test"), max(map(abs, session.config.source(name).spec.bounds)))

    def fill(work: Work) -> None:
        opened = Gate(gate, ranker(gate), GATE_TOP) if gate else None
        eccv, progress = read_eccv(corpus, session.runtime.data), session.runtime.progress
        records = score_eccv(corpus, ranker(label), eccv, work, progress, ties=params.ties, gate=opened)
        Judged(describe(session, label, encoding.open()), records).write(work)

    recipe, names = Recipe("ranking", label, lambda: config, inputs, fill), ("gate",) if gate else ()
    out, command = session.folder("rankings", "test", label), session.command("correlate", on="eccv", label=label)
    return _job(session, label, out, recipe, command, ("ties", *names))


def is_ranked(session: Session, label: str) -> bool:
    """Return whether a label ranks ECCV Caption.

    A ranking takes all pairs of images and captions. A label that scores pair by pair, or is composed of one that does,
    ranks only the best candidates of the gate (`judge.gate`).
    """
    return bool(session.config.judge.gate) or not session.config.source(label).is_pairwise()


def label_steps(session: Session, labels: Iterable[str], split: str, against: Collection[str] = ()) -> Iterator[Step]:
    """Yield the models, encodings and judgements of labels; those that several labels need, several times.

    `against`: "cxc" and "eccv", if labels are judged on them.
    """
    folder = session.folder
    for label in labels:
        yield from encoding_steps(session, label, split)
        if "cxc" in against:
            yield Step(label, "correlate", label, folder("judgements", split, label), partial(judge, session, label))
            yield Step(label, "correlate", label, folder("figures", split, label), partial(figures, session, label))
        if "eccv" in against and is_ranked(session, label):
            gate = session.config.judge.gate
            if gate and session.config.source(label).is_pairwise():
                for step in encoding_steps(session, gate, split):
                    yield replace(step, label=label)
            yield Step(label, "correlate", label, folder("rankings", split, label), partial(ranking, session, label))


def check_judged(session: Session, on: str = "cxc") -> None:
    """Raise if people have not judged captions of the dataset, or not those of the split on a set."""
    if session.namespace != "coco":
        sets = ", ".join(set_names())
        todo = f"Judge labels on pairs of texts, --on one of {sets}, or a file of judgements."
        problem = f"CxC and ECCV Caption judge captions of coco, not those of {session.config.ingest.dataset}"
        raise UsageError(problem, todo=todo)
    if on == "eccv" and session.config.judge.split != "test":
        raise UsageError("ECCV Caption covers the test split only", todo="Use --split test.")


def describe(session: Session, label: str, encoding: Manifest) -> JudgedLabel:
    """Return a label as reports name it."""
    params, sources = session.config.params(label), session.config.with_parts(label)
    return JudgedLabel.from_encoding(label, params, sources, encoding)


def _job(session: Session, label: str, out: Path, recipe: Recipe, command: str, names: tuple[str, ...] = ()) -> Job:
    """Return the job of a label's scores or figures; `names` are the parameters of `judge` that decide them."""
    judge = session.config.judge.model_dump(mode="json", include={*names})
    values = label_values(session.config, label) | {f"judge.{name}": value for name, value in judge.items()}
    return Job(session, out, recipe, command, values)


def judged_names() -> tuple[str, ...]:
    """Return the names of all evaluation sets."""
    return (*ENCODED, *set_names())


@dataclass(frozen=True, eq=False)
class TextSet:
    """An open set of texts, and each label that is judged on it."""

    session: Session
    judged: EvaluationSet
    judgements: Judgements
    labels: list[ScoredSet] = field(default_factory=list)

    def compare(self, label: JudgedLabel, scores: Vector) -> Judged:
        """Compare scores of the pairs with the judgements."""
        params, threads = self.session.config.judge, self.session.runtime.threads
        return Judged(label, set_figures(self.judged, self.judgements, scores, params, threads))


def open_set(session: Session, name: str, labels: Sequence[str]) -> TextSet:
    """Open a set of texts, or a file of judgements, in which captions of the project stand for their ids."""
    if name in set_names():
        judged = evaluation_set(name)
    elif Path(name).suffix in JUDGEMENT_FILES:
        # Files of judgements need no corpus.
        corpus = session.corpus if session.folder("corpus", MANIFEST).exists() else None
        captions = dict(zip(corpus.caption_ids, corpus.texts, strict=True)) if corpus else {}
        judged = evaluation_file(Path(name), session.config.judge.statistic, captions)
    else:
        todo = f"{choices(name, judged_names())} Or name a file ({', '.join(JUDGEMENT_FILES)})."
        raise UsageError(f"no evaluation set {name!r}", todo=todo)
    texts = TextSet(session, judged, judged.open(session.runtime.data))
    texts.labels.extend(ScoredSet(texts, label) for label in labels)
    return texts


def set_steps(sets: Iterable[TextSet]) -> Iterator[Step]:
    """Yield the models, scores and figures of labels on sets of texts."""
    for one in (scored for texts in sets for scored in texts.labels if not scored.reason):
        key = f"{one.label} on {one.texts.judged.name}"
        for part in one.sources:
            yield from model_steps(one.texts.session, key, part)
        yield Step(key, "correlate", one.label, one.folder("scores"), partial(getattr, one, "scores"))
        yield Step(key, "correlate", one.label, one.folder("figures"), partial(getattr, one, "figures"))


@dataclass(frozen=True, eq=False)
class ScoredSet:
    """A set of texts as a label scores it."""

    texts: TextSet
    label: str

    @cached_property
    def sources(self) -> dict[str, Source[Any]]:
        """Source of the label, and those that it is made of or gated by, by label."""
        return self.texts.session.config.with_parts(self.label)

    @property
    def reason(self) -> str | None:
        """Reason why the label cannot take new texts, if it cannot."""
        return next(filter(None, (source.supports("query") for source in self.sources.values())), None)

    def folder(self, kind: str) -> Path:
        """Return the folder of the label's scores or figures."""
        # A set from a file is named by the file, which may have any name.
        name = re.sub(r"[^A-Za-z0-9_.+-]+", "-", self.texts.judged.name).lstrip("_.+-")[:80] or "file"
        return self.texts.session.folder("judged", name) / kind / self.label

    @cached_property
    def scores(self) -> Job:
        """Scores of the pairs of the set."""
        session, pairs = self.texts.session, self.texts.judgements

        @cache
        def config() -> Values:
            params = fingerprint_texts(pairs.references, pairs.candidates, self.sources, session.runtime)
            pooling = self.sources[self.label].params.pooling
            return {"pooling": pooling, "both_orders": pairs.both_orders, "sources": params}

        def fill(work: Work) -> None:
            encodings = self.folder("encodings").parent
            source = self.sources[self.label]
            write_scores(score_judgements(pairs, source, session.runtime, self.sources, encodings, self.label), work)

        return self._job("scores", Recipe("scores", self.label, config, {"texts": pairs.digest_of_texts}, fill))

    @cached_property
    def figures(self) -> Job:
        """Comparison of the scores with the judgements."""
        params, scores = self.texts.session.config.judge, self.scores
        judged, pairs = self.texts.judged, self.texts.judgements

        def fill(work: Work) -> None:
            scores.open()
            about = JudgedLabel(label=self.label, params=self.sources[self.label].params.model_dump(mode="json"))
            self.texts.compare(about, read_scores(scores.out)).write(work)

        config: Values = {"resamples": params.resamples, "seed": params.seed}
        config |= {"statistics": judged.statistics, "group": judged.group, "ties": judged.ties}
        inputs: Inputs = {"scores": scores, "judgements": pairs.digest_of_judgements}
        recipe = Recipe("figures", self.label, lambda: config, inputs, fill)
        return self._job("figures", recipe, ("resamples", "seed"))

    def _job(self, kind: str, recipe: Recipe, names: tuple[str, ...] = ()) -> Job:
        session = self.texts.session
        command = session.command("correlate", on=self.texts.judged.name, label=self.label)
        return _job(session, self.label, self.folder(kind), recipe, command, names)
