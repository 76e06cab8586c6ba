"""tune fuse: what its parts need first, then the fit."""

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
    """Fit a fuse of the labels that `tune.fuse.parts` names; their encodings of val are made if they are not there.

    Raises
    ------
    UsageError
        If the corpus is not COCO, a part is no label or made of what is to be fitted here.
    RelabelError
        See `build_encoding` and `relabel.sources.fuse.tune.tune_fuse`.
    """
    from relabel.sources.fuse.model import KIND
    from relabel.sources.fuse.tune import SPLIT, Ingredient, out_of_fold, tune_fuse

    config, params = project.config, project.config.tune.fuse
    if project.namespace != "coco":
        raise UsageError(f"people judged COCO's captions, not {config.ingest.dataset}'s")
    check_kind(out, KIND)  # before hours of work on the parts
    parts = {}
    for label in params.parts:
        check_excludes_fuse(project, label, out)
        source, opened = config.source(label), partial(open_label, project, label, SPLIT)
        if out_of_fold(source) is not None:  # its own vectors of val are not asked
            artefact = encode(project, label, SPLIT).artefact
            parts[label] = Ingredient(source, artefact.semantic, artefact.fingerprint, opened)
        else:
            build_encoding(project, label, SPLIT)
            encoding = read_encoding(project, label, SPLIT)
            parts[label] = Ingredient(source, encoding.semantic, encoding.identity, opened)
    return tune_fuse(params, parts, project.corpus, out, project.runtime, model_guard(project, "fuse"))


def check_excludes_fuse(project: Project, label: str, out: Path, above: tuple[str, ...] = ()) -> None:
    """Refuse a part whose model is the one to be fitted, or that is made of such a part.

    Raises
    ------
    UsageError
        With the way from the part to it.
    """
    source = project.config.source(label)
    folder = source.model_folder()
    way = (*above, label)
    if folder is not None and folder.absolute() == out.absolute():
        what = f"part {way[0]} is made of the fuse that is to be fitted: {' -> '.join(way)} has its model in {out}"
        raise UsageError(what, todo="Take it out of --parts, or give another --out.")
    if label == way[0]:
        check_acyclic(project.config, label)
    for part in source.input_labels():
        check_excludes_fuse(project, part, out, way)
