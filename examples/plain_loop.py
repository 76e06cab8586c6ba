"""A plain PyTorch loop that takes its labels from a lookup: ``python examples/plain_loop.py LOOKUP``.

Image features are random here; put your own in `Pairs`. What relabel adds is marked.
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
        """Count the captions."""
        return len(self.caption_ids)

    def __getitem__(self, i: int) -> dict[str, Any]:
        """Return one sample."""
        return {"image": self.images[i], "caption": self.captions[i], "caption_id": self.caption_ids[i]}


class TwoTowers(nn.Module):
    """One linear layer a side."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.image, self.caption = nn.Linear(width, 16), nn.Linear(width, 16)

    def forward(self, image: torch.Tensor, caption: torch.Tensor) -> torch.Tensor:
        """Return similarities: rows are images, columns are captions."""
        return normalize(self.image(image), dim=1) @ normalize(self.caption(caption), dim=1).T


def graded_triplet(
    similarity: torch.Tensor, relevance: torch.Tensor, same_image: torch.Tensor, margin: float = 0.2
) -> torch.Tensor:
    """Triplet loss with the hardest negative; the margin is in proportion to how much less relevant a negative is."""
    total = similarity.new_zeros(())
    for s, r, same in ((similarity, relevance, same_image), (similarity.T, relevance.T, same_image.T)):
        own = r.diagonal()[:, None].clamp(min=1e-6)  # the text direction is the transpose
        cost = margin * (1 - (r / own).clamp(0, 1)) + s - s.diagonal()[:, None]
        total = total + cost.masked_fill(same, 0.0).clamp(min=0).amax(dim=1).mean()  # siblings are no negatives
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
        seen = []
        for batch in loader:
            similarity = model(batch["image"], batch["caption"])
            loss = graded_triplet(similarity, batch["relevance"], batch["same_image"])  # relabel
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            seen.append(loss.item())
        losses.append(sum(seen) / len(seen))
    return losses


if __name__ == "__main__":
    for number, loss in enumerate(train(open_lookup(sys.argv[1])), start=1):
        sys.stdout.write(f"epoch {number}: {loss:.4f}\n")
