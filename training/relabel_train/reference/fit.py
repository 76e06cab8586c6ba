"""Reference training of an image-text model with graded labels, from features and captions.

The folder of a run holds `last.pt`, the state to resume from, `best.pt`, the model with the best RSUM on the
validation split, and `log.jsonl`, one line every few steps and per evaluation.

No random state is stored, since every draw of a step depends on (seed, step) only: a resumed run ends, on a CPU, with
the same bits.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from relabel_train.lookup import open_lookup
from relabel_train.precomputed import open_batches
from relabel_train.reference import data
from relabel_train.reference.evaluate import image_figures, recall
from relabel_train.reference.models.base import Model, Vocabulary
from relabel_train.reference.objective import Objective
from relabel_train.reference.options import DivergenceError, FitError, FitOptions
from relabel_train.reference.runs import BEST, LAST, find_device, load_last, make_model, save_checkpoint

SAVE_EVERY = 500
"""Steps between checkpoints: a killed run loses only a few minutes of training."""
MAX_NORM = 2.0
"""Maximum norm of a gradient, as in the code of VSE++, SGRAF and S-NDCG."""


@dataclass
class Progress:
    """Progress of a run, stored in its checkpoints.

    `step`, `epoch`: steps taken, and epochs completed. `done`: batches done in this epoch.
    `best`: best RSUM on the validation split so far, 0..600, or nDCG, 0..1. `worse`: evaluations since then.
    `seconds`: wall time of training, over all interruptions.
    """

    step: int = 0
    epoch: int = 0
    done: int = 0
    best: float = -math.inf
    worse: int = 0
    seconds: float = 0.0


def fit(options: FitOptions, device: str = "auto", notify: Callable[[str], None] = lambda _: None) -> Progress:
    """Train, or resume training; `notify` is called with progress messages."""
    place = find_device(device)

    # Data: features of images, captions of two splits, labels.
    features = data.open_corpus_features(options.features, options.captions)
    train = data.read_split(options.captions, options.split, features).sample(options.fraction, options.seed)
    val = data.read_split(options.captions, options.val, features)
    lookup = None if options.lookup is None else open_lookup(options.lookup)
    plan = None if options.batches is None else open_batches(options.batches)
    val_images = None if options.image_labels is None else open_batches(options.image_labels)
    exports: dict[str, Any] = {"lookup": lookup, "plan": plan, "image_labels": val_images}
    for export in exports.values():
        data.check_corpus(options.captions, export)

    # Loss: its labels are in low..top after scaling.
    labels = lookup if plan is None else plan
    low, top = (0.0, 1.0) if labels is None else (bound / options.scale for bound in labels.about.bounds)
    objective = Objective(options.loss, top).to(place)
    warm_up = Objective({"name": "triplet", "negatives": "sum"})
    paired, tied = [part.name for part in objective.distances], any(part.triplet for part in objective.distances)
    if len(paired) == len(objective.parts) and not tied and val_images is None:
        hint = "give --image-labels (batches of images of the validation split), or --set loss.triplet=1"
        raise FitError(f"{paired[0]} compares no image with a caption, so RSUM cannot select: {hint}")

    # Batches.
    batches: data.Batches
    if plan is not None:
        batches = data.PlannedBatches(train, features, plan)
    else:
        batches = data.SampledBatches(train, features, lookup, options.pooling, bool(paired))
        batches.draw(options.sampler, options.batch_size, options.seed)
    objective.check_labels(batches.kinds, low, top)
    if not batches.epoch(0):
        raise FitError(f"no batch: {options.split} has {len(batches.captions)} captions with labels")

    # Model and optimizer. Words of val and test stay unknown.
    torch.manual_seed(options.seed)
    vocabulary = Vocabulary.of(train.texts, options.min_count)
    model = make_model(options.model, features.width, vocabulary).to(place)
    model.normalize = all(part.unit_embeddings for part in objective.distances)
    if model.sets and paired:
        raise FitError(f"{paired[0]} compares embeddings; this model has a set of vectors per item")
    learned: dict[str, Any] = {"params": objective.parameters(), "weight_decay": 0.0}
    optimizer = AdamW([{"params": model.parameters()}, learned], options.lr, weight_decay=options.weight_decay)

    # The start, or the last checkpoint of the same options and contents of files.
    identity = {**options.identity(), "batches": batches.identity, "features": features.digest()}
    identity |= {"captions": train.digest(), "validation": val.digest()}
    identity |= {name: None if x is None else x.about.fingerprint for name, x in exports.items()}
    facts = {"identity": identity, "width": features.width, "words": vocabulary.words, "normalize": model.normalize}
    progress, log = Progress(), list[dict[str, Any]]()

    def save(name: str, **more: Any) -> None:
        state = {**facts, "progress": asdict(progress), "model": model.state_dict(), **more}
        save_checkpoint(options.out / name, state)

    def save_last() -> None:
        """Save all that resuming needs, and the log up to here."""
        save(LAST, objective=objective.state_dict(), optimizer=optimizer.state_dict(), log=log)
        lines = [json.dumps(line, allow_nan=False) + "\n" for line in log]
        (options.out / "log.jsonl").write_text("".join(lines), encoding="utf-8")

    options.out.mkdir(parents=True, exist_ok=True)
    if (state := load_last(options.out, identity)) is not None:
        model.load_state_dict(state["model"])
        objective.load_state_dict(state["objective"])
        optimizer.load_state_dict(state["optimizer"])
        progress, log = Progress(**state["progress"]), state["log"]
    save_last()  # before any other file, so a folder without it holds no run
    resumed = f"resumes at step {progress.step:,}" if progress.step else None
    for note in filter(None, (features.proxy, batches.note, resumed)):
        notify(note)

    def evaluate() -> None:
        """Evaluate on the validation split, and keep the model if it is the best so far."""
        model.eval()
        if val_images is None:
            figures = recall(model, val, features, place)
        else:
            figures = image_figures(model, val_images, features, place)["model"]
        model.train()
        value = figures.get(options.measure.lower(), 0.0)  # nDCG@10 needs more than ten images
        better = value > progress.best
        progress.best, progress.worse = (value, 0) if better else (progress.best, progress.worse + 1)
        log.append({"kind": "evaluation", "step": progress.step, "epoch": progress.epoch, **figures})
        reached = f"epoch {progress.epoch}, step {progress.step:,}"
        notify(f"{reached}: {options.measure} {value:.4g} on {options.val} (best {progress.best:.4g})")
        if better:
            save(BEST)

    def finished() -> bool:
        return progress.epoch >= options.epochs or 0 < options.patience <= progress.worse

    # Training.
    started, bfloat16 = time.perf_counter() - progress.seconds, options.precision == "bfloat16"
    model.train()
    while not finished():
        loss_of = warm_up if progress.epoch < options.triplet_epochs else objective
        # A pure function of the epoch: a resumed run skips the batches that are done.
        planned = batches.epoch(progress.epoch)
        for item in planned[progress.done :]:
            batch = batches.read(item, model, options.scale, place)
            loss, norm = train_step(model, loss_of, batch, optimizer, (options.seed, progress.step), bfloat16)
            progress.step, progress.done = progress.step + 1, progress.done + 1
            progress.seconds = time.perf_counter() - started
            if progress.step == 1 or progress.step % options.log_every == 0:
                figures = {"loss": float(loss), "gradient": float(norm), "lr": optimizer.param_groups[0]["lr"]}
                if not all(map(math.isfinite, figures.values())):
                    raise DivergenceError(f"the loss is not finite at step {progress.step:,}; try a smaller lr")
                log.append({"kind": "train", "step": progress.step, **figures, "seconds": round(progress.seconds, 3)})
                reached = f"{progress.done} of {len(planned)} batches of epoch {progress.epoch}"
                notify(f"step {progress.step:,}: loss {figures['loss']:.4f}, {reached}")
            ended = progress.done == len(planned)
            if ended:
                progress.epoch, progress.done = progress.epoch + 1, 0
            if ended and progress.epoch == options.decay_at:
                for group in optimizer.param_groups:
                    group["lr"] *= 0.1
            due = progress.step % options.evaluate_every == 0 if options.evaluate_every else ended
            if due or progress.epoch == options.epochs:
                evaluate()
            if due or ended or progress.step % SAVE_EVERY == 0:
                save_last()
            if finished():
                break
    notify(f"done: best {options.measure} {progress.best:.4g} on {options.val} after {progress.step:,} steps")
    return progress


def train_step(
    model: Model, objective: Objective, batch: data.Batch, optimizer: Optimizer, draw: tuple[int, int], bfloat16: bool
) -> tuple[Tensor, Tensor]:
    """Take one step; return the loss and the norm of its gradient before it was clipped.

    `draw`: seed and number of the step; they determine its random numbers.
    """
    seed = (draw[0] * 1_000_003 + draw[1]) * 1_009 % (1 << 63)
    torch.manual_seed(seed + 1)
    with torch.autocast(batch.features.device.type, torch.bfloat16, enabled=bfloat16):
        images = model.encode_images(batch.features, batch.regions)
        captions = model.encode_captions(batch.tokens, batch.lengths)
        scores = model.scores(images, captions)
    # The draws of a loss do not depend on those of the model.
    torch.manual_seed(seed)
    loss = objective(scores, images, captions, batch.labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_([*model.parameters(), *objective.parameters()], MAX_NORM)
    optimizer.step()
    return loss.detach(), norm
