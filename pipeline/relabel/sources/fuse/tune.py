"""`relabel tune fuse`: fits a combination of labels to the human scores of CxC's val pairs.

Val and test share no image, which a test checks. Two heads are fitted: `set` to SITS, a caption against an image's
references, and `single` to STS, a caption against another one. A part that was itself tuned on val (its model folder
has `out_of_fold.parquet`) enters the fit with predictions by models that had not seen the images of a pair. The fit
would otherwise overestimate it, because it predicts the pairs that it was tuned on too well. With `altered`, captions
of the train split and their altered copies join the pairs of STS (see `relabel.sources.fuse.tune_data`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.datasets import cxc
from relabel.sources.base import Source
from relabel.sources.fuse.features import Feature, FeaturePooling
from relabel.sources.fuse.fit import AddedPairs, FitParams, Sample, cross_validate, fit_head, subset_correlations
from relabel.sources.fuse.model import KIND, FuseModel, Head, HeadName, Part, without_rows
from relabel.sources.fuse.tune_data import (
    OUT_OF_FOLD,
    TASKS,
    AlteredCopy,
    JudgedPairs,
    Task,
    alter_captions,
    poolings_of,
    read_features,
    read_train_captions,
)
from relabel.sources.relevance import Relevance
from relabel.sources.texts import score_texts
from relabel.store.artefact import Inputs, Recipe
from relabel.store.files import sha256_file
from relabel.store.manifest import MANIFEST, read_manifest
from relabel.store.workdir import Work

SPLIT: Literal["val"] = "val"
_ALTERED = "altered.parquet"
_SAME_STEP = 5  # every fifth altered caption is also paired with itself
_HEAD: dict[Task, HeadName] = {"sits": "set", "sts": "single"}


class TuneFuseParams(FitParams):
    """Parameters of `relabel tune fuse`."""

    on: Literal["cxc-val"] = Field("cxc-val", description="Pairs that it is fitted to: those of CxC's val split.")
    parts: tuple[str, ...] = Field(
        ("sbert", "cider", "meteor"), description="Labels that it combines: --parts sbert,cider."
    )
    altered: int = Field(
        0, ge=0, le=100_000, description="Captions of COCO's train2014 that join STS with an altered copy; 0 for none."
    )
    altered_score: float = Field(
        0.65, ge=0, le=1, description="Score that a caption and its altered copy are taken to have, 0 to 1."
    )
    altered_weight: float = Field(0.3, gt=0, le=1e6, description="Weight of such a pair; a judged pair has 1.")


@dataclass(frozen=True)
class FuseInput:
    """Label that a fuse is fitted with.

    `semantic`: parameters of its encoding of val.
    `identity`: identity of that encoding as an input of an artefact.
    `opened`: opens the encoding.
    """

    source: Source[Any]
    semantic: dict[str, Any]
    identity: str
    opened: Callable[[], Relevance]

    @property
    def tuned(self) -> Path | None:
        """File of out-of-fold predictions, or None (see `find_out_of_fold`)."""
        return find_out_of_fold(self.source)

    def part(self) -> Part:
        """Return the label's description in the model."""
        sha256 = None if self.tuned is None else sha256_file(self.tuned)
        source = self.source
        return Part(source.spec.name, source.spec.kind, source.is_pairwise(), without_rows(self.semantic), sha256)


def find_out_of_fold(source: Source[Any]) -> Path | None:
    """Find the out-of-fold predictions of a label whose model was itself tuned on val."""
    folder = source.model_folder()
    if folder is None or not (folder / MANIFEST).is_file():
        return None
    manifest = read_manifest(folder)
    if (folder / OUT_OF_FOLD).is_file():
        return folder / OUT_OF_FOLD
    if manifest.kind != KIND and any(name.startswith("cxc") and name.endswith(SPLIT) for name in manifest.inputs):
        message = "this model was tuned on val and left no predictions by models that had not seen a pair's images"
        raise UsageError(message, where=str(folder), todo="Tune it again with --folds 3.")
    return None


def tune_fuse(
    params: TuneFuseParams,
    parts: Mapping[str, FuseInput],
    corpus: Corpus,
    runtime: Runtime,
) -> Recipe:
    """Return the recipe of a fuse. A killed run keeps the features that were computed.

    Its files are the model (see `FuseModel`), the features of all judged pairs (`sits-LABEL.parquet`, ...) and those of
    altered copies; the manifest reports cross-validated figures.

    `parts`: labels in `params.parts`. `corpus`: COCO's, with Karpathy's val split.
    """
    if not params.parts or len(set(params.parts)) < len(params.parts):
        labels = ", ".join(params.parts) or "none"
        message = f"parts must be at least one label, each once; found {labels}"
        raise UsageError(message, where="tune.fuse.parts", todo="Name each label once: --parts sbert,cider.")
    if unknown := [label for label in params.free if label not in params.parts]:
        message = f"{', '.join(unknown)} is not among the parts {', '.join(params.parts)}"
        raise UsageError(message, where="tune.fuse.free", todo="Name parts of the fuse, or none.")
    described = cache(lambda: {label: one.part() for label, one in parts.items()})

    def semantic() -> dict[str, Any]:
        return params.model_dump(mode="json") | {"made_of": {n: asdict(part) for n, part in described().items()}}

    inputs: Inputs = {"corpus": corpus.digest}
    inputs |= {f"encoding {label}": one.identity for label, one in parts.items()}
    inputs |= {f"cxc {task} {SPLIT}": partial(cxc.sha256, task, SPLIT) for task in TASKS}

    def fill(work: Work) -> None:
        pairs = {task: JudgedPairs.of(task, corpus) for task in TASKS}
        _write_features(parts, pairs, work, runtime)
        if params.altered:
            _write_altered(params, parts, work, runtime)
        heads, facts = {}, {}
        for task in TASKS:
            heads[_HEAD[task]], facts[task] = _fit_task(params, parts, pairs[task], work, runtime)
        FuseModel(described(), heads).write(work)
        work.facts |= {"parts": list(parts), "split": SPLIT, "tasks": facts}
        work.runtime["scikit-learn"] = metadata.version("scikit-learn")

    return Recipe(KIND, f"fuse of {', '.join(parts)}", semantic, inputs, fill)


