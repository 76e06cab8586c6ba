"""Training loop of `tune sbert`, and its loss: AdamW with warm-up and cosine decay, and an average of the last weights.

A step depends on its checkpoint, the seed and its number only, so an interrupted run ends with the same weights as an
uninterrupted one.

The loss is the disagreement of cosines with human scores, in the sense in which labels are evaluated. Its terms are
computed from a batch's pairs of captions (STS), of a caption and an image (SITS), of images (SIS) and of other
sentences. The cosine of a caption and an image is the largest one to the captions that represent the image, without the
caption itself. The cosine of two images is the mean, over the captions of both, of the largest cosine to the captions
of the other one.

- 1 - Pearson's r within the batch. This is the squared error that remains after the best affine map of the cosine. A
  map learned by gradient steps disturbs the cosines until it has converged, and gave worse labels.
- The same for all pairs of a caption and an image together. The cosine of an image's own caption is 1, because a label
  finds the caption among its references.
- CoSENT (Su, 2022): log(1 + sum exp(s (cos_j - cos_i))) / s over all pairs that people ordered the other way.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relabel.core.numeric.threads import inner_threads
from relabel.core.runtime import Progress
from relabel.sources.sbert.tune_backward import GradientModel, layer_number
from relabel.sources.sbert.tune_batches import Batch, Batches
from relabel.store.files import write_atomic

if TYPE_CHECKING:
    from relabel.sources.sbert.tune import TuneSbertParams

CHECKPOINT_SECONDS = 60.0
_CLIP = 1.0  # largest norm of a step's gradient


@dataclass
class Trainer:
    """A training run.

    `model`: model whose parameters are trained. `checkpoint`: file of the checkpoint; training resumes from it if it
    exists.

    `losses`: mean loss of each epoch.
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

        `progress`: counts steps. `title`: title of the progress bar.
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

    `step`, `steps`: number of the step, and number of all steps. `warmup`: share of the steps in which the factor
    rises.
    """
    rise = warmup * steps
    if step < rise:
        return (step + 1) / (rise + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1.0, steps - rise)))


_MIN_PAIRS = 4  # least number of pairs for a coefficient


class LossWeights(NamedTuple):
    """Weights of the loss's terms.

    `ranking`: weight of CoSENT, relative to 1 for Pearson's r.
    `scale`: CoSENT's s.
    `sits`: weight of SITS, relative to 1 for STS.
    `sis`: weight of SIS.
    `sentences`: weight of each set of sentence pairs.
    """

    ranking: float
    scale: float
    sits: float
    sis: float = 0.0
    sentences: float = 0.0


def compute_loss(vectors: Tensor, batch: Batch, weights: LossWeights) -> Tensor:
    """Compute the loss of one batch.

    `vectors`: (C, D) float32; unit vectors of the batch's captions. Returns () float32, 0 if the batch holds no pairs.
    """
    left, right = _tensor(batch.sts, vectors).T
    sts = (vectors[left] * vectors[right]).sum(-1)
    other_cosines = _image_cosines(vectors, batch, ~batch.own)
    score, other_score, own_score = (
        _tensor(values, vectors)
        for values in (batch.sts_score, batch.sits_score[~batch.own], batch.sits_score[batch.own])
    )
    sits_cosines = torch.cat([other_cosines, torch.ones_like(own_score)])
    sits = _task_loss(other_cosines, other_score, weights) + _pearson_loss(
        sits_cosines, torch.cat([other_score, own_score])
    )
    total = _task_loss(sts, score, weights) + weights.sits * sits
    if weights.sis:
        total = total + weights.sis * _pearson_loss(_sis_cosines(vectors, batch), _tensor(batch.sis_score, vectors))
    for pairs, human in batch.sentences:
        first, second = _tensor(pairs, vectors).T
        cosine = (vectors[first] * vectors[second]).sum(-1)
        total = total + weights.sentences * _pearson_loss(cosine, _tensor(human, vectors))
    return total


def _tensor(values: NDArray[Any], vectors: Tensor) -> Tensor:
    """Return an array on the device of the vectors."""
    return torch.from_numpy(values).to(vectors.device)


def _sis_cosines(vectors: Tensor, batch: Batch) -> Tensor:
    """Return the cosine of each judged pair of images, (R,)."""
    left, right = vectors[_tensor(batch.sis, vectors)].unbind(1)
    cosines = left @ right.transpose(1, 2)
    if not len(cosines):  # no maximum over an empty axis
        return cosines.sum(dim=(1, 2))
    return (cosines.amax(dim=1).mean(-1) + cosines.amax(dim=2).mean(-1)) / 2


def _image_cosines(vectors: Tensor, batch: Batch, selected: NDArray[np.bool_]) -> Tensor:
    """Return the largest cosine of each selected SITS pair to the image's references, (Q,)."""
    references = _tensor(batch.references[selected], vectors)
    captions = _tensor(batch.sits[selected], vectors)
    cosines = (vectors[captions][:, None, :] * vectors[references.clamp(min=0)]).sum(-1)
    # A reference of -1 is the judged caption itself; -2 is below every cosine.
    return cosines.masked_fill(references < 0, -2.0).amax(dim=1) if len(captions) else cosines.sum(dim=1)


def _task_loss(cosine: Tensor, score: Tensor, weights: LossWeights) -> Tensor:
    """Return the loss of one task: Pearson's term and, if weighted, CoSENT's."""
    total = _pearson_loss(cosine, score)
    return total + weights.ranking * _cosent_loss(cosine, score, weights.scale) if weights.ranking else total


def _pearson_loss(cosine: Tensor, score: Tensor) -> Tensor:
    """Return 1 - Pearson's r; 0 for fewer than `_MIN_PAIRS` pairs or constant scores."""
    if len(cosine) < _MIN_PAIRS or bool((score == score[0]).all()):
        return cosine.sum() * 0
    a, b = cosine - cosine.mean(), score - score.mean()
    # The small constant keeps the gradient finite if all cosines are equal.
    return 1 - (a * b).sum() / (a.square().sum() * b.square().sum() + 1e-12).sqrt()


def _cosent_loss(cosine: Tensor, score: Tensor, scale: float) -> Tensor:
    """Return CoSENT's loss of (P,) cosines."""
    differences = scale * (cosine[None, :] - cosine[:, None])
    ordered = score[:, None] > score[None, :]
    if not bool(ordered.any()):
        return cosine.sum() * 0
    # Only pairs that people ordered contribute; ties do not.
    terms = differences[ordered]
    return torch.logsumexp(torch.cat([terms.new_zeros(1), terms]), 0) / scale
