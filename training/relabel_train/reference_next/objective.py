"""The loss of a training: one loss, or a weighted sum, of embeddings, scores and labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field
from torch import Tensor, nn

from relabel_train import losses
from relabel_train.losses import TripletLoss
from relabel_train.reference_next.data import Labels
from relabel_train.reference_next.options import FitError, Parameters, choose


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


LOSSES: dict[str, type[LossParameters]] = {
    "triplet": LossParameters.of(TripletLoss),
    "kendall": LossParameters.of(losses.KendallLoss),
    "sliding_window_kendall": LossParameters.of(losses.SlidingWindowKendallLoss),
    "bcls": LossParameters.of(losses.BCLSLoss),
    "ladder": LossParameters.of(losses.LadderLoss),
    "sam": LossParameters.of(losses.SAMLoss),
    "smooth_ndcg": LossParameters.of(losses.SmoothNDCGLoss),
    "smooth_ndcg_triplet": LossParameters.of(losses.SmoothNDCGTripletLoss),
    "log_ratio": DistanceLossParameters.of(losses.LogRatioLoss),
    "dense_triplet": DistanceLossParameters.of(losses.DenseTripletLoss),
    "soft_target": LossParameters.of(losses.SoftTargetLoss),
    "multi_positive_infonce": LossParameters.of(losses.MultiPositiveInfoNCE),
    "graded_sigmoid": LossParameters.of(losses.GradedSigmoidLoss),
}
"""Parameters of every loss of `relabel_train.losses`, by the name of the loss."""


class Objective(nn.Module):
    """A weighted sum of losses, ``[{name: triplet, margin: 0.1}, {name: sam, factor: 5}]``.

    Losses of embeddings (log-ratio, dense triplet) are defined for items of one kind. They are computed for the images
    and for the captions, of which there are labels, with distances `top` - r.

    `top`: upper bound of the labels.
    """

    def __init__(self, choices: Sequence[dict[str, Any]], top: float = 1.0) -> None:
        super().__init__()
        if not choices:
            raise FitError(f"no loss; there are {', '.join(LOSSES)}")
        self.top, self.parts = top, [choose("loss", LOSSES, choice) for choice in choices]
        self.losses = nn.ModuleList(part.make() for part in self.parts)
        self.tie = TripletLoss(reduction="mean")
        self.distances = [part for part in self.parts if isinstance(part, DistanceLossParameters)]

    @property
    def labelled(self) -> list[str]:
        """Names of the losses that read labels of images and captions."""
        reading = (any(getattr(m, "needs_relevance", False) for m in loss.modules()) for loss in self.losses)
        return [part.name for part, reads in zip(self.parts, reading, strict=True) if reads]

    @property
    def compares_kinds(self) -> bool:
        """True if any loss compares images with captions, so recalls distinguish models."""
        return len(self.distances) < len(self.parts) or any(part.triplet for part in self.distances)

    @property
    def unit_embeddings(self) -> bool:
        """False if a loss of embeddings uses their lengths."""
        return all(part.unit_embeddings for part in self.distances)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Return the parameter groups of an optimizer: the losses' own parameters, if any, without weight decay."""
        learned = list(self.parameters())
        return [{"params": learned, "lr": lr, "weight_decay": 0.0}] if learned else []

    def check_labels(self, low: float, high: float, kind: Literal["none", "lookup", "captions", "images"]) -> None:
        """Raise if labels of low..high lack what a loss reads, or are out of its range.

        `kind`: labels of a lookup, or of precomputed batches of captions or images.
        """
        paired = [part.name for part in self.distances]
        if kind == "none" and (names := self.labelled + paired):
            raise FitError(f"{names[0]} reads labels: give --lookup (a lookup) or --batches (precomputed batches)")
        if kind == "captions" and paired:
            raise FitError(f"{paired[0]} reads labels of images: give --lookup, or export with --items images")
        if kind == "images" and (names := self.labelled):
            hint = "give --lookup or batches of captions"
            raise FitError(f"{names[0]} reads labels of images and captions: {hint}")
        for part, loss in zip(self.parts, self.losses, strict=True):
            for bounds in filter(None, (getattr(module, "label_bounds", None) for module in loss.modules())):
                if not bounds[0] <= low <= high <= bounds[1]:
                    found = f"{bounds[0]:g}..{bounds[1]:g}, and these are in {low:g}..{high:g}"
                    hint = "Give --scale, or --set loss.labels=cosine for cosines."
                    raise FitError(f"{part.name} reads labels in {found}. {hint}")

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
        """Return a loss of embeddings for each kind of item that has labels, and the triplet loss beside it."""
        (scores, *vectors), anchors = pairs, part.anchors or None
        between = zip(vectors, (labels.between_images, labels.between_captions), strict=True)
        same = labels.same_image[:anchors]
        terms = [loss(x, (self.top - r[:anchors]).clamp(min=0), same) for x, r in between if r is not None]
        tied = self.tie.terms(scores, None, labels.same_image).values() if part.triplet else ()
        return terms + [part.triplet * term for term in tied]
