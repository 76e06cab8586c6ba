"""Distribution of a label's relevance for pairs of captions: of one image, neighbours of two images, random pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relabel.core.types import Scores
from relabel.corpus import References
from relabel.page.captions import PageCaptions
from relabel.page.nearest import Nearest
from relabel.sources.relevance import Relevance

PAIRS = 5_000
"""Pairs of each kind."""
_BINS = 40


@dataclass(frozen=True, eq=False)
class CaptionPairs:
    """Pairs of captions by their numbers on the page: references and candidates, (P,) int64 each.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.page.distribution import CaptionPairs
    >>> len(CaptionPairs(np.array([0, 1]), np.array([2, 3])))
    2
    """

    references: NDArray[np.int64]
    candidates: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.references)


@dataclass(frozen=True, eq=False)
class Distribution:
    """Relevance of one label for the three kinds of pairs.

    Attributes
    ----------
    edges : (B + 1,) float64
        Bins of equal width, shared by all kinds.
    shares : dict of str to (B,) float64
        Share of the pairs of a kind in each bin; pairs beyond the last edge count in the last bin.
    medians : dict of str to float
    counts : dict of str to int
        Pairs with a score.
    close : float or None
        Share of neighbours of two images that are at least as relevant as the median pair of one image.
    """

    edges: NDArray[np.float64]
    shares: dict[str, NDArray[np.float64]]
    medians: dict[str, float]
    counts: dict[str, int]
    close: float | None


def draw_pairs(captions: PageCaptions, most: int = PAIRS) -> dict[str, CaptionPairs]:
    """Draw pairs of captions of one image ("same_image") and of two images ("random").

    References are drawn uniformly, and the candidate of each uniformly from those of the kind. A kind that the captions
    lack is left out.

    Parameters
    ----------
    captions : PageCaptions
    most : int
        Most pairs of each kind; no more than twice the captions are drawn.

    Examples
    --------
    >>> from relabel.corpus.table import Caption, Corpus
    >>> from relabel.page.captions import choose_captions
    >>> from relabel.page.distribution import draw_pairs
    >>> corpus = Corpus.from_captions([Caption(f"c:{i}", f"i:{i // 2}", "test", "a dog") for i in range(6)])
    >>> {kind: len(pairs) for kind, pairs in draw_pairs(choose_captions(corpus, range(6)), most=4).items()}
    {'same_image': 4, 'random': 4}
    """
    # A few captions have a few pairs, and a slow label need not score them again and again.
    most = min(most, 2 * len(captions))
    rng = np.random.default_rng(0)
    first, size = captions.starts[:-1][captions.image], np.diff(captions.starts)[captions.image]
    pairs = {}
    several = np.flatnonzero(size > 1)
    if len(several):
        references = rng.choice(several, most)
        # A step of 1 to size - 1 within the image never leads back to the reference.
        step = rng.integers(1, size[references])
        offset = (references - first[references] + step) % size[references]
        pairs["same_image"] = CaptionPairs(references, first[references] + offset)
    others = len(captions) - size
    if others.min() > 0:
        references = rng.integers(0, len(captions), most)
        candidates = rng.integers(0, others[references])
        # Captions after the image of the reference are moved by its size.
        candidates += np.where(candidates >= first[references], size[references], 0)
        pairs["random"] = CaptionPairs(references, candidates)
    return pairs


def draw_neighbours(captions: PageCaptions, nearest: Nearest, most: int = PAIRS) -> Scores:
    """Draw the relevance of captions and their neighbours of other images.

    Parameters
    ----------
    captions : PageCaptions
    nearest : Nearest
    most : int

    Returns
    -------
    (P,) float64, P at most `most`
    """
    image = np.append(captions.image, -1)
    valid = nearest.positions < len(captions)
    scores = nearest.scores[valid & (image[nearest.positions] != captions.image[:, None])].astype(np.float64)
    return np.random.default_rng(0).permutation(scores)[:most]


def score_pairs(relevance: Relevance, captions: PageCaptions, pairs: CaptionPairs) -> Scores:
    """Score pairs of captions, each with one caption as the only reference; NaN where a caption has no encoding."""
    references = References.single(captions.rows[pairs.references])
    return relevance.pairs(references, captions.rows[pairs.candidates], "paired")


def distribution(scores: dict[str, Scores]) -> Distribution:
    """Summarise the relevance of pairs by kind.

    Parameters
    ----------
    scores : dict of str to (P,) float64
        By kind: "same_image", "neighbours", "random". NaN is left out, and a kind without scores, too.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.page.distribution import distribution
    >>> result = distribution({"same_image": np.array([0.5, 0.7]), "neighbours": np.array([0.6, 0.2, 0.1, 0.8])})
    >>> result.medians["same_image"], result.close
    (0.6, 0.5)
    """
    finite = {kind: values[~np.isnan(values)] for kind, values in scores.items()}
    finite = {kind: values for kind, values in finite.items() if len(values)}
    pooled = np.concatenate([*finite.values(), np.zeros(1)])
    # Few pairs reach the end of a range such as CIDEr-D's, which would leave most bins empty.
    low, high = float(pooled.min()), float(np.quantile(pooled, 0.99))
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    shares = {kind: np.histogram(np.minimum(v, edges[-1]), edges)[0] / len(v) for kind, v in finite.items()}
    medians = {kind: float(np.median(values)) for kind, values in finite.items()}
    close = None
    if "same_image" in finite and "neighbours" in finite:
        close = float((finite["neighbours"] >= medians["same_image"]).mean())
    return Distribution(edges, shares, medians, {kind: len(v) for kind, v in finite.items()}, close)
