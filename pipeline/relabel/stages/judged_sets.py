"""Agreement of labels, functions and files of scores with human-judged sets of texts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from relabel.core.errors import RelabelError, UsageError, choices
from relabel.core.numeric.statistics import Interval, Vector
from relabel.datasets.judged import JudgedSet, Judgements, judged_set, set_names
from relabel.datasets.judged_file import JUDGEMENT_FILES, judged_file
from relabel.judge.judged_figures import Figure, set_figures
from relabel.judge.judged_report import Column, set_column, set_report
from relabel.judge.judged_scores import (
    ScoreFunction,
    read_pair_scores,
    read_scores,
    score_judgements,
    score_with_function,
    write_scores,
)
from relabel.judge.report import Report
from relabel.sources.base import Source
from relabel.sources.texts import TextCorpus
from relabel.stages.job import Job, Values
from relabel.stages.judge import KEEP, judged_values
from relabel.stages.project import Project
from relabel.stages.tune import tuned_model
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import MANIFEST
from relabel.store.versions import version_of
from relabel.store.workdir import Work

_FILE = "figures.json"


@dataclass
class SetResults:
    """Results on sets of texts.

    `report`: one table per set.
    `columns`: one per set, for the table of all sets.
    `costs`: by label, with the cost of each set.
    `made_of`: the jobs of the figures, by set and label.
    `problems`: list of (str, RelabelError); sets and labels that could not be judged, each with its error.
    """

    report: Report = field(default_factory=lambda: Report((), ()))
    columns: list[Column] = field(default_factory=list)
    costs: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    made_of: dict[str, Job] = field(default_factory=dict)
    problems: list[tuple[str, RelabelError]] = field(default_factory=list)


def open_sets(project: Project, names: Sequence[str], known: Sequence[str]) -> list[JudgedSet]:
    """Open the named sets of texts, and the files of judgements.

    `project`: its captions stand for their ids in files of judgements. `known`: names of all sets, for the message.
    """
    opened = []
    for name in names:
        if name in set_names():
            opened.append(judged_set(name))
        elif Path(name).suffix in JUDGEMENT_FILES:
            opened.append(judged_file(Path(name), project.config.judge.statistic, _caption_texts(project)))
        else:
            todo = f"{choices(name, known)} Or name a file ({', '.join(JUDGEMENT_FILES)})."
            raise UsageError(f"no judged set {name!r}", todo=todo)
    return opened


def _caption_texts(project: Project) -> dict[str, str]:
    """Return the texts of the ingested corpus by caption id; none where nothing is ingested."""
    if not (project.layout.corpus / MANIFEST).exists():
        return {}
    corpus = project.corpus
    return dict(zip(corpus.caption_ids, corpus.texts, strict=True))


@dataclass(frozen=True)
class ScoredSet:
    """A set of texts as a label scores it.

    `name`: the label, or the label without its gate.
    `source`, `parts`: its source, and the sources that this one is made of or gated by.
    """

    project: Project
    judged: JudgedSet
    judgements: Judgements
    label: str
    name: str
    source: Source[Any]
    parts: Mapping[str, Source[Any]]

    @property
    def folder(self) -> Path:
        """Folder of the set."""
        # A set from a file is named by the file, which may have any name.
        name = re.sub(r"[^A-Za-z0-9_.+-]+", "-", self.judged.name).lstrip("_.+-")[:80] or "file"
        return self.project.layout.judged_set(name)

    @property
    def file(self) -> str:
        """Name of the label's folders."""
        # The name of a variant holds spaces, which the name of a folder must not.
        return self.name.replace(" ", "-")

    def scores(self) -> Job:
        """Prepare to score the pairs of the set."""
        project, pairs = self.project, self.judgements

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
            encodings = self.folder / "encodings"
            scored = score_judgements(pairs, self.source, project.runtime, self.parts, encodings, self.file)
            write_scores(scored, work)

        texts = hashlib.sha256(json.dumps([pairs.references, pairs.candidates]).encode()).hexdigest()
        return self._job("scores", Recipe("scores", self.file, semantic, {"texts": texts}, fill))

    def figures(self) -> Job:
        """Prepare to compare the scores with the judgements."""
        params, scores, pairs = self.project.config.judge, self.scores(), self.judgements

        def fill(work: Work) -> None:
            scores.open()
            figures = [asdict(figure) for figure in _compare(self.project, self.judged, pairs, read_scores(scores.out))]
            work.file(_FILE, lambda path: path.write_text(json.dumps(figures, indent=1), encoding="utf-8"))

        judged = [None if values is None else values.tolist() for values in (pairs.ratings, pairs.choices)]
        human = json.dumps([*judged, pairs.groups, pairs.clusters])
        semantic: Values = {"resamples": params.resamples, "seed": params.seed}
        semantic |= {"statistics": self.judged.statistics, "group": self.judged.group, "ties": self.judged.ties}
        inputs: Inputs = {"scores": scores.identity, "judgements": hashlib.sha256(human.encode()).hexdigest()}
        recipe = Recipe("figures", self.file, lambda: semantic, inputs, fill)
        return self._job("figures", recipe, ("resamples", "seed"))

    def _job(self, kind: str, recipe: Recipe, names: tuple[str, ...] = ()) -> Job:
        command = self.project.command("correlate", on=self.judged.name, label=self.label)
        parameters = partial(judged_values, label=self.label, names=names)
        return Job(self.project, self.folder / kind / self.file, recipe, command, parameters, KEEP)


