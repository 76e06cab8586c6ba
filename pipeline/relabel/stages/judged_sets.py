"""Scores and figures of labels on human-judged sets of texts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from relabel.core.errors import UsageError, choices
from relabel.core.numeric.statistics import Interval, Vector
from relabel.datasets.judged import JudgedSet, Judgements, judged_set, set_names
from relabel.datasets.judged_file import JUDGEMENT_FILES, judged_file
from relabel.judge.judged_figures import Figure, set_figures
from relabel.judge.judged_scores import read_scores, score_judgements, write_scores
from relabel.sources.base import Source
from relabel.sources.texts import TextCorpus
from relabel.stages.encode import model_steps
from relabel.stages.job import Job, Step, Values
from relabel.stages.judge import judged_job
from relabel.stages.project import Project
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import MANIFEST
from relabel.store.versions import version_of
from relabel.store.workdir import Work

ENCODED = ("cxc", "eccv")
"""Sets that judge encodings of COCO's captions. All others have texts of their own."""
_FILE = "figures.json"


def judged_names() -> tuple[str, ...]:
    """Return the names of all judged sets."""
    return (*ENCODED, *set_names())


@dataclass(frozen=True, eq=False)
class TextSet:
    """An open set of texts, and each label that is judged on it."""

    project: Project
    judged: JudgedSet
    judgements: Judgements
    labels: list[ScoredSet] = field(default_factory=list)

    def compare(self, scores: Vector) -> list[Figure]:
        """Compare scores of the pairs with the judgements."""
        params, threads = self.project.config.judge, self.project.runtime.threads
        return set_figures(self.judged, self.judgements, scores, params.resamples, params.seed, threads)


def open_set(project: Project, name: str, labels: Sequence[str]) -> TextSet:
    """Open a set of texts, or a file of judgements, in which captions of the project stand for their ids."""
    if name in set_names():
        judged = judged_set(name)
    elif Path(name).suffix in JUDGEMENT_FILES:
        # Files of judgements need no corpus.
        corpus = project.corpus if (project.layout.corpus / MANIFEST).exists() else None
        captions = dict(zip(corpus.caption_ids, corpus.texts, strict=True)) if corpus else {}
        judged = judged_file(Path(name), project.config.judge.statistic, captions)
    else:
        todo = f"{choices(name, judged_names())} Or name a file ({', '.join(JUDGEMENT_FILES)})."
        raise UsageError(f"no judged set {name!r}", todo=todo)
    texts = TextSet(project, judged, judged.open(project.runtime.data))
    texts.labels.extend(one for label in labels for one in _variants(texts, label))
    return texts


def _variants(texts: TextSet, label: str) -> Iterator[ScoredSet]:
    """Yield a label, and the label without its gate, which shows the cost of the gate."""
    source, parts = texts.project.config.source(label), texts.project.config.parts(label)
    yield ScoredSet(texts, label, label, source, parts)
    # A fuse needs its gate for neighbours alone.
    if source.gate() is not None and source.spec.pairwise:
        without = type(source)(source.params.model_copy(update={"gate": None}))
        yield ScoredSet(texts, label, f"{label} without its gate", without, {})


def set_steps(sets: Iterable[TextSet]) -> Iterator[Step]:
    """Yield the models, scores and figures of labels on sets of texts."""
    for one in (scored for texts in sets for scored in texts.labels if not scored.reason):
        key = f"{one.label} on {one.texts.judged.name}"
        for part in (one.label, *one.parts):
            yield from model_steps(one.texts.project, key, part)
        yield Step(key, "correlate", one.name, one.folder("scores"), partial(getattr, one, "scores"))
        yield Step(key, "correlate", one.name, one.folder("figures"), partial(getattr, one, "figures"))


@dataclass(frozen=True, eq=False)
class ScoredSet:
    """A set of texts as a label scores it.

    `name`: the label, or the label without its gate.
    `source`, `parts`: its source, and the sources that this one is made of or gated by.
    """

    texts: TextSet
    label: str
    name: str
    source: Source[Any]
    parts: Mapping[str, Source[Any]]

    @property
    def reason(self) -> str | None:
        """Reason why the label cannot take new texts, if it cannot."""
        reasons = [source.supports("query") for source in (self.source, *self.parts.values())]
        return next(filter(None, reasons), None)

    @property
    def file(self) -> str:
        """Name of the label's folders."""
        # The name of a variant holds spaces, which the name of a folder must not.
        return self.name.replace(" ", "-")

    def folder(self, kind: str) -> Path:
        """Return the folder of the label's scores or figures."""
        # A set from a file is named by the file, which may have any name.
        name = re.sub(r"[^A-Za-z0-9_.+-]+", "-", self.texts.judged.name).lstrip("_.+-")[:80] or "file"
        return self.texts.project.layout.judged_set(name) / kind / self.file

    @cached_property
    def scores(self) -> Job:
        """Scores of the pairs of the set."""
        project, pairs = self.texts.project, self.texts.judgements

        @cache
        def semantic() -> Values:
            corpus = TextCorpus.of(pairs.references, pairs.candidates).corpus
            # Captions are identified by their texts: PTB tokens follow from these, and are not made to find old scores.
            sources = {
                name: one.fingerprint_params(corpus, range(len(corpus)), project.runtime)
                | {"version": version_of("encoding", one.spec.name)}
                for name, one in {self.file: self.source, **self.parts}.items()
            }
            shape = {"pooling": self.source.params.pooling, "both_orders": pairs.both_orders}
            return {**shape, "sources": sources}

        def fill(work: Work) -> None:
            encodings = self.folder("encodings").parent
            scored = score_judgements(pairs, self.source, project.runtime, self.parts, encodings, self.file)
            write_scores(scored, work)

        texts = hashlib.sha256(json.dumps([pairs.references, pairs.candidates]).encode()).hexdigest()
        return self._job("scores", Recipe("scores", self.file, semantic, {"texts": texts}, fill))

    @cached_property
    def figures(self) -> Job:
        """Comparison of the scores with the judgements."""
        params, scores = self.texts.project.config.judge, self.scores
        judged, pairs = self.texts.judged, self.texts.judgements

        def fill(work: Work) -> None:
            scores.open()
            figures = [asdict(figure) for figure in self.texts.compare(read_scores(scores.out))]
            work.file(_FILE, lambda path: path.write_text(json.dumps(figures, indent=1), encoding="utf-8"))

        values = [None if one is None else one.tolist() for one in (pairs.ratings, pairs.choices)]
        human = json.dumps([*values, pairs.groups, pairs.clusters])
        semantic: Values = {"resamples": params.resamples, "seed": params.seed}
        semantic |= {"statistics": judged.statistics, "group": judged.group, "ties": judged.ties}
        inputs: Inputs = {"scores": scores.identity, "judgements": hashlib.sha256(human.encode()).hexdigest()}
        recipe = Recipe("figures", self.file, lambda: semantic, inputs, fill)
        return self._job("figures", recipe, ("resamples", "seed"))

    def _job(self, kind: str, recipe: Recipe, names: tuple[str, ...] = ()) -> Job:
        project = self.texts.project
        command = project.command("correlate", on=self.texts.judged.name, label=self.label)
        return judged_job(project, self.label, self.folder(kind), recipe, command, names)

    def read(self) -> list[Figure]:
        """Read the figures, which must be of the current parameters and inputs."""
        self.figures.open()
        figures = json.loads((self.figures.out / _FILE).read_text(encoding="utf-8"))
        return [Figure(**one | {"interval": one["interval"] and Interval(**one["interval"])}) for one in figures]
