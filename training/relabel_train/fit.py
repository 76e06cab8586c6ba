"""Reference training: features and captions in, a model that was trained with graded labels out.

Read from top to bottom. A run is its folder:

- `last.npz`: all that is needed to go on; `best.npz`: the model with the best RSUM on the validation split.
- `vocabulary.json`, `log.jsonl` (a line every few steps, one an evaluation), TensorBoard's files where it is installed.

Killed anywhere, the same command goes on from `last.npz` and ends, on a CPU, with the same bits as a run that was not
killed. That needs no random state on disk: what is drawn in a step is drawn from (seed, step) alone.

Several processes (``torchrun --nproc-per-node N --no-python relabel fit ...``) share each batch; embeddings are
gathered, so that losses see the whole batch and gradients are those of one process.
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

from relabel_train.batches import open_plan
from relabel_train.features import open_features
from relabel_train.lookup import open_lookup
from relabel_train.models import Model, Vocabulary, make_model
from relabel_train.training.checkpoint import load_checkpoint, save_checkpoint
from relabel_train.training.data import Batch, Batches, read_split
from relabel_train.training.errors import FitError
from relabel_train.training.evaluate import recall
from relabel_train.training.log import Log
from relabel_train.training.objective import Objective, Pairs
from relabel_train.training.options import FitOptions
from relabel_train.training.processes import Processes, processes

LAST, BEST, VOCABULARY = "last.npz", "best.npz", "vocabulary.json"
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass
class Position:
    """Where a run is."""

    step: int = 0
    epoch: int = 0
    done: int = 0  # batches of this epoch
    best: float = -math.inf
    worse: int = 0  # evaluations since the best
    evaluated: int = 0  # step of the last evaluation
    finished: bool = False
    seconds: float = 0.0


def fit(options: FitOptions, device: str = "auto", tell: Callable[[str], None] = lambda _: None) -> Position:
    """Train, or go on training.

    Parameters
    ----------
    options : FitOptions
    device : "auto", "cpu" or "cuda"
    tell : callable
        Gets a line for people now and then.

    Returns
    -------
    Position
        `best` is the best RSUM on the validation split.

    Raises
    ------
    FileNotFoundError, FeaturesError, LookupFileError, KeyError
        If data are not there, not what they must be, or do not cover each other.
    FitError
        If options make no sense, the folder holds another run, or the loss is not finite.
    """
    with processes(device) as here:
        options.out.mkdir(parents=True, exist_ok=True)
        return _fit(options, here, tell)


def _fit(options: FitOptions, here: Processes, tell: Callable[[str], None]) -> Position:
    # Data: features of images, captions of two splits, labels.
    features = open_features(options.data, namespace=options.namespace, ids=options.ids)
    train = read_split(options.captions, options.split, features)
    val = read_split(options.captions, options.val, features)
    labels = open_lookup(options.labels) if options.labels is not None else None
    plan = open_plan(options.plan) if options.plan is not None else None
    bounds = labels.about.bounds if labels is not None else plan.about["bounds"] if plan is not None else (0.0, 1.0)

    # Loss, model, optimizer. Everything drawn here is drawn from the seed.
    objective = Objective(options.loss, options.loss_set, float(bounds[1]) / options.scale)
    warm_up = Objective(("triplet",), ("negatives=sum",)) if options.warm_up else objective
    _check_labels(objective, labels is not None, plan is not None)
    torch.manual_seed(options.seed)
    vocabulary = Vocabulary.of(train.texts, options.least)
    model = make_model(options.model, features.width, vocabulary, options.embed, options.word, options.text)
    model.to(here.device)
    groups = model.parameter_groups(options.lr)
    decoupled = options.weight_decay > 0
    optimizer = torch.optim.AdamW(groups, weight_decay=options.weight_decay) if decoupled else torch.optim.Adam(groups)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: _rate(options, epoch))
    scaler = torch.amp.GradScaler(here.device.type, enabled=options.precision == "float16")
    batches = Batches(options, train, features, model, labels, plan, objective.needs_paired, here.rank, here.world)

    # Where the run is: at its start, or where its last checkpoint was.
    at, size = Position(), 0
    identity = {**options.identity(), "batches": batches.identity, "world": here.world}
    if (options.out / LAST).is_file():
        state = load_checkpoint(options.out / LAST)
        _check_identity(options.out / LAST, state["identity"], identity)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        scaler.load_state_dict(state["scaler"])
        at, size = Position(**state["position"]), state["log"]
        at.finished = at.finished and (at.epoch >= options.epochs or _tired(options, at))
    log = Log(options.out if here.first else None, tell, size, at.step)
    if here.first:
        (options.out / VOCABULARY).write_text(vocabulary.to_json(), encoding="utf-8")
        if features.stand_in is not None:
            log.note(features.stand_in)
        if at.step:
            log.note(f"goes on at step {at.step:,} (epoch {at.epoch}, batch {at.done})")
    wrapped: nn.Module = DistributedDataParallel(model) if here.world > 1 else model
    wrapped.train()

    def keep(name: str, now: Position) -> None:
        if here.first:
            body = {"options": options.identity(), "stand_in": features.stand_in, "width": features.width}
            state = {"identity": identity, **body, "model": model.state_dict(), "position": now.__dict__}
            if name == LAST:
                state |= {"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
                state |= {"scaler": scaler.state_dict(), "log": log.size}
            save_checkpoint(options.out / name, state)

    def evaluate() -> None:
        figures = recall(model, val, features, here.device) if here.first else {"rsum": 0.0}
        rsum = here.share(figures["rsum"])
        better = rsum > at.best
        at.evaluated = at.step
        at.best, at.worse = (rsum, 0) if better else (at.best, at.worse + 1)
        said = f"epoch {at.epoch}, step {at.step:,}: RSUM {rsum:.1f} on {options.val} (best {at.best:.1f})"
        log.write("evaluation", at.step, {"epoch": at.epoch, "best": at.best, **figures}, said)
        if better:
            keep(BEST, at)

    # Training.
    started = time.perf_counter() - at.seconds
    while not at.finished:
        loss_of = warm_up if at.epoch < options.warm_up else objective
        todo = batches.epoch(at.epoch)
        for batch in _loader(batches, todo[at.done :], options.workers):
            loss, norm = _step(wrapped, loss_of, batch.to(here.device), optimizer, scaler, options, here, at.step)
            at.step, at.done = at.step + 1, at.done + 1
            at.seconds = time.perf_counter() - started
            if at.step % options.log_every == 0 or at.step == 1:
                if not math.isfinite(float(loss)):
                    raise FitError(f"the loss is {float(loss)} at step {at.step:,}; try a smaller lr, or float32")
                speed = {"lr": optimizer.param_groups[0]["lr"], "seconds": round(at.seconds, 3)}
                told = f"step {at.step:,}: loss {float(loss):.4f}, {at.done} of {len(todo)} batches of epoch {at.epoch}"
                log.write("train", at.step, {"loss": float(loss), "gradient": float(norm), **speed}, told)
            if options.evaluate_every and at.step % options.evaluate_every == 0:
                evaluate()
                keep(LAST, at)
                if _tired(options, at):
                    break
            elif at.step % options.save_every == 0:
                keep(LAST, at)
        else:
            at.epoch, at.done = at.epoch + 1, 0
            schedule.step()
            if at.evaluated < at.step and (not options.evaluate_every or at.epoch == options.epochs):
                evaluate()
        at.finished = at.epoch >= options.epochs or _tired(options, at)
        keep(LAST, at)
    log.note(f"done: best RSUM {at.best:.1f} on {options.val} after {at.step:,} steps")
    log.close()
    return replace(at)


def _step(
    model: nn.Module,
    objective: Objective,
    batch: Batch,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    options: FitOptions,
    here: Processes,
    step: int,
) -> tuple[Tensor, Tensor]:
    """Take one step; return the loss and the norm of its gradient before it was clipped."""
    kind = here.device.type
    reduced = _DTYPES.get(options.precision)
    torch.manual_seed(_mix(options.seed, step, here.rank))  # what the model drops is each process's own
    with torch.autocast(kind, dtype=reduced) if reduced is not None else nullcontext():
        images, captions = model(batch.features, batch.regions, batch.tokens, batch.lengths)
    count = len(batch.same_image)
    images, captions = here.gather(images, count), here.gather(captions, count)
    scores = _plain(model).scores(images, captions)
    torch.manual_seed(_mix(options.seed, step, -1))  # what the loss draws is the same in all
    pairs = Pairs(scores, images, captions, batch.relevance, batch.paired, batch.same_image)
    loss = objective(pairs)
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), options.clip)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach(), norm


def _loader(batches: Batches, todo: list[Any], workers: int) -> Any:
    """Read batches in order, ahead in workers where there are any; the global random state is not touched."""
    own = torch.Generator()
    return DataLoader(todo, batch_size=None, collate_fn=batches.make, num_workers=workers, generator=own)  # type: ignore[arg-type]


def _plain(model: nn.Module) -> Model:
    found = model.module if isinstance(model, DistributedDataParallel) else model
    assert isinstance(found, Model)
    return found


def _rate(options: FitOptions, epoch: int) -> float:
    return 0.1 if options.decay_at is not None and epoch >= options.decay_at else 1.0


def _tired(options: FitOptions, at: Position) -> bool:
    return options.patience > 0 and at.worse >= options.patience


def _mix(seed: int, step: int, rank: int) -> int:
    """Make one seed of three numbers."""
    return ((seed * 1_000_003 + step) * 1_009 + rank + 1) % (1 << 63)


def _check_labels(objective: Objective, lookup: bool, plan: bool) -> None:
    if objective.needs_relevance and not (lookup or plan):
        raise FitError("this loss reads labels: give --labels (a lookup) or --plan (a batch plan)")
    if objective.needs_paired and plan:
        raise FitError(
            "log_ratio and dense_triplet read labels of captions among themselves: give --labels, not --plan"
        )


def _check_identity(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    other = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
    if other:
        said = "; ".join(f"{n} was {found.get(n)}, is {wanted.get(n)}" for n in other[:3])
        raise FitError(f"{path}: another run ({said}). Give another --out, or delete the folder.")


def load_model(folder: Path, name: str = BEST) -> tuple[Model, dict[str, Any]]:
    """Load the model of a run, ready to evaluate, and what its checkpoint says.

    Raises
    ------
    FileNotFoundError, FitError
        If there is no such run, or it is damaged.
    """
    state = load_checkpoint(folder / name)
    options, vocabulary = state["options"], Vocabulary.read(folder / VOCABULARY)
    shape = (state["width"], vocabulary, options["embed"], options["word"], options["text"])
    model = make_model(options["model"], *shape)
    model.load_state_dict(state.pop("model"))
    return model.eval(), state
