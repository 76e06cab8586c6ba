"""Hugging Face's Trainer with labels from a lookup: ``python examples/hf_trainer.py LOOKUP``.

Needs transformers and accelerate. The data and the model are those of `plain_loop.py`. With several GPUs, start it by
``torchrun --nproc-per-node N``: each process then computes the loss of a batch of its own.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from plain_loop import Pairs, TwoTowers, graded_triplet
from torch import Tensor
from transformers import Trainer, TrainingArguments, default_data_collator

from relabel_train.lookup import Lookup, RelevanceCollate, open_lookup  # relabel


class GradedTrainer(Trainer):  # type: ignore[misc]
    """Trainer whose batches carry `relevance` and `same_image`."""

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any) -> Any:
        """Compute the loss from the model's scores and the labels, which the model does not accept."""
        relevance, same = inputs.pop("relevance"), inputs.pop("same_image")  # relabel
        similarity = model(**inputs)
        loss = graded_triplet(similarity, relevance, same)  # relabel
        return (loss, {"similarity": similarity}) if return_outputs else loss


def train(lookup: Lookup, folder: Path, epochs: int = 2, **more: Any) -> list[float]:
    """Train; return the loss that the trainer logged for each epoch."""
    rows = lookup.rows
    dataset = Pairs(lookup.caption_ids(range(rows.start, rows.stop)))
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        learning_rate=1e-2,
        dataloader_drop_last=True,
        remove_unused_columns=False,  # relabel: the collate needs the caption's id
        logging_strategy="epoch",
        save_strategy="no",
        report_to="none",
        **more,
    )
    if arguments.n_gpu > 1:
        # One process with several GPUs is DataParallel: its replicas return blocks of the score matrix, not the matrix.
        raise RuntimeError(
            f"{arguments.n_gpu} GPUs in one process: start it by torchrun, or set CUDA_VISIBLE_DEVICES=0"
        )
    collate = RelevanceCollate(lookup, default_data_collator, keep=False)  # relabel
    trainer = GradedTrainer(TwoTowers(), arguments, train_dataset=dataset, data_collator=collate)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for number, loss in enumerate(train(open_lookup(sys.argv[1]), Path(scratch)), start=1):
            sys.stdout.write(f"epoch {number}: {loss:.4f}\n")
