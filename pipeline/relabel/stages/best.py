"""tune best: the models of the recommended label, made from nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from relabel.core.errors import UsageError
from relabel.stages.ingest import fetch_and_ingest
from relabel.stages.job import log_status
from relabel.stages.project import Project
from relabel.stages.tune import tune_sbert
from relabel.stages.tune_fuse import tune_fuse
from relabel.store.manifest import Manifest

SBERT: dict[str, Any] = {
    "folds": 3,
    "merge": True,
    "epochs": 2,
    "sis": 0.3,
    "also": ("stsb", "sick"),
    "also_weight": 0.2,
    "also_share": 0.25,
}
"""Parameters of the sentence encoder that differ from the defaults."""
FUSE: dict[str, Any] = {
    "parts": ("tuned", "cbow", "cider"),
    "model": "boosted",
    "free": ("cbow", "cider"),
    "altered": 1500,
}
"""Parameters of the fuse that differ from the defaults."""


def tune_best(project: Project) -> dict[str, tuple[Manifest, bool, Path]]:
    """Make the models of the recommended label: `tuned`, a sentence encoder, and `fuse`, which combines it with others.

    The steps are fetch, ingest, `tune sbert`, the word vectors and encodings of the parts, and `tune fuse`. A step that
    is done is not repeated, and a killed training resumes from its last checkpoint. Parameters of both models are those
    of the preset, whatever the parameter file says; `base`, `revision` and `dtype` of the encoder are the file's.

    Parameters
    ----------
    project : Project

    Returns
    -------
    dict of str to (Manifest, bool, Path)
        Label to its manifest, whether the model was built by this call, and its folder.

    Raises
    ------
    UsageError
        If the dataset is not COCO.
    RelabelError
        As the stages.
    """
    # Refused before the download, which takes far longer than the check.
    if project.namespace != "coco":
        raise UsageError(
            f"the preset learns from human scores of COCO's captions, not of {project.config.ingest.dataset}'s",
            todo="Run it with --dataset coco; the label that it makes scores captions of any dataset.",
        )
    project = preset_project(project)
    fetch_and_ingest(project)
    # The fuse reads the encoding of `tuned`, so the sentence encoder comes first.
    steps: dict[str, tuple[Callable[[Project, Path], tuple[Manifest, bool]], Path]] = {
        "tuned": (tune_sbert, project.sentence_encoder),
        "fuse": (tune_fuse, project.runtime.data / "fuse"),
    }
    models = {}
    for label, (tune, folder) in steps.items():
        project.runtime.progress.note(f"tune best: {label} ({folder})")
        result = tune(project, folder)
        log_status(project, result, folder)
        models[label] = (*result, folder)
    return models


def preset_project(project: Project) -> Project:
    """Return the project with the preset's parameters of both models. Labels stay those of the parameter file.

    Examples
    --------
    >>> from relabel.config import load_config
    >>> from relabel.core.runtime import Runtime
    >>> from relabel.stages import Project
    >>> from relabel.stages.best import preset_project
    >>> preset_project(Project(load_config(None), Runtime())).config.tune.fuse.parts
    ('tuned', 'cbow', 'cider')
    """
    tune = project.config.tune
    update = {"sbert": tune.sbert.model_copy(update=SBERT), "fuse": tune.fuse.model_copy(update=FUSE)}
    return replace(project, config=project.config.model_copy(update={"tune": tune.model_copy(update=update)}))
