"""A plain PyTorch loop that takes its labels from a lookup: ``python examples/plain_loop.py LOOKUP``.

Image features are random; replace those of `Pairs` by real ones. Lines that relabel adds are marked.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn
from torch.nn.functional import normalize
from torch.utils.data import DataLoader, Dataset

from relabel_train.lookup import Lookup, RelevanceCollate, open_lookup  # relabel


class Pairs(Dataset[dict[str, Any]]):
    """Image features, caption features and the caption's id."""

    def __init__(self, caption_ids: list[str], width: int = 32) -> None:
        generator = torch.Generator().manual_seed(0)
        self.caption_ids = caption_ids
        self.images = torch.randn(len(caption_ids), width, generator=generator)
        self.captions = self.images + 0.1 * torch.randn(len(caption_ids), width, generator=generator)

    def __len__(self) -> int:
        """Return the number of captions."""
        return len(self.caption_ids)

    def __getitem__(self, i: int) -> dict[str, Any]:
        """Return one sample."""
        return {"image": self.images[i], "caption": self.captions[i], "caption_id": self.caption_ids[i]}


class TwoTowers(nn.Module):
    """One linear layer per side."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.image, self.caption = nn.Linear(width, 16), nn.Linear(width, 16)

    def forward(self, image: torch.Tensor, caption: torch.Tensor) -> torch.Tensor:
        """Return similarities: rows are images, columns are captions."""
        return normalize(self.image(image), dim=1) @ normalize(self.caption(caption), dim=1).T


def graded_triplet(
    similarity: torch.Tensor, relevance: torch.Tensor, same_image: torch.Tensor, margin: float = 0.2
) -> torch.Tensor:
    """Return a triplet loss with the hardest negative, whose margin falls with the negative's relevance."""
    total = similarity.new_zeros(())
    # The text direction is the transpose of all three matrices.
    for s, r, same in ((similarity, relevance, same_image), (similarity.T, relevance.T, same_image.T)):
        # A negative as relevant as the pair gets no margin, an irrelevant one all of it.
        pair_relevance = r.diagonal()[:, None].clamp(min=1e-6)
        cost = margin * (1 - (r / pair_relevance).clamp(0, 1)) + s - s.diagonal()[:, None]
        # Captions of the same image are no negatives.
        total = total + cost.masked_fill(same, 0.0).clamp(min=0).amax(dim=1).mean()
    return total


def train(lookup: Lookup, epochs: int = 2, batch_size: int = 32, workers: int = 0) -> list[float]:
    """Train; return the mean loss of each epoch."""
    torch.manual_seed(0)
    rows = lookup.rows
    dataset = Pairs(lookup.caption_ids(range(rows.start, rows.stop)))
    collate = RelevanceCollate(lookup)  # relabel: adds `relevance` and `same_image` to every batch
    loader = DataLoader(dataset, batch_size, shuffle=True, drop_last=True, collate_fn=collate, num_workers=workers)
    model = TwoTowers()
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(epochs):
        epoch_losses = []
        for batch in loader:
            similarity = model(batch["image"], batch["caption"])
            loss = graded_triplet(similarity, batch["relevance"], batch["same_image"])  # relabel
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            epoch_losses.append(loss.item())
        losses.append(sum(epoch_losses) / len(epoch_losses))
    return losses


if __name__ == "__main__":
    for number, loss in enumerate(train(open_lookup(sys.argv[1])), start=1):
        sys.stdout.write(f"epoch {number}: {loss:.4f}\n")
