"""PyTorch Lightning with labels from a lookup: ``python examples/lightning_trainer.py LOOKUP``.

The data and the model are those of `plain_loop.py`. Lines that relabel adds are marked.
"""

from __future__ import annotations

import sys
from typing import Any

import lightning
import torch
from plain_loop import Pairs, TwoTowers, graded_triplet
from torch import Tensor
from torch.utils.data import DataLoader

from relabel_train.lookup import Lookup, RelevanceCollate, open_lookup  # relabel


class Retrieval(lightning.LightningModule):  # type: ignore[misc]
    """Two towers with a graded triplet loss."""

    def __init__(self) -> None:
        super().__init__()
        self.towers = TwoTowers()
        self.losses: list[float] = []

    def training_step(self, batch: dict[str, Any], _: int) -> Tensor:
        """Return the loss of a batch."""
        similarity = self.towers(batch["image"], batch["caption"])
        loss = graded_triplet(similarity, batch["relevance"], batch["same_image"])  # relabel
        self.losses.append(float(loss.detach()))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimiser."""
        return torch.optim.Adam(self.parameters(), 1e-2)


def train(lookup: Lookup, epochs: int = 2, batch_size: int = 32) -> list[float]:
    """Train; return the mean loss of each epoch."""
    torch.manual_seed(0)
    rows = lookup.rows
    dataset = Pairs(lookup.caption_ids(range(rows.start, rows.stop)))
    collate = RelevanceCollate(lookup)  # relabel: adds `relevance` and `same_image` to every batch
    loader = DataLoader(dataset, batch_size, shuffle=True, drop_last=True, collate_fn=collate)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    model = Retrieval()
    lightning.Trainer(max_epochs=epochs, accelerator="cpu", **quiet).fit(model, loader)
    return [sum(part) / len(part) for part in torch.tensor(model.losses).reshape(epochs, -1).tolist()]


if __name__ == "__main__":
    for number, loss in enumerate(train(open_lookup(sys.argv[1])), start=1):
        sys.stdout.write(f"epoch {number}: {loss:.4f}\n")
