"""Comparison of the labels that a training reads with the parameters and inputs of today."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from relabel.config import load_config, params_file
from relabel.core.runtime import Runtime
from relabel.stages.export import export_lookup
from relabel.stages.export_batches import export_batches
from relabel.stages.project import Project
from relabel.store.manifest import read_manifest


def check_labels(captions: Path, folders: Sequence[Path], runtime: Runtime) -> None:
    """Raise if the captions, or the lookups and batches in some folders, are not those that would be made today.

    Only folders of the project are compared, and only where a parameter file is found. Sampler and sizes of
    precomputed batches may come from options, so these are compared by their inputs.

    `captions`: folder of the corpus: ``LABELS/DATASET/corpus``.
    """
    root = captions.resolve().parent
    file = params_file(root.parent) or Path("params.yaml")
    if not file.exists():
        return
    config = load_config(file, [], {"ingest.dataset": root.name})
    project = Project(config, runtime, root.parent)
    for folder in folders:
        if root not in folder.resolve().parents:
            continue
        made = read_manifest(folder)
        label, split = str(made.metadata["label"]), str(made.metadata["split"])
        if made.kind == "batches":
            job = export_batches(project, label, split, made.name)
            replace(job, recipe=replace(job.recipe, config=made.config.copy)).open()
        else:
            near = made.metadata["neighbours"]
            export_lookup(project, label, split, near and near["candidates"]).open()
