"""Program of the two processes in test_distributed: gradients of the first batch, of both processes and of one alone.

Each process writes its own file of joint gradients.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from relabel_train.lookup import open_lookup
from relabel_train.reference.data import Batches, read_split
from relabel_train.reference.distributed import Processes, join_processes
from relabel_train.reference.features import open_features
from relabel_train.reference.files import save_checkpoint
from relabel_train.reference.fit import _step
from relabel_train.reference.models import Vocabulary, make_model
from relabel_train.reference.objective import Objective
from relabel_train.reference.options import FitOptions


def gradients(options: FitOptions, here: Processes) -> dict[str, Any]:
    features = open_features(options.features, namespace="coco")
    split, labels = read_split(options.captions, "train", features), open_lookup(options.lookup or "")
    torch.manual_seed(0)
    model: Any = make_model(options.model, features.width, Vocabulary.of(split.texts, 1), 12, 6)
    # Processes draw different numbers for what they drop, so that only models without dropping can be compared.
    model.region_drop = model.word_drop = 0.0
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    objective = Objective(options.loss, options.loss_kwargs, 1.0, options.anchors, options.triplet)
    model.normalize = not objective.needs_paired
    learned = {**dict(model.named_parameters()), **dict(objective.named_parameters())}
    batches = Batches(options, split, features, model, labels, None, True, here.rank, here.world)
    wrapped = DistributedDataParallel(model) if here.world > 1 else model
    optimizer, scaler = torch.optim.SGD(learned.values(), lr=0.0), torch.amp.GradScaler("cpu", enabled=False)
    batch = batches.make(batches.epoch(0)[0])
    loss, _ = _step(wrapped, objective, batch, optimizer, scaler, options, here, 0)
    running = {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}
    return {"loss": float(loss), "gradients": {name: p.grad for name, p in learned.items()}, "running": running}


def main(folder: Path) -> None:
    told = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    options_of = {name: FitOptions(**values) for name, values in told.items()}
    # Before the process group exists: nothing of this process's computation may depend on the other one.
    alone = {n: gradients(options, Processes(0, 1, torch.device("cpu"))) for n, options in options_of.items()}
    with join_processes("cpu") as processes:
        for name, options in options_of.items():
            if processes.first:
                save_checkpoint(folder / f"{name}-alone.pt", alone[name])
            save_checkpoint(folder / f"{name}-{processes.rank}-of-2.pt", gradients(options, processes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
