"""All that one label needs, in one call."""

from __future__ import annotations

from relabel.stages.encode import check_acyclic, encode
from relabel.stages.ingest import fetch_and_ingest
from relabel.stages.job import run_logged
from relabel.stages.judge import judge
from relabel.stages.project import Project
from relabel.stages.tune import ensure_models
from relabel.store.manifest import MANIFEST, Manifest


def build_label(project: Project, label: str, judged: bool = True) -> Manifest:
    """Build all that a label needs, then its encoding and, if asked, its judgement; return the last one's manifest."""
    if not (project.layout.corpus / MANIFEST).exists():
        fetch_and_ingest(project)
    made = build_encoding(project, label, project.config.judge.split)
    return run_logged(project, judge(project, label)) if judged else made


def build_encoding(project: Project, label: str, split: str) -> Manifest:
    """Make a label's model, the encodings that it is made of, and its own."""
    ensure_models(project, label)
    check_acyclic(project.config, label)
    for part in project.config.source(label).input_labels():
        build_encoding(project, part, split)
    return run_logged(project, encode(project, label, split))
