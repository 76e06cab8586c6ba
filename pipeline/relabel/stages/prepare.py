"""All that one label needs, in one call."""

from __future__ import annotations

from relabel.stages.encode import encode, refuse_cycle
from relabel.stages.ingest import prepare_corpus
from relabel.stages.job import Job, note
from relabel.stages.judge import judge
from relabel.stages.project import Project
from relabel.stages.tune import models
from relabel.store.manifest import MANIFEST, Manifest


def prepare(project: Project, label: str, judged: bool = True) -> Manifest:
    """Build all that a label needs, then its encoding and, if asked, its judgement; return the last one's manifest."""
    if not (project.layout.corpus / MANIFEST).exists():
        prepare_corpus(project)
    made = prepare_encoding(project, label, project.config.judge.split)
    return _done(project, judge(project, label)) if judged else made


def prepare_encoding(project: Project, label: str, split: str) -> Manifest:
    """Make a label's model, the encodings that it is made of, and its own."""
    models(project, label)
    refuse_cycle(project.config, label)
    for part in project.config.source(label).parts():
        prepare_encoding(project, part, split)
    return _done(project, encode(project, label, split))


def _done(project: Project, job: Job) -> Manifest:
    made = job.run()
    note(project, made, job.out)
    return made[0]
