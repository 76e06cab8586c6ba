"""Base of the losses of embeddings and label distances: one call, anchors first."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from relabel_train.losses.base import Reduction, check_choice, describe


class DistanceLoss(nn.Module):
    """Base class of losses of embeddings, given label distances: `loss(embeddings, distances, same_image)`.

    The first A embeddings are the anchors: A = 1 is the papers' batch, A = N takes every item as an anchor.

    Parameters
    ----------
    reduction : "sum" or "mean"
        Over anchors.

    Examples
    --------
    >>> import torch
    >>> from relabel_train.losses import DistanceLoss
    >>> class MeanDistance(DistanceLoss):
    ...     def per_anchor(self, apart, distances, used):
    ...         return (apart * used).sum(dim=1) / used.sum(dim=1)
    >>> MeanDistance()(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([[0.0, 0.5], [0.5, 0.0]])).item()
    25.0
    """

    shown: ClassVar[tuple[str, ...]] = ()

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_choice("reduction", reduction, ("sum", "mean"))
        self.reduction = reduction

    def forward(self, embeddings: Tensor, distances: Tensor, same_image: Tensor | None = None) -> Tensor:
        """Return the loss.

        Parameters
        ----------
        embeddings : (N, D) float
            Of one kind of item, images in the paper.
        distances : (A, N) float
            Label distances of the first A items to all, 0 or more; smaller is more relevant. Of a relevance with upper
            bound 1: 1 - r.
        same_image : (A, N) bool, optional
            True if item j is of the anchor's own image. Such items are left out, as the anchor itself always is.

        Returns
        -------
        () float
            float32, or float64 for float64 embeddings.

        Raises
        ------
        ValueError
            If shapes or dtypes do not fit.
        """
        self._check(embeddings, distances, same_image)
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))
            distances = distances.detach().to(torch.promote_types(distances.dtype, torch.float32))
            anchors, items = distances.shape
            used = ~torch.eye(anchors, items, dtype=torch.bool, device=embeddings.device)
            if same_image is not None:
                used = used & ~same_image
            embeddings = self.prepare(embeddings)
            # By differences, not by products: |a|^2 + |b|^2 - 2ab loses the distance of near duplicates to rounding.
            exact = "donot_use_mm_for_euclid_dist"
            apart = torch.cdist(embeddings[:anchors], embeddings, compute_mode=exact) ** 2
            losses = self.per_anchor(apart, distances.to(apart.dtype), used)
        return losses.sum() if self.reduction == "sum" else losses.mean()

    def terms(self, embeddings: Tensor, distances: Tensor, same_image: Tensor | None = None) -> dict[str, Tensor]:
        """Return the loss under its name, as the one part."""
        return {type(self).__name__: self.forward(embeddings, distances, same_image)}

    def prepare(self, embeddings: Tensor) -> Tensor:
        """Return the embeddings whose distances are compared."""
        return embeddings

    def per_anchor(self, apart: Tensor, distances: Tensor, used: Tensor) -> Tensor:
        """Return the loss of each anchor, (A,); implemented by subclasses.

        Parameters
        ----------
        apart : (A, N) float
            Squared Euclidean distances of embeddings.
        distances : (A, N) float
            Label distances.
        used : (A, N) bool
            Items that count.
        """
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Return the parameters."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in (*self.shown, "reduction"))

    def _check(self, embeddings: Tensor, distances: Tensor, same_image: Tensor | None) -> None:
        name = type(self).__name__
        if embeddings.ndim != 2 or 0 in embeddings.shape or not embeddings.is_floating_point():
            raise ValueError(f"{name}: embeddings are {describe(embeddings)}, not (items, width) floats")
        fits = distances.ndim == 2 and 1 <= distances.shape[0] <= distances.shape[1] == len(embeddings)
        if not fits or not distances.is_floating_point():
            raise ValueError(f"{name}: distances are {describe(distances)}, not (anchors, {len(embeddings)}) floats")
        if same_image is not None and (same_image.shape != distances.shape or same_image.dtype != torch.bool):
            raise ValueError(f"{name}: same_image is {describe(same_image)}, not {tuple(distances.shape)} bool")
