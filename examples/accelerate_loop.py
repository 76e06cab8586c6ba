"""An Accelerate loop with labels from a lookup: ``accelerate launch examples/accelerate_loop.py LOOKUP``.

The data and the model are those of `plain_loop.py`. Each process collates its own batches with their labels. Lines that
relabel adds are marked.
"""

from __future__ import annotations

import sys

import torch
from accelerate import Accelerator
from plain_loop import Pairs, TwoTowers, graded_triplet
from torch.utils.data import DataLoader

from relabel_train.lookup import Lookup, RelevanceCollate, open_lookup  # relabel


def train(lookup: Lookup, epochs: int = 2, batch_size: int = 32, cpu: bool = False) -> list[float]:
    """Train; return the mean loss of each epoch in this process."""
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=cpu)
    rows = lookup.rows
    dataset = Pairs(lookup.caption_ids(range(rows.start, rows.stop)))
    # `keep=False`: Accelerate moves batches to the device, and ids are strings.
    collate = RelevanceCollate(lookup, keep=False)  # relabel: adds `relevance` and `same_image` to every batch
    model = TwoTowers()
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    loader = DataLoader(dataset, batch_size, shuffle=True, drop_last=True, collate_fn=collate)
    model, optimiser, loader = accelerator.prepare(model, optimiser, loader)
    losses = []
    for _ in range(epochs):
        epoch_losses = []
        for batch in loader:
            similarity = model(batch["image"], batch["caption"])
            loss = graded_triplet(similarity, batch["relevance"], batch["same_image"])  # relabel
            optimiser.zero_grad()
            accelerator.backward(loss)
            optimiser.step()
            epoch_losses.append(loss.item())
        losses.append(sum(epoch_losses) / len(epoch_losses))
    return losses


if __name__ == "__main__":
    for number, loss in enumerate(train(open_lookup(sys.argv[1])), start=1):
        sys.stdout.write(f"epoch {number}: {loss:.4f}\n")
