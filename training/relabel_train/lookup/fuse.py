"""Relevance from other labels (fuse): relevances of the parts, pooled, through a linear function and small trees.

The trees are evaluated after Lucchese et al., "QuickScorer", SIGIR 2015. A node that a pair does not pass to the left
rules out the leaves of its left subtree, and the first leaf that remains after all nodes is the pair's leaf. With at
most 8 leaves the leaves of a tree are one byte. The position of a feature's value among its thresholds is looked up
once and gives the bytes of all trees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup.blocks import Blocks, References
from relabel_train.lookup.format import HEADS, Pooling

LEAVES = 8
"""Largest number of leaves of a tree."""

U1 = NDArray[np.uint8]
F8 = NDArray[np.float64]
_PAIRS = 1 << 14
"""Pairs per step: 2.5 MB of bytes for 150 trees."""


@dataclass(frozen=True, eq=False)
class SmallTrees:
    """T trees over F features.

    `thresholds`: ascending; a value that is not larger than a threshold goes left.
    `masks`: list of F arrays, (thresholds + 1, T) uint8; leaves not ruled out by a value, by the number of thresholds
        below the value.
    `values`: (T, 256) float64; value of the first leaf in a byte.
    """

    thresholds: list[F8]
    masks: list[U1]
    values: F8

    @classmethod
    def of(cls, roots: NDArray[Any], nodes: NDArray[Any], values: NDArray[Any], features: int) -> SmallTrees:
        """Build the tables of trees stored as in format.KINDS."""
        splits: list[list[tuple[float, int, int]]] = [[] for _ in range(features)]  # threshold, tree, leaves ruled out
        table = np.zeros((len(roots), 256))
        for tree, root in enumerate(roots.tolist()):
            leaves: list[float] = []

            # In order: the leaves of a left subtree are a range, which its node rules out when passed to the right.
            def walk(n: int, leaves: list[float] = leaves, tree: int = tree) -> None:
                feature, left, right = nodes[n].tolist()
                if feature < 0:
                    leaves.append(float(values[n]))
                    return
                first = len(leaves)
                walk(left)
                splits[feature].append((float(values[n]), tree, sum(1 << i for i in range(first, len(leaves)))))
                walk(right)

            walk(root)
            if len(leaves) > LEAVES:
                raise ValueError(f"a tree has {len(leaves)} leaves; {LEAVES} are read")
            # The lowest bit left in a byte is the tree's leaf, whichever other bits are left.
            for byte in range(1, 256):
                first = (byte & -byte).bit_length() - 1
                table[tree, byte] = leaves[first] if first < len(leaves) else 0.0
        thresholds = [np.unique([t for t, _, _ in rows]) for rows in splits]
        masks = [np.full((len(t) + 1, len(roots)), 255, np.uint8) for t in thresholds]
        for feature_splits, edges, mask in zip(splits, thresholds, masks, strict=True):
            for threshold, tree, ruled_out in feature_splits:
                # Rows behind the threshold belong to values above it.
                mask[int(np.searchsorted(edges, threshold)) + 1 :, tree] &= 255 - ruled_out
        return cls(thresholds, masks, table)

    def add(self, features: list[F8], out: F8) -> None:
        """Add the trees' values to (P,) `out`, tree by tree; `features` are F arrays of length P."""
        for a in range(0, len(out) if len(self.values) else 0, _PAIRS):
            left = None
            # Intersect the leaves that each feature leaves: (pairs, T) bytes.
            for feature, edges, mask in zip(features, self.thresholds, self.masks, strict=True):
                if len(edges):
                    rows = mask.take(np.searchsorted(edges, feature[a : a + _PAIRS]), axis=0)
                    left = rows if left is None else np.bitwise_and(left, rows, out=left)
            # Trees without a split have one leaf, the first.
            if left is None:
                left = np.full((len(out[a : a + _PAIRS]), len(self.values)), 255, np.uint8)
            # Tree by tree, in the pipeline's order of additions, which gives the same bits.
            for row, table in zip(np.ascontiguousarray(left.T), self.values, strict=True):
                out[a : a + _PAIRS] += table.take(row)


