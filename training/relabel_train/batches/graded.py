"""Graded batches: each caption meets, in its batch, candidates at every level of relevance.

Relevance is cut by thresholds t_1 > t_2 > ... > t_L into levels: level 1 is r >= t_1, level l is t_l <= r < t_(l-1).
Captions below t_L meet by chance. An epoch uses each caption once:

1. The candidates of a caption are the usable captions of other images among its `depth` nearest, each at the level of
   its score.
2. Captions are visited in random order, and the next free one opens a group. For every caption of the group, in order
   of joining, and every level 1..L: if no caption of the group is a candidate at this level, a random free candidate at
   this level joins. A group is closed when it has `group` captions or no caption can join.
3. The groups, in random order and end to end, are cut into batches. Every batch is as graded as any other and holds
   about B / `group` groups that are random to each other.

Towards the end of step 2 few candidates are free and groups stay small, because each caption is used once.

`grading` counts the levels of relevance that the images and captions of batches meet, without captions of one image.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from relabel_train.batches.base import Captions, Neighbours, Rows, Sampler, StableRandom

_CHUNK = 4096  # captions per call for neighbours


class GradedBatches(Sampler):
    """Batches in which each caption meets candidates at every level of relevance.

    Holds 5 bytes per caption and neighbour: 280 MB for the 566,747 captions of COCO's training split at depth 100.

    Parameters
    ----------
    neighbours : Neighbours
        With at least `depth` neighbours of every caption.
    levels : sequence of float
        Falling thresholds in the source's range; `quantile_levels` derives them from the data.
    group : int
        Largest number of captions of a group, at least 2.
    siblings : bool
        Allow two captions of one image in one group (two groups of a batch may always hold two).
    depth : int
        Neighbours examined.

    Examples
    --------
    >>> import tempfile
    >>> from relabel_train.batches import GradedBatches
    >>> from relabel_train.lookup import open_lookup
    >>> from relabel_train.examples import write_lookup
    >>> lookup = open_lookup(write_lookup(tempfile.mkdtemp()))
    >>> sampler = GradedBatches(lookup.captions(), lookup, 3, levels=(0.9, 0.5), seed=0, drop_last=False, depth=5)
    >>> [rows.tolist() for rows in sampler.epoch(0)]
    [[2, 1, 5], [3, 4, 0]]
    """

    name: ClassVar[str] = "graded"

    def __init__(
        self,
        captions: Captions,
        neighbours: Neighbours,
        batch_size: int,
        *,
        levels: Sequence[float],
        seed: int,
        drop_last: bool,
        group: int = 16,
        siblings: bool = False,
        depth: int = 100,
    ) -> None:
        super().__init__(captions, batch_size, seed=seed, drop_last=drop_last)
        self.neighbours, self.levels, self.depth = neighbours, tuple(map(float, levels)), depth
        self.group, self.siblings = group, siblings
        if not self.levels or any(a <= b for a, b in zip(self.levels, self.levels[1:], strict=False)):
            raise ValueError(f"levels are {self.levels}; they must be falling thresholds, at least one")
        if len(self.levels) > _NONE:
            raise ValueError(f"{len(self.levels)} levels; at most {_NONE}")
        if group < 2:
            raise ValueError(f"group is {group}; a caption meets no other in a group of less than 2")

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return self._count(len(self.captions))

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that determines the batches, except the captions and their neighbours."""
        specific = {"levels": list(self.levels), "group": self.group, "siblings": self.siblings, "depth": self.depth}
        return super().parameters | specific

    def epoch(self, epoch: int) -> list[Rows]:
        """List the batches of an epoch: (B,) int32 caption rows each."""
        random = StableRandom(self.seed, epoch)
        free, openers = np.ones(len(self.captions), np.bool_), random.permutation(len(self.captions)).tolist()
        groups = [self._grow(opener, free, random) for opener in openers if free[opener]]
        # Early groups are full and late ones short: a random order spreads them over the batches.
        order = random.permutation(len(groups)).tolist()
        return self._cut(np.array([position for g in order for position in groups[g]], np.int64))

    def _grow(self, opener: int, free: NDArray[np.bool_], random: StableRandom) -> list[int]:
        """Make one group and mark its captions as used."""
        (near, level), image = self._candidates, self.captions.image
        group, inside, images = [opener], self._inside, {int(image[opener])}
        free[opener], inside[opener] = False, True
        for member in group:  # grows during the loop
            row, code = near[member], level[member]
            for wanted in range(len(self.levels)):
                candidates = row[code == wanted]
                # Another member may already be a candidate at this level: then the level is met.
                if not len(candidates) or inside[candidates].any():
                    continue
                candidates = candidates[free[candidates]]
                if not self.siblings and len(candidates):
                    candidates = candidates[[int(i) not in images for i in image[candidates]]]
                if not len(candidates):
                    continue
                joins = int(candidates[random.one(len(candidates))])
                group.append(joins)
                free[joins], inside[joins] = False, True
                images.add(int(image[joins]))
                if len(group) == self.group:
                    break
            if len(group) == self.group:
                break
        # The marks are shared by all groups, so they are cleared in time proportional to this one.
        inside[group] = False
        return group

    @cached_property
    def _inside(self) -> NDArray[np.bool_]:
        """Marks of the captions in the growing group: none between groups."""
        return np.zeros(len(self.captions), np.bool_)

    @cached_property
    def _candidates(self) -> tuple[Rows, NDArray[np.uint8]]:
        """(N, depth) positions and levels of each caption's candidates; level _NONE for other neighbours."""
        shape = len(self.captions), self.depth
        near, level, thresholds = np.zeros(shape, np.int32), np.full(shape, _NONE, np.uint8), np.array(self.levels)
        for a in range(0, len(self.captions), _CHUNK):
            rows, scores, same_image = self.neighbours.neighbours(self.captions.rows[a : a + _CHUNK], self.depth, "nan")
            positions = self.captions.positions_of(rows)
            part = slice(a, a + len(positions)), slice(0, positions.shape[1])
            # Thresholds fall: the number of them above the score is its level, from 0; "left" puts r = t_l at level l.
            code = np.searchsorted(-thresholds, -np.asarray(scores, np.float64), side="left")
            code[(positions < 0) | same_image | (code == len(thresholds))] = _NONE
            near[part], level[part] = np.maximum(positions, 0), code
        return near, level


