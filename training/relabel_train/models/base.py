"""Base class of models that embed images and captions into one space."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn


class Model(nn.Module):
    """Model that embeds images and captions; `tokens` prepares texts for `encode_captions`."""

    @abstractmethod
    def tokens(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return (B, T) int64 tokens and the (B,) int64 numbers of tokens that count."""

    @abstractmethod
    def encode_images(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Embed B images.

        Parameters
        ----------
        features : (B, R, D) float
        lengths : (B,) int64
            Number of the R vectors that count, at least 1.

        Returns
        -------
        (B, E) float32
            Unit vectors.
        """

    @abstractmethod
    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Embed B captions, prepared by `tokens`: (B, E) float32 unit vectors."""

    def scores(self, images: Tensor, captions: Tensor) -> Tensor:
        """Return the cosines s(V_i, T_j) of embeddings: (B_images, B_captions)."""
        cosines: Tensor = images @ captions.T
        return cosines

    def forward(self, features: Tensor, regions: Tensor, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Embed images and captions of pairs, both (B, E); called by DistributedDataParallel."""
        return self.encode_images(features, regions), self.encode_captions(tokens, lengths)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Return the parameter groups of an optimizer; pretrained parts learn at a lower rate."""
        return [{"params": list(self.parameters()), "lr": lr}]


def unit(x: Tensor, eps: float = 1e-8) -> Tensor:
    """Divide vectors by their length plus eps, in float32.

    Examples
    --------
    >>> import torch
    >>> from relabel_train.models.base import unit
    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    x = x.float()
    length: Tensor = x.norm(dim=-1, keepdim=True)
    return x / (length + eps)


def counted(lengths: Tensor, most: int) -> Tensor:
    """Mark the first `length` of `most` positions: (B, most) bool.

    Examples
    --------
    >>> import torch
    >>> from relabel_train.models.base import counted
    >>> counted(torch.tensor([1, 3]), 3)
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """
    from torch import arange

    return arange(most, device=lengths.device) < lengths[:, None]
