"""What every loss of scores shares: one call, both directions from one matrix, named terms, a stated reduction."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from relabel_train.losses.checks import one_of

Reduction = Literal["sum", "mean"]


class RelevanceLoss(nn.Module):
    """A loss of a batch's scores, given its labels: `loss(scores, relevance, same_image)`.

    Rows are images, columns captions; the pair (V_i, T_i) is on the diagonal. Image-to-text queries are the rows,
    text-to-image queries the rows of the transposes: a caption's labels are its column (D3).

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
    sorts: ClassVar[bool] = True
    """Whether rows are sorted or searched, so that the transposes must be copied."""

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
            scores = self.rows(scores.to(torch.promote_types(scores.dtype, torch.float32)))
            relevance = self.rows(relevance.detach()) if relevance is not None and self.needs_relevance else None
            same_image = self._own(scores, same_image)
            other_way = None if same_image is None else self.rows(same_image.T)
            found = {
                "i2t": self.per_query(scores, relevance, same_image),
                "t2i": self.per_query(self.rows(scores.T), self.turned(relevance), other_way),
            }
            share = 0.5 if self.directions == "mean" else 1.0
            reduced: dict[str, Tensor] = {}
            for direction, parts in found.items():
                for name, losses in parts.items():
                    total = losses.sum() if self.reduction == "sum" else losses.mean()
                    reduced[f"{name}_{direction}"] = total * share
        return reduced

    def per_query(self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None) -> dict[str, Tensor]:
        """Return the losses of each row as a query, (Q,), by name; to be written by each loss.

        Parameters
        ----------
        scores : (Q, N) float32 or float64
        relevance : (Q, N) float or None
            Detached, in the dtype it was given in.
        same_image : (Q, N) bool or None
            With a true diagonal. If it was not given: the diagonal alone for a paired loss, else None.
        """
        raise NotImplementedError

    def turned(self, relevance: Tensor | None) -> Tensor | None:
        """Return the labels of the text-to-image queries."""
        return None if relevance is None else self.rows(relevance.T)

    def rows(self, matrix: Tensor) -> Tensor:
        """Return the matrix, its rows contiguous if they are sorted or searched."""
        return matrix.contiguous() if self.sorts else matrix

    def extra_repr(self) -> str:
        """Return the parameters."""
        names = (*self.shown, "reduction", "directions")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def _own(self, scores: Tensor, same_image: Tensor | None) -> Tensor | None:
        square = scores.shape[0] == scores.shape[1]
        diagonal = torch.eye(len(scores), dtype=torch.bool, device=scores.device) if square else None
        if same_image is None:
            return diagonal if self.paired else None
        same_image = self.rows(same_image)
        return same_image if diagonal is None else same_image | diagonal

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


def lifted(relevance: Tensor, same_image: Tensor | None) -> Tensor:
    """Return labels in which all of a query's own items have the best label among them.

    For losses of whole lists, which have no negatives that a sibling could be kept from.
    """
    if same_image is None:
        return relevance
    best = relevance.masked_fill(~same_image, -torch.inf).amax(dim=1, keepdim=True)
    return torch.where(same_image, best, relevance)