_NONE = 255


def quantile_levels(
    captions: Captions, neighbours: Neighbours, quantiles: Sequence[float], *, depth: int, seed: int = 0
) -> tuple[float, ...]:
    """Return thresholds that the given shares of all candidates reach.

    Parameters
    ----------
    quantiles : sequence of float
        Rising, in 0..1, of all candidates (step 1 of the algorithm): 0.1, 0.5, 0.9 make levels of the best tenth, the
        next four tenths and the four after them.
    depth : int
        Neighbours examined, of at most 5,000 captions drawn with `seed`.

    Returns
    -------
    tuple of float
        Falling, without duplicates.

    Raises
    ------
    ValueError
        If no caption has a candidate.

    Examples
    --------
    >>> import tempfile
    >>> from relabel_train.batches import quantile_levels
    >>> from relabel_train.lookup import open_lookup
    >>> from relabel_train.examples import write_lookup
    >>> lookup = open_lookup(write_lookup(tempfile.mkdtemp()))
    >>> [round(level, 2) for level in quantile_levels(lookup.captions(), lookup, (0.1, 0.5, 0.9), depth=5)]
    [0.94, 0.8, 0.28]
    """
    # 5,000 captions estimate the quantiles closely, and a large corpus would take minutes.
    sample = np.sort(StableRandom(seed).permutation(len(captions))[:5000])
    rows, scores, same_image = neighbours.neighbours(captions.rows[sample], depth, "nan")
    candidates = np.sort(np.asarray(scores, np.float64)[(captions.positions_of(rows) >= 0) & ~same_image])[::-1]
    if not len(candidates):
        raise ValueError("no caption has a neighbour that may be used and is not of its own image")
    last = [max(0, int(np.ceil(q * len(candidates))) - 1) for q in quantiles]
    return tuple(sorted({float(candidates[i]) for i in last}, reverse=True))


Labelled = tuple[NDArray[np.floating[Any]], NDArray[np.bool_]]


class Blocks(Protocol):
    """Exact blocks of caption rows: row i is the image of rows[i], column j the caption columns[j]."""

    def block(self, rows: Rows, columns: Rows) -> NDArray[np.floating[Any]]:
        """Return r(image of rows[i], caption columns[j]): (len(rows), len(columns))."""
        ...


@dataclass(frozen=True)
class GradingReport:
    """Means over batches; two captions of one image do not count as a pair.

    Attributes
    ----------
    levels : tuple of float
        Thresholds t_1 > ... > t_L. Level 1 is r >= t_1, level l is t_l <= r < t_(l-1), level L + 1 is r < t_L.
    batches : int
    pairs : float
        Pairs of an image and a caption per batch.
    siblings : float
        Pairs of different captions of one image per batch.
    above : tuple of float
        Pairs per batch with r >= t_l, for each threshold.
    images, captions : tuple of float
        Share of images (captions) that meet a caption (an image) of each level in their batch: L + 1 numbers in 0..1.
    all_levels : float
        Share of images that meet captions of every level.
    """

    levels: tuple[float, ...]
    batches: int
    pairs: float
    siblings: float
    above: tuple[float, ...]
    images: tuple[float, ...]
    captions: tuple[float, ...]
    all_levels: float

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


