"""The cost that labels and graded losses add to a VSE++ training step, and the steps of the other models.

    python benchmarks/training_step.py --lookup DIR [--lookup DIR ...] [--steps N] [--threads N]
    python benchmarks/training_step.py --models sgr saf [--steps N] [--threads N]

A step is that of `relabel fit` on real features: 128 pairs, 36 regions of 2,048 numbers, GRU 300 -> 1,024, captions of
COCO's lengths, Adam, clipped gradients. All losses share the model, batch and labels and run alternately, step by step,
so that load from other processes affects each. Regions are random, since their values do not affect time. Times are CPU
seconds of the process; shares refer to the triplet loss's step in the same run. Labels are `block` and `same_image` of
the batch's rows, from each lookup.

`--models` times steps of VSE++ and of other models with the triplet loss, each in a process of its own, and the memory
that it gained by them. Results: results/training_step.json; each of the two calls replaces its own part.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from common import RESULTS, describe, machine, save, show

from relabel_train.fit import _step
from relabel_train.lookup import open_lookup
from relabel_train.models import Vocabulary, make_model
from relabel_train.training.data import Batch
from relabel_train.training.distributed import Processes
from relabel_train.training.objective import Objective
from relabel_train.training.options import FitOptions

B, REGIONS, WIDTH, WORDS = 128, 36, 2048, 10_000
LOSSES = ("triplet", "sliding_window_kendall", "bcls", "ladder", "smooth_ndcg", "smooth_ndcg_triplet")
LIBRARIES = ("numpy", "torch")
MODELS = ("vsepp", "vse_inf", "sgr", "saf")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lookup", type=Path, action="append", default=[])
    parser.add_argument("--models", nargs="*", default=[], choices=["vse_inf", "sgr", "saf"])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if not args.lookup and not args.models:
        parser.error("give --lookup or --models")
    path = RESULTS / "training_step.json"
    body = json.loads(path.read_text()) if path.exists() else {}
    if args.lookup:
        body |= losses_and_labels(args)
    if args.models:
        facts = {"machine": machine(*LIBRARIES), "threads": args.threads, "steps": args.steps}
        body["models"] = {**facts, **models(["vsepp", *args.models], args.steps)}
        show(
            "a step of 128 pairs",
            ["model", "seconds", "of VSE++", "peak memory, GiB"],
            [
                [n, f"{v['seconds']:.2f}", f"{v['over_vsepp']:.1f}", f"{v['gib']:.2f}"]
                for n, v in body["models"].items()
                if n in MODELS
            ],
        )
    print(f"\n{save('training_step', body)}")


def models(names: list[str], steps: int) -> dict[str, Any]:
    """Time steps of models with the triplet loss, each model in a process of its own, whose memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        found = {name: pool.submit(model_steps, name, steps, torch.get_num_threads()).result() for name in names}
    for facts in found.values():
        facts["over_vsepp"] = facts["seconds"] / found["vsepp"]["seconds"]
    return found


def model_steps(name: str, steps: int, threads: int) -> dict[str, float]:
    """Return the median CPU seconds of a model's steps, and the largest memory beyond that at the start."""
    torch.set_num_threads(threads)
    processes, scaler = Processes(0, 1, torch.device("cpu")), torch.amp.GradScaler("cpu", enabled=False)
    options = FitOptions(data=Path(), captions=Path())
    inputs = random_inputs(np.random.default_rng(0))
    batch = Batch(*inputs, None, None, torch.eye(B, dtype=torch.bool))
    objective, peak = Objective(["triplet"]), PeakMemory()
    torch.manual_seed(0)
    model = make_model(name, WIDTH, Vocabulary([f"w{i}" for i in range(WORDS)]), 1024, 300)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    with peak:
        work = partial(_step, model, objective, batch, optimizer, scaler, options, processes)
        times = [cpu(partial(work, number))[0] for number in range(steps)]
    return {"seconds": statistics.median(times), "gib": peak.gib}


class PeakMemory:
    """Largest resident memory of this process beyond that at the start, sampled every 10 ms."""

    gib = 0.0

    def __enter__(self) -> None:
        self._start, self._stop = psutil.Process().memory_info().rss, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self.gib = max(self.gib, (psutil.Process().memory_info().rss - self._start) / 2**30)


