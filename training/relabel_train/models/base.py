"""What a model promises: images and captions become vectors of one space, and vectors become scores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn


class Model(nn.Module):
    """Embeds images and captions; `tokens` turns texts into what `encode_captions` takes."""

    @abstractmethod
    def tokens(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return (B, T) int64 tokens and (B,) int64 how many of them count."""

    @abstractmethod
    def encode_images(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Embed B images.

        Parameters
        ----------
        features : (B, R, D) float
        lengths : (B,) int64
            How many of the R vectors count, at least 1.

        Returns
        -------
        (B, E) float32
            Unit vectors.
        """

    @abstractmethod
    def encode_captions(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Embed B captions, given as `tokens` gives them: (B, E) float32 unit vectors."""

    def scores(self, images: Tensor, captions: Tensor) -> Tensor:
        """Return s(V_i, T_j) of embeddings, (B_images, B_captions): the cosine."""
        found: Tensor = images @ captions.T
        return found

    def forward(self, features: Tensor, regions: Tensor, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Embed pairs: images and captions, both (B, E). What DistributedDataParallel calls."""
        return self.encode_images(features, regions), self.encode_captions(tokens, lengths)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Return groups as an optimizer takes them; a model that was trained before learns slower."""
        return [{"params": list(self.parameters()), "lr": lr}]


def unit(x: Tensor, eps: float = 1e-8) -> Tensor:
    """Divide vectors by their length plus eps, in float32."""
    x = x.float()
    length: Tensor = x.norm(dim=-1, keepdim=True)
    return x / (length + eps)


def counted(lengths: Tensor, most: int) -> Tensor:
    """Mark the first `length` of `most` places: (B, most) bool."""
    from torch import arange

    return arange(most, device=lengths.device) < lengths[:, None]
