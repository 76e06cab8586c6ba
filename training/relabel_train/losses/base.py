"""What every loss of scores shares: one call, both directions from one matrix, named terms, a stated reduction."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from relabel_train.losses.checks import one_of

Reduction = Literal["sum", "mean"]
Parts = dict[str, Tensor]
"""Losses of each query, (Q,), by name."""


class RelevanceLoss(nn.Module):
    """A loss of a batch's scores, given its labels: `loss(scores, relevance, same_image)`.

    Rows are images, columns captions; the pair (V_i, T_i) is on the diagonal. Image-to-text queries are the rows,
    text-to-image queries the rows of the transposes: a caption's labels are its column (D3). A loss writes `per_query`
    or `both_ways`.

    Parameters
    ----------
    reduction : "sum" or "mean"
        Over the queries of one direction.
    directions : "sum" or "mean"
        Over image-to-text and text-to-image.

    Raises
    ------
    ValueError
        If a parameter is not in its range.

    Notes
    -----
    A loss computes in float32 at least, whatever autocast says, and its labels carry no gradient. A label that lies on
    an edge (a threshold, a window) counts as on it within a slack that its dtype allows: see `slack`.
    """

    shown: ClassVar[tuple[str, ...]] = ()
    """The parameters that `repr` shows."""
    needs_relevance: bool = True
    paired: ClassVar[bool] = True
    """Whether the diagonal must hold the pairs, so that scores must be square."""

    def __init__(self, reduction: Reduction = "sum", directions: Reduction = "sum") -> None:
        super().__init__()
        one_of("reduction", reduction, ("sum", "mean"))
        one_of("directions", directions, ("sum", "mean"))
        self.reduction = reduction
        self.directions = directions

    def forward(self, scores: Tensor, relevance: Tensor | None = None, same_image: Tensor | None = None) -> Tensor:
        """Return the loss: the sum of `terms`.

        Parameters
        ----------
        scores : (B_images, B_captions) float
            s(V_i, T_j).
        relevance : (B_images, B_captions) float
            r(V_i, T_j), in the range that the loss states; may be None where a loss needs no labels.
        same_image : (B_images, B_captions) bool, optional
            Whether caption j is one of image i's own. Such pairs are never negatives. The diagonal counts as true.

        Returns
        -------
        () float
            float32, or float64 for float64 scores.

        Raises
        ------
        ValueError
            If shapes or dtypes do not fit.
        """
        first, *others = self.terms(scores, relevance, same_image).values()
        return sum(others, start=first)

    def terms(
        self, scores: Tensor, relevance: Tensor | None = None, same_image: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the named parts of the loss, `NAME_i2t` and `NAME_t2i`, weighted so that they sum to it.

        Parameters, errors: as `forward`.
        """
        self._check(scores, relevance, same_image)
        with torch.autocast(scores.device.type, enabled=False):
            scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
            relevance = relevance.detach() if relevance is not None and self.needs_relevance else None
            found = self.both_ways(scores, relevance, self._own(scores, same_image))
            reduced: dict[str, Tensor] = {}
            for direction, parts in zip(("i2t", "t2i"), found, strict=True):
                for name, losses in parts.items():
                    total = losses.sum() if self.reduction == "sum" else losses.mean()
                    reduced[f"{name}_{direction}"] = total * 0.5 if self.directions == "mean" else total
        return reduced

    def both_ways(self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None) -> tuple[Parts, Parts]:
        """Return the losses of the images as queries, (B_images,) by name, and of the captions, (B_captions,).

        The two are `per_query` of a matrix and of its transpose. A loss that looks at every pair, where the directions
        differ in the axis along which they reduce alone, writes this instead, so that they share the work.

        Parameters
        ----------
        scores : (B_images, B_captions) float32 or float64
        relevance : (B_images, B_captions) float or None
            Detached, in the dtype it was given in.
        same_image : (B_images, B_captions) bool or None
            With a true diagonal. If it was not given: the diagonal alone for a paired loss, else None.
        """
        images = self.per_query(scores.contiguous(), rows(relevance), rows(same_image))
        return images, self.per_query(scores.T.contiguous(), columns(relevance), columns(same_image))

    def per_query(self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None) -> Parts:
        """Return the losses of each row as a query, (Q,), by name; parameters, (Q, N) each, as of `both_ways`."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Return the parameters."""
        names = (*self.shown, "reduction", "directions")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def _own(self, scores: Tensor, same_image: Tensor | None) -> Tensor | None:
        if scores.shape[0] != scores.shape[1] or (same_image is None and not self.paired):
            return same_image
        diagonal = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
        return diagonal if same_image is None else same_image | diagonal

    def _check(self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None) -> None:
        name = type(self).__name__
        if scores.ndim != 2 or 0 in scores.shape or not scores.is_floating_point():
            raise ValueError(f"{name}: scores are {describe(scores)}, not (images, captions) floats")
        if self.paired and scores.shape[0] != scores.shape[1]:
            raise ValueError(f"{name}: scores are {describe(scores)}, not square; pairs lie on the diagonal")
        if relevance is None and self.needs_relevance:
            raise ValueError(f"{name} needs relevance")
        if relevance is not None and (relevance.shape != scores.shape or not relevance.is_floating_point()):
            raise ValueError(f"{name}: relevance is {describe(relevance)}, scores are {describe(scores)}")
        if same_image is not None and (same_image.shape != scores.shape or same_image.dtype != torch.bool):
            raise ValueError(f"{name}: same_image is {describe(same_image)}, not {tuple(scores.shape)} bool")


def rows(matrix: Tensor | None) -> Tensor | None:
    """Return the matrix with contiguous rows, which sorts and searches need: images as queries."""
    return None if matrix is None else matrix.contiguous()


def columns(matrix: Tensor | None) -> Tensor | None:
    """Return the transpose with contiguous rows: captions as queries."""
    return None if matrix is None else matrix.T.contiguous()


def describe(tensor: Tensor) -> str:
    """Say shape and dtype."""
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def labels(relevance: Tensor | None) -> Tensor:
    """Return labels in float32 at least."""
    assert relevance is not None  # `terms` has checked
    return relevance.to(torch.promote_types(relevance.dtype, torch.float32))


def known_own(same_image: Tensor | None) -> Tensor:
    """Return a paired loss's mask of own items."""
    assert same_image is not None  # `terms` has made it
    return same_image


def slack(relevance: Tensor | None) -> float:
    """Return how far from an edge a label still lies on it: what rounding to its dtype can move it, and some more."""
    assert relevance is not None
    return {torch.float64: 1e-9, torch.float32: 1e-6, torch.float16: 1e-3}.get(relevance.dtype, 1e-2)


def lifted(relevance: Tensor, same_image: Tensor | None, dim: int = 1) -> Tensor:
    """Return labels in which all of a query's own items, along `dim`, have the best label among them.

    For losses of whole lists, which have no negatives that a sibling could be kept from.
    """
    if same_image is None:
        return relevance
    best = relevance.masked_fill(~same_image, -torch.inf).amax(dim=dim, keepdim=True)
    return torch.where(same_image, best, relevance)
