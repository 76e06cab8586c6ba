"""Steps of fine-tuning a sentence encoder, compared with sentence-transformers' `SentenceTransformerTrainer`.

    python benchmarks/tuning.py [--steps N] [--images M]

Both sides train the last 3 of 6 layers of all-MiniLM-L6-v2 in float32 on the same batches of COCO's test captions
(five per image) with the same loss and one thread. `relabel tune sbert` computes the frozen layers of a caption once,
before the first step, and divides a batch by length, so that there is little padding. The trainer runs every layer on
the padded batch in each step. A difference above 2e-5 between the losses of the first step stops the run. Times are
CPU seconds per step, the optimizer's update included, medians over the steps after the first.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from harness import Table, agree, coco_captions, options
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import Tensor
from torch.utils.data import BatchSampler, SequentialSampler
from transformers import TrainerCallback

from relabel.core.runtime import Runtime
from relabel.sources.models.files import DEFAULT_MODEL, find_model
from relabel.sources.sbert.tune import UpperLayers

LAYERS = 3
RATE = 1e-4


def loss_of(vectors: Tensor) -> Tensor:
    """Return the mean squared cosine of all pairs of a batch; any loss of the vectors would do."""
    return (vectors @ vectors.T).square().mean()


class VectorLoss(torch.nn.Module):
    """`loss_of` as a loss of sentence-transformers."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Any, labels: Any = None) -> Tensor:
        vectors = self.model(next(iter(features)))["sentence_embedding"]
        return loss_of(torch.nn.functional.normalize(vectors, dim=-1))


class Clock(TrainerCallback):
    """CPU seconds of each step of the trainer."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._start = 0.0

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self._start = time.process_time()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.seconds.append(time.process_time() - self._start)


def relabel_steps(texts: list[str], batches: list[np.ndarray]) -> tuple[list[float], list[float]]:
    """Return the CPU seconds of each step, after those of the frozen layers, and the losses."""
    start = time.process_time()
    runtime = Runtime(device="cpu", threads=1)
    encoder = UpperLayers(find_model(DEFAULT_MODEL).folder, texts, LAYERS, "float32", runtime)
    seconds, losses = [time.process_time() - start], []
    optimizer = torch.optim.AdamW(encoder.learning, lr=RATE)
    for batch in batches:
        start = time.process_time()
        loss = loss_of(encoder.vectors(batch))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        seconds.append(time.process_time() - start)
        losses.append(float(loss.detach()))
    return seconds, losses


def trainer_steps(texts: list[str], batches: list[np.ndarray]) -> tuple[list[float], list[float]]:
    """Return the CPU seconds of each step of `SentenceTransformerTrainer`, and the losses."""
    model = SentenceTransformer(str(find_model(DEFAULT_MODEL).folder), device="cpu")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(any(f".layer.{layer}." in name for layer in range(6 - LAYERS, 6)))
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # as on the other side
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=len(batches[0]),
            num_train_epochs=1,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        data = Dataset.from_dict({"caption": [texts[i] for i in np.concatenate(batches)]})
        trainer = SentenceTransformerTrainer(model, arguments, data, loss=VectorLoss(model), callbacks=[clock])
        in_order = BatchSampler(SequentialSampler(data), len(batches[0]), drop_last=False)
        # The trainer would shuffle: batches are those of the other side, in order.
        trainer.get_batch_sampler = lambda *_, **__: in_order  # type: ignore[method-assign]
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return clock.seconds, losses


def main() -> None:
    args = options(__doc__, steps=8, images=64)
    torch.set_num_threads(1)
    by_image: dict[str, list[str]] = {}
    for _, image, text in coco_captions():
        by_image.setdefault(image, []).append(text)
    texts = [text for captions in list(by_image.values())[: args.steps * args.images] for text in captions[:5]]
    batches = np.split(np.random.default_rng(0).permutation(len(texts) // 5), args.steps)
    rows = [(images[:, None] * 5 + np.arange(5)).ravel() for images in batches]
    (frozen, *seconds), losses = relabel_steps(texts, rows)
    peer_seconds, peer_losses = trainer_steps(texts, rows)
    agree("the trainer's first loss", losses[0], peer_losses[0], 2e-5)  # the trainer logs four digits
    table = Table(f"Steps of fine-tuning, {len(rows[0])} captions per step, one thread")
    step, peer_step = statistics.median(seconds[1:]), statistics.median(peer_seconds[1:])
    table.add("a step", "CPU s", step, "SentenceTransformerTrainer", peer_step)
    table.add("frozen layers, 1,000 captions, once", "CPU s", frozen / len(texts) * 1000)
    table.end("tuning", args.save, "torch", "sentence-transformers", "transformers")


if __name__ == "__main__":
    main()
