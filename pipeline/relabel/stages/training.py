"""Comparison of the labels that a training reads with the parameters and inputs of today."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relabel.config import load_config, params_file
from relabel.core.runtime import Runtime
from relabel.stages.export import export_lookup
from relabel.stages.export_plan import export_plan
from relabel.stages.project import Project
from relabel.store.manifest import read_manifest


def check_labels(captions: Path, folders: Sequence[Path], runtime: Runtime) -> None:
    """Raise if the captions, or the lookups and plans in some folders, are not those that would be made today.

    Only folders of the project are compared, and only where a parameter file is found. Sampler and sizes of a plan may
    come from options, so a plan is compared by its inputs.

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
        label, split = str(made.facts["label"]), str(made.facts["split"])
        if made.kind == "plan":
            export_plan(project, label, split, made.name).compare(made, made.semantic)
        else:
            near = made.facts["neighbours"]
            export_lookup(project, label, split, near and near["within"]).open()