def grading(blocks: Iterable[Labelled], levels: Sequence[float]) -> GradingReport:
    """Count the levels of the pairs of batches.

    Parameters
    ----------
    blocks : iterable of (relevance, same_image)
        (B, B) each, as `labelled` or a batch plan gives them.
    levels : sequence of float
        Falling thresholds.

    Raises
    ------
    ValueError
        If there is no batch.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.batches import grading
    >>> relevance, same_image = np.array([[1.0, 0.8], [0.3, 1.0]]), np.eye(2, dtype=bool)
    >>> report = grading([(relevance, same_image)], levels=(0.7, 0.5))
    >>> report.above, report.images  # pairs per batch with r >= 0.7, >= 0.5; images that meet each of three levels
    ((1.0, 1.0), (0.5, 0.0, 0.5))
    """
    batches = rows = pairs = siblings = complete = 0
    above = np.zeros(len(levels), np.int64)
    met = np.zeros((2, len(levels) + 1), np.int64)
    for relevance, same_image in blocks:
        level = np.searchsorted(-np.asarray(levels, np.float64), -np.asarray(relevance, np.float64), side="left")
        # (L + 1, B, B): one plane of marks per level, without pairs of one image.
        at_level = np.stack([(level == n) & ~same_image for n in range(len(levels) + 1)])
        count = at_level.sum(axis=(1, 2))
        batches, rows, pairs = batches + 1, rows + len(relevance), pairs + int(count.sum())
        # The diagonal is the caption itself.
        siblings += int(same_image.sum()) - len(relevance)
        above += np.cumsum(count[:-1])
        met += at_level.any(axis=2).sum(axis=1), at_level.any(axis=1).sum(axis=1)
        complete += int(at_level.any(axis=2).all(axis=0).sum())
    if not batches:
        raise ValueError("there is no batch to look at")
    images, captions = (tuple((side / rows).tolist()) for side in met)
    mean = tuple((above / batches).tolist())
    return GradingReport(
        tuple(map(float, levels)), batches, pairs / batches, siblings / batches, mean, images, captions, complete / rows
    )


def labelled(batches: Iterable[Rows], source: Blocks, captions: Captions) -> Iterator[Labelled]:
    """Yield the exact block and the same-image marks of each batch, for `grading`.

    Examples
    --------
    >>> import tempfile
    >>> from relabel_train.batches import RandomBatches, grading, labelled
    >>> from relabel_train.lookup import open_lookup
    >>> from relabel_train.examples import write_lookup
    >>> lookup = open_lookup(write_lookup(tempfile.mkdtemp()))
    >>> sampler = RandomBatches(lookup.captions(), 3, seed=0, drop_last=True)
    >>> grading(labelled(sampler.epoch(0), lookup, lookup.captions()), levels=(0.9, 0.5)).batches
    2
    """
    for rows in batches:
        image = captions.image[captions.positions_of(rows)]
        yield source.block(rows, rows), image[:, None] == image


def grading_table(gradings: Mapping[str, GradingReport]) -> str:
    """Return reports on the same levels as a Markdown table, one column per name.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.batches import grading, grading_table
    >>> block = np.array([[1.0, 0.8], [0.3, 1.0]]), np.eye(2, dtype=bool)
    >>> print(grading_table({"random": grading([block], levels=(0.5,))}))
    |  | random |
    | --- | --- |
    | pairs per batch, r >= 0.5 | 1.0 |
    | images that meet r >= 0.5 | 50.0% |
    | images that meet r < 0.5 | 50.0% |
    | captions that meet r >= 0.5 | 50.0% |
    | captions that meet r < 0.5 | 50.0% |
    | images that meet every level | 0.0% |
    | same-image pairs per batch | 0.00 |
    """
    first = next(iter(gradings.values()))
    bounds = [f"r >= {t:.4g}" for t in first.levels]
    names = [
        bounds[0],
        *(f"{low:.4g} <= r < {high:.4g}" for high, low in zip(first.levels, first.levels[1:], strict=False)),
    ]
    names.append(f"r < {first.levels[-1]:.4g}")
    lines = [["", *gradings], ["---"] * (len(gradings) + 1)]
    lines += [
        [f"pairs per batch, {b}", *(f"{g.above[i]:.1f}" for g in gradings.values())] for i, b in enumerate(bounds)
    ]
    for side in ("images", "captions"):
        for i, name in enumerate(names):
            lines.append([f"{side} that meet {name}", *(f"{getattr(g, side)[i]:.1%}" for g in gradings.values())])
    lines.append(["images that meet every level", *(f"{g.all_levels:.1%}" for g in gradings.values())])
    lines.append(["same-image pairs per batch", *(f"{g.siblings:.2f}" for g in gradings.values())])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
