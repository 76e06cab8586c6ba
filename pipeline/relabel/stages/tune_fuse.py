"""tune fuse: the encodings of its parts, then the fit."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from relabel.core.errors import UsageError
from relabel.stages.encode import build_encoding, check_acyclic, encode, open_label, read_encoding
from relabel.stages.project import Project
from relabel.stages.variants import model_guard
from relabel.store.manifest import Manifest
from relabel.store.place import check_kind


def tune_fuse(project: Project, out: Path) -> tuple[Manifest, bool]:
    """Fit a fuse of the labels that `tune.fuse.parts` names; missing encodings of val are built first.

    Raises
    ------
    UsageError
        If the corpus is not COCO, or a part is no label or contains the fuse that is fitted.
    RelabelError
        As `build_encoding` and `relabel.sources.fuse.tune.tune_fuse`.
    """
    from relabel.sources.fuse.model import KIND
    from relabel.sources.fuse.tune import SPLIT, FuseInput, find_out_of_fold, tune_fuse

    config, params = project.config, project.config.tune.fuse
    if project.namespace != "coco":
        raise UsageError(f"human scores exist for COCO's captions, not for {config.ingest.dataset}'s")
    # Before the encoding of the parts, which may take hours.
    check_kind(out, KIND)
    parts = {}
    for label in params.parts:
        check_excludes_fuse(project, label, out)
        source, opened = config.source(label), partial(open_label, project, label, SPLIT)
        # A model tuned on val enters by its out-of-fold predictions; its encoding of val is not read.
        if find_out_of_fold(source) is not None:
            artefact = encode(project, label, SPLIT).artefact
            parts[label] = FuseInput(source, artefact.semantic, artefact.fingerprint, opened)
        else:
            build_encoding(project, label, SPLIT)
            encoding = read_encoding(project, label, SPLIT)
            parts[label] = FuseInput(source, encoding.semantic, encoding.identity, opened)
    return tune_fuse(params, parts, project.corpus, out, project.runtime, model_guard(project, "fuse"))


def check_excludes_fuse(project: Project, label: str, out: Path, above: tuple[str, ...] = ()) -> None:
    """Raise if a part, or one of its own parts, uses the model that is to be fitted.

    Parameters
    ----------
    project : Project
    label : str
    out : Path
        Folder of the model that is to be fitted.
    above : tuple of str
        The labels that led to this one.

    Raises
    ------
    UsageError
        With the chain of labels from the part to the model.
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
