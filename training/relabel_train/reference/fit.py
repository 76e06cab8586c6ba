"""Reference training of an image-text model with graded labels, from features and captions.

The folder of a run holds:

- `last.pt`, the state to resume from, and `best.pt`, the model with the best RSUM on the validation split;
- `vocabulary.json`, `log.jsonl` (one line every few steps and per evaluation), and TensorBoard's files if installed.

No random state is stored, since every draw of a step depends on (seed, step) alone: a resumed run ends, on a CPU, with
the same bits.

Several processes (``torchrun --nproc-per-node N --no-python relabel fit ...``) share each batch. Images and
scores are gathered, so that losses see the complete batch and gradients are those of one process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from relabel_train.lookup import open_lookup
from relabel_train.precomputed import open_batches
from relabel_train.reference.data import Batch, Batches, check_corpus, open_corpus_features, read_split
from relabel_train.reference.distributed import Processes, join_processes
from relabel_train.reference.files import BEST, LAST, LOG, VOCABULARY, Log, load_checkpoint, save_checkpoint
from relabel_train.reference.image_retrieval import image_figures
from relabel_train.reference.models import Model, Vocabulary, make_model
from relabel_train.reference.objective import Objective, Pairs
from relabel_train.reference.options import DivergenceError, FitError, FitOptions
from relabel_train.reference.scoring import recall

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass
class TrainState:
    """Progress of a run, stored in its checkpoints.

    `step`, `epoch`: steps taken, and epochs completed. `done`: batches done in this epoch.
    `best`: best RSUM on the validation split so far, 0..600, or nDCG, 0..1. `worse`: evaluations since then.
    `evaluated`: step of the last evaluation. `seconds`: wall time of training, over all interruptions.
    """

    step: int = 0
    epoch: int = 0
    done: int = 0
    best: float = -math.inf
    worse: int = 0
    evaluated: int = 0
    finished: bool = False
    seconds: float = 0.0


def fit(options: FitOptions, device: str = "auto", notify: Callable[[str], None] = lambda _: None) -> TrainState:
    """Train, or resume training; `notify` is called with progress messages."""
    with join_processes(device) as processes:
        options.out.mkdir(parents=True, exist_ok=True)
        return _fit(options, processes, notify)


def _fit(options: FitOptions, processes: Processes, notify: Callable[[str], None]) -> TrainState:
    """Train in one of several processes, or alone; reads top to bottom as a training script."""
    # Data: features of images, captions of two splits, labels.
    features = open_corpus_features(options.features, options.captions, options.ids)
    train = read_split(options.captions, options.split, features).sample(options.fraction, options.seed)
    val = read_split(options.captions, options.val, features)
    labels = open_lookup(options.lookup) if options.lookup is not None else None
    precomputed = open_batches(options.batches) if options.batches is not None else None
    val_images = open_batches(options.image_labels) if options.image_labels is not None else None
    exports = [export for export in (labels, precomputed, val_images) if export is not None]
    for export in exports:
        check_corpus(options.captions, export)
    bounds = exports[0].about.bounds if exports else (0.0, 1.0)

    # Loss, model, optimizer. All random numbers of this step come from the seed.
    # The objective needs the label's largest value after scaling, to turn labels into distances.
    top = float(bounds[1]) / options.scale
    objective = Objective(options.loss, options.loss_kwargs, top, options.anchors, options.triplet)
    triplet = Objective(("triplet",), ("negatives=sum",)) if options.triplet_epochs else objective
    if objective.needs_relevance and labels is None and precomputed is None:
        raise FitError("this loss reads labels: give --lookup (a lookup) or --batches (precomputed batches)")
    if precomputed is not None:
        objective.check_items(precomputed.about.items)
    objective.check_bounds(float(bounds[0]) / options.scale, float(bounds[1]) / options.scale)
    torch.manual_seed(options.seed)
    # From the training captions alone: words of val and test stay unknown.
    vocabulary = Vocabulary.of(train.texts, options.min_count)
    model = make_model(options.model, features.width, vocabulary, options.embed_dim, options.word_dim, options.text)
    if model.sets and objective.needs_paired:
        raise FitError(f"log_ratio and dense_triplet compare embeddings; {options.model} has a set of vectors per item")
    if not objective.compares_kinds and val_images is None:
        hint = "give --image-labels (precomputed batches of images of the validation split), or --set triplet=1"
        raise FitError(f"{', '.join(options.loss)} compares no image with a caption, so RSUM cannot select: {hint}")
    model.normalize = not objective.needs_paired if options.normalize is None else options.normalize
    model.to(processes.device)
    objective.to(processes.device)
    groups = model.parameter_groups(options.lr) + objective.parameter_groups(options.lr)
    decoupled = options.weight_decay > 0
    optimizer = torch.optim.AdamW(groups, weight_decay=options.weight_decay) if decoupled else torch.optim.Adam(groups)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: _rate(options, epoch))
    scaler = torch.amp.GradScaler(processes.device.type, enabled=options.precision == "float16")
    batches = Batches(
        options, train, features, model, labels, precomputed, objective.needs_paired, processes.rank, processes.world
    )

    # Progress: the start, or the last checkpoint.
    progress, size = TrainState(), 0
    # A checkpoint resumes under the same options, batches and number of processes only.
    lookup, images = (None if export is None else export.about.fingerprint for export in (labels, val_images))
    inputs: dict[str, Any] = {"features": features.digest(), "captions": train.digest(), "validation": val.digest()}
    inputs |= {"lookup": lookup, "batches": batches.identity, "image_labels": images, "normalize": model.normalize}
    identity = {**options.identity(), **inputs, "world": processes.world}
    leftovers = [name for name in (BEST, VOCABULARY, LOG) if (options.out / name).exists()]
    resumed = (options.out / LAST).is_file()  # checked last: the first process writes it before all other files
    if leftovers and not resumed:
        raise FitError(f"{options.out / leftovers[0]}: not of a run, since there is no {LAST}. Give another --out.")
    if resumed:
        state = load_checkpoint(options.out / LAST)
        _check_identity(options.out / LAST, state["identity"], identity)
        model.load_state_dict(state["model"])
        objective.load_state_dict(state["objective"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        scaler.load_state_dict(state["scaler"])
        progress, size = TrainState(**state["position"]), state["log"]
        # More epochs than before continue a finished run.
        progress.finished = progress.finished and (
            progress.epoch >= options.epochs or _patience_exceeded(options, progress)
        )

    def save(name: str, now: TrainState, logged: int = 0) -> None:
        """Write a checkpoint: `best.pt` holds the model alone, `last.pt` all that resuming needs."""
        if processes.first:
            body = {"options": options.identity(), "proxy": features.proxy, "width": features.width}
            state = {"identity": identity, **body, "model": model.state_dict(), "position": now.__dict__}
            if name == LAST:
                state |= {"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
                state |= {"objective": objective.state_dict(), "scaler": scaler.state_dict(), "log": logged}
            save_checkpoint(options.out / name, state)

    if not resumed:
        save(LAST, progress)  # before any other file, so that a folder without it holds no run
    log = Log(options.out if processes.first else None, notify, size, progress.step)
    if processes.first:
        (options.out / VOCABULARY).write_text(vocabulary.to_json(), encoding="utf-8")
        if features.proxy is not None:
            log.note(features.proxy)
        if batches.left_out:
            log.note(f"{batches.left_out:,} captions have no label and are left out")
        if progress.step:
            log.note(f"resumes at step {progress.step:,} (epoch {progress.epoch}, batch {progress.done})")
    wrapped: nn.Module = DistributedDataParallel(model) if processes.world > 1 else model
    wrapped.train()

    def evaluate() -> None:
        """Evaluate on the validation split, and keep the model if it is the best so far."""
        # One process evaluates; all need the figure, since it decides when they stop.
        figures: dict[str, float] = {}
        if processes.first and val_images is None:
            figures = recall(model, val, features, processes.device, log.note)
        elif processes.first and val_images is not None:
            figures = image_figures(model, val_images, features, processes.device)["model"]
        value = processes.share(figures.get(options.measure.lower(), 0.0))
        better = value > progress.best
        progress.evaluated = progress.step
        progress.best, progress.worse = (value, 0) if better else (progress.best, progress.worse + 1)
        reached = f"epoch {progress.epoch}, step {progress.step:,}"
        message = f"{reached}: {options.measure} {value:.4g} on {options.val} (best {progress.best:.4g})"
        log.write("evaluation", progress.step, {"epoch": progress.epoch, "best": progress.best, **figures}, message)
        if better:
            save(BEST, progress)

    # Training.
    started = time.perf_counter() - progress.seconds
    while not progress.finished:
        loss_of = triplet if progress.epoch < options.triplet_epochs else objective
        # A pure function of the epoch: a resumed run skips the batches that are done.
        todo = batches.epoch(progress.epoch)
        for batch in _loader(batches, todo[progress.done :], options.workers):
            loss, norm = _step(
                wrapped, loss_of, batch.to(processes.device), optimizer, scaler, options, processes, progress.step
            )
            progress.step, progress.done = progress.step + 1, progress.done + 1
            progress.seconds = time.perf_counter() - started
            if progress.step % options.log_every == 0 or progress.step == 1:
                # Reading the loss waits for the GPU, so it is read for the log only.
                if not math.isfinite(float(loss)):
                    message = f"the loss is {float(loss)} at step {progress.step:,}"
                    raise DivergenceError(f"{message}; try a smaller lr, or float32")
                speed = {"lr": optimizer.param_groups[0]["lr"], "seconds": round(progress.seconds, 3)}
                reached = f"{progress.done} of {len(todo)} batches of epoch {progress.epoch}"
                message = f"step {progress.step:,}: loss {float(loss):.4f}, {reached}"
                log.write("train", progress.step, {"loss": float(loss), "gradient": float(norm), **speed}, message)
            if options.evaluate_every and progress.step % options.evaluate_every == 0:
                evaluate()
                save(LAST, progress, log.size)
                if _patience_exceeded(options, progress):
                    break
            elif progress.step % options.save_every == 0:
                save(LAST, progress, log.size)
        else:  # the epoch ended, not the patience
            progress.epoch, progress.done = progress.epoch + 1, 0
            schedule.step()
            if progress.evaluated < progress.step and (not options.evaluate_every or progress.epoch == options.epochs):
                evaluate()
        progress.finished = progress.epoch >= options.epochs or _patience_exceeded(options, progress)
        save(LAST, progress, log.size)
    log.note(f"done: best {options.measure} {progress.best:.4g} on {options.val} after {progress.step:,} steps")
    log.close()
    return replace(progress)


def _step(
    model: nn.Module,
    objective: Objective,
    batch: Batch,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    options: FitOptions,
    processes: Processes,
    step: int,
) -> tuple[Tensor, Tensor]:
    """Take one step; return the loss and the norm of its gradient before it was clipped."""
    kind = processes.device.type
    reduced = _DTYPES.get(options.precision)
    torch.manual_seed(_step_seed(options.seed, step, processes.rank))  # dropout differs between processes
    with torch.autocast(kind, dtype=reduced) if reduced is not None else nullcontext():
        images, captions = model(batch.features, batch.regions, batch.tokens, batch.lengths)
        # Each process scores its captions with all images. Losses see the complete batch, with gradients.
        count = len(batch.same_image)
        images = processes.gather(images, count)
        scores = processes.gather(_unwrap(model).scores(images, captions).T, count).T
    if objective.needs_paired:
        captions = processes.gather(captions, count)
    torch.manual_seed(_step_seed(options.seed, step, -1))  # random numbers of the loss are the same in all processes
    labels = batch.relevance, batch.between_images, batch.between_captions, batch.same_image
    loss = objective(Pairs(scores, images, captions, *labels))
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    # Clipping compares the true norm, so float16's loss scale is taken out first.
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_([*model.parameters(), *objective.parameters()], options.max_grad_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach(), norm


def _loader(batches: Batches, todo: list[Any], workers: int) -> Any:
    """Read batches in order, ahead of time in workers if there are any. Leaves the global random state as it is."""
    # A generator for the loader alone: it draws a seed per epoch, by default from the global state.
    generator = torch.Generator()
    return DataLoader(todo, batch_size=None, collate_fn=batches.make, num_workers=workers, generator=generator)  # type: ignore[arg-type]


def _unwrap(model: nn.Module) -> Model:
    """Return the model inside DistributedDataParallel, or the model itself."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    assert isinstance(inner, Model)
    return inner