@dataclass(frozen=True, eq=False)
class Head:
    """A fitted function of features.

    `looks`: sequence of (int, str); each feature's part, by number, and its pooling of references: max, second, mean or
        refs.
    `weights`: (F + 1,) float64; the intercept, then one weight per feature.
    `plateau`: (2,) float64; a score, and the one that replaces all scores above it.
    """

    looks: Sequence[tuple[int, str]]
    weights: F8
    trees: SmallTrees
    plateau: F8

    def score(self, features: list[F8]) -> F8:
        """Score P pairs by the operations of the pipeline, in their order."""
        out = np.full(len(features[0]), self.weights[0])
        for feature, weight in zip(features, self.weights[1:].tolist(), strict=True):
            out += feature * weight
        self.trees.add(features, out)
        np.clip(out, 0.0, 1.0, out=out)
        out[out > self.plateau[0]] = self.plateau[1]
        return out


@dataclass(frozen=True, eq=False)
class FuseBlocks:
    """A function of parts. Products are computed in float64: float32 would blur the thresholds of trees.

    `single`, `set`: for one reference and for several.
    """

    parts: Sequence[Blocks]
    single: Head
    set: Head

    @classmethod
    def open(cls, arrays: Mapping[str, NDArray[Any]], parts: Sequence[Blocks], heads: Mapping[str, Any]) -> FuseBlocks:
        """Wrap the arrays of a lookup; `heads` holds the looks of each head."""
        opened = {}
        for name in HEADS:
            weights = np.array(arrays[f"{name}.weights"])
            roots, nodes, values = (np.array(arrays[f"{name}.{part}"]) for part in ("roots", "nodes", "values"))
            looks = [(int(part), str(how)) for part, how in heads[name]]
            trees = SmallTrees.of(roots, nodes, values, len(looks))
            opened[name] = Head(looks, weights, trees, np.array(arrays[f"{name}.plateau"]))
        return cls(parts, **opened)

    def fill(self, images: References, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Fill `out`, (B_images, B_captions) float32 or float64."""
        if pooling == "paired" or len(images.positions) == 1:
            out[...] = self._singles(images.positions[:1], captions)[0]
        elif pooling != "refs":
            out[...] = images.pool(self._singles(images.positions, captions), pooling)
        else:
            out[...] = self._sets(images, captions)
            # An image of one reference is scored by the head for single references, also among larger sets.
            if images.sizes is not None and len(one := np.flatnonzero(images.sizes == 1)):
                out[one] = self._singles(images.positions[:1, one], captions)[0]

    def _singles(self, positions: NDArray[np.int64], captions: NDArray[np.int64]) -> F8:
        """Score (W, B) single references: (W, B, C)."""
        features = [
            self._part_scores(part, positions, captions, "refs" if how == "refs" else "paired").reshape(-1)
            for part, how in self.single.looks
        ]
        return self.single.score(features).reshape(*positions.shape, -1)

    def _sets(self, images: References, captions: NDArray[np.int64]) -> F8:
        """Score B sets: (B, C)."""
        by_reference: dict[int, F8] = {}
        features = []
        for part, how in self.set.looks:
            if how == "refs":
                scores = np.empty((images.positions.shape[1], len(captions)))
                self.parts[part].fill(images, captions, "refs", scores)
            else:
                # Several poolings of one part share its scores.
                if part not in by_reference:
                    by_reference[part] = self._part_scores(part, images.positions, captions)
                scores = _pooled(by_reference[part], images, how)
            features.append(scores.reshape(-1))
        return self.set.score(features).reshape(images.positions.shape[1], -1)

    def _part_scores(
        self, part: int, positions: NDArray[np.int64], captions: NDArray[np.int64], pooling: Pooling = "paired"
    ) -> F8:
        """Return a part's scores of (W, B) single references: (W, B, C)."""
        out = np.empty((positions.size, len(captions)))
        self.parts[part].fill(References(positions.reshape(1, -1), None), captions, pooling, out)
        return out.reshape(*positions.shape, -1)


def _pooled(scores: F8, images: References, how: str) -> F8:
    """Reduce (W, B, C) to (B, C); an image with fewer references than W repeats its last one, which counts once."""
    width = np.arange(len(scores))[:, None]
    counts = np.ones((len(scores), scores.shape[1]), bool) if images.sizes is None else width < images.sizes
    best, second, total = scores[0], np.full_like(scores[0], -np.inf), scores[0].copy()
    for score, counted in zip(scores[1:], counts[1:, :, None], strict=True):
        # Of the old best and the new score the smaller one competes for the second place.
        second = np.where(counted, np.maximum(second, np.minimum(best, score)), second)
        best = np.where(counted, np.maximum(best, score), best)
        total = np.where(counted, total + score, total)
    if how == "mean":
        return np.asarray(total / counts.sum(axis=0)[:, None])
    return np.asarray(best if how == "max" else second)
