"""Check that the labels of a training match the current parameters and inputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from relabel.config import load_config, params_file
from relabel.core.runtime import Runtime
from relabel.export.params import ExportBatchesParams
from relabel.stages.export import lookup_export
from relabel.stages.export_batches import batches_export
from relabel.stages.ingest import check_captions
from relabel.stages.session import Session
from relabel.store.manifest import MANIFEST, read_manifest


def check_labels(captions: Path, folders: Sequence[Path], runtime: Runtime) -> None:
    """Raise CheckError if the captions, lookups or batches in some folders do not match the current parameters.

    Only folders of a project with a parameter file are checked. Items, sampler and sizes of precomputed batches may
    come from options of the command line, so batches are checked with the values in their manifest.

    `captions`: folder of the corpus, ``LABELS/DATASET/corpus``. Every folder may be a link or have a link as a parent.
    """
    dataset = read_manifest(captions).name if (captions / MANIFEST).exists() else ""
    # Do not resolve links: a folder may be elsewhere, and the project is found by the path with the link.
    names = [Path(os.path.normpath(path.absolute())) for path in (captions, *folders)]
    places = (place for name in (*names, captions.resolve()) for place in name.parents if place.name == dataset)
    root = next((p for p in places if (p / "corpus").exists() and captions.samefile(p / "corpus")), names[0].parent)
    file = params_file(root.parent) or Path("params.yaml")
    if not file.exists():
        return
    config = load_config(file, [], {"ingest.dataset": root.name})
    session = Session(config, runtime, root.parent)
    if root.name == dataset:
        check_captions(session)
    exports = [path for path in root.glob("exports/*/*/*") if path.exists()]
    for folder in folders:
        if not folder.exists() or not any(map(folder.samefile, exports)):
            continue
        manifest = read_manifest(folder)
        label, split = str(manifest.metadata["label"]), str(manifest.metadata["split"])
        if manifest.kind == "batches":
            fixed = {name: value for name, value in manifest.config.items() if name in ExportBatchesParams.model_fields}
            params = ExportBatchesParams(**fixed, neighbours=manifest.metadata["neighbours"])
            job = batches_export(session, label, split, manifest.name, params)
        else:
            near = manifest.metadata.get("neighbours")
            job = lookup_export(session, label, split, near and near["candidates"])
        replace(job, out=folder).open()