def _rate(options: FitOptions, epoch: int) -> float:
    """Return the factor of the learning rate in an epoch."""
    return 0.1 if options.decay_at is not None and epoch >= options.decay_at else 1.0


def _patience_exceeded(options: FitOptions, progress: TrainState) -> bool:
    return options.patience > 0 and progress.worse >= options.patience


def _step_seed(seed: int, step: int, rank: int) -> int:
    """Combine three numbers into one seed."""
    return ((seed * 1_000_003 + step) * 1_009 + rank + 1) % (1 << 63)


def _check_identity(path: Path, stored: dict[str, Any], current: dict[str, Any]) -> None:
    """Raise if a checkpoint is of a run with other options; names the first three differences."""
    changed = sorted(name for name in {*stored, *current} if stored.get(name) != current.get(name))
    if changed:
        changes = "; ".join(f"{n} was {stored.get(n)}, is {current.get(n)}" for n in changed[:3])
        raise FitError(f"{path}: another run ({changes}). Give another --out, or delete the folder.")


def load_model(folder: Path, name: str = BEST) -> tuple[Model, dict[str, Any]]:
    """Load the model of a run in evaluation mode, and the rest of its checkpoint."""
    state = load_checkpoint(folder / name)
    options, vocabulary = state["options"], Vocabulary.read(folder / VOCABULARY)
    shape = (state["width"], vocabulary, options["embed_dim"], options["word_dim"], options["text"])
    model = make_model(options["model"], *shape)
    model.normalize = state["identity"]["normalize"]
    model.load_state_dict(state.pop("model"))
    return model.eval(), state
