"""Generalized pooling: a learned weight for the largest value, the second largest, and so on.

Chen et al., Learning the Best Pooling Strategy for Visual Semantic Embedding (VSE-infinity), CVPR 2021, section 3.2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from relabel_train.models.base import counted


class GPO(nn.Module):
    """sum over k of theta_k times the k-th largest value of each dimension; theta depends on the number of values.

    theta = softmax(MLP(BiGRU(position encodings of 1..n)) / temperature).

    Parameters
    ----------
    positions, hidden : int
        Width of the encodings and of each direction of the GRU; 32.
    temperature : float
        0.1.

    Examples
    --------
    >>> import torch
    >>> from relabel_train.models import GPO
    >>> pool = GPO()
    >>> pool(torch.rand(2, 5, 8), torch.tensor([5, 3])).shape  # 5 regions of the first image count, 3 of the second
    torch.Size([2, 8])
    >>> theta = pool.coefficients(torch.tensor([3]), 5)
    >>> round(theta.sum().item(), 4), theta[0, 3:].tolist()
    (1.0, [0.0, 0.0])
    """

    def __init__(self, positions: int = 32, hidden: int = 32, temperature: float = 0.1) -> None:
        super().__init__()
        self.positions, self.temperature = positions, temperature
        self.gru = nn.GRU(positions, hidden, batch_first=True, bidirectional=True)
        self.weight = nn.Linear(hidden, 1, bias=False)

    def forward(self, values: Tensor, lengths: Tensor) -> Tensor:
        """Pool (B, N, D) values, of which the first `length` count, to (B, D) float32."""
        mask = counted(lengths, values.shape[1])
        theta = self.coefficients(lengths, values.shape[1])
        # Padding sorts behind all values, each dimension by itself, and is then cleared: 0 times -inf is NaN.
        ordered = values.float().masked_fill(~mask[:, :, None], -torch.inf).sort(dim=1, descending=True).values
        return (ordered.masked_fill(~mask[:, :, None], 0) * theta[:, :, None]).sum(dim=1)

    def coefficients(self, lengths: Tensor, most: int) -> Tensor:
        """Return theta, (B, most) float32: 0 beyond the length, sum 1."""
        # theta depends on the length alone, so the GRU runs once per distinct length.
        distinct, index = torch.unique(lengths, return_inverse=True)
        encoded = encodings(most, self.positions).to(lengths.device).expand(len(distinct), -1, -1)
        packed = pack_padded_sequence(encoded, distinct.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=most)
        forward, backward = states.float().chunk(2, dim=-1)
        logits = self.weight((forward + backward) / 2)[:, :, 0].float() / self.temperature
        theta: Tensor = logits.masked_fill(~counted(distinct, most), -torch.inf).softmax(dim=1)
        return theta[index]


def encodings(count: int, width: int) -> Tensor:
    """Return sines (even columns) and cosines (odd) of positions 0..count - 1: (count, width); Vaswani et al., 2017.

    Examples
    --------
    >>> from relabel_train.models.gpo import encodings
    >>> encodings(2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angles = torch.arange(count)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=2).reshape(count, -1)[:, :width]
