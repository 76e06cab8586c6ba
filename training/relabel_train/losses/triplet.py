"""Triplet ranking losses: hardest negative (VSE++), sum of all (VSE0), soft maximum (BCLS), adaptive margin (SAM)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from relabel_train.losses.base import (
    Parts,
    Reduction,
    RelevanceLoss,
    check_choice,
    check_number,
    float_labels,
    label_tolerance,
)

Negatives = Literal["hardest", "sum", "soft"]


class TripletLoss(RelevanceLoss):
    """Hinge [margin + s(q, n) - s(q, p)]_+ of each query q, its pair p and negatives n.

    Parameters
    ----------
    margin : float
        0 or more. 0.2, as VSE++ and every host of the graded losses; the BCLS paper does not state its margin.
    negatives : "hardest", "sum" or "soft"
        "hardest" uses the most similar negative (VSE++, Faghri et al. 2018), "sum" adds the hinges of all (VSE0),
        "soft" uses (1 / gamma) log sum exp(gamma s) over them, an upper bound of their maximum (Triplet-SN, BCLS Eq.
        14-15).
    gamma : float
        Above 0; of "soft". 50, as BCLS.
    below : float, optional
        Only items with a label below it are negatives, so 1 excludes exact duplicates (BCLS, Eq. 13-15). None reads no
        labels, as VSE++ and VSE0; "soft" takes 1 instead.
    reduction, directions : "sum" or "mean"
        "sum" as VSE++, SCAN and BCLS; the S-NDCG paper (Eq. 1-3) takes the mean over queries, its released code over
        directions too.

    Notes
    -----
    Labels, if `below` is given: cosines for 1; any label with a `below` on its scale. Without `same_image` only the
    diagonal is excluded from the negatives, as in all released code; with it, the query's other own items are excluded
    too. A query without a negative has loss 0.

    Examples
    --------
    >>> scores = torch.tensor([[0.9, 0.8, 0.1], [0.2, 0.7, 0.3], [0.4, 0.0, 0.6]])
    >>> {name: round(part.item(), 4) for name, part in TripletLoss(margin=0.2).terms(scores).items()}
    {'triplet_i2t': 0.1, 'triplet_t2i': 0.3}

    Caption 1 also belongs to image 0, so it is not a negative:

    >>> same_image = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    >>> round(TripletLoss(margin=0.2)(scores, same_image=same_image).item(), 4)
    0.0

    Triplet-SN and Triplet-HN of BCLS, with labels; captions 0 and 1 are equal in the second call:

    >>> relevance = torch.tensor([[1.0, 0.5, 0.1], [0.5, 1.0, 0.3], [0.1, 0.3, 1.0]])
    >>> round(TripletLoss(negatives="soft")(scores, relevance).item(), 4)
    0.4
    >>> relevance[0, 1] = relevance[1, 0] = 1
    >>> round(TripletLoss(below=1.0)(scores, relevance).item(), 4)
    0.0
    """

    shown: ClassVar[tuple[str, ...]] = ("margin", "negatives", "gamma", "below")
    contrasts: ClassVar[bool] = True

    def __init__(
        self,
        margin: float = 0.2,
        negatives: Negatives = "hardest",
        gamma: float = 50.0,
        below: float | None = None,
        reduction: Reduction = "sum",
        directions: Reduction = "sum",
    ) -> None:
        super().__init__(reduction, directions)
        check_number("margin", margin, at_least=0)
        check_choice("negatives", negatives, ("hardest", "sum", "soft"))
        check_number("gamma", gamma, above=0)
        if below is None and negatives == "soft":
            below = 1.0
        if below is not None:
            check_number("below", below)
        self.margin, self.negatives, self.gamma, self.below = margin, negatives, gamma, below
        self.needs_relevance = below is not None

    def both_directions(
        self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None, ignore: Tensor | None
    ) -> tuple[Parts, Parts]:
        """Return the hinge of each query."""
        assert same_image is not None  # a paired loss always has the diagonal
        excluded = no_negatives(same_image, ignore)
        if self.below is not None:
            # Exact duplicates have label 1 without being of the image: no negatives either.
            excluded = excluded | (float_labels(relevance) >= self.below - label_tolerance(relevance))
        if self.negatives == "sum":
            images, captions = sum_of_hinges(scores, excluded, self.margin)
        elif self.negatives == "hardest":
            images, captions = hardest_hinges(scores, excluded, self.margin)
        else:
            # Not -inf: logsumexp of a row without a negative would have a NaN gradient; the hinge makes this one 0.
            kept = (self.gamma * scores).masked_fill(excluded, -1e30)
            least = self.margin - scores.diagonal()
            images, captions = ((least + kept.logsumexp(dim) / self.gamma).clamp(min=0) for dim in (1, 0))
        return {"triplet": images}, {"triplet": captions}


def no_negatives(same_image: Tensor, ignore: Tensor | None) -> Tensor:
    """Mark the items that are not negatives of a query: its own items and ignored items."""
    return same_image if ignore is None else same_image | ignore


def sum_of_hinges(scores: Tensor, excluded: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Return the sum over all but excluded items of [margin + s - s(q, p)]_+ for images and for captions, (B,) each."""
    pair = scores.diagonal()
    # The score of an image query's pair is that of its row, of a caption query's pair that of its column.
    images, captions = (
        (margin + scores - of_pair).clamp(min=0).masked_fill(excluded, 0) for of_pair in (pair[:, None], pair)
    )
    return images.sum(dim=1), captions.sum(dim=0)


