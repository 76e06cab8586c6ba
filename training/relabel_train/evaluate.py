"""Every metric of a trained model: recalls, agreement with labels, positives that people found."""

# ruff: noqa: RUF009  (`said` makes a field)

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from relabel_train.features import Features, open_features
from relabel_train.fit import load_model
from relabel_train.lookup import Lookup, open_lookup
from relabel_train.metrics import (
    LookupRelevance,
    Positives,
    ReportSettings,
    RetrievalReport,
    positives_of,
    retrieval_report,
)
from relabel_train.training.data import Split, read_split, refuse_held_out
from relabel_train.training.errors import FitError
from relabel_train.training.evaluate import embed
from relabel_train.training.options import said
from relabel_train.training.processes import processes

if TYPE_CHECKING:
    from numpy.typing import NDArray

ECCV_FILES = ("eccv_image_to_caption.json", "eccv_caption_to_image.json")


@dataclass(frozen=True)
class EvalOptions:
    """What a model is held against."""

    run: Path = said(None, "Folder of a run of `relabel fit`.", needed=True)
    data: Path = said(None, "Features, as `relabel fit` takes them.", needed=True)
    captions: Path = said(None, "Corpus that `relabel ingest` made.", needed=True)
    labels: tuple[Path, ...] = said(
        (), "Lookup for nDCG, CS@K, Kendall's tau, NCS; its name is the label's. Repeatable."
    )
    split: str = said("test", "Split to retrieve in.")
    graded: int = said(1000, "Images, the split's first, that the metrics of labels are taken on; 0: all.")
    folds: int | None = said(None, "COCO 1K: 5.")
    eccv: Path | None = said(None, "Folder with ECCV Caption's positives: `relabel fetch eccv`.")
    namespace: str | None = said(None, "SCAN features: put before image ids, as `relabel ingest` did (coco).")
    ids: Literal["image", "position"] = said("image", "SCAN features: what names images.")
    checkpoint: str = said("best.npz", "best.npz or last.npz.")


@dataclass(frozen=True)
class Evaluation:
    """What a model is worth.

    Attributes
    ----------
    retrieval : RetrievalReport
        Of the whole split; with positives `eccv` where they were given.
    graded : dict of str to RetrievalReport
        By label, of the first images.
    stand_in : str or None
        What to say wherever these figures appear.
    notes : list of str
    """

    retrieval: RetrievalReport
    graded: dict[str, RetrievalReport]
    stand_in: str | None = None
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As plain numbers."""
        graded = {name: report.to_json() for name, report in self.graded.items()}
        head = {"stand_in": self.stand_in, "notes": self.notes}
        return {**head, "retrieval": self.retrieval.to_json(), "graded": graded}

    def text(self) -> str:
        """As tables."""
        parts = [*([self.stand_in] if self.stand_in else []), self.retrieval.table()]
        for name, report in self.graded.items():
            parts += [f"Against the label {name}, {report.images:,} images:", report.table()]
        return "\n\n".join([*parts, *self.notes])


def evaluate(options: EvalOptions, device: str = "auto", tell: Callable[[str], None] = lambda _: None) -> Evaluation:
    """Take every metric that the given files allow.

    Captions that stand in for images (`relabel proxy-features`) are neither queries, nor in a gallery, nor positives:
    a caption query that is held out is left out, and R of an image query does not count it.

    Raises
    ------
    FileNotFoundError, FeaturesError, LookupFileError, KeyError, FitError
        If a file is not there, not what it must be, or files do not cover each other.
    """
    with processes(device) as here:
        model, _ = load_model(options.run, options.checkpoint)
        model.to(here.device)
        features = open_features(options.data, namespace=options.namespace, ids=options.ids)
        split = read_split(options.captions, options.split, features)
        tell(f"embedding {len(split.image_ids):,} images and {len(split.texts):,} captions of {options.split}")
        images, captions = embed(model, split, features, here.device)
    if not np.isfinite(images).all() or not np.isfinite(captions).all():
        raise FitError(f"{options.run}: the model's embeddings are not finite")
    notes: list[str] = []
    positives: dict[str, Positives] = {}
    if options.eccv is not None:
        positives["eccv"], note = left_positives(options.eccv, split, features)
        notes.append(note)
    tell("recalls")
    plain = ReportSettings(kendall_tau=False, semantic_ms=())
    retrieval = retrieval_report(
        (images, captions), split.image, positives=positives, folds=options.folds, settings=plain
    )
    graded = {}
    for path in options.labels:
        lookup = open_lookup(path)
        refuse_held_out(lookup, features)
        tell(f"metrics of labels: {lookup.about.label}")
        graded[lookup.about.label] = _graded(lookup, split, images, captions, options.graded)
    return Evaluation(retrieval, graded, features.stand_in, notes)


def left_positives(folder: Path, split: Split, features: Features) -> tuple[Positives, str]:
    """Read ECCV Caption's positives, without captions that stand in for images; and say what was left out."""
    held_out = set(features.about.get("held_out", ()))
    space = split.caption_ids[0].partition(":")[0]
    i2t, t2i = (_read(folder / name, space) for name in ECCV_FILES)
    dropped = sum(len(held_out.intersection(ids)) for ids in i2t.values())
    i2t = {query: [i for i in ids if i not in held_out] for query, ids in i2t.items()}
    t2i_left = {query: ids for query, ids in t2i.items() if query not in held_out}
    found = positives_of(i2t, t2i_left, split.image_ids, split.caption_ids, partial=True)
    note = (
        f"ECCV Caption: {len(found.i2t):,} of {len(i2t):,} image queries, {len(found.t2i):,} of {len(t2i):,} caption "
        f"queries; {dropped:,} positives stand in for their image and are left out."
    )
    return found, note


def _graded(
    lookup: Lookup, split: Split, images: NDArray[np.float32], captions: NDArray[np.float32], count: int
) -> RetrievalReport:
    """Take the metrics of a label on the first images and their captions."""
    count = min(count or len(images), len(images))
    mine = np.flatnonzero(split.image < count)
    rows = lookup.rows_of([split.caption_ids[i] for i in mine])
    relevance = LookupRelevance(lookup, lookup.rows_of_images(split.image_ids[:count]), rows)
    low, top = lookup.about.bounds
    settings = ReportSettings(label_top=top, label_low=low, semantic_ms=())
    return retrieval_report((images[:count], captions[mine]), split.image[mine], relevance=relevance, settings=settings)


def _read(path: Path, namespace: str) -> Mapping[str, Sequence[str]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: not there. Run `relabel fetch eccv`.") from None
    return {f"{namespace}:{query}": [f"{namespace}:{i}" for i in ids] for query, ids in content.items()}
