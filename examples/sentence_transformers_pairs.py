"""A sentence encoder that learns scored pairs: ``python examples/sentence_transformers_pairs.py FOLDER``.

FOLDER is that of `relabel export pairs`. Needs sentence-transformers, datasets and accelerate. The trainer and the loss
are those of sentence-transformers; relabel supplies the pairs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from datasets import load_dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import CoSENTLoss

from relabel.sources.models.files import DEFAULT_MODEL, find_model


def train(
    model: SentenceTransformer, pairs: Path, folder: Path, epochs: int = 2, rate: float = 2e-5, **more: Any
) -> list[float]:
    """Train; return the loss that the trainer logged for each epoch.

    Parameters
    ----------
    model : SentenceTransformer
    pairs : Path
        Folder of `relabel export pairs`.
    folder : Path
        Folder for the trainer's files.
    epochs : int
    rate : float
        Learning rate, for a pretrained encoder by default.
    more : of SentenceTransformerTrainingArguments
    """
    # A loss gets every column that is loaded.
    columns = ["sentence1", "sentence2", "score"]
    dataset = load_dataset("parquet", data_files=f"{pairs}/data/*.parquet", columns=columns, split="train")
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        learning_rate=rate,
        logging_strategy="epoch",
        save_strategy="no",
        report_to="none",
        **more,
    )
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=dataset, loss=CoSENTLoss(model))
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        encoder = SentenceTransformer(str(find_model(DEFAULT_MODEL).folder))  # of the extra `offline`, else the hub
        for number, loss in enumerate(train(encoder, Path(sys.argv[1]), Path(scratch)), start=1):
            sys.stdout.write(f"epoch {number}: {loss:.4f}\n")
