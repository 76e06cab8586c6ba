"""open_clip's own trainer with soft targets: ``python examples/open_clip/train.py SIDECAR [ARGUMENTS OF open_clip]``.

The trainer is `open_clip_train.main`, unchanged. It calls two functions of its module that this script replaces for the
run: `get_data`, whose loaders also carry labels, and `create_loss`. The side-car is that of `relabel export wds`; each
key has one caption. webdataset: the keys of the shards. csv: a column `key`, for a side-car without image shards.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import open_clip_train.main as trainer
import pandas as pd
import webdataset as wds
from open_clip_train import data as loaders
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from relabel_train.losses import SoftTargetLoss
from relabel_train.webdataset import BlockCollate, Join, join


class SoftTargetClipLoss(nn.Module):
    """Loss with the interface of open_clip's `ClipLoss`, between its scores and the labels of the current batch."""

    def __init__(self, tau_target: float) -> None:
        super().__init__()
        self.loss = SoftTargetLoss(tau=1.0, tau_target=tau_target)  # the model has scaled the scores
        self.labels: tuple[Tensor, Tensor] | None = None

    def forward(
        self, image_features: Tensor, text_features: Tensor, logit_scale: Tensor, output_dict: bool = False
    ) -> Tensor | dict[str, Tensor]:
        """Return the loss of the batch whose labels the loader has set."""
        assert self.labels is not None, "the loader sets the labels before it yields a batch"
        scores = logit_scale * image_features @ text_features.T
        relevance, same_image = (labels.to(scores.device, non_blocking=True) for labels in self.labels)
        loss: Tensor = self.loss(scores, relevance, same_image)
        return {"soft_target_loss": loss} if output_dict else loss


class LabelledLoader:
    """A loader that passes images and texts on, and their labels to the loss: the trainer's batches are pairs."""

    def __init__(self, loader: Any, criterion: SoftTargetClipLoss, num_batches: int, num_samples: int) -> None:
        self.loader, self.criterion = loader, criterion
        self.num_batches, self.num_samples = num_batches, num_samples

    def __len__(self) -> int:
        """Return the number of batches."""
        return self.num_batches

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images and texts."""
        for images, texts, relevance, same_image in self.loader:
            self.criterion.labels = relevance, same_image
            yield images, texts


class LabelledCsv(Dataset[Any]):
    """Samples of open_clip's `CsvDataset` with the labels of the column `key`."""

    def __init__(self, dataset: Any, keys: list[str], step: Join) -> None:
        self.dataset, self.keys, self.step = dataset, keys, step

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.keys)

    def __getitem__(self, i: int) -> Any:
        """Return image, text and labels."""
        sample = self.step({"__key__": self.keys[i]})
        assert sample is not None, "a missing key is an error"
        return (*self.dataset[i], sample["labels"])


def labelled_data(step: Join, criterion: SoftTargetClipLoss, args: Namespace, *arguments: Any, **more: Any) -> Any:
    """Return open_clip's data, whose training loader carries labels."""
    if args.world_size > 1 or args.accum_freq > 1:
        raise SystemExit("This example trains in one process without accumulation; see distributed_clip.py for more.")
    data = loaders.get_data(args, *arguments, **more)
    info = data["train"]
    loader = info.dataloader
    collate = BlockCollate(step.sidecar, field=2, pooling="first")
    if isinstance(loader, wds.WebLoader):
        # The last two stages make pairs and batches of them; the new ones make triples, then batches with blocks.
        stages = loader.pipeline[0].dataset.pipeline
        if [stage.f.__name__ for stage in stages[-2:]] != ["_to_tuple", "_batched"]:
            raise SystemExit("This version of open_clip ends its pipeline differently; adapt `labelled_data`.")
        # webdataset marks the end of a shard since 1.0, which open_clip's own grouping of members does not accept.
        grouped = wds.tarfile_to_samples(handler=loaders.log_and_continue)
        stages[:] = [grouped if stage is loaders.tarfile_to_samples_nothrow else stage for stage in stages]
        batched = wds.batched(args.batch_size, collation_fn=collate, partial=False)
        stages[-2:] = [wds.map(step), wds.to_tuple("image", "text", "labels"), batched]
        labelled = loader
    else:
        keys = pd.read_csv(args.train_data, sep=args.csv_separator, dtype={"key": str})["key"].tolist()
        labelled = DataLoader(
            LabelledCsv(loader.dataset, keys, step),
            loader.batch_size,
            sampler=loader.sampler,
            num_workers=loader.num_workers,
            drop_last=loader.drop_last,
            collate_fn=collate,
        )
    labelled = LabelledLoader(labelled, criterion, loader.num_batches, loader.num_samples)
    return {**data, "train": replace(info, dataloader=labelled)}


def main(sidecar: str, arguments: list[str], tau_target: float = 0.1) -> None:
    """Train with the arguments of open_clip."""
    step = join(sidecar)
    criterion = SoftTargetClipLoss(tau_target * step.sidecar.about.bounds[1])
    with (
        patch.object(trainer, "get_data", partial(labelled_data, step, criterion)),
        patch.object(trainer, "create_loss", lambda _: criterion),
    ):
        trainer.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
