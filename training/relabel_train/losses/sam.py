"""SAM: the triplet loss with a margin that grows with how much less relevant the sampled negative is."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from relabel_train.losses.base import Parts, Reduction, RelevanceLoss, known_own, labels
from relabel_train.losses.checks import number, one_of

Sampling = Literal["random", "hard", "soft"]
MarginOf = Literal["image", "query"]


class SAMLoss(RelevanceLoss):
    """Semantic adaptive margin, one sampled negative a query and direction (Biten et al., WACV 2022, Eq. 7).

    [(phi(G_p, c_p) - phi(G_p, c_m)) / tau + s_pm - s_pp]_+ for a negative caption m, and with a negative image k
    [(phi(G_p, c_p) - phi(G_p, c_k)) / tau + s_kp - s_pp]_+, where r(V_i, T_j) = phi(G_i, c_j).

    Parameters
    ----------
    tau : float
        Above 0. 3, the released code's default; the paper tries 3, 5 and 10, for CIDEr-D on 0..10.
    sampling : "random", "hard" or "soft"
        The negative: any with equal chance, the most similar one, or the furthest one, as the paper means the words.
        The released flags `hard` and `soft` do the opposite of their names (D11). "random", the released default.
    margin_of : "image" or "query"
        Whose relevance sets the text-to-image margin: the pair's own image with caption c_k (Eq. 7), or image k with
        the query c_p, phi(G_k, c_p), for which both directions are the same function of a matrix and of its transpose.
    clamp : float, optional
        Upper bound of a margin: the released code's 1.0 (D13). None, as the paper. A negative margin is kept.
    reduction : "sum" or "mean"
        Over queries; "sum", as the paper.
    directions : "sum" or "mean"
        "sum", as the paper.
    generator : torch.Generator, optional
        Of "random"; torch's own without it.

    Notes
    -----
    Labels: any relevance; CIDEr-D on 0..10 in the paper. Margins are those of the query's own pair and its own
    direction (the released code swaps them, D12), and text-to-image negatives come from columns (it takes rows, D14).
    With `same_image` a query's own items are never drawn. A query without a negative costs nothing. The paper adds the
    original triplet loss ("T"): `CombinedLoss({"sam": SAMLoss(), "triplet": TripletLoss()})`; the released code weighs
    SAM by 5. Memory and time O(B^2).
    """

    shown: ClassVar[tuple[str, ...]] = ("tau", "sampling", "margin_of", "clamp")

    def __init__(
        self,
        tau: float = 3.0,
        sampling: Sampling = "random",
        margin_of: MarginOf = "image",
        clamp: float | None = None,
        reduction: Reduction = "sum",
        directions: Reduction = "sum",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(reduction, directions)
        number("tau", tau, above=0)
        one_of("sampling", sampling, ("random", "hard", "soft"))
        one_of("margin_of", margin_of, ("image", "query"))
        if clamp is not None:
            number("clamp", clamp)
        self.tau, self.sampling, self.margin_of, self.clamp = tau, sampling, margin_of, clamp
        self.generator = generator

    def both_ways(self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None) -> tuple[Parts, Parts]:
        """Return the hinge of each query."""
        drawn, margins = self.drawn(scores, labels(relevance).to(scores.dtype), known_own(same_image))
        images, captions = (margins + (scores.take(drawn) - scores.diagonal())).clamp(min=0)
        return {"sam": images}, {"sam": captions}

    @torch.no_grad()
    def drawn(self, scores: Tensor, known: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Return one negative of each image and of each caption.

        Returns
        -------
        places : (2, B) int64
            Of the pairs in the flattened scores.
        margins : (2, B) float
            -inf for a query without a negative.
        """
        places = torch.arange(len(scores), device=scores.device)
        first = places * len(scores)
        by_image, by_caption = self.keys(scores, own)
        columns, some_columns = self.draw(by_image, known, 1)
        rows, some_rows = self.draw(by_caption, known.T if self.margin_of == "image" else known, 0)
        drawn = torch.stack([first + columns, places + rows * len(scores)])
        held = torch.stack([drawn[0], first + rows]) if self.margin_of == "image" else drawn
        margins = (known.diagonal() - known.take(held)) / self.tau
        if self.clamp is not None:
            margins = margins.clamp(max=self.clamp)
        return drawn, margins.masked_fill(~torch.stack([some_columns, some_rows]), -torch.inf)

    @torch.no_grad()
    def keys(self, scores: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Return what images, and what captions, draw the largest of: (B, B) each, -inf for own items."""
        if self.sampling == "random":
            chances = (torch.rand(scores.shape, generator=self.generator, device=scores.device) for _ in range(2))
            images, captions = (chance.masked_fill_(own, -torch.inf) for chance in chances)
            return images, captions
        keys = (scores if self.sampling == "hard" else -scores).masked_fill(own, -torch.inf)
        return keys, keys

    def draw(self, keys: Tensor, known: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """Return the place along `dim` of one negative of each query, (B,) int64, and whether there is any.

        Among tied keys the least relevant is taken, so that the order of the batch does not matter.
        """
        largest = keys.amax(dim, keepdim=True)
        # A key that is lower by more than rounding to 0 outweighs any label.
        least = torch.add(known, largest - keys, alpha=1e30).min(dim)
        return least.indices, (largest > -torch.inf).squeeze(dim)
