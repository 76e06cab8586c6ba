"""Helpers of the tests of exports: a project with other parameters of one format, or with exports of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relabel import stages
from relabel.corpus.build import Caption
from relabel.export import export_class
from relabel.export.params import block_of
from relabel.stages import Session
from relabel.store.manifest import Manifest


def with_params(session: Session, kind: str, **values: Any) -> Session:
    """Return the project with other parameters of one format."""
    export = session.config.export
    name = block_of(kind)
    block = getattr(export, name).model_copy(update=values)
    config = session.config.model_copy(update={"export": export.model_copy(update={name: block})})
    return replace(session, config=config)


def in_folder(session: Session, labels: Path, *names: str) -> Session:
    """Return the project in a new folder that has links to its corpus, its encodings of all, and more by name."""
    root = session.folder().absolute()
    for name in ("corpus", "encodings/all", *names):
        (labels / root.name / name).parent.mkdir(parents=True, exist_ok=True)
        (labels / root.name / name).symlink_to(root / name)
    return replace(session, labels=labels)


def with_captions(session: Session, folder: Path, captions: Iterable[Caption]) -> Session:
    """Return a project in a new folder, of other captions with the same labels."""
    lines = (json.dumps(caption._asdict()) for caption in captions)
    (folder / "captions.jsonl").write_text("\n".join(lines), encoding="utf-8")
    ingest = session.config.ingest.model_copy(update={"path": folder / "captions.jsonl"})
    other = Session(session.config.model_copy(update={"ingest": ingest}), session.runtime, folder / "labels")
    stages.ingestion(other).run()
    return other


def exported(
    session: Session, kind: str, label: str = "cbow", split: str = "all", rows_per_file: int = 100_000, **values: Any
) -> tuple[Path, Manifest]:
    """Export with other parameters of a format in place of an earlier export; return the folder and its manifest."""
    other = with_params(session, kind, **values)
    job = stages.format_export(replace(other, runtime=replace(other.runtime, rebuild=True)), kind, label, split)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export_class(kind), "rows_per_file", rows_per_file)
        return job.out, job.run()[0]
