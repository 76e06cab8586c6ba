"""Losses by name, combined into one objective of embeddings, scores and labels."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from relabel_train import losses
from relabel_train.losses import DistanceLoss, TripletLoss
from relabel_train.reference.options import FitError, parse_settings

LOSSES: dict[str, Any] = {
    "triplet": losses.TripletLoss,
    "kendall": losses.KendallLoss,
    "sliding_window_kendall": losses.SlidingWindowKendallLoss,
    "bcls": losses.BCLSLoss,
    "ladder": losses.LadderLoss,
    "sam": losses.SAMLoss,
    "smooth_ndcg": losses.SmoothNDCGLoss,
    "smooth_ndcg_triplet": losses.SmoothNDCGTripletLoss,
    "log_ratio": losses.LogRatioLoss,
    "dense_triplet": losses.DenseTripletLoss,
    "soft_target": losses.SoftTargetLoss,
    "multi_positive_infonce": losses.MultiPositiveInfoNCE,
    "graded_sigmoid": losses.GradedSigmoidLoss,
}
"""Every loss class of `relabel_train.losses` by name."""


class Pairs(NamedTuple):
    """Scores, embeddings and labels of B pairs: (B, B), rows are images.

    `images`, `captions`: (B, E) float; read by losses of embeddings alone.
    `relevance`: r(V_i, T_j), or None.
    `between_images`, `between_captions`: r(V_i, V_j) and r(T_i, T_j), for losses of embeddings; or None.
    """

    scores: Tensor
    images: Tensor
    captions: Tensor
    relevance: Tensor | None
    between_images: Tensor | None
    between_captions: Tensor | None
    same_image: Tensor


class Objective(nn.Module):
    """A weighted sum of losses by name.

    Losses of embeddings (log-ratio, dense triplet) are defined for items of one kind. They are computed for the images
    and for the captions, of which there are labels, with distances ``top`` - r.

    `names`: NAME or NAME:WEIGHT. `settings`: NAME.PARAMETER=VALUE, or PARAMETER=VALUE for a single loss. `top`: upper
    bound of the label. `anchors`: anchors of losses of embeddings, the first items of a batch; 0: all. `triplet`:
    weight of a hardest-negative triplet loss (mean over the batch) that is added to a loss of embeddings.
    """

    def __init__(
        self, names: Sequence[str], settings: Sequence[str] = (), top: float = 1, anchors: int = 1, triplet: float = 0
    ) -> None:
        super().__init__()
        self.top, self.anchors, self.triplet = top, anchors or None, triplet
        weights = dict(_weighted(name) for name in names)
        if not weights:
            raise FitError(f"no loss; there are {', '.join(LOSSES)}")
        chosen: dict[str, dict[str, Any]] = {name: {} for name in weights}
        for key, value in parse_settings(tuple(settings)).items():
            # A bare name belongs to the only loss.
            name, dot, parameter = key.partition(".")
            if not dot:
                name, parameter = next(iter(weights)), key
            if name not in weights or (not dot and len(weights) > 1):
                raise FitError(f"{key}: write LOSS.PARAMETER=VALUE with one of {', '.join(weights)}")
            chosen[name][parameter] = value
        self.weights = weights
        self.losses = nn.ModuleDict({name: _make(name, values) for name, values in chosen.items()})
        self.tie = TripletLoss(reduction="mean")

    @property
    def needs_relevance(self) -> bool:
        """True if any loss reads labels."""
        return any(isinstance(loss, DistanceLoss) or _needs(loss) for loss in self.losses.values())

    @property
    def needs_paired(self) -> bool:
        """True if any loss reads labels of images or captions among themselves."""
        return any(isinstance(loss, DistanceLoss) for loss in self.losses.values())

    @property
    def compares_kinds(self) -> bool:
        """True if any loss compares images with captions, so that recalls tell models apart."""
        return self.triplet > 0 or not all(isinstance(loss, DistanceLoss) for loss in self.losses.values())

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Return the parameter groups of an optimizer: the losses' own parameters, if any, without weight decay."""
        learned = [p for p in self.parameters() if p.requires_grad]
        return [{"params": learned, "lr": lr, "weight_decay": 0.0}] if learned else []

    def check_items(self, items: str) -> None:
        """Raise if precomputed batches of these items lack labels that a loss reads."""
        if items == "captions" and self.needs_paired:
            raise FitError(
                "log_ratio, dense_triplet read labels of images: give --lookup, or export with --items images"
            )
        if items == "images" and (names := [name for name, loss in self.losses.items() if _needs(loss)]):
            raise FitError(
                f"{', '.join(names)}: reads labels of images and captions: give --lookup or batches of captions"
            )

    def check_bounds(self, low: float, high: float) -> None:
        """Raise if labels of low..high are out of the range that a loss is defined for."""
        for name, loss in self.losses.items():
            for part in loss.modules():
                bounds = getattr(part, "label_bounds", None)
                if bounds is not None and not bounds[0] <= low <= high <= bounds[1]:
                    raise FitError(
                        f"{name} reads labels in {bounds[0]:g}..{bounds[1]:g}, and these are in {low:g}..{high:g}. "
                        f"Give --scale, or --set 'loss_kwargs=[{name}.labels=cosine]' for cosines."
                    )

    def forward(self, pairs: Pairs) -> Tensor:
        """Return the loss of a batch: the sum of `terms`."""
        first, *rest = self.terms(pairs).values()
        return sum(rest, start=first)

    def terms(self, pairs: Pairs) -> dict[str, Tensor]:
        """Return the named parts, weighted so that they sum to the loss."""
        terms: dict[str, Tensor] = {}
        for name, loss in self.losses.items():
            weight = self.weights[name]
            if isinstance(loss, DistanceLoss):
                for kind, vectors, labels in (
                    ("images", pairs.images, pairs.between_images),
                    ("captions", pairs.captions, pairs.between_captions),
                ):
                    if labels is not None:
                        apart = (self.top - labels[: self.anchors]).clamp(min=0)
                        terms[f"{name}.{kind}"] = weight * loss(vectors, apart, pairs.same_image[: self.anchors])
                # With weight 0, too: several processes need a gradient of every parameter.
                tied = self.tie.terms(pairs.scores, None, pairs.same_image)
                terms |= {f"{name}.tie.{term}": weight * self.triplet * value for term, value in tied.items()}
                continue
            parts: dict[str, Tensor] = loss.terms(pairs.scores, pairs.relevance, pairs.same_image)  # type: ignore[operator]
            terms |= {f"{name}.{term}": weight * value for term, value in parts.items()}
        return terms


