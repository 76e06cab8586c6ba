"""Training loop of `tune sbert`: AdamW with warm-up and cosine decay, and an average of the last weights.

A step depends on its checkpoint, the seed and its number only, so an interrupted run ends with the same weights as an
uninterrupted one.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relabel.core.numeric.threads import inner_threads
from relabel.core.progress import Progress
from relabel.sources.sbert.tune_backward import GradientModel
from relabel.sources.sbert.tune_batches import Batches
from relabel.sources.sbert.tune_frozen_layers import layer_number
from relabel.sources.sbert.tune_loss import LossWeights, compute_loss
from relabel.store.atomic import write_atomic

if TYPE_CHECKING:
    from relabel.sources.sbert.tune import TuneSbertParams

CHECKPOINT_SECONDS = 60.0
_CLIP = 1.0  # largest norm of a step's gradient


@dataclass
class Trainer:
    """A training run.

    Parameters
    ----------
    model : GradientModel
        Model whose parameters are trained.
    batches : Batches
    params : TuneSbertParams
    checkpoint : Path
        File of the checkpoint; training resumes from it if it exists.

    Attributes
    ----------
    losses : list of float
        Mean loss of each epoch.
    """

    model: GradientModel
    batches: Batches
    params: TuneSbertParams
    checkpoint: Path
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Prepare the optimizer and the average."""
        p = self.params
        self._depth = 1 + max((at for n in self.model.parameters if (at := layer_number(n)) is not None), default=-1)
        self.step, self.steps = 0, p.epochs * len(self.batches)
        self.weights = LossWeights(p.ranking, p.scale, p.sits, p.sis, p.also_weight)
        self._sums = [0.0] * p.epochs
        self._average = {n: torch.zeros_like(q) for n, q in self.model.parameters.items()}
        self._start = {n: q.detach().clone() for n, q in self.model.parameters.items()}
        self.optimizer = torch.optim.AdamW(self._groups(), betas=(0.9, 0.98), eps=1e-6)
        self._rates = [group["lr"] for group in self.optimizer.param_groups]

    def run(self, progress: Progress, title: str) -> None:
        """Train to the end, from the last checkpoint if there is one. The model then holds the averaged weights.

        Parameters
        ----------
        progress : Progress
            Counts steps.
        title : str
            Title of the progress bar.
        """
        self._resume()
        with inner_threads(1):  # sums over a tensor then have one order
            self._steps(progress, title)
        self.losses = [total / len(self.batches) for total in self._sums]
        with torch.no_grad():
            for name, parameter in self.model.parameters.items():
                # WiSE-FT: interpolate between the base's weights and the averaged ones.
                parameter.copy_(torch.lerp(self._start[name], self._average[name], self.params.distance))

    def _steps(self, progress: Progress, title: str) -> None:
        """Run the remaining steps."""
        last = time.monotonic()
        with progress.bar(title, self.steps, "steps") as bar:
            bar.advance(self.step)
            while self.step < self.steps:
                epoch, first = divmod(self.step, len(self.batches))
                # A resumed epoch skips the batches that were done.
                for batch in self.batches.epoch(epoch)[first:]:
                    value, gradients = self.model.gradients(
                        batch.captions,
                        lambda vectors, b=batch: compute_loss(vectors, b, self.weights),  # type: ignore[misc]
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
        """Return AdamW's parameter groups: lower layers learn more slowly, norms and biases have no decay."""
        p = self.params
        count = self._depth
        groups: dict[tuple[float, float], list[Tensor]] = {}
        for name, parameter in self.model.parameters.items():
            layer = layer_number(name)
            distance = count - layer - 1 if layer is not None else (count if "embeddings" in name else 0)
            # Parameters with equal rate and decay share a group.
            key = (p.rate * p.layer_decay**distance, p.weight_decay if parameter.ndim > 1 else 0.0)
            groups.setdefault(key, []).append(parameter)
        return [{"params": v, "lr": r, "weight_decay": d} for (r, d), v in groups.items()]

    def _update(self, gradients: dict[str, Tensor]) -> None:
        """Apply one step's gradients, and update the average."""
        for name, parameter in self.model.parameters.items():
            parameter.grad = gradients[name]
        torch.nn.utils.clip_grad_norm_(list(self.model.parameters.values()), _CLIP)
        share = learning_rate_factor(self.step, self.steps, self.params.warmup)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * share
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        first = self.steps - max(1, round(self.steps * self.params.average))
        if self.step >= first:
            with torch.no_grad():
                for name, parameter in self.model.parameters.items():
                    # Running mean of the weights since step `first`.
                    self._average[name].lerp_(parameter, 1 / (self.step - first + 1))

    def _save(self) -> None:
        """Write the checkpoint."""
        from safetensors.torch import save_file

        state = {f"weight.{n}": q.detach() for n, q in self.model.parameters.items()}
        state |= {f"average.{n}": q for n, q in self._average.items()}
        for name, parameter in self.model.parameters.items():
            state |= {f"{k}.{name}": v for k, v in self.optimizer.state[parameter].items()}
        state["sums"] = torch.tensor(self._sums, dtype=torch.float64)
        write_atomic(self.checkpoint, lambda path: save_file(state, path, {"step": str(self.step)}))

    def _resume(self) -> None:
        """Load the checkpoint, if there is a complete one."""
        from safetensors import SafetensorError, safe_open

        if not self.checkpoint.exists():
            return
        try:
            with safe_open(self.checkpoint, "pt", device=self.model.device) as file, torch.no_grad():
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                step = int(file.metadata()["step"])
        except (SafetensorError, OSError):  # a power cut may truncate the file: training starts again
            return
        with torch.no_grad():
            for name, parameter in self.model.parameters.items():
                parameter.copy_(state[f"weight.{name}"])
                moments = ("step", "exp_avg", "exp_avg_sq")
                self.optimizer.state[parameter] = {k: state[f"{k}.{name}"] for k in moments}
        self._average = {name: state[f"average.{name}"] for name in self._average}
        self._sums, self.step = state["sums"].tolist(), step


def learning_rate_factor(step: int, steps: int, warmup: float) -> float:
    """Return the factor of the learning rate at a step: linear warm-up, then cosine decay to 0.

    Parameters
    ----------
    step, steps : int
        Number of the step, and number of all steps.
    warmup : float
        Share of the steps in which the factor rises.

    Examples
    --------
    >>> from relabel.sources.sbert.tune_train import learning_rate_factor
    >>> [round(learning_rate_factor(step, 8, warmup=0.25), 2) for step in (0, 1, 2, 5, 8)]
    [0.33, 0.67, 1.0, 0.5, 0.0]
    """
    rise = warmup * steps
    if step < rise:
        return (step + 1) / (rise + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1.0, steps - rise)))
