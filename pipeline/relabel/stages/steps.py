"""The artefacts of a run in the order in which they are built: `run` builds them, and a dry run describes them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from relabel.core.errors import RelabelError
from relabel.stages.encode import encoding_steps
from relabel.stages.export import export, export_lookup
from relabel.stages.job import Step
from relabel.stages.judge import figures, is_ranked, judge, ranking
from relabel.stages.neighbours import neighbours
from relabel.stages.project import Project


def build_steps(steps: Iterable[Step]) -> list[tuple[str, RelabelError]]:
    """Build artefacts in order. A label that lacks something is left out, and returned with the error."""
    problems: dict[str, RelabelError] = {}
    for step in steps:
        if step.label not in problems:
            try:
                step.prepare().build()
            except RelabelError as error:
                problems[step.label] = error
    return list(problems.items())


def label_steps(project: Project, labels: Sequence[str], split: str, against: Collection[str] = ()) -> Iterator[Step]:
    """Yield the models, encodings and judgements of labels, each of them once.

    `against`: "cxc" and "eccv", if labels are judged on them.
    """
    seen = set()
    for label in labels:
        for step in _label_steps(project, label, split, against):
            if step.out not in seen:
                seen.add(step.out)
                yield step


def _label_steps(project: Project, label: str, split: str, against: Collection[str]) -> Iterator[Step]:
    layout = project.layout
    yield from encoding_steps(project, label, split)
    if "cxc" in against:
        yield Step(label, "judge", label, layout.judgement(split, label), partial(judge, project, label))
        yield Step(label, "judge", label, layout.figures(split, label), partial(figures, project, label))
    if "eccv" in against and is_ranked(project, label):
        gate = project.config.judge.gate
        if gate and project.config.source(label).is_pairwise():
            for step in encoding_steps(project, gate, split):
                yield replace(step, label=label)
        yield Step(label, "correlate", label, layout.ranking(split, label), partial(ranking, project, label))


def export_steps(project: Project, labels: Iterable[str], split: str) -> Iterator[Step]:
    """Yield the neighbours, the lookup and the index of faiss of labels, where their sources have them."""
    layout = project.layout
    for label in labels:
        source = project.config.source(label)
        out = layout.neighbours(split, "captions", label)
        yield Step(label, "neighbours", label, out, partial(neighbours, project, label, split, "captions", split))
        if source.supports("lookup") is None:
            yield Step(
                label, "export", label, layout.lookup(split, label), partial(export_lookup, project, label, split)
            )
        if source.spec.kind == "vectors":
            out, prepare = layout.export(split, "faiss", label), partial(export, project, "faiss", label, split)
            yield Step(label, "export faiss", label, out, prepare)
