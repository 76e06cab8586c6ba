"""The loss of a training: one loss, or a weighted sum, of embeddings, scores and labels."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import Field
from torch import Tensor, nn

from relabel_train.losses import LOSSES, DistanceLoss, TripletLoss
from relabel_train.reference.data import Labels
from relabel_train.reference.options import FitError, Losses, Parameters, choose


class LossParameters(Parameters):
    """Parameters of a loss: those of its class, and its factor in a sum of losses."""

    factor: float = Field(1.0, ge=-1e9, le=1e9)


class DistanceLossParameters(LossParameters):
    """Parameters of a loss of embeddings and label distances, with the paper's form of its training by default.

    `anchors`: the first items of a batch are its anchors, this many; 0: all items. `triplet`: weight of a
    hardest-negative triplet loss (mean over the batch) that is added. `unit_embeddings`: train embeddings of length 1.
    """

    anchors: int = Field(1, ge=0, le=10**9)
    triplet: float = Field(0.0, ge=0, le=1e9)
    unit_embeddings: bool = False


PARAMETERS: dict[str, type[LossParameters]] = {
    name: (DistanceLossParameters if issubclass(loss, DistanceLoss) else LossParameters).of(loss)
    for name, loss in LOSSES.items()
}
"""Parameters of every loss by its name."""


class Objective(nn.Module):
    """A weighted sum of losses, ``[{name: triplet, margin: 0.1}, {name: sam, factor: 5}]``.

    Losses of embeddings (log-ratio, dense triplet) are defined for items of one kind. They are computed for the images
    and for the captions, of which there are labels, with distances `top` - r.

    `top`: upper bound of the labels.
    """

    def __init__(self, loss: Losses, top: float = 1.0) -> None:
        super().__init__()
        choices = loss if isinstance(loss, list) else [loss]
        self.top, self.parts = top, [choose("loss", PARAMETERS, choice) for choice in choices]
        self.losses = nn.ModuleList(part.make() for part in self.parts)
        self.tie = TripletLoss(reduction="mean")
        self.distances = [part for part in self.parts if isinstance(part, DistanceLossParameters)]

    def check_labels(self, given: Collection[str], low: float, high: float) -> None:
        """Raise if labels lack a kind that a loss reads, or are out of its range.

        `given`: names of the fields of `Labels` that batches have. `low`, `high`: bounds of the labels.
        """
        for part, loss in zip(self.parts, self.losses, strict=True):
            modules = list(loss.modules())
            if part in self.distances and "between_images" not in given:
                raise FitError(f"{part.name} reads labels of images: give --lookup, or batches of --items images")
            if "relevance" not in given and any(getattr(module, "needs_relevance", False) for module in modules):
                raise FitError(f"{part.name} reads labels of pairs: give --lookup, or --batches of captions")
            for bounds in filter(None, (getattr(module, "label_bounds", None) for module in modules)):
                if not bounds[0] <= low <= high <= bounds[1]:
                    found = f"{bounds[0]:g}..{bounds[1]:g}, and these are in {low:g}..{high:g}"
                    raise FitError(f"{part.name} reads labels in {found}. Give --scale, or --set loss.labels=cosine.")

    def forward(self, scores: Tensor, images: Tensor, captions: Tensor, labels: Labels) -> Tensor:
        """Return the loss of B pairs. `scores`: (B, B). `images`, `captions`: (B, E), read by losses of embeddings."""
        terms: list[Tensor] = []
        for part, loss in zip(self.parts, self.losses, strict=True):
            if isinstance(part, DistanceLossParameters):
                own = self._distance_terms(part, loss, (scores, images, captions), labels)
            else:
                own = loss.terms(scores, labels.relevance, labels.same_image).values()  # type: ignore[operator]
            terms += [part.factor * term for term in own]
        total: Tensor = sum(terms[1:], start=terms[0])
        return total

    def _distance_terms(
        self, part: DistanceLossParameters, loss: nn.Module, pairs: tuple[Tensor, Tensor, Tensor], labels: Labels
    ) -> list[Tensor]:
        """Return the terms of a loss of embeddings, one for each kind of item with labels, and of the triplet loss."""
        (scores, *vectors), anchors = pairs, part.anchors or None
        between = zip(vectors, (labels.between_images, labels.between_captions), strict=True)
        same = labels.same_image[:anchors]
        terms = [loss(x, (self.top - r[:anchors]).clamp(min=0), same) for x, r in between if r is not None]
        tied = self.tie.terms(scores, None, labels.same_image).values() if part.triplet else ()
        return terms + [part.triplet * term for term in tied]
