"""A weighted sum of losses, as one loss with named terms."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from relabel_train.losses.base import RelevanceLoss
from relabel_train.losses.validation import check_number


class CombinedLoss(nn.Module):
    """Weighted sum of losses; each part keeps its own reduction.

    Parameters
    ----------
    parts : mapping of name to loss
        At least one.
    weights : mapping of name to number, optional
        0 or more; 1 where not given.

    Raises
    ------
    ValueError
        If there is no part, a weight is negative, or a weight has no part.

    Examples
    --------
    >>> import torch
    >>> from relabel_train.losses import CombinedLoss, SoftTargetLoss, TripletLoss
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
        # A ModuleDict, so that `.to(device)` and `modules()` reach the parts.
        self.parts = nn.ModuleDict(dict(parts))
        self.weights = {name: weights.get(name, 1.0) for name in parts}

    def forward(self, scores: Tensor, relevance: Tensor | None = None, same_image: Tensor | None = None) -> Tensor:
        """Return the loss; parameters and errors as `RelevanceLoss.forward`."""
        first, *rest = self.terms(scores, relevance, same_image).values()
        return sum(rest, start=first)

    def terms(
        self, scores: Tensor, relevance: Tensor | None = None, same_image: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the terms of all parts, `PART.TERM`, weighted so that they sum to the loss."""
        terms: dict[str, Tensor] = {}
        for name, part in self.parts.items():
            assert isinstance(part, RelevanceLoss)
            for term, value in part.terms(scores, relevance, same_image).items():
                terms[f"{name}.{term}"] = value * self.weights[name]
        return terms

    def extra_repr(self) -> str:
        """Return the weights."""
        return f"weights={self.weights!r}"