def _needs(loss: nn.Module) -> bool:
    """Return True if a loss, or a part of a combined one, reads labels."""
    return any(getattr(part, "needs_relevance", False) for part in loss.modules())


def _weighted(name: str) -> tuple[str, float]:
    """Split NAME:WEIGHT; the weight is 1 if omitted."""
    name, colon, weight = name.partition(":")
    try:
        value = float(weight) if colon else 1.0
    except ValueError:
        value = math.nan
    # False for NaN as well.
    if not abs(value) <= 1e9:
        raise FitError(f"loss {name}: {weight[:40]!r} is no weight")
    return name, value


def _make(name: str, values: dict[str, Any]) -> nn.Module:
    """Make a loss by name with some parameters."""
    if name not in LOSSES:
        close = [f"did you mean {found}?" for found in difflib.get_close_matches(name, LOSSES, 1)]
        raise FitError(f"no loss {name!r}; {', '.join([*close, 'there are ' + ', '.join(LOSSES)])}")
    parameters = inspect.signature(LOSSES[name]).parameters
    unknown = sorted(set(values) - set(parameters))
    if unknown:
        raise FitError(f"{name} has no parameter {', '.join(unknown)}; it has {', '.join(parameters)}")
    try:
        loss: nn.Module = LOSSES[name](**values)
    except (ValueError, TypeError) as error:
        raise FitError(f"{name}: {error}") from error
    return loss