def _write_features(
    parts: Mapping[str, FuseInput], pairs: Mapping[Task, JudgedPairs], work: Work, runtime: Runtime
) -> None:
    """Write the features of all judged pairs: one table per task and part."""
    for label, one in parts.items():
        # The tables of a killed run are kept, and the part is not even opened.
        if all(work.done(_file(task, label)) for task in TASKS):
            continue
        relevance = one.opened() if one.tuned is None else None
        for task, judged in pairs.items():
            poolings = poolings_of(one.source, task)
            if one.tuned is not None:
                work.table(_file(task, label), lambda j=judged, p=one.tuned, k=poolings: j.out_of_fold(p, k))  # type: ignore[misc]
            else:
                args = (label, relevance, poolings, runtime.progress)
                work.table(_file(task, label), lambda j=judged, a=args: j.table(*a))  # type: ignore[misc]
        if relevance is not None:
            relevance.close()


def _write_altered(params: TuneFuseParams, parts: Mapping[str, FuseInput], work: Work, runtime: Runtime) -> None:
    """Write the added pairs of STS, and their features: one table per part."""

    def pairs() -> pa.Table:
        copies = alter_captions(read_train_captions(runtime), params.altered, params.seed)
        # Some captions are paired with themselves too: otherwise trees would take equal words for a bad sign.
        same = [AlteredCopy(copy.caption, copy.caption) for copy in copies[::_SAME_STEP]]
        score = np.repeat([params.altered_score, 1.0], [len(copies), len(same)])
        first, second = zip(*copies, *same, strict=True)
        return pa.table({"first": first, "second": second, "score": score})

    work.table(_ALTERED, pairs)
    table = pq.read_table(work.folder / _ALTERED, columns=["first", "second"])
    first, second = (column.to_pylist() for column in table.columns)
    texts = [[text] for text in (*first, *second)]
    for label, one in parts.items():

        def features(one: FuseInput = one) -> pa.Table:
            scores = score_texts(one.source, texts, [*second, *first], runtime).scores.reshape(2, -1)
            return pa.table({"max 0": scores[0], "max 1": scores[1]})

        work.table(_altered_file(label), features)


def _read_altered(params: TuneFuseParams, labels: Sequence[str], work: Work) -> AddedPairs:
    """Read the added pairs that have a score of every part."""
    tables = [pq.read_table(work.folder / _altered_file(label)) for label in labels]
    values = np.concatenate([read_features(table, ("max",), 2) for table in tables], axis=2)
    complete = np.isfinite(values).all(axis=(0, 2))
    score = pq.read_table(work.folder / _ALTERED)["score"].to_numpy()
    return AddedPairs(values[:, complete], score[complete], params.altered_weight)


def _fit_task(
    params: TuneFuseParams, parts: Mapping[str, FuseInput], judged: JudgedPairs, work: Work, runtime: Runtime
) -> tuple[Head, dict[str, Any]]:
    """Fit the head of one task; return it with its cross-validated correlations for the first 1, 2, ... parts."""
    poolings: dict[str, tuple[FeaturePooling, ...]] = {
        label: poolings_of(one.source, judged.task) for label, one in parts.items()
    }
    tables = {label: pq.read_table(work.folder / _file(judged.task, label)) for label in parts}
    values = np.concatenate([read_features(tables[n], poolings[n], len(judged.directions)) for n in parts], axis=2)
    features = tuple(Feature(label, pooling) for label in parts for pooling in poolings[label])
    # A pair without a score of some part is left out of the fit: failed rows, or pairs cut by out-of-fold folds.
    complete = np.isfinite(values).all(axis=(0, 2))
    method = np.array(judged.human.method)[complete]
    added = _read_altered(params, list(parts), work) if params.altered and judged.task == "sts" else None
    sample = Sample(features, values, judged.human.score / 5, judged.images, added).take(complete)
    subsets = {"all": np.full(len(method), True)} | {name: method == name for name in sorted(set(method.tolist()))}
    if judged.task == "sts":
        # No pair of STS is a caption and itself: its pairs of one image are two captions.
        params = params.model_copy(update={"plateau": 0.0})
    grown = []
    with runtime.progress.bar(f"cross-validation, {judged.task} {SPLIT}", len(parts), "fits") as bar:
        # With the first 1, 2, ... parts: the report shows the contribution of each label.
        for count in range(1, len(parts) + 1):
            subset = sample.only(list(parts)[:count])
            scores = cross_validate(subset, params)
            grown.append({"parts": list(parts)[:count], "pearson": subset_correlations(scores, subset.human, subsets)})
            bar.advance(1)
    facts = {"pairs": len(method), "left_out": int((~complete).sum()), "cross_validated": grown}
    return fit_head(sample, params), facts


def _file(task: Task, label: str) -> str:
    """Return the name of the table of a task and a part."""
    return f"{task}-{label}.parquet"


def _altered_file(label: str) -> str:
    """Return the name of the table of the added pairs and a part."""
    return f"altered-{label}.parquet"
