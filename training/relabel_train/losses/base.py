"""Base of the losses of scores, and the checks of their options.

A loss has one call, both directions from one matrix, named terms and an explicit reduction.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

Reduction = Literal["sum", "mean"]
Parts = dict[str, Tensor]
"""Losses of each query, (Q,), by name."""


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError for a value that is not one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, not one of {', '.join(map(repr, choices))}")


def check_number(name: str, value: float, above: float | None = None, at_least: float | None = None) -> None:
    """Raise for a number that is not finite or too small."""
    # First, since every comparison with NaN is false.
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}, not a finite number")
    if above is not None and not value > above:
        raise ValueError(f"{name} is {value}, not above {above:g}")
    if at_least is not None and not value >= at_least:
        raise ValueError(f"{name} is {value}, not {at_least:g} or more")


class RelevanceLoss(nn.Module):
    """Base class of losses of a batch's scores, given its labels: `loss(scores, relevance, same_image)`.

    Rows are images and columns are captions; the pair (V_i, T_i) is on the diagonal. Image-to-text queries are the
    rows, and text-to-image queries are the columns. The labels of a caption are its column, r(V_j, T_i), as in the
    papers (docs/deviations.md: S-NDCG's released code reads rows). Subclasses implement `per_query` or
    `both_directions`.

    Parameters
    ----------
    reduction, directions : "sum" or "mean"
        Reduction over the queries of one direction, and over the two directions.

    Raises
    ------
    ValueError
        If a parameter is not in its range.

    Notes
    -----
    Losses compute in float32 or float64, also under autocast. Labels are detached. Labels are compared with thresholds
    and edges of windows up to a tolerance for the rounding of their dtype (`label_tolerance`).

    Values of labels are checked on the CPU. On other devices a check would wait for all queued work, so values are
    checked only in torch's anomaly mode, ``torch.autograd.set_detect_anomaly(True)``. Compiled code does not check
    values.

    Unless stated otherwise, a loss takes memory and time O(B^2) and requires square scores.

    Examples
    --------
    >>> class MeanSquaredError(RelevanceLoss):
    ...     def per_query(self, scores, relevance, same_image):
    ...         return {"mse": (scores - relevance).square().mean(dim=1)}
    >>> scores, relevance = torch.tensor([[0.9, 0.3], [0.1, 0.5]]), torch.tensor([[1.0, 0.3], [0.3, 1.0]])
    >>> loss = MeanSquaredError(reduction="mean", directions="mean")
    >>> round(loss(scores, relevance).item(), 4)
    0.075
    >>> {name: round(part.item(), 4) for name, part in loss.terms(scores, relevance).items()}
    {'mse_i2t': 0.0375, 'mse_t2i': 0.0375}
    """

    shown: ClassVar[tuple[str, ...]] = ()
    """Parameters in the `repr`."""
    needs_relevance: bool = True
    paired: ClassVar[bool] = True
    """True if the pairs must lie on the diagonal, that is, scores must be square."""
    label_bounds: tuple[float, float] | None = None
    """Minimum and maximum label for which the loss is defined; None if it accepts all labels."""
    label_range: tuple[float, float] | None = None
    """Minimum and maximum label for which the loss is intended; labels outside this range give a warning once."""
    contrasts: ClassVar[bool] = False
    """True if the loss has negatives and therefore accepts `ignore`."""

    def __init__(self, reduction: Reduction = "sum", directions: Reduction = "sum") -> None:
        super().__init__()
        check_choice("reduction", reduction, ("sum", "mean"))
        check_choice("directions", directions, ("sum", "mean"))
        self.reduction = reduction
        self.directions = directions

    def forward(
        self,
        scores: Tensor,
        relevance: Tensor | None = None,
        same_image: Tensor | None = None,
        ignore: Tensor | None = None,
    ) -> Tensor:
        """Return the loss: the sum of `terms`.

        Parameters
        ----------
        scores : (B_images, B_captions) float
            s(V_i, T_j).
        relevance : (B_images, B_captions) float
            r(V_i, T_j), in the range of the loss; may be None for a loss without labels.
        same_image : (B_images, B_captions) bool, optional
            True if caption j belongs to image i. Such pairs are never negatives. The diagonal is always True.
        ignore : (B_images, B_captions) bool, optional
            Likely false negatives: pairs of different images that count neither as negatives nor as positives. Only for
            losses with negatives.

        Returns
        -------
        () float
            float32, or float64 for float64 scores.

        Raises
        ------
        ValueError
            If shapes or dtypes do not fit, or `ignore` is given to a loss without negatives. If values are checked,
            also if a label is not finite or not in the loss's range.
        """
        first, *rest = self.terms(scores, relevance, same_image, ignore).values()
        return sum(rest, start=first)

    def terms(
        self,
        scores: Tensor,
        relevance: Tensor | None = None,
        same_image: Tensor | None = None,
        ignore: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the parts of `forward`, named `NAME_i2t` and `NAME_t2i`, weighted so that they sum to the loss."""
        self._check(scores, relevance, same_image, ignore)
        # Half precision would merge scores that differ by less than 1e-3, and exp(50 s) overflows float16.
        with torch.autocast(scores.device.type, enabled=False):
            scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
            # Labels keep their dtype because it determines their rounding error.
            relevance = relevance.detach() if relevance is not None and self.needs_relevance else None
            own = self._with_diagonal(scores, same_image)
            if ignore is not None and (pairs := own if own is not None else diagonal_of(scores)) is not None:
                ignore = ignore & ~pairs
            both = self.both_directions(scores, relevance, own, ignore)
            reduced: dict[str, Tensor] = {}
            for direction, parts in zip(("i2t", "t2i"), both, strict=True):
                for name, losses in parts.items():
                    total = losses.sum() if self.reduction == "sum" else losses.mean()
                    reduced[f"{name}_{direction}"] = total * 0.5 if self.directions == "mean" else total
        return reduced

    def both_directions(
        self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None, ignore: Tensor | None
    ) -> tuple[Parts, Parts]:
        """Return the losses of the images as queries, (B_images,) by name, and of the captions, (B_captions,).

        By default `per_query` of the matrix and of its transpose. Losses over all pairs override this if their
        directions differ only in the axis of the reduction, to compute the pairs once.

        Parameters
        ----------
        scores, relevance : (B_images, B_captions)
            In float32 or float64; detached, in the dtype it was given in, or None.
        same_image : (B_images, B_captions) bool or None
            With a true diagonal. Without the argument, only the diagonal for a paired loss, and None otherwise.
        ignore : (B_images, B_captions) bool or None
            None of the query's own pairs; None if the loss has no negatives.
        """
        images = self.per_query(scores.contiguous(), contiguous_rows(relevance), contiguous_rows(same_image))
        return images, self.per_query(
            scores.T.contiguous(), contiguous_columns(relevance), contiguous_columns(same_image)
        )

    def per_query(self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None) -> Parts:
        """Return the losses of each row as a query, (Q,), by name; parameters are (Q, N), as in `both_directions`."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Return the parameters."""
        names = (*self.shown, "reduction", "directions")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def _with_diagonal(self, scores: Tensor, same_image: Tensor | None) -> Tensor | None:
        """Mark the diagonal in `same_image`; without the argument, only for a paired loss."""
        diagonal = diagonal_of(scores)
        if diagonal is None or (same_image is None and not self.paired):
            return same_image
        # The pair of a query is its own item even if a caller's marks forget it.
        return diagonal if same_image is None else same_image | diagonal

    def _check(
        self, scores: Tensor, relevance: Tensor | None, same_image: Tensor | None, ignore: Tensor | None
    ) -> None:
        name = type(self).__name__
        for kind, tensor in (("scores", scores), ("relevance", relevance), ("same_image", same_image)):
            if tensor is not None and not isinstance(tensor, Tensor):
                raise TypeError(f"{name}: {kind} is of type {type(tensor).__name__}, not a tensor")
        if scores.ndim != 2 or 0 in scores.shape or not scores.is_floating_point():
            raise ValueError(f"{name}: scores are {describe(scores)}, not (images, captions) floats")
        if self.paired and scores.shape[0] != scores.shape[1]:
            raise ValueError(f"{name}: scores are {describe(scores)}, not square; pairs lie on the diagonal")
        if relevance is None and self.needs_relevance:
            raise ValueError(f"{name} needs relevance")
        if relevance is not None and (relevance.shape != scores.shape or not relevance.is_floating_point()):
            raise ValueError(f"{name}: relevance is {describe(relevance)}, scores are {describe(scores)}")
        if ignore is not None and not self.contrasts:
            raise ValueError(f"{name} has no negatives to ignore")
        # Masks of 0 and 1 in another dtype would index instead of select.
        for mask, given in (("same_image", same_image), ("ignore", ignore)):
            if given is not None and (given.shape != scores.shape or given.dtype != torch.bool):
                raise ValueError(f"{name}: {mask} is {describe(given)}, not {tuple(scores.shape)} bool")
        if relevance is not None and self.needs_relevance:
            check_labels(f"{name}: relevance", relevance, self.label_bounds, self.label_range)


def check_labels(
    name: str,
    labels: Tensor,
    bounds: tuple[float, float] | None = None,
    usual: tuple[float, float] | None = None,
) -> None:
    """Raise for labels that are not finite or out of bounds by more than their tolerance, as `RelevanceLoss` says.

    `usual`: range outside of which labels cause a warning.
    """
    # A branch on values would break a compiled graph.
    if torch.compiler.is_compiling() or not (labels.device.type == "cpu" or torch.is_anomaly_enabled()):
        return
    low, high = (value.item() for value in labels.detach().aminmax())  # NaN if any label is
    if not (math.isfinite(low) and math.isfinite(high)):
        row, column = (~labels.isfinite()).nonzero()[0].tolist()
        found = str(labels[row, column].item()).replace("nan", "NaN")
        raise ValueError(f"{name} is {found} at row {row}, column {column}; leave such captions out of the batch")
    tolerance = label_tolerance(labels)
    if usual is not None and (low < usual[0] - tolerance or high > usual[1] + tolerance):
        # The text is the same for every batch, so Python shows it once.
        limits = f"{usual[0]:g}..{usual[1]:g}"
        warnings.warn(f"{name} is not in {limits}, the range of labels that this loss is meant for", stacklevel=4)
    if bounds is None:
        return
    if low < bounds[0] - tolerance or high > bounds[1] + tolerance:
        outside = (labels < bounds[0] - tolerance) | (labels > bounds[1] + tolerance)
        row, column = outside.nonzero()[0].tolist()
        value, limits = labels[row, column].item(), f"{bounds[0]:g}..{bounds[1]:g}"
        raise ValueError(f"{name} is {value:.6g} at row {row}, column {column}, not in {limits}")


def diagonal_of(scores: Tensor) -> Tensor | None:
    """Return a mask of the pairs, on the diagonal of square scores; None for others."""
    square = scores.shape[0] == scores.shape[1]
    return torch.eye(len(scores), dtype=torch.bool, device=scores.device) if square else None


def contiguous_rows(matrix: Tensor | None) -> Tensor | None:
    """Return the matrix with contiguous rows, as sorts and searches need it: images as queries."""
    return None if matrix is None else matrix.contiguous()


def contiguous_columns(matrix: Tensor | None) -> Tensor | None:
    """Return the transpose with contiguous rows: captions as queries."""
    return None if matrix is None else matrix.T.contiguous()


def describe(tensor: Tensor) -> str:
    """Return shape and dtype as text."""
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def float_labels(relevance: Tensor | None) -> Tensor:
    """Return labels in float32 at least."""
    assert relevance is not None  # `terms` has checked
    return relevance.to(torch.promote_types(relevance.dtype, torch.float32))


def label_tolerance(relevance: Tensor | None) -> float:
    """Return the tolerance for comparing labels with thresholds: the dtype's rounding error with a margin.

    Labels of float64 have that of float32, in which vectors are stored at best.
    """
    assert relevance is not None
    return {torch.float16: 1e-3, torch.bfloat16: 1e-2}.get(relevance.dtype, 1e-6)


def with_best_own_label(relevance: Tensor, same_image: Tensor | None, dim: int = 1) -> Tensor:
    """Return labels in which all of a query's own items, along `dim`, have the best label among them.

    Losses of complete lists use it: they have no set of negatives to remove own items from. `dim`: 1 for image queries,
    0 for caption queries.
    """
    if same_image is None:
        return relevance
    best = relevance.masked_fill(~same_image, -torch.inf).amax(dim=dim, keepdim=True)
    return torch.where(same_image, best, relevance)


class CombinedLoss(nn.Module):
    """Weighted sum of losses; each part keeps its own reduction.

    Parameters
    ----------
    parts : mapping of name to loss
        One or more losses.
    weights : mapping of name to number, optional
        0 or more; 1 where not given. ValueError for one without a part.

    Examples
    --------
    >>> from relabel_train.losses import SoftTargetLoss, TripletLoss
    >>> loss = CombinedLoss({"triplet": TripletLoss(), "soft": SoftTargetLoss()}, {"soft": 0.5})
    >>> scores, relevance = torch.tensor([[0.9, 0.8], [0.2, 0.7]]), torch.tensor([[1.0, 0.5], [0.4, 1.0]])
    >>> list(loss.terms(scores, relevance))
    ['triplet.triplet_i2t', 'triplet.triplet_t2i', 'soft.soft_target_i2t', 'soft.soft_target_t2i']
    >>> round(loss(scores, relevance).item(), 4)
    0.4242
    """

    def __init__(self, parts: Mapping[str, RelevanceLoss], weights: Mapping[str, float] | None = None) -> None:
        super().__init__()
        weights = dict(weights or {})
        if not parts:
            raise ValueError("a combined loss needs a part")
        unknown = sorted(set(weights) - set(parts))
        if unknown:
            raise ValueError(f"weights name {', '.join(unknown)}; the parts are {', '.join(parts)}")
        for name, weight in weights.items():
            check_number(f"weight of {name}", weight, at_least=0)
        # In a ModuleDict, the parts are reached by `.to(device)` and `modules()`.
        self.parts = nn.ModuleDict(dict(parts))
        self.weights = {name: weights.get(name, 1.0) for name in parts}

    @property
    def contrasts(self) -> bool:
        """True if a part has negatives; `ignore` is passed to such parts."""
        return any(part.contrasts for part in self.parts.values())

    def forward(
        self,
        scores: Tensor,
        relevance: Tensor | None = None,
        same_image: Tensor | None = None,
        ignore: Tensor | None = None,
    ) -> Tensor:
        """Return the loss; parameters and errors as `RelevanceLoss.forward`."""
        first, *rest = self.terms(scores, relevance, same_image, ignore).values()
        return sum(rest, start=first)

    def terms(
        self,
        scores: Tensor,
        relevance: Tensor | None = None,
        same_image: Tensor | None = None,
        ignore: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the terms of all parts, `PART.TERM`, weighted so that they sum to the loss."""
        terms: dict[str, Tensor] = {}
        for name, part in self.parts.items():
            assert isinstance(part, RelevanceLoss)
            # Without negatives in any part, the first one says so.
            own = ignore if part.contrasts or not self.contrasts else None
            for term, value in part.terms(scores, relevance, same_image, own).items():
                terms[f"{name}.{term}"] = value * self.weights[name]
        return terms

    def extra_repr(self) -> str:
        """Return the weights."""
        return f"weights={self.weights!r}"
