"""Captions, features and labels joined by id, and their batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relabel_train.files import MANIFEST, LookupFileError, naming, read_file
from relabel_train.lookup import Lookup
from relabel_train.reference.features import Features, open_features
from relabel_train.reference.models import Model
from relabel_train.reference.options import FitError, FitOptions, parse_settings
from relabel_train.samplers import (
    Captions,
    GradedBatchSampler,
    NeighbourBatchSampler,
    RandomBatchSampler,
    Sampler,
    StableRandom,
    quantile_levels,
)

if TYPE_CHECKING:
    from relabel_train.precomputed import PrecomputedBatches

QUANTILES = (0.05, 0.2, 0.5)
"""Default levels of graded batches: the best twentieth, fifth and half of all neighbours' scores."""


@dataclass(frozen=True, eq=False)
class Split:
    """N captions of one split, sorted by row, and their images.

    `image`: (N,) int64; index of each caption's image among the M.
    `feature`: (M,) int64; row of each image among the features.
    """

    caption_ids: list[str]
    texts: list[str]
    image_ids: list[str]
    image: NDArray[np.int64]
    feature: NDArray[np.int64]

    def first(self, count: int) -> Split:
        """Return the first images, at most `count`, and their captions."""
        return self.select(np.arange(min(count, len(self.image_ids))))

    def sample(self, fraction: float, seed: int) -> Split:
        """Return a share of the images, at least one, with their captions; a larger share contains a smaller one."""
        total = len(self.image_ids)
        drawn = StableRandom(seed, total).permutation(total)
        return self.select(np.sort(drawn[: max(1, round(fraction * total))]))

    def select(self, images: NDArray[np.int64]) -> Split:
        """Return the images of these ascending numbers, and their captions."""
        number = np.full(len(self.image_ids), -1)
        number[images] = np.arange(len(images))
        chosen = np.flatnonzero(number[self.image] >= 0)
        ids, texts = ([values[i] for i in chosen] for values in (self.caption_ids, self.texts))
        names = [self.image_ids[i] for i in images]
        return Split(ids, texts, names, number[self.image[chosen]], self.feature[images])

    def digest(self) -> str:
        """Return a sha256 of the captions, their images and their texts."""
        images = [self.image_ids[i] for i in self.image]
        body = json.dumps([self.caption_ids, images, self.texts])
        return hashlib.sha256(body.encode()).hexdigest()


def read_split(folder: Path, split: str, features: Features) -> Split:
    """Read a split of a corpus, without the images that have no features."""
    import pyarrow.parquet as pq

    parts = sorted(map(str, folder.glob("part-*.parquet")))
    shards = pq.ParquetDataset(parts, filters=[("split", "=", split)])
    table: dict[str, list[str]] = shards.read(columns=["caption_id", "image_id", "text"]).to_pydict()
    if not table["text"]:
        raise FitError(f"{folder}: no captions of split {split!r}")
    # Proxy features lack images whose only caption stands in for them; wrong ids lack all images.
    if lacking := [i for i in dict.fromkeys(table["image_id"]) if i not in features]:
        keep = [i in features for i in table["image_id"]]
        if not any(keep):
            raise FitError(
                f"{folder}: no image of split {split} has features; the first is {lacking[0]}, "
                f"features have {features.image_ids[0]}. Does `ids` fit?"
            )
        table = {name: [v for v, k in zip(values, keep, strict=True) if k] for name, values in table.items()}
    names = list(dict.fromkeys(table["image_id"]))
    number = {name: i for i, name in enumerate(names)}
    image = np.array([number[i] for i in table["image_id"]], np.int64)
    return Split(table["caption_id"], table["text"], names, image, features.rows_of(names))


def open_corpus_features(features: Path, captions: Path, ids: Literal["image", "position"]) -> Features:
    """Open features by the image ids of a corpus, which carry its namespace; those of SCAN's files do not."""
    return open_features(features, namespace=_manifest(captions)["config"]["namespace"], ids=ids)


