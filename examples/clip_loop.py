"""A CLIP trainer in the style of open_clip with soft targets from a lookup: ``python examples/clip_loop.py LOOKUP``.

The trainer has the parts that CLIP trainers share: a model that returns image features, text features and a learned
scale, a loss module called with the three, AdamW, warm-up and cosine decay. The data are those of `plain_loop.py`. For
CLIP every other caption of a batch is equally wrong; part of this loss asks for the distribution of the labels instead.
Lines that relabel adds are marked.
"""

from __future__ import annotations

import math
import sys

import torch
from plain_loop import Pairs
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils.data import DataLoader

from relabel_train.lookup import Lookup, RelevanceCollate, open_lookup  # relabel
from relabel_train.losses import MultiPositiveInfoNCE, SoftTargetLoss  # relabel


class Clip(nn.Module):
    """One linear layer per side and a learned scale."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.visual, self.text = nn.Linear(width, 16), nn.Linear(width, 16)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, image: Tensor, text: Tensor) -> dict[str, Tensor]:
        """Return unit features of images and texts, and the scale."""
        return {
            "image_features": normalize(self.visual(image), dim=-1),
            "text_features": normalize(self.text(text), dim=-1),
            "logit_scale": self.logit_scale.exp(),
        }


class GradedClipLoss(nn.Module):
    """Weighted sum of InfoNCE, in which all captions of an image are positives, and soft targets."""

    def __init__(self, share: float = 0.5, tau_target: float = 0.1) -> None:
        super().__init__()
        self.share = share
        self.hard = MultiPositiveInfoNCE(tau=1.0)  # relabel: the model has scaled the scores
        self.soft = SoftTargetLoss(tau=1.0, tau_target=tau_target)  # relabel

    def forward(  # open_clip's ClipLoss with two more arguments
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: Tensor,
        relevance: Tensor,
        same_image: Tensor,
    ) -> Tensor:
        """Return the loss of a batch."""
        scores = logit_scale * image_features @ text_features.T
        hard: Tensor = self.hard(scores, relevance, same_image)  # relabel
        soft: Tensor = self.soft(scores, relevance, same_image)  # relabel
        return (1 - self.share) * hard + self.share * soft


def train(lookup: Lookup, epochs: int = 2, batch_size: int = 32, share: float = 0.5) -> list[float]:
    """Train; return the mean loss of each epoch."""
    torch.manual_seed(0)
    rows = lookup.rows
    dataset = Pairs(lookup.caption_ids(range(rows.start, rows.stop)))
    collate = RelevanceCollate(lookup)  # relabel: adds `relevance` and `same_image` to every batch
    loader = DataLoader(dataset, batch_size, shuffle=True, drop_last=True, collate_fn=collate)
    model, criterion = Clip(), GradedClipLoss(share, tau_target=0.1 * scale_of(lookup))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    steps = epochs * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda n: min(1.0, (n + 1) / 5) * 0.5 * (1 + math.cos(math.pi * n / max(1, steps)))
    )
    losses = []
    for _ in range(epochs):
        epoch_losses = []
        for batch in loader:
            features = model(batch["image"], batch["caption"])
            loss = criterion(**features, relevance=batch["relevance"], same_image=batch["same_image"])  # relabel
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            # CLIP bounds the scale at 100, beyond which training is unstable.
            with torch.no_grad():
                model.logit_scale.clamp_(0, math.log(100))
            epoch_losses.append(loss.item())
        losses.append(sum(epoch_losses) / len(epoch_losses))
    return losses


def scale_of(lookup: Lookup) -> float:
    """Return the largest relevance that the labels can have: CIDEr's is 10, a cosine's 1."""
    return float(lookup.about.bounds[1])


if __name__ == "__main__":
    for number, loss in enumerate(train(open_lookup(sys.argv[1])), start=1):
        sys.stdout.write(f"epoch {number}: {loss:.4f}\n")
