"""`relabel tune fuse`: a function of other labels, fitted to what people said of CxC's val pairs; never to test's.

Val and test share no image (a test holds that). Two heads are fitted: `set` to SITS, a caption against an image's
references; `single` to STS, a caption against one. A part that was itself tuned on val (a model folder with
`out_of_fold.parquet`) takes part in the fit by predictions of models that had not seen a pair's images: in its own
predictions of pairs it has learned from, the fit would trust it more than it deserves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq
from pydantic import Field

from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.datasets import cxc
from relabel.sources.base import Source
from relabel.sources.fuse.features import Feature, Look
from relabel.sources.fuse.fit import FitParams, Sample, agreement, cross_validate, fit
from relabel.sources.fuse.model import KIND, FuseModel, Head, HeadName, Part, unrowed
from relabel.sources.fuse.tune_data import OUT_OF_FOLD, TASKS, Judged, Task, looks_of, values_of
from relabel.sources.relevance import Relevance
from relabel.store.artefact import Guard, build
from relabel.store.atomic import sha256_file
from relabel.store.manifest import MANIFEST, ArtefactSpec, Manifest, read_manifest
from relabel.store.workdir import Work

SPLIT: Literal["val"] = "val"
_HEAD: dict[Task, HeadName] = {"sits": "set", "sts": "single"}


class TuneFuseParams(FitParams):
    """Parameters of the fit."""

    on: Literal["cxc-val"] = Field("cxc-val", description="What it is fitted to: CxC's val pairs.")
    parts: tuple[str, ...] = Field(
        ("sbert", "cider", "meteor"), description="Labels that it is made of: --parts sbert,cider."
    )


@dataclass(frozen=True)
class Ingredient:
    """A label that goes in.

    Attributes
    ----------
    source : Source
    semantic : dict
        Of its encoding of val.
    identity : str
        What an artefact made from that encoding names as its input.
    opened : callable
        Opens it.
    """

    source: Source[Any]
    semantic: dict[str, Any]
    identity: str
    opened: Callable[[], Relevance]

    @property
    def tuned(self) -> Path | None:
        """See `out_of_fold`."""
        return out_of_fold(self.source)

    def part(self) -> Part:
        """What the model keeps of it."""
        sha256 = None if self.tuned is None else sha256_file(self.tuned)
        source = self.source
        return Part(source.spec.name, source.spec.kind, source.is_pairwise(), unrowed(self.semantic), sha256)


def out_of_fold(source: Source[Any]) -> Path | None:
    """Find the out-of-fold predictions of a label whose model was itself tuned on val.

    Raises
    ------
    UsageError
        If it was tuned on val and left none.
    """
    folder = source.model_folder()
    if folder is None or not (folder / MANIFEST).is_file():
        return None
    manifest = read_manifest(folder)
    if (folder / OUT_OF_FOLD).is_file():
        return folder / OUT_OF_FOLD
    if manifest.kind != KIND and any(name.startswith("cxc") and name.endswith(SPLIT) for name in manifest.inputs):
        what = "this model was tuned on val and left no predictions of models that had not seen a pair's images"
        raise UsageError(what, where=str(folder), todo="Tune it again with --folds 3.")
    return None


def tune_fuse(
    params: TuneFuseParams,
    parts: Mapping[str, Ingredient],
    corpus: Corpus,
    out: Path,
    runtime: Runtime,
    guard: Guard | None = None,
) -> tuple[Manifest, bool]:
    """Fit a fuse, unless it is there already. A killed run keeps what the parts have scored.

    Parameters
    ----------
    params : TuneFuseParams
    parts : mapping of str to Ingredient
        Those that `params.parts` names.
    corpus : Corpus
        COCO's, with Karpathy's val split.
    out : Path
        Folder of the artefact (kind `fuse_model`): the model (see `FuseModel`), the features of all judged pairs
        (`sits-LABEL.parquet`, ...), and a manifest that reports cross-validated figures.
    runtime : Runtime
    guard : Guard, optional
        Keeps an older model that would be replaced.

    Returns
    -------
    manifest : Manifest
    built : bool
        False if it was there.

    Raises
    ------
    UsageError
        If there are no parts, or one is there twice.
    CheckError
        If the corpus lacks a judged pair of val, or out-of-fold predictions are not what they should be.
    """
    if not params.parts or len(set(params.parts)) < len(params.parts):
        found = ", ".join(params.parts) or "none"
        raise UsageError(f"parts must be some labels, each once; found {found}", where="tune.fuse.parts")
    known = {label: one.part() for label, one in parts.items()}
    semantic = params.model_dump(mode="json") | {"made_of": {label: asdict(part) for label, part in known.items()}}
    inputs = {"corpus": corpus.digest} | {f"encoding {label}": one.identity for label, one in parts.items()}
    inputs |= {f"cxc {task} {SPLIT}": cxc.sha256(task, SPLIT) for task in TASKS}

    def fill(work: Work) -> None:
        pairs = {task: Judged.of(task, corpus) for task in TASKS}
        _ask(parts, pairs, work, runtime)
        heads, facts = {}, {}
        for task in TASKS:
            heads[_HEAD[task]], facts[task] = _fit(params, parts, pairs[task], work, runtime)
        FuseModel(known, heads).write(work)
        work.facts |= {"parts": list(parts), "split": SPLIT, "tasks": facts}
        work.runtime["scikit-learn"] = metadata.version("scikit-learn")

    artefact = ArtefactSpec(KIND, f"fuse of {', '.join(parts)}", semantic, inputs)
    return build(out, artefact, fill, runtime.progress, guard)


def _ask(parts: Mapping[str, Ingredient], pairs: Mapping[Task, Judged], work: Work, runtime: Runtime) -> None:
    """Write what every part says of all judged pairs: a table a task and part."""
    for label, one in parts.items():
        if all(work.done(_file(task, label)) for task in TASKS):
            continue
        relevance = one.opened() if one.tuned is None else None
        for task, judged in pairs.items():
            looks = looks_of(one.source, task)
            if one.tuned is not None:
                work.table(_file(task, label), lambda j=judged, p=one.tuned, k=looks: j.out_of_fold(p, k))  # type: ignore[misc]
            else:
                ask = (label, relevance, looks, runtime.progress)
                work.table(_file(task, label), lambda j=judged, a=ask: j.table(*a))  # type: ignore[misc]
        if relevance is not None:
            relevance.close()


def _fit(
    params: TuneFuseParams, parts: Mapping[str, Ingredient], judged: Judged, work: Work, runtime: Runtime
) -> tuple[Head, dict[str, Any]]:
    """Fit one head; say how it does on pairs of images that were held out, and with how many of its parts."""
    looks: dict[str, tuple[Look, ...]] = {label: looks_of(one.source, judged.task) for label, one in parts.items()}
    tables = {label: pq.read_table(work.folder / _file(judged.task, label)) for label in parts}
    values = np.concatenate([values_of(tables[n], looks[n], len(judged.ways)) for n in parts], axis=2)
    features = tuple(Feature(label, look) for label in parts for look in looks[label])
    whole = np.isfinite(values).all(axis=(0, 2))
    method = np.array(judged.human.method)[whole]
    sample = Sample(features, values, judged.human.score / 5, judged.images).take(whole)
    subsets = {"all": np.full(len(method), True)} | {name: method == name for name in sorted(set(method.tolist()))}
    grown = []
    with runtime.progress.bar(f"cross-validation, {judged.task} {SPLIT}", len(parts), "fits") as bar:
        for count in range(1, len(parts) + 1):
            some = sample.only(list(parts)[:count])
            scores = cross_validate(some, params)
            grown.append({"parts": list(parts)[:count], "pearson": agreement(scores, some.human, subsets)})
            bar.advance(1)
    facts = {"pairs": len(method), "left_out": int((~whole).sum()), "cross_validated": grown}
    return fit(sample, params), facts


def _file(task: Task, label: str) -> str:
    return f"{task}-{label}.parquet"
