"""The training loop of `tune sbert`: AdamW, a rate that rises and falls, an average of the last weights.

Everything that a step depends on is in its checkpoint or follows from seed and step, so a run that was killed ends with
the same weights as one that was not.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relabel.core.numeric.torch_threads import inner_threads
from relabel.core.progress import Progress
from relabel.sources.sbert.tune_backward import Gradients
from relabel.sources.sbert.tune_batches import Batches
from relabel.sources.sbert.tune_frozen_layers import layer_of
from relabel.sources.sbert.tune_loss import Weights, loss_of
from relabel.store.atomic import write_atomic

if TYPE_CHECKING:
    from relabel.sources.sbert.tune import TuneSbertParams

CHECKPOINT_SECONDS = 60.0
_CLIP = 1.0  # norm of a step's gradient


@dataclass
class Trainer:
    """A training run.

    Parameters
    ----------
    model : Gradients
        Its parameters are what is trained.
    batches : Batches
    params : TuneSbertParams
    checkpoint : Path
        A file; what it holds is gone on with.

    Attributes
    ----------
    losses : list of float
        Mean loss of each whole epoch.
    """

    model: Gradients
    batches: Batches
    params: TuneSbertParams
    checkpoint: Path
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        p = self.params
        self._depth = 1 + max((at for n in self.model.parameters if (at := layer_of(n)) is not None), default=-1)
        self.step, self.steps = 0, p.epochs * len(self.batches)
        self.weights = Weights(p.ranking, p.scale, p.sits)
        self._sums = [0.0] * p.epochs
        self._average = {n: torch.zeros_like(q) for n, q in self.model.parameters.items()}
        self._start = {n: q.detach().clone() for n, q in self.model.parameters.items()}
        self.optimizer = torch.optim.AdamW(self._groups(), betas=(0.9, 0.98), eps=1e-6)
        self._rates = [group["lr"] for group in self.optimizer.param_groups]

    def run(self, progress: Progress, title: str) -> None:
        """Train to the end, from the last checkpoint if there is one; the model then holds the averaged weights.

        Parameters
        ----------
        progress : Progress
            Counts steps.
        title : str
        """
        self._resume()
        with inner_threads(1):  # sums over a whole tensor then have one order
            self._steps(progress, title)
        self.losses = [total / len(self.batches) for total in self._sums]
        with torch.no_grad():
            for name, parameter in self.model.parameters.items():
                parameter.copy_(torch.lerp(self._start[name], self._average[name], self.params.distance))

    def _steps(self, progress: Progress, title: str) -> None:
        last = time.monotonic()
        with progress.bar(title, self.steps, "steps") as bar:
            bar.advance(self.step)
            while self.step < self.steps:
                epoch, first = divmod(self.step, len(self.batches))
                for batch in self.batches.epoch(epoch)[first:]:
                    value, gradients = self.model.gradients(
                        batch.captions,
                        lambda vectors, b=batch: loss_of(vectors, b, self.weights),  # type: ignore[misc]
                        [self.params.seed, self.step],
                    )
                    self._update(gradients)
                    self._sums[epoch] += value
                    self.step += 1
                    bar.advance(1)
                    if time.monotonic() - last > CHECKPOINT_SECONDS:
                        self._save()
                        last = time.monotonic()

    def _groups(self) -> list[dict[str, object]]:
        """Each depth its own rate: the nearer to the words, the smaller. No decay of norms and biases."""
        p = self.params
        top = self._depth
        groups: dict[tuple[float, float], list[Tensor]] = {}
        for name, parameter in self.model.parameters.items():
            at = layer_of(name)
            below = top - at - 1 if at is not None else (top if "embeddings" in name else 0)
            key = (p.rate * p.layer_decay**below, p.weight_decay if parameter.ndim > 1 else 0.0)
            groups.setdefault(key, []).append(parameter)
        return [{"params": v, "lr": r, "weight_decay": d} for (r, d), v in groups.items()]

    def _update(self, gradients: dict[str, Tensor]) -> None:
        for name, parameter in self.model.parameters.items():
            parameter.grad = gradients[name]
        torch.nn.utils.clip_grad_norm_(list(self.model.parameters.values()), _CLIP)
        share = rate_share(self.step, self.steps, self.params.warmup)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * share
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        first = self.steps - max(1, round(self.steps * self.params.average))
        if self.step >= first:
            with torch.no_grad():
                for name, parameter in self.model.parameters.items():
                    self._average[name].lerp_(parameter, 1 / (self.step - first + 1))

    def _save(self) -> None:
        from safetensors.torch import save_file

        state = {f"weight.{n}": q.detach() for n, q in self.model.parameters.items()}
        state |= {f"average.{n}": q for n, q in self._average.items()}
        for name, parameter in self.model.parameters.items():
            state |= {f"{k}.{name}": v for k, v in self.optimizer.state[parameter].items()}
        state["sums"] = torch.tensor(self._sums, dtype=torch.float64)
        write_atomic(self.checkpoint, lambda path: save_file(state, path, {"step": str(self.step)}))

    def _resume(self) -> None:
        from safetensors import SafetensorError, safe_open

        if not self.checkpoint.exists():
            return
        try:
            with safe_open(self.checkpoint, "pt", device=self.model.device) as file, torch.no_grad():
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                step = int(file.metadata()["step"])
        except (SafetensorError, OSError):  # a power cut may leave a file without its end: the work begins again
            return
        with torch.no_grad():
            for name, parameter in self.model.parameters.items():
                parameter.copy_(state[f"weight.{name}"])
                moments = ("step", "exp_avg", "exp_avg_sq")
                self.optimizer.state[parameter] = {k: state[f"{k}.{name}"] for k in moments}
        self._average = {name: state[f"average.{name}"] for name in self._average}
        self._sums, self.step = state["sums"].tolist(), step


def rate_share(step: int, steps: int, warmup: float) -> float:
    """Share of the full rate at a step: a linear rise, then half a cosine down to 0."""
    rise = warmup * steps
    if step < rise:
        return (step + 1) / (rise + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1.0, steps - rise)))
