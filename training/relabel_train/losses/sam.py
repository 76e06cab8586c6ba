"""SAM: the triplet loss with a margin that grows as the relevance of the sampled negative falls."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from relabel_train.losses.base import Parts, Reduction, RelevanceLoss, labels
from relabel_train.losses.validation import number, one_of

Sampling = Literal["random", "hard", "soft"]
MarginOf = Literal["image", "query"]


class SAMLoss(RelevanceLoss):
    """Semantic adaptive margin, one sampled negative per query and direction (Biten et al., WACV 2022, Eq. 7).

    [(phi(G_p, c_p) - phi(G_p, c_m)) / tau + s_pm - s_pp]_+ for a negative caption m, and with a negative image k
    [(phi(G_p, c_p) - phi(G_p, c_k)) / tau + s_kp - s_pp]_+, where r(V_i, T_j) = phi(G_i, c_j).

    Parameters
    ----------
    tau : float
        Above 0. 3, the released code's default; the paper tries 3, 5 and 10, for CIDEr-D on 0..10.
    sampling : "random", "hard" or "soft"
        The negative: a random one, the most similar one, or the least similar one, as the paper defines the words. The
        released flags `hard` and `soft` select the opposite. "random", the released default.
    margin_of : "image" or "query"
        Relevance in the text-to-image margin: of the pair's own image and caption c_k (Eq. 7), or of image k and the
        query c_p, phi(G_k, c_p). With "query" both directions are one function of a matrix and of its transpose.
    clamp : float, optional
        Upper bound of a margin. None, as the paper; the released code clamps margins at 1.0. Negative margins are kept.
    reduction : "sum" or "mean"
        Over queries; "sum", as the paper.
    directions : "sum" or "mean"
        "sum", as the paper.
    generator : torch.Generator, optional
        Of "random"; torch's own by default.

    Notes
    -----
    Labels: any relevance; CIDEr-D on 0..10 in the paper. As in Eq. 7, margins are those of the query's own pair and
    direction, and text-to-image negatives come from columns. The released code swaps the margins of the directions,
    reads them at the negative's index, and takes both negatives from rows.

    With `same_image` a query's own items are never drawn. A query without a negative has loss 0. The paper adds the
    original triplet loss ("T"): `CombinedLoss({"sam": SAMLoss(), "triplet": TripletLoss()})`; the released code weights
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

    def both_directions(
        self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None
    ) -> tuple[Parts, Parts]:
        """Return the hinge of each query."""
        assert same_image is not None  # a paired loss always has the diagonal
        drawn, margins = self.drawn(scores, labels(relevance).to(scores.dtype), same_image)
        images, captions = (margins + (scores.take(drawn) - scores.diagonal())).clamp(min=0)
        return {"sam": images}, {"sam": captions}

    @torch.no_grad()
    def drawn(self, scores: Tensor, known: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Return one negative of each image and of each caption.

        Returns
        -------
        pairs : (2, B) int64
            Indices of the pairs in the flattened scores.
        margins : (2, B) float
            -inf for a query without a negative.
        """
        queries = torch.arange(len(scores), device=scores.device)
        first = queries * len(scores)
        by_image, by_caption = self.keys(scores, own)
        columns, have_columns = self.draw(by_image, known, 1)
        rows, have_rows = self.draw(by_caption, known.T if self.margin_of == "image" else known, 0)
        drawn = torch.stack([first + columns, queries + rows * len(scores)])
        held = torch.stack([drawn[0], first + rows]) if self.margin_of == "image" else drawn
        margins = (known.diagonal() - known.take(held)) / self.tau
        if self.clamp is not None:
            margins = margins.clamp(max=self.clamp)
        return drawn, margins.masked_fill(~torch.stack([have_columns, have_rows]), -torch.inf)

    @torch.no_grad()
    def keys(self, scores: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys whose largest each image, and each caption, draws: (B, B) each, -inf for own items."""
        if self.sampling == "random":
            chances = (torch.rand(scores.shape, generator=self.generator, device=scores.device) for _ in range(2))
            images, captions = (chance.masked_fill_(own, -torch.inf) for chance in chances)
            return images, captions
        keys = (scores if self.sampling == "hard" else -scores).masked_fill(own, -torch.inf)
        return keys, keys

    def draw(self, keys: Tensor, known: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """Return the index along `dim` of one negative of each query, (B,) int64, and whether there is any.

        The least relevant of tied keys is taken, so that the order of the batch does not matter.
        """
        largest = keys.amax(dim, keepdim=True)
        # A key below the largest by more than rounding outweighs any label.
        least = torch.add(known, largest - keys, alpha=1e30).min(dim)
        return least.indices, (largest > -torch.inf).squeeze(dim)