def hardest_hinges(scores: Tensor, excluded: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Return [margin + max over all but excluded items of s - s(q, p)]_+ for images and for captions, (B,) each."""
    # A maximum of -inf closes the hinge of a query without negatives, with gradient 0.
    negatives, least = scores.masked_fill(excluded, -torch.inf), margin - scores.diagonal()
    return (least + negatives.amax(dim=1)).clamp(min=0), (least + negatives.amax(dim=0)).clamp(min=0)


Sampling = Literal["random", "hard", "soft"]
MarginOf = Literal["image", "query"]


class SAMLoss(RelevanceLoss):
    """Semantic adaptive margin, one sampled negative per query and direction (Biten et al., WACV 2022, Eq. 7).

    [(phi(G_p, c_p) - phi(G_p, c_m)) / tau + s_pm - s_pp]_+ for a negative caption m, and with a negative image k
    [(phi(G_p, c_p) - phi(G_p, c_k)) / tau + s_kp - s_pp]_+, with r(V_i, T_j) = phi(G_i, c_j).

    Parameters
    ----------
    tau : float
        Above 0. 3, the released code's default; the paper tries 3, 5 and 10, for CIDEr-D on 0..10.
    sampling : "random", "hard" or "soft"
        The negative: a random one, the most similar one, or the least similar one, as the paper defines the words. The
        released flags `hard` and `soft` select about the opposite. "random", the released default.
    margin_of : "image" or "query"
        Relevance in the text-to-image margin: of the pair's own image and caption c_k (Eq. 7), or of image k and the
        query c_p, phi(G_k, c_p). With "query" both directions are one function of a matrix and of its transpose.
    clamp : float, optional
        Upper bound of a margin. None, as the paper; the released code clamps margins at 1.0. Negative margins are kept.
    form : "paper" or "released"
        "released" departs from Eq. 7 as the released code does (Notes); with clamp=1.0 it has its values.
    reduction, directions : "sum" or "mean"
        "sum", as the paper.
    generator : torch.Generator, optional
        Of "random", on any device; torch's global generator of the scores' device by default. One of the CPU draws the
        same negatives on every device.

    Notes
    -----
    Labels: any relevance; CIDEr-D on 0..10 in the paper. As in Eq. 7, margins are those of the query's own pair and
    direction, and text-to-image negatives come from columns.

    The released code takes two items of each row i, m_i by s_ij - s_ii and k_i by s_ij - s_jj: not the first but the
    second of the order. This leaves out pair i only if it is the first. Its loss is the sum of [s_im - s_ii + a_m]_+
    and [s_ik - s_kk + b_k]_+, with a_j = (r_jj - r_jk_j) / tau and b_j = (r_jj - r_jm_j) / tau: the margins are swapped
    between the terms and read at the negative (docs/deviations.md). `form="released"` is that, with the paper's words
    for `sampling`; it does not read `same_image`.

    With `same_image` a query's own items are never drawn. A query without a negative has loss 0. The paper adds the
    original triplet loss ("T"): `CombinedLoss({"sam": SAMLoss(), "triplet": TripletLoss()})`; the released code weights
    SAM by 5.

    Examples
    --------
    >>> scores = torch.tensor([[0.9, 0.5, 0.1], [0.2, 0.7, 0.3], [0.4, 0.0, 0.6]])
    >>> cider = torch.tensor([[2.7, 1.2, 0.0], [0.9, 3.0, 0.3], [0.0, 0.3, 2.4]])
    >>> {name: round(part.item(), 4) for name, part in SAMLoss(sampling="hard").terms(scores, cider).items()}
    {'sam_i2t': 1.2, 'sam_t2i': 1.3}

    A random draw repeats under a generator:

    >>> draws = [SAMLoss(generator=torch.Generator().manual_seed(0))(scores, cider) for _ in range(2)]
    >>> draws[0].equal(draws[1])
    True
    """

    shown: ClassVar[tuple[str, ...]] = ("tau", "sampling", "margin_of", "clamp", "form")
    contrasts: ClassVar[bool] = True

    def __init__(
        self,
        tau: float = 3.0,
        sampling: Sampling = "random",
        margin_of: MarginOf = "image",
        clamp: float | None = None,
        form: Literal["paper", "released"] = "paper",
        reduction: Reduction = "sum",
        directions: Reduction = "sum",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(reduction, directions)
        check_number("tau", tau, above=0)
        check_choice("sampling", sampling, ("random", "hard", "soft"))
        check_choice("margin_of", margin_of, ("image", "query"))
        check_choice("form", form, ("paper", "released"))
        if form == "released":
            check_choice("margin_of, of form='released',", margin_of, ("image",))
        if clamp is not None:
            check_number("clamp", clamp)
        self.tau, self.sampling, self.margin_of, self.clamp, self.form = tau, sampling, margin_of, clamp, form
        self.generator = generator

    def both_directions(
        self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None, ignore: Tensor | None
    ) -> tuple[Parts, Parts]:
        """Return the hinge of each query."""
        assert same_image is not None  # a paired loss always has the diagonal
        if self.form == "released":
            if ignore is not None:
                raise ValueError("SAMLoss: form='released' reads no masks, neither same_image nor ignore")
            return self.released(scores, float_labels(relevance).to(scores.dtype))
        excluded = no_negatives(same_image, ignore)
        negatives, margins = self.sample_negatives(scores, float_labels(relevance).to(scores.dtype), excluded)
        # A margin of -inf closes the hinge of a query without a negative.
        images, captions = (margins + (scores.take(negatives) - scores.diagonal())).clamp(min=0)
        return {"sam": images}, {"sam": captions}

    def released(self, scores: Tensor, relevance: Tensor) -> tuple[Parts, Parts]:
        """Return the two terms of the released code for each row."""
        if len(scores) == 1:  # no second item
            return {"sam": scores[0] * 0}, {"sam": scores[0] * 0}
        # Less the score of the row's pair, and of the column's.
        gains = torch.stack([scores - scores.diagonal()[:, None], scores - scores.diagonal()])
        with torch.no_grad():
            if self.sampling == "random":
                itself = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
                items = torch.stack([keys.argmax(dim=1) for keys in self.sampling_keys(scores, itself)])
            else:
                items = gains.topk(2, dim=2, largest=self.sampling == "hard").indices[:, :, 1]
            margins = (relevance.diagonal() - relevance.gather(1, items.T).T) / self.tau
            if self.clamp is not None:
                margins = margins.clamp(max=self.clamp)
            margins = margins.flip(0).gather(1, items)
        images, captions = (gains.gather(2, items[:, :, None]).squeeze(2) + margins).clamp(min=0)
        return {"sam": images}, {"sam": captions}

    @torch.no_grad()
    def sample_negatives(self, scores: Tensor, relevance: Tensor, excluded: Tensor) -> tuple[Tensor, Tensor]:
        """Sample one negative of each image and of each caption that is not excluded; the diagonal is.

        Returns
        -------
        pairs : (2, B) int64
            Indices of the pairs in the flattened scores.
        margins : (2, B) float
            -inf for a query without a negative.
        """
        queries = torch.arange(len(scores), device=scores.device)
        # Offsets into the flattened matrix: row i starts at i B, column j adds j.
        first = queries * len(scores)
        by_image, by_caption = self.sampling_keys(scores, excluded)
        columns, have_columns = self.pick_largest(by_image, relevance, 1)
        rows, have_rows = self.pick_largest(by_caption, relevance.T if self.margin_of == "image" else relevance, 0)
        pairs = torch.stack([first + columns, queries + rows * len(scores)])
        # Eq. 7 reads the margin of a negative image k at phi(G_p, c_k): row p, column k, not at the pair (k, p).
        margin_pairs = torch.stack([pairs[0], first + rows]) if self.margin_of == "image" else pairs
        margins = (relevance.diagonal() - relevance.take(margin_pairs)) / self.tau
        if self.clamp is not None:
            margins = margins.clamp(max=self.clamp)
        return pairs, margins.masked_fill(~torch.stack([have_columns, have_rows]), -torch.inf)

    @torch.no_grad()
    def sampling_keys(self, scores: Tensor, excluded: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sampling keys of images and captions, (B, B) each: the maximum is drawn, -inf is excluded."""
        if self.sampling == "random":
            # Independent draws per direction; the maximum of uniform numbers is a uniform choice. On the generator's
            # device, since a generator of another device than its result is an error.
            device = scores.device if self.generator is None else self.generator.device
            chances = (torch.rand(scores.shape, generator=self.generator, device=device) for _ in range(2))
            images, captions = (
                chance.to(scores.device, non_blocking=True).masked_fill_(excluded, -torch.inf) for chance in chances
            )
            return images, captions
        keys = (scores if self.sampling == "hard" else -scores).masked_fill(excluded, -torch.inf)
        return keys, keys

    def pick_largest(self, keys: Tensor, relevance: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """Return the index along `dim` of the maximum key of each query, (B,) int64, and a mask of queries with any."""
        largest = keys.amax(dim, keepdim=True)
        # Among tied keys, take the item with the lowest relevance, so the result does not depend on the order of the
        # batch. Keys that are below the maximum by more than rounding do not count as tied.
        least = torch.add(relevance, largest - keys, alpha=1e30).min(dim)
        return least.indices, (largest > -torch.inf).squeeze(dim)