def random_inputs(rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return features, numbers of regions, tokens and lengths of a batch."""
    lengths = torch.tensor(rng.integers(10, 17, B))  # COCO's captions: 10 to 11 words, start and end tokens
    features, regions = torch.randn(B, REGIONS, WIDTH), torch.full((B,), REGIONS)
    tokens = torch.tensor(rng.integers(4, WORDS, (B, int(lengths.max()))))
    return features, regions, tokens, lengths


def losses_and_labels(args: argparse.Namespace) -> dict[str, Any]:
    """Time the labels of batches, and VSE++ steps with each loss."""
    lookups = {opened.about.label: opened for opened in map(open_lookup, args.lookup)}
    first = next(iter(lookups.values()))
    rng = np.random.default_rng(0)
    rows = [np.sort(rng.choice(len(first), B, replace=False)) + first.rows.start for _ in range(args.steps)]

    torch.manual_seed(0)
    model = make_model("vsepp", WIDTH, Vocabulary([f"w{i}" for i in range(WORDS)]), 1024, 300)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    scaler, processes = torch.amp.GradScaler("cpu", enabled=False), Processes(0, 1, torch.device("cpu"))
    options = FitOptions(data=Path(), captions=Path())
    features, regions, tokens, lengths = random_inputs(rng)
    objectives = {name: Objective([name]) for name in LOSSES}
    seconds: dict[str, list[float]] = {name: [] for name in LOSSES}
    alone: dict[str, list[float]] = {name: [] for name in LOSSES}
    labels: dict[str, list[float]] = {name: [] for name in lookups}
    for number, batch_rows in enumerate(rows):
        for name, lookup in lookups.items():
            labels[name].append(
                cpu(
                    lambda lookup=lookup, batch_rows=batch_rows: (
                        lookup.block(batch_rows),
                        lookup.same_image(batch_rows),
                    )
                )[0]
            )
        relevance = torch.from_numpy(first.block(batch_rows))
        batch = Batch(
            features, regions, tokens, lengths, relevance, None, torch.from_numpy(first.same_image(batch_rows))
        )
        order = [LOSSES[(number + i) % len(LOSSES)] for i in range(len(LOSSES))]
        for name in order:
            work = partial(_step, model, objectives[name], batch, optimizer, scaler, options, processes, number)
            seconds[name].append(cpu(work)[0])
        with torch.no_grad():
            images, captions = model(features, regions, tokens, lengths)
        for name in order:
            scores = (images @ captions.T).requires_grad_()
            alone[name].append(cpu(lambda o=objectives[name], s=scores, b=batch: one_loss(o, s, b))[0])
    skip = 2 if args.steps > 4 else 0
    step = statistics.median(seconds["triplet"][skip:])
    triplet = statistics.median(alone["triplet"][skip:])
    body: dict[str, Any] = {"machine": machine(*LIBRARIES), "batch": B, "regions": [REGIONS, WIDTH], "embed": 1024}
    body |= {"threads": args.threads, "steps": args.steps, "step_seconds": step, "labels": {}, "losses": {}}
    for name, times in labels.items():
        median_seconds = statistics.median(times[skip:])
        body["labels"][name] = {"seconds": median_seconds, "share_of_step": median_seconds / step}
    for name in LOSSES:
        step_seconds, loss_seconds = statistics.median(seconds[name][skip:]), statistics.median(alone[name][skip:])
        body["losses"][name] = {
            "step_seconds": step_seconds,
            "step_over_triplet": step_seconds / step - 1,
            "loss_seconds": loss_seconds,
            "loss_over_triplet_share": (loss_seconds - triplet) / step,
        }
    print(describe(body["machine"]))
    show(
        f"labels of a batch; a triplet step takes {step * 1e3:.0f} ms of CPU",
        ["label", "ms", "share"],
        [[n, f"{v['seconds'] * 1e3:.2f}", f"{v['share_of_step']:.2%}"] for n, v in body["labels"].items()],
    )
    show(
        "losses",
        ["loss", "step, ms", "over triplet", "loss alone, ms", "difference to triplet, share of step"],
        [
            [
                n,
                f"{v['step_seconds'] * 1e3:.0f}",
                f"{v['step_over_triplet']:+.1%}",
                f"{v['loss_seconds'] * 1e3:.2f}",
                f"{v['loss_over_triplet_share']:+.2%}",
            ]
            for n, v in body["losses"].items()
        ],
    )
    return body


def one_loss(objective: Objective, scores: torch.Tensor, batch: Batch) -> None:
    from relabel_train.training.objective import Pairs

    objective(Pairs(scores, scores, scores, batch.relevance, None, batch.same_image)).backward()


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of the process, and the result."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


if __name__ == "__main__":
    main()
