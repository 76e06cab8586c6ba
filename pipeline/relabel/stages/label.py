"""All that one label needs, in one call."""

from __future__ import annotations

from relabel.stages.captions import fetch, ingest
from relabel.stages.encoding import encode
from relabel.stages.job import note
from relabel.stages.judging import judge
from relabel.stages.project import Project
from relabel.stages.tuning import models
from relabel.store.manifest import MANIFEST, Manifest


def prepare(project: Project, label: str, judged: bool = True) -> Manifest:
    """Build all that a label needs, then its encoding and, if asked, its judgement; return the last one's manifest."""
    if not (project.layout.corpus / MANIFEST).exists():
        fetch(project)
        note(project, ingest(project), project.layout.corpus)
    models(project, label)
    job = encode(project, label, project.config.judge.split)
    made = job.run()
    note(project, made, job.out)
    if judged:
        job = judge(project, label)
        made = job.run()
        note(project, made, job.out)
    return made[0]
