"""A sentence encoder that learns a lookup's labels: ``python examples/sentence_transformers_trainer.py LOOKUP CORPUS``.

Needs sentence-transformers, datasets and accelerate. The trainer passes tokenized captions and one label per caption to
the loss. The label is the caption's row, from which the loss reads the block of the batch. Lines that relabel adds are
marked.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import Tensor, from_numpy, nn
from torch.nn.functional import normalize

from relabel.sources.models.files import DEFAULT_MODEL, find_model
from relabel_train.lookup import Lookup, open_lookup  # relabel
from relabel_train.losses import SoftTargetLoss  # relabel


class LookupLoss(nn.Module):
    """Soft-target loss between the similarities within a batch and the lookup's relevance."""

    def __init__(self, model: SentenceTransformer, lookup: Lookup) -> None:
        super().__init__()
        self.model, self.lookup = model, lookup
        self.loss = SoftTargetLoss(tau=0.1, tau_target=0.1 * float(lookup.about.bounds[1]))  # relabel

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the loss of a batch of captions, given their rows."""
        (features,) = sentence_features
        vectors = normalize(self.model(features)["sentence_embedding"], dim=1)
        relevance = from_numpy(self.lookup.block(labels.cpu(), pooling="first"))  # relabel: caption against caption
        loss: Tensor = self.loss(vectors @ vectors.T, relevance.to(vectors.device))
        return loss


def train(
    model: SentenceTransformer,
    texts: dict[str, str],
    lookup: Lookup,
    folder: Path,
    epochs: int = 2,
    rate: float = 2e-5,
    **more: Any,
) -> list[float]:
    """Train; return the loss that the trainer logged for each epoch.

    Parameters
    ----------
    model : SentenceTransformer
    texts : dict of str to str
        Captions by id.
    lookup : Lookup
    folder : Path
        Of the trainer's files.
    epochs : int
    rate : float
        Learning rate, for a pretrained encoder by default.
    more : of SentenceTransformerTrainingArguments
    """
    ids = list(texts)
    rows = lookup.rows_of(ids).tolist()  # relabel
    dataset = Dataset.from_dict({"caption": [texts[i] for i in ids], "label": rows})
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        learning_rate=rate,
        dataloader_drop_last=True,
        logging_strategy="epoch",
        save_strategy="no",
        report_to="none",
        **more,
    )
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=dataset, loss=LookupLoss(model, lookup))
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    import pyarrow.parquet as pq

    lookup = open_lookup(sys.argv[1])
    table = pq.read_table(sorted(Path(sys.argv[2]).glob("part-*.parquet")), columns=["row", "caption_id", "text"])
    # The corpus is in the order of rows.
    covered = table.slice(lookup.rows.start, len(lookup.rows))
    captions = dict(zip(covered["caption_id"].to_pylist(), covered["text"].to_pylist(), strict=True))
    with tempfile.TemporaryDirectory() as scratch:
        encoder = SentenceTransformer(str(find_model(DEFAULT_MODEL).folder))  # of the extra `offline`, else the hub
        for number, loss in enumerate(train(encoder, captions, lookup, Path(scratch)), start=1):
            sys.stdout.write(f"epoch {number}: {loss:.4f}\n")
