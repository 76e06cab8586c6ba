"""Relevance from other labels (fuse): relevances of the parts, pooled, each through a piecewise-linear curve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup.blocks import Blocks, References
from relabel_train.lookup.format import Pooling

F8 = NDArray[np.float64]
Curve = tuple[int, Pooling, list[float], list[float]]
"""Part, by number, its pooling of references (max, mean or set), knots, and values at them."""


@dataclass(frozen=True, eq=False)
class Head:
    """Sum of curves of the parts' scores, from 0 to `cap`."""

    curves: Sequence[Curve]
    cap: float

    def score(self, features: Iterable[F8]) -> F8:
        """Score pairs by their features, arrays of one shape."""
        terms = (np.interp(x, curve[2], curve[3]) for curve, x in zip(self.curves, features, strict=True))
        return np.clip(sum(terms), 0.0, self.cap)


@dataclass(frozen=True, eq=False)
class FuseBlocks:
    """A function of parts, computed in float64: one for `single` references, one for a `set`."""

    parts: Sequence[Blocks]
    single: Head
    set: Head

    @classmethod
    def open(cls, parts: Sequence[Blocks], heads: Mapping[str, Any]) -> FuseBlocks:
        """Wrap the heads of `lookup.json`."""
        return cls(parts, Head(**heads["single"]), Head(**heads["set"]))

    def fill(self, images: References, captions: NDArray[np.int64], pooling: Pooling, out: NDArray[Any]) -> None:
        """Fill `out`, (B_images, B_captions) float32 or float64."""
        if pooling == "first" or len(images.positions) == 1:
            out[...] = self._singles(images.positions[:1], captions)[0]
        elif pooling != "set":
            out[...] = images.pool(self._singles(images.positions, captions), pooling)
        else:
            out[...] = self.set.score(self._set_features(images, captions))
            # An image of one reference is scored by the head for single references, also among larger sets.
            if images.sizes is not None and len(one := np.flatnonzero(images.sizes == 1)):
                out[one] = self._singles(images.positions[:1, one], captions)[0]

    def _singles(self, positions: NDArray[np.int64], captions: NDArray[np.int64]) -> F8:
        """Score (W, B) single references: (W, B, C)."""
        return self.single.score(
            self._part_scores(part, positions, captions, "set" if how == "set" else "first")
            for part, how, *_ in self.single.curves
        )

    def _set_features(self, images: References, captions: NDArray[np.int64]) -> Iterator[F8]:
        """Yield the features of B sets, (B, C) each; several poolings of a part share its scores."""
        singles: dict[int, F8] = {}
        for part, how, *_ in self.set.curves:
            if how == "set":
                scores = np.empty((images.positions.shape[1], len(captions)))
                self.parts[part].fill(images, captions, "set", scores)
                yield scores
                continue
            if part not in singles:
                singles[part] = self._part_scores(part, images.positions, captions, "first")
            # Averaging may overwrite the scores, which other poolings read.
            yield images.pool(singles[part].copy(), how)

    def _part_scores(
        self, part: int, positions: NDArray[np.int64], captions: NDArray[np.int64], pooling: Pooling
    ) -> F8:
        """Return a part's scores of (W, B) single references: (W, B, C)."""
        out = np.empty((positions.size, len(captions)))
        self.parts[part].fill(References(positions.reshape(1, -1), None), captions, pooling, out)
        return out.reshape(*positions.shape, -1)