def check_corpus(captions: Path, labels: Lookup | PrecomputedBatches) -> None:
    """Raise if labels were made of another corpus: other texts may have the same ids."""
    if _manifest(captions)["metadata"]["digest"] != labels.about.corpus:
        raise LookupFileError(f"{labels.folder}: made of another corpus than {captions}. Export it again.")


def _manifest(captions: Path) -> dict[str, Any]:
    with naming(captions / MANIFEST, "Make a corpus with `relabel ingest`."):
        return dict(json.loads(read_file(captions / MANIFEST)))


class Batch(NamedTuple):
    """A batch of B pairs: this process's share of the inputs, and the labels of the complete batch.

    `features`: (b, R, D) float32. `regions`, `lengths`: (b,) int64. `tokens`: (b, T) int64. `relevance`,
    `between_images`, `between_captions`, `same_image`: (B, B), as in objective.Pairs.
    """

    features: Tensor
    regions: Tensor
    tokens: Tensor
    lengths: Tensor
    relevance: Tensor | None
    between_images: Tensor | None
    between_captions: Tensor | None
    same_image: Tensor

    def to(self, device: torch.device) -> Batch:
        """Move to a device."""
        moved: list[Any] = [t if t is None else t.to(device, non_blocking=True) for t in self]
        return Batch(*moved)


