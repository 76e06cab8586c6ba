"""Comparison of the labels that a training reads with the parameters and inputs of today."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from relabel.config import load_config, params_file
from relabel.core.runtime import Runtime
from relabel.stages.export import export_lookup
from relabel.stages.export_batches import export_batches
from relabel.stages.ingest import check_captions
from relabel.stages.project import Project
from relabel.store.manifest import MANIFEST, read_manifest


def check_labels(captions: Path, folders: Sequence[Path], runtime: Runtime) -> None:
    """Raise if the captions, or the lookups and batches in some folders, are not those that would be made today.

    Only folders of the project are compared, and only where a parameter file is found. Sampler and sizes of
    precomputed batches may come from options, so these are compared by their inputs.

    `captions`: folder of the corpus: ``LABELS/DATASET/corpus``. Every folder may be a link, or be reached through one.
    """
    if not (captions / MANIFEST).exists():
        return  # whoever reads the corpus says what is missing
    dataset, places = read_manifest(captions).name, [_named(captions).parent, captions.resolve().parent]
    places += (parent for folder in folders for parent in _named(folder).parents)
    corpora = (place / "corpus" for place in places if place.name == dataset)
    root = next((c.parent for c in corpora if c.exists() and c.samefile(captions)), places[1])
    file = params_file(root.parent) or Path("params.yaml")
    if not file.exists():
        return
    config = load_config(file, [], {"ingest.dataset": root.name})
    project = Project(config, runtime, root.parent)
    if root.name == dataset:
        check_captions(project)
    for folder in folders:
        if not _is_of(root, folder):
            continue
        made = read_manifest(folder)
        label, split = str(made.metadata["label"]), str(made.metadata["split"])
        if made.kind == "batches":
            job = export_batches(project, label, split, made.name)
            job = replace(job, recipe=replace(job.recipe, config=made.config.copy))
        else:
            near = made.metadata["neighbours"]
            job = export_lookup(project, label, split, near and near["candidates"])
        replace(job, out=folder).open()


def _is_of(root: Path, folder: Path) -> bool:
    """Return whether a folder is one of a dataset: by its name, or because links lead to the same place."""
    exports = (path for path in root.glob("exports/*/*/*") if path.exists())
    return root in _named(folder).parents or (folder.exists() and any(map(folder.samefile, exports)))


def _named(path: Path) -> Path:
    """Return an absolute path in which links stay."""
    return Path(os.path.normpath(path.absolute()))
