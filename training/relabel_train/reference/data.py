"""Captions, features and labels joined by id, and their batches."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relabel_train import samplers
from relabel_train.features import Features, open_features
from relabel_train.files import MANIFEST, LookupFileError, naming, read_file
from relabel_train.lookup import Lookup
from relabel_train.precomputed import PrecomputedBatches
from relabel_train.reference.models.base import Model
from relabel_train.reference.options import Choice, FitError, Parameters, choose, naming_choice

QUANTILES = (0.05, 0.2, 0.5)
"""Levels of graded batches: the best twentieth, fifth and half of all neighbours' scores."""
_KINDS = samplers.RandomBatchSampler, samplers.NeighbourBatchSampler, samplers.GradedBatchSampler
SAMPLERS = {kind.name: Parameters.of(kind) for kind in _KINDS}
"""Parameters of the samplers by name."""


@dataclass(frozen=True, eq=False)
class SplitData:
    """N captions of one split in the order of the corpus, and their M images.

    `caption_ids`, `texts`: (N,) text. `image_ids`: (M,) text. `image`: (N,) int64; index of each caption's image.
    `feature`: (M,) int64; row of each image among the features.
    """

    caption_ids: NDArray[np.object_]
    texts: NDArray[np.object_]
    image_ids: NDArray[np.object_]
    image: NDArray[np.int64]
    feature: NDArray[np.int64]

    def select(self, images: NDArray[np.int64]) -> SplitData:
        """Return the images of these ascending numbers, and their captions."""
        chosen = np.flatnonzero(np.isin(self.image, images))
        image = np.searchsorted(images, self.image[chosen])
        return SplitData(
            self.caption_ids[chosen], self.texts[chosen], self.image_ids[images], image, self.feature[images]
        )

    def sample(self, fraction: float, seed: int) -> SplitData:
        """Return a share of the images, at least one, with their captions; a larger share contains a smaller one."""
        total = len(self.image_ids)
        drawn = samplers.StableRandom(seed, total).permutation(total)
        return self.select(np.sort(drawn[: max(1, round(fraction * total))]))

    def digest(self) -> str:
        """Return a sha256 of the captions, their images and their texts."""
        columns = self.caption_ids, self.image_ids[self.image], self.texts
        return hashlib.sha256(json.dumps([column.tolist() for column in columns]).encode()).hexdigest()


def read_split(folder: Path, split: str, features: Features) -> SplitData:
    """Read a split of a corpus, without the images that have no features."""
    import pyarrow.parquet as pq

    parts = sorted(map(str, folder.glob("part-*.parquet")))
    table = pq.ParquetDataset(parts, filters=[("split", "=", split)]).read()
    ids, images, texts = (np.array(table[name].to_pylist(), object) for name in ("caption_id", "image_id", "text"))
    if not len(ids):
        raise FitError(f"{folder}: no captions of split {split!r}")
    if leaked := features.held_out.intersection(ids):
        raise FitError(
            f"{folder}: has caption {min(leaked)}, but this caption represents its image in the features. Use "
            "the corpus without such captions."
        )
    # Proxy features lack images that are represented by their only caption; wrong ids lack all images.
    kept = np.array([image in features for image in images])
    if not kept.any():
        found = f"the first is {images[0]}, features have {features.image_ids[0]}"
        raise FitError(f"{folder}: no image of split {split} has features; {found}")
    names = list(dict.fromkeys(images[kept]))
    number = {name: i for i, name in enumerate(names)}
    image = np.array([number[name] for name in images[kept]])
    return SplitData(ids[kept], texts[kept], np.array(names, object), image, features.rows_of(names))


def open_corpus_features(features: Path, captions: Path) -> Features:
    """Open features by the image ids of a corpus. They have its namespace as a prefix; ids of SCAN's files do not."""
    config = _manifest(captions)["config"]
    return open_features(features, namespace=config["namespace"], position=config["ids"] == "position")


def check_corpus(captions: Path, labels: Lookup | PrecomputedBatches | None) -> None:
    """Raise if labels were made of another corpus: other texts may have the same ids."""
    if labels is not None and _manifest(captions)["metadata"]["digest"] != labels.about.corpus:
        raise LookupFileError(f"{labels.folder}: made of another corpus than {captions}. Export it again.")


def _manifest(captions: Path) -> dict[str, Any]:
    with naming(captions / MANIFEST, "Make a corpus with `relabel ingest`."):
        return dict(json.loads(read_file(captions / MANIFEST)))


class Labels(NamedTuple):
    """Labels of B pairs of an image and a caption: (B, B), rows are images.

    `same_image`: bool. `relevance`: r(V_i, T_j). `between_images`, `between_captions`: r(V_i, V_j) and r(T_i, T_j), for
    losses of embeddings. Labels that are not read are None.
    """

    same_image: Tensor
    relevance: Tensor | None = None
    between_images: Tensor | None = None
    between_captions: Tensor | None = None


class Batch(NamedTuple):
    """B pairs. `features`: (B, R, D) float32. `regions`, `lengths`: (B,) int64. `tokens`: (B, T) int64."""

    features: Tensor
    regions: Tensor
    tokens: Tensor
    lengths: Tensor
    labels: Labels


