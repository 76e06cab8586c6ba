"""Statistics of batches: the levels of relevance that images and captions meet, without captions of one image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from relabel_train.batches.base import Captions, Rows

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
    >>> from relabel_train.lookup.example import write_example
    >>> lookup = open_lookup(write_example(tempfile.mkdtemp()))
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
