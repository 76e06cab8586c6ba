"""The cost that labels and graded losses add to a VSE++ training step, and the steps of the other models.

    python benchmarks/training_step.py --lookup DIR [DIR ...] [--steps N]
    python benchmarks/training_step.py --models vse_inf sgr saf [--steps N]

A step is that of `relabel fit` on real features: 128 pairs, 36 regions of 2,048 numbers, GRU 300 -> 1,024, captions
of COCO's lengths, Adam, clipped gradients. The peer is the step of the triplet loss, and of VSE++ for other models.
All losses share the model, batch and labels and run alternately, step by step. Regions are random, since their values
do not affect time. Times are CPU seconds of the process. Labels are `block` and `same_image` of the batch's rows,
from each lookup. The memory of a model is what its steps add to the process, each model in a process of its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import torch
from harness import Table, clock, options, peak_gib

from relabel_train.lookup import Lookup, open_lookup
from relabel_train.reference.data import Batch, Labels
from relabel_train.reference.fit import train_step
from relabel_train.reference.models.base import Vocabulary
from relabel_train.reference.objective import Objective
from relabel_train.reference.runs import make_model

B, REGIONS, WIDTH, WORDS = 128, 36, 2048, 10_000
LOSSES = ("triplet", "sliding_window_kendall", "bcls", "ladder", "smooth_ndcg", "smooth_ndcg_triplet")


def random_batch(relevance: torch.Tensor | None, same_image: torch.Tensor) -> Batch:
    """Return features, regions, tokens and lengths of COCO's captions (10 to 11 words, start and end), with labels."""
    rng = np.random.default_rng(0)
    lengths = torch.tensor(rng.integers(10, 17, B))
    tokens = torch.tensor(rng.integers(4, WORDS, (B, int(lengths.max()))))
    features = torch.randn(B, REGIONS, WIDTH, generator=torch.Generator().manual_seed(0))
    return Batch(features, torch.full((B,), REGIONS), tokens, lengths, Labels(same_image, relevance))


def stepper(name: str) -> Callable[[Objective, Batch, int], object]:
    """Return the step of a model in its paper's size."""
    torch.manual_seed(0)
    model = make_model({"name": name}, WIDTH, Vocabulary([f"w{i}" for i in range(WORDS)]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.0)
    return lambda objective, batch, number: train_step(model, objective, batch, optimizer, (0, number), False)


def model_steps(name: str, steps: int, threads: int) -> tuple[float, float]:
    """Return the median CPU seconds of a model's steps, and the memory beyond that at the start."""
    torch.set_num_threads(threads)
    batch, objective = random_batch(None, torch.eye(B, dtype=torch.bool)), Objective("triplet")
    before = psutil.Process().memory_info().rss / 2**30
    step = stepper(name)
    times = [clock(partial(step, objective, batch, number)).cpu for number in range(steps)]
    return statistics.median(times), peak_gib() - before


def models(table: Table, names: list[str], steps: int, threads: int) -> None:
    """Time steps of models with the triplet loss."""
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        base, gib = pool.submit(model_steps, "vsepp", steps, threads).result()
        table.add("vsepp", "CPU s", base, GiB=gib)
        for name in names:
            seconds, gib = pool.submit(model_steps, name, steps, threads).result()
            table.add(name, "CPU s", seconds, "vsepp", base, GiB=gib)


def losses_and_labels(table: Table, lookups: list[Lookup], steps: int) -> None:
    """Time the labels of batches, and VSE++ steps with each loss."""
    first, rng, step = lookups[0], np.random.default_rng(0), stepper("vsepp")
    objectives = {name: Objective(name) for name in LOSSES}
    seconds: dict[str, list[float]] = {name: [] for name in LOSSES}
    labels: dict[str, list[float]] = {lookup.about.label: [] for lookup in lookups}
    for number in range(steps):
        rows = np.sort(rng.choice(len(first), B, replace=False)) + first.rows.start
        for lookup in lookups:
            both = clock(lambda lookup=lookup, rows=rows: (lookup.block(rows), lookup.same_image(rows)))  # type: ignore[misc]
            labels[lookup.about.label].append(both.cpu)
        batch = random_batch(torch.from_numpy(first.block(rows)), torch.from_numpy(first.same_image(rows)))
        for i in range(len(LOSSES)):
            name = LOSSES[(number + i) % len(LOSSES)]
            seconds[name].append(clock(partial(step, objectives[name], batch, number)).cpu)
    triplet = statistics.median(seconds["triplet"])
    for name, times in ({f"labels of {name}": times for name, times in labels.items()} | seconds).items():
        table.add(name, "CPU s", statistics.median(times), "a triplet step", triplet)


def main() -> None:
    args = options(__doc__, lookup=[Path()], models=[""], steps=15, threads=1)
    torch.set_num_threads(args.threads)
    table = Table(f"Training steps of {B} pairs, {args.threads} threads")
    if args.lookup != [Path()]:
        losses_and_labels(table, [open_lookup(path) for path in args.lookup], args.steps)
    if args.models != [""]:
        models(table, args.models, args.steps, args.threads)
    table.end("training_step", args.save, "numpy", "torch")


if __name__ == "__main__":
    main()
