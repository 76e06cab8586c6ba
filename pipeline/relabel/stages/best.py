"""tune best: the models of the recommended label, made from nothing; and tune fuse, its last step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from relabel.core.errors import UsageError
from relabel.stages.encode import build_encoding, check_acyclic, encode, open_label
from relabel.stages.ingest import fetch_and_ingest
from relabel.stages.job import Job, section_values, status_line
from relabel.stages.project import Project, command
from relabel.stages.tune import KEEP_MODEL, tune_sbert
from relabel.store.artefact import check_place
from relabel.store.manifest import Manifest, Spec


def tune_fuse(project: Project, out: Path) -> Job:
    """Prepare to fit a fuse of the labels that `tune.fuse.parts` names; missing encodings of val are built first."""
    from relabel.sources.fuse.model import KIND
    from relabel.sources.fuse.tune import SPLIT, FuseInput, find_out_of_fold, tune_fuse

    config, params = project.config, project.config.tune.fuse
    if project.namespace != "coco":
        raise UsageError(f"human scores exist for COCO's captions, not for {config.ingest.dataset}'s")
    # Before the encoding of the parts, which may take hours.
    check_place(out, Spec(KIND, "fuse", {}, {}))
    parts = {}
    for label in params.parts:
        check_excludes_fuse(project, label, out)
        source, opened = config.source(label), partial(open_label, project, label, SPLIT)
        # A model tuned on val enters by its out-of-fold predictions; its encoding of val is not read.
        if find_out_of_fold(source) is not None:
            spec = encode(project, label, SPLIT).spec
            parts[label] = FuseInput(source, spec.semantic, spec.fingerprint, opened)
        else:
            encoding = build_encoding(project, label, SPLIT)
            parts[label] = FuseInput(source, encoding.semantic, encoding.identity, opened)
    values = partial(section_values, section="tune.fuse")
    recipe = tune_fuse(params, parts, project.corpus, project.runtime)
    return Job(project, out, recipe, command("tune fuse"), values, KEEP_MODEL)


def check_excludes_fuse(project: Project, label: str, out: Path, above: tuple[str, ...] = ()) -> None:
    """Raise if a part, or one of its own parts, uses the model that is to be fitted.

    `out`: folder of the model that is to be fitted. `above`: the labels that led to this one.
    """
    source = project.config.source(label)
    folder = source.model_folder()
    chain = (*above, label)
    if folder is not None and folder.absolute() == out.absolute():
        path = " -> ".join(chain)
        message = f"part {chain[0]} is made of the fuse that is to be fitted: {path} has its model in {out}"
        raise UsageError(message, todo="Take it out of --parts, or give another --out.")
    # Once per part of the fuse; a cycle would make the recursion endless.
    if label == chain[0]:
        check_acyclic(project.config, label)
    for part in source.input_labels():
        check_excludes_fuse(project, part, out, chain)


_BEST_ENCODER: dict[str, Any] = {
    "folds": 3,
    "merge": True,
    "epochs": 2,
    "sis": 0.3,
    "also": ("stsb", "sick"),
    "also_weight": 0.2,
    "also_share": 0.25,
}
"""Parameters of the recommended sentence encoder that differ from the defaults."""
_BEST_FUSE: dict[str, Any] = {
    "parts": ("tuned", "cbow", "cider"),
    "model": "boosted",
    "free": ("cbow", "cider"),
    "altered": 1500,
}
"""Parameters of the recommended fuse that differ from the defaults."""


def tune_best(project: Project) -> dict[str, tuple[Manifest, bool, Path]]:
    """Make the models of the recommended label: `tuned`, a sentence encoder, and `fuse`, which combines it with others.

    The steps are fetch, ingest, `tune sbert`, the word vectors and encodings of the parts, and `tune fuse`. A step that
    is done is not repeated, and a killed training resumes from its last checkpoint. Parameters of both models are those
    of the preset, whatever the parameter file says; `base`, `revision` and `dtype` of the encoder are the file's.

    Returns dict of str to (Manifest, bool, Path): label to its manifest, whether the model was built by this call, and
    its folder.
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
    steps: dict[str, tuple[Callable[[Project, Path], Job], Path]] = {
        "tuned": (tune_sbert, project.sentence_encoder),
        "fuse": (tune_fuse, project.runtime.data / "fuse"),
    }
    models = {}
    for label, (tune, folder) in steps.items():
        project.runtime.progress.note(f"tune best: {label} ({folder})")
        manifest, built = tune(project, folder).run()
        project.runtime.progress.note(status_line(built, manifest, folder))
        models[label] = (manifest, built, folder)
    return models


def preset_project(project: Project) -> Project:
    """Return the project with the preset's parameters of both models. Labels stay those of the parameter file."""
    tune = project.config.tune
    update = {"sbert": tune.sbert.model_copy(update=_BEST_ENCODER), "fuse": tune.fuse.model_copy(update=_BEST_FUSE)}
    return replace(project, config=project.config.model_copy(update={"tune": tune.model_copy(update=update)}))