class Batches:
    """Batches of each epoch, with their inputs and labels.

    `model`: used for `tokens` alone. `paired`: read labels among images and among captions as well.
    `rank`, `world`: this process and the number of processes, which share each batch. `left_out`: number of captions
    without a label, in no batch.
    """

    def __init__(
        self,
        options: FitOptions,
        split: Split,
        features: Features,
        model: Model,
        labels: Lookup | None,
        precomputed: PrecomputedBatches | None,
        paired: bool,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.split, self.features, self.labels, self.precomputed = split, features, labels, precomputed
        self.rank, self.world, self.paired = rank, world, paired
        self.pooling, self.scale = options.pooling, options.scale
        self._tokens = model.tokens
        if labels is not None:
            check_not_held_out(labels, features)
            rows = labels.rows_of(split.caption_ids)
        elif precomputed is not None:
            rows = (precomputed.caption_ids.find(split.caption_ids, "caption") + precomputed.first_row).astype(np.int32)
        else:
            rows = np.arange(len(split.caption_ids), dtype=np.int32)
        # Samplers expect ascending rows; self._order leads back to the split's captions.
        order = np.argsort(rows, kind="stable")
        # Captions without a label are not trained on.
        if labels is not None:
            order = order[labels.captions(options.pooling).positions_of(rows[order]) >= 0]  # type: ignore[arg-type]
        self._order, self.left_out = order, len(rows) - len(order)
        self.captions = Captions(rows[order], split.image[order].astype(np.int32))
        self.sampler = None if precomputed is not None else make_sampler(options, self.captions, labels)
        if not len(self):
            raise FitError(
                f"no batch of {options.batch_size}: the split has {len(self.captions):,} captions with labels"
            )

    def __len__(self) -> int:
        if self.precomputed is not None:
            return len(self.epoch(0))
        assert self.sampler is not None
        return len(self.sampler)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the batches."""
        if self.sampler is not None:
            return {**self.sampler.parameters, "captions": len(self.captions)}
        assert self.precomputed is not None
        return {"batches": self.precomputed.about.fingerprint, "captions": len(self.captions)}

    def epoch(self, epoch: int) -> list[Any]:
        """List an epoch's batches: caption rows, or the numbers of precomputed batches."""
        least = max(2, self.world)  # a batch of one has no negative, and every process needs a share
        if self.precomputed is not None:
            numbers = self.precomputed.epoch(epoch % self.precomputed.epochs)
            return [number for number in numbers if len(self.precomputed.rows(number)) >= least]
        assert self.sampler is not None
        return [rows for rows in self.sampler.epoch(epoch) if len(rows) >= least]

    def make(self, batch: Any) -> Batch:
        """Read one batch, in a worker if there are any."""
        relevance = images = captions = None
        if self.precomputed is not None:
            planned = self.precomputed.tensors(int(batch))
            rows, relevance, same = planned.rows.numpy(), planned.relevance, planned.same_image
            if self.precomputed.about.items == "images":
                relevance, images = None, relevance
        else:
            rows = np.asarray(batch)
            image = self.captions.image[self.captions.positions_of(rows)]
            same = torch.from_numpy(image[:, None] == image)
        if self.labels is not None:
            relevance = torch.from_numpy(self.labels.block(rows, pooling=self.pooling))  # type: ignore[arg-type]
            if self.paired:
                # A lookup has no labels of two images; r(V_i, T_j) and r(V_j, T_i) are estimates.
                images = (relevance + relevance.T) / 2
                captions = torch.from_numpy(self.labels.block(rows, pooling="first"))
        relevance, images, captions = (t if t is None else t / self.scale for t in (relevance, images, captions))
        positions = self.captions.positions_of(rows)
        if (positions < 0).any():
            raise FitError(
                f"the precomputed caption in row {rows[positions < 0][0]} has no features or is not of this split"
            )
        # Here, on the CPU: on a GPU the check would wait for the step before.
        for block in (relevance, images, captions):
            if block is not None and not block.isfinite().all():
                self._refuse(block, positions)
        # Inputs of this process alone; labels are those of the complete batch.
        mine = np.array_split(self._order[positions], self.world)[self.rank]
        features, regions = self.features.take(self.split.feature[self.split.image[mine]])
        tokens, lengths = self._tokens([self.split.texts[i] for i in mine])
        vectors = torch.from_numpy(features)
        return Batch(vectors, torch.from_numpy(regions), tokens, lengths, relevance, images, captions, same)

    def _refuse(self, labels: Tensor, positions: NDArray[np.int64]) -> None:
        """Raise for the first label of a batch that is NaN or infinite."""
        row, column = (~labels.isfinite()).nonzero()[0].tolist()
        image, caption = (self.split.caption_ids[self._order[positions[i]]] for i in (row, column))
        source, value = self.precomputed if self.labels is None else self.labels, labels[row, column].item()
        assert source is not None
        raise FitError(
            f"{source.folder}: the label of caption {caption} for the image of {image} is {value}. "
            "Export it again; `relabel verify` finds damaged files."
        )


def make_sampler(options: FitOptions, captions: Captions, labels: Lookup | None) -> Sampler:
    """Make the sampler named in the options."""
    more: dict[str, Any] = {"seed": options.seed, "drop_last": False, **parse_settings(options.sampler_kwargs)}
    try:
        if options.sampler == "random":
            return RandomBatchSampler(captions, options.batch_size, **more)
        assert labels is not None
        more.setdefault("depth", int((labels.about.neighbours or {}).get("width", 100)))
        if options.sampler == "neighbour":
            return NeighbourBatchSampler(captions, labels, options.batch_size, **more)
        if "levels" not in more:
            more["levels"] = quantile_levels(captions, labels, QUANTILES, depth=more["depth"], seed=options.seed)
        return GradedBatchSampler(captions, labels, options.batch_size, **more)
    except (ValueError, TypeError, IndexError) as error:
        raise FitError(f"{options.sampler} batches: {error}") from error


def check_not_held_out(labels: Lookup, features: Features) -> None:
    """Raise if a lookup covers held-out captions, which replace images in proxy features and would leak."""
    held_out: Sequence[str] = features.about.get("held_out", ())
    # About 50 of them: a lookup of the wrong corpus covers all.
    for name in held_out[:: max(1, len(held_out) // 50)]:
        try:
            labels.rows_of([name])
        except KeyError:
            continue
        todo = "Export a lookup of the captions that are left."
        raise FitError(f"{labels.folder}: covers {name}, which stands in for its image. {todo}")