class Batches(ABC):
    """Batches of each epoch: captions of a split with the features of their images, and labels.

    `rows`: (N,) ascending rows of the split's captions in the corpus. `labelled`: positions of those with labels; all
    others are in no batch, as `note` says. `identity`: all that determines the batches.
    `kinds`: fields of `Labels` that are not None.
    """

    identity: dict[str, Any]
    kinds: Collection[str] = ()

    def __init__(self, split: SplitData, features: Features, rows: NDArray[Any], labelled: NDArray[np.int64]) -> None:
        self.split, self.features, self._labelled = split, features, labelled
        self.captions = samplers.Captions(rows[labelled].astype(np.int32), split.image[labelled].astype(np.int32))
        left_out = len(rows) - len(labelled)
        self.note = f"{left_out:,} captions have no label and are left out" if left_out else None

    @abstractmethod
    def epoch(self, epoch: int) -> list[Any]:
        """List the batches of an epoch, each of at least two captions: a pair without another has no negative."""

    @abstractmethod
    def labels(self, batch: Any) -> tuple[NDArray[Any], Labels]:
        """Return the rows of a batch, and its labels."""

    def read(self, batch: Any, model: Model, scale: float, device: torch.device) -> Batch:
        """Read a batch onto a device, with tokens for a model and labels divided by `scale`."""
        rows, labels = self.labels(batch)
        positions = self.captions.positions_of(rows)
        if (positions < 0).any():
            raise FitError(f"the caption in row {rows[positions < 0][0]} has no features or is not of this split")
        captions = self._labelled[positions]
        for block in filter(torch.is_tensor, labels[1:]):
            # Here, on the CPU: on a GPU the check would wait for the step before.
            for row, column in (~block.isfinite()).nonzero()[:1].tolist():
                image, caption = self.split.caption_ids[captions[[row, column]]]
                value = f"the label of caption {caption} for the image of {image} is {block[row, column].item()}"
                raise FitError(f"{value}. Export it again; `relabel verify` finds damaged files.")
        scaled = [None if block is None else (block / scale).to(device) for block in labels[1:]]
        vectors, regions = map(torch.from_numpy, self.features.take(self.split.feature[self.split.image[captions]]))
        tokens, lengths = model.tokens(self.split.texts[captions].tolist())
        inputs = (vectors.to(device), regions.to(device), tokens.to(device), lengths.to(device))
        return Batch(*inputs, Labels(labels.same_image.to(device), *scaled))


class SampledBatches(Batches):
    """Batches that a sampler draws, with the labels of a lookup, or without labels.

    `paired`: read labels among images and among captions as well, for losses of embeddings.
    """

    def __init__(self, split: SplitData, features: Features, lookup: Lookup | None, pooling: Any, paired: bool) -> None:
        self.lookup, self.pooling, self.paired = lookup, pooling, paired
        rows = labelled = np.arange(len(split.texts))
        if lookup is not None:
            self.kinds = Labels._fields
            rows = lookup.rows_of(split.caption_ids).astype(np.int64)
            labelled = np.flatnonzero(lookup.captions(pooling).positions_of(rows) >= 0)
        super().__init__(split, features, rows, labelled)

    def draw(self, choice: Choice, batch_size: int, seed: int) -> None:
        """Choose the sampler; those of neighbours read all neighbours that the lookup has."""
        parameters, fixed = choose("sampler", SAMPLERS, choice), dict[str, Any](seed=seed, drop_last=False)
        neighbours = self.lookup and self.lookup.about.neighbours
        if parameters.name == "random":
            self.sampler = parameters.make(self.captions, batch_size, **fixed)
        elif self.lookup is None or not neighbours:
            raise FitError(f"{parameters.name} batches need neighbours: give --lookup, one that has them")
        else:
            fixed["depth"] = depth = int(neighbours["width"])
            if parameters.name == "graded":
                with naming_choice("graded"):
                    levels = samplers.quantile_levels(self.captions, self.lookup, QUANTILES, depth=depth, seed=seed)
                    fixed["levels"] = levels
            self.sampler = parameters.make(self.captions, self.lookup, batch_size, **fixed)
        self.identity = {**self.sampler.parameters, "captions": len(self.captions)}

    def epoch(self, epoch: int) -> list[Any]:
        """List the rows of each batch."""
        return [rows for rows in self.sampler.epoch(epoch) if len(rows) > 1]

    def labels(self, batch: Any) -> tuple[NDArray[Any], Labels]:
        """Return the rows of a batch, and its labels."""
        image = self.captions.image[self.captions.positions_of(batch)]
        same_image, relevance = torch.from_numpy(image[:, None] == image), None
        if self.lookup is not None:
            relevance = torch.from_numpy(self.lookup.block(batch, pooling=self.pooling))
        if self.lookup is None or relevance is None or not self.paired:
            return batch, Labels(same_image, relevance)
        # A lookup has no labels of two images; r(V_i, T_j) and r(V_j, T_i) are estimates.
        between_captions = torch.from_numpy(self.lookup.block(batch, pooling="first"))
        return batch, Labels(same_image, relevance, (relevance + relevance.T) / 2, between_captions)


class PlannedBatches(Batches):
    """Precomputed batches with their labels; the plan repeats after its last epoch."""

    def __init__(self, split: SplitData, features: Features, plan: PrecomputedBatches) -> None:
        rows = plan.caption_ids.find(split.caption_ids, "caption") + plan.first_row
        super().__init__(split, features, rows, np.arange(len(rows)))
        self.kinds = ["between_images" if plan.about.items == "images" else "relevance"]
        self.plan, self.identity = plan, {"batches": plan.about.fingerprint, "captions": len(rows)}

    def epoch(self, epoch: int) -> list[Any]:
        """List the numbers of the batches."""
        return [number for number in self.plan.epoch(epoch % self.plan.epochs) if len(self.plan.rows(number)) > 1]

    def labels(self, batch: Any) -> tuple[NDArray[Any], Labels]:
        """Return the rows of a batch, and its labels."""
        rows, relevance, same_image = self.plan.tensors(batch)
        return rows.numpy(), Labels(same_image, **dict.fromkeys(self.kinds, relevance))