def judge_sets(
    project: Project,
    sets: Sequence[JudgedSet],
    labels: Sequence[str],
    functions: Mapping[str, ScoreFunction] = MappingProxyType({}),
    scores: Sequence[Path] = (),
    *,
    allow_missing: bool = False,
    build: bool = True,
) -> SetResults:
    """Judge labels, functions and files of scores on sets of texts.

    Encodings, scores and figures of labels are kept in ``labels/DATASET/judged/SET`` and read by later calls. A set
    whose files are missing, and a label that lacks something, are left out and listed.

    `functions`, `scores`, `allow_missing`: as in `relabel.stages.correlate.correlate`. `build`: whether to judge labels
    that were not judged yet. If not, they are left out.
    """
    results, params = SetResults(), project.config.judge
    for one in sets:
        try:
            # A set without files must not cost the results of the other sets, so errors are listed rather than raised.
            judgements = one.open(project.runtime.data)
        except RelabelError as error:
            results.problems.append((one.name, error))
            continue
        figures, left_out = _label_figures(project, one, judgements, labels, results, build)
        values = {name: score_with_function(judgements, function) for name, function in functions.items()}
        # A file of scores is given for one set, so a fault in it ends the command.
        values |= {path.stem: read_pair_scores(path, one, judgements, allow_missing) for path in scores}
        figures |= {name: _compare(project, one, judgements, scored) for name, scored in values.items()}
        results.report += set_report(one, figures, left_out, params.resamples, params.seed)
        if figures:
            results.columns.append(set_column(one, figures))
    return results


def _label_figures(
    project: Project, one: JudgedSet, judgements: Judgements, labels: Sequence[str], results: SetResults, build: bool
) -> tuple[dict[str, list[Figure]], dict[str, str]]:
    """Return the figures of labels on a set, and the labels that cannot score it with the reason."""
    figures, left_out = dict[str, list[Figure]](), dict[str, str]()
    for label in labels:
        try:
            for name in (label, *project.config.parts(label)) if build else ():
                for model in project.config.params(name).tuned_models():
                    tuned_model(project, model).build()
            for scored in _variants(project, one, judgements, label):
                reasons = [component.supports("query") for component in (scored.source, *scored.parts.values())]
                # A source that cannot take new texts has no fault. The report says why it is left out.
                if reason := next(filter(None, reasons), None):
                    left_out[scored.name] = reason
                    continue
                scores, compared = scored.scores(), scored.figures()
                cost = (scores.build() if build else scores.open()).runtime["cost"]
                (compared.build if build else compared.open)()
                figures[scored.name] = _read(compared.out)
                results.costs.setdefault(scored.name, []).append(cost)
                results.made_of[f"{one.name} {scored.name}"] = compared
        except RelabelError as error:
            if build:
                results.problems.append((f"{label} on {one.name}", error))
    return figures, left_out


def _compare(project: Project, one: JudgedSet, judgements: Judgements, scores: Vector) -> list[Figure]:
    params, threads = project.config.judge, project.runtime.threads
    return set_figures(one, judgements, scores, params.resamples, params.seed, threads)


def _read(folder: Path) -> list[Figure]:
    figures = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    return [Figure(**one | {"interval": one["interval"] and Interval(**one["interval"])}) for one in figures]


def _variants(project: Project, one: JudgedSet, judgements: Judgements, label: str) -> Iterator[ScoredSet]:
    """Yield a label, and the label without its gate, which shows the cost of the gate."""
    source, parts = project.config.source(label), project.config.parts(label)
    scored = ScoredSet(project, one, judgements, label, label, source, parts)
    yield scored
    # A fuse needs its gate for neighbours alone.
    if source.gate() is not None and source.spec.pairwise:
        without = type(source)(source.params.model_copy(update={"gate": None}))
        yield replace(scored, name=f"{label} without its gate", source=without, parts={})
