"""Relevance from other labels (fuse): what its parts' blocks give, pooled, through a linear function and trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup.format import HEADS, Pooling
from relabel_train.lookup.references import Batch
from relabel_train.lookup.trees import SmallTrees

F8 = NDArray[np.float64]


class Part(Protocol):
    """What answers for a part."""

    def fill(self, images: Batch, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Fill `out`, (B_images, B_captions)."""


@dataclass(frozen=True, eq=False)
class Head:
    """A fitted function of features.

    Attributes
    ----------
    looks : sequence of (int, str)
        Each feature's part, by number, and how its references are pooled: max, second, mean or refs.
    weights : (F + 1,) float64
        The intercept, then a weight a feature.
    trees : SmallTrees
    """

    looks: Sequence[tuple[int, str]]
    weights: F8
    trees: SmallTrees

    def score(self, features: list[F8]) -> F8:
        """Score P pairs; the operations of the pipeline, in their order."""
        out = np.full(len(features[0]), self.weights[0])
        for feature, weight in zip(features, self.weights[1:].tolist(), strict=True):
            out += feature * weight
        self.trees.add(features, out)
        np.clip(out, 0.0, 1.0, out=out)
        return out


@dataclass(frozen=True, eq=False)
class FuseBlocks:
    """A function of parts. Products are taken in float64: a threshold tells apart what float32 would blur.

    Attributes
    ----------
    parts : sequence of Part
    single, set : Head
        For one reference and for several.
    """

    parts: Sequence[Part]
    single: Head
    set: Head

    @classmethod
    def open(cls, arrays: Mapping[str, NDArray[Any]], parts: Sequence[Part], heads: Mapping[str, Any]) -> FuseBlocks:
        """Take the arrays of a lookup; `heads` holds the looks of each."""
        found = {}
        for name in HEADS:
            weights = np.array(arrays[f"{name}.weights"])
            roots, nodes, values = (np.array(arrays[f"{name}.{part}"]) for part in ("roots", "nodes", "values"))
            looks = [(int(part), str(how)) for part, how in heads[name]]
            found[name] = Head(looks, weights, SmallTrees.of(roots, nodes, values, len(looks)))
        return cls(parts, **found)

    def fill(self, images: Batch, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Fill `out`, (B_images, B_captions) float32 or float64."""
        if pooling == "paired" or len(images.places) == 1:
            out[...] = self._singles(images.places[:1], captions)[0]
        elif pooling != "refs":
            out[...] = images.pool(self._singles(images.places, captions), pooling)
        else:
            out[...] = self._sets(images, captions)
            if images.sizes is not None and len(one := np.flatnonzero(images.sizes == 1)):
                out[one] = self._singles(images.places[:1, one], captions)[0]

    def _singles(self, places: NDArray[np.int64], captions: NDArray[np.int64]) -> F8:
        """Score (W, B) single references: (W, B, C)."""
        features = [self._ask(part, places, captions).reshape(-1) for part, _ in self.single.looks]
        return self.single.score(features).reshape(*places.shape, -1)

    def _sets(self, images: Batch, captions: NDArray[np.int64]) -> F8:
        """Score B sets: (B, C)."""
        asked: dict[int, F8] = {}
        features = []
        for part, how in self.set.looks:
            if how == "refs":
                found = np.empty((images.places.shape[1], len(captions)))
                self.parts[part].fill(images, captions, "refs", found)
            else:
                if part not in asked:
                    asked[part] = self._ask(part, images.places, captions)
                found = _pooled(asked[part], images, how)
            features.append(found.reshape(-1))
        return self.set.score(features).reshape(images.places.shape[1], -1)

    def _ask(self, part: int, places: NDArray[np.int64], captions: NDArray[np.int64]) -> F8:
        """Ask a part for the scores of (W, B) single references: (W, B, C)."""
        out = np.empty((places.size, len(captions)))
        self.parts[part].fill(Batch(places.reshape(1, -1), None), captions, "paired", out)
        return out.reshape(*places.shape, -1)


def _pooled(scores: F8, images: Batch, how: str) -> F8:
    """Reduce (W, B, C) to (B, C); an image with fewer references than W repeats its last one, which counts once."""
    width = np.arange(len(scores))[:, None]
    held = np.ones((len(scores), scores.shape[1]), bool) if images.sizes is None else width < images.sizes
    best, second, total = scores[0], np.full_like(scores[0], -np.inf), scores[0].copy()
    for score, there in zip(scores[1:], held[1:, :, None], strict=True):
        second = np.where(there, np.maximum(second, np.minimum(best, score)), second)
        best = np.where(there, np.maximum(best, score), best)
        total = np.where(there, total + score, total)
    if how == "mean":
        return np.asarray(total / held.sum(axis=0)[:, None])
    return np.asarray(best if how == "max" else second)
