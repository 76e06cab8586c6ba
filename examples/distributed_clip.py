"""CLIP-style training in several processes: ``python examples/distributed_clip.py LOOKUP``.

Each process holds some pairs of a batch. Its images are compared with the captions of all processes, and its captions
with all images, so it needs two blocks of labels: (local, global) and (global, local). No process needs the complete
block. The data and the model are those of `clip_loop.py`. Lines that relabel adds are marked.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from clip_loop import Clip, scale_of
from plain_loop import Pairs
from torch import Tensor
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel

from relabel_train.lookup import open_lookup  # relabel
from relabel_train.losses import SoftTargetLoss  # relabel


def gather(features: Tensor) -> Tensor:
    """Return the features of all processes, through which gradients flow back to each of them."""
    return torch.cat(list(all_gather(features)))


def run(rank: int, world: int, folder: str, scratch: str, steps: int, batch_size: int) -> None:
    """Train in one process; process 0 writes the mean loss of each step."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{scratch}/rendezvous", rank=rank, world_size=world)
    torch.manual_seed(0)
    lookup = open_lookup(folder)  # relabel
    labels = lookup.to("cpu")  # relabel: "cuda" keeps vectors and blocks on the GPU
    criterion = SoftTargetLoss(tau=1.0, tau_target=0.1 * scale_of(lookup))  # relabel
    dataset = Pairs(lookup.caption_ids(range(lookup.rows.start, lookup.rows.stop)))
    model = DistributedDataParallel(Clip())
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator, losses = torch.Generator().manual_seed(1), []
    for _ in range(steps):
        # The same draw in all processes; each takes its part, and all know the rows of all parts.
        index = torch.randperm(len(dataset), generator=generator)[:batch_size]
        part = index.chunk(world)[rank]
        features = model(dataset.images[part], dataset.captions[part])
        images, texts, scale = features["image_features"], features["text_features"], features["logit_scale"]
        local, everyone = part + lookup.rows.start, index + lookup.rows.start  # relabel: corpus rows
        to_texts = labels.block(local, everyone), labels.same_image(local, everyone)  # relabel: (local, global)
        to_images = labels.block(everyone, local), labels.same_image(everyone, local)  # relabel: (global, local)
        of_images = criterion.terms(scale * images @ gather(texts).T, *to_texts)["soft_target_i2t"]
        of_texts = criterion.terms(scale * gather(images) @ texts.T, *to_images)["soft_target_t2i"]
        loss = of_images + of_texts
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total) / world)
    if rank == 0:
        (Path(scratch) / "losses.json").write_text(json.dumps(losses))
    dist.destroy_process_group()


def train(folder: str, world: int = 2, steps: int = 30, batch_size: int = 64) -> list[float]:
    """Train in some processes; return the loss of each step."""
    with tempfile.TemporaryDirectory() as scratch:
        processes.spawn(run, (world, folder, scratch, steps, batch_size), nprocs=world)
        losses: list[float] = json.loads((Path(scratch) / "losses.json").read_text())
    return losses


if __name__ == "__main__":
    for number, loss in enumerate(train(sys.argv[1]), start=1):
        sys.stdout.write(f"step {number}: {loss:.4f}\n")
