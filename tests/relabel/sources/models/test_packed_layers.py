"""Contract: packed layers return the products of torch's own layers, GELU included, for every shape, and the
attention of explicit loops. Layers of other kinds stay unchanged, and a torch without the operators is detected.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from relabel.sources.models import packed_layers
from relabel.sources.models.packed_layers import can_pack, pack

packs_bfloat16 = pytest.mark.skipif(not can_pack(torch.bfloat16), reason="oneDNN has no bfloat16 on this processor")
packs = pytest.mark.skipif(not can_pack(), reason="this torch has no oneDNN operators to pack with")


class FeedForward(nn.Module):
    """Feed-forward layers with the shape and names of BERT's."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.dense = nn.Linear(48, 80)
        self.intermediate_act_fn = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.intermediate_act_fn(self.dense(x))  # type: ignore[no-any-return]


@packs
@pytest.mark.parametrize("shape", [(1, 48), (7, 48), (5, 3, 48), (300, 11, 48)])
@pytest.mark.parametrize("bias", [True, False])
def test_equals_the_plain_layer(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(48, 80, bias=bias)), torch.randn(shape)
    with torch.inference_mode():
        expected = model(x)
        assert pack(model, torch.float32) == 1
        torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)


@packs
@pytest.mark.parametrize("activation", [nn.GELU(), nn.GELU("tanh"), nn.ReLU()])
def test_a_gelu_is_applied_once(activation: nn.Module) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(FeedForward(activation), nn.Linear(80, 48)), torch.randn(9, 48)
    with torch.inference_mode():
        expected = model(x)
        assert pack(model, torch.float32) == 2
        torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)
    fused = isinstance(model[0].intermediate_act_fn, nn.Identity)
    assert fused == (isinstance(activation, nn.GELU) and activation.approximate == "none")


class SelfAttention(nn.Module):
    """Self-attention with the names of BERT's."""

    def __init__(self, **more: Any) -> None:
        super().__init__()
        self.num_attention_heads, self.attention_head_size = 4, 12
        self.query, self.key, self.value = (nn.Linear(48, 48) for _ in range(3))
        for name, value in more.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor, mask: object = None) -> tuple[torch.Tensor, None]:
        """Compute one text, one head and one word at a time, as the oracle."""
        out, (batch, length, _) = torch.zeros_like(x), x.shape
        query, key, value = self.query(x), self.key(x), self.value(x)
        for b in range(batch):
            for head in range(4):
                part = slice(12 * head, 12 * head + 12)
                for i in range(length):
                    scores = torch.stack([query[b, i, part] @ key[b, j, part] for j in range(length)]) / 12**0.5
                    out[b, i, part] = scores.softmax(0) @ value[b, :, part]
        return out, None


@packs
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 32, 33])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), pytest.param(torch.bfloat16, 0.15, marks=packs_bfloat16)]
)
def test_attention_equals_explicit_loops(length: int, dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(0)
    model, x = nn.ModuleDict({"self": SelfAttention()}), 3 * torch.randn(2, length, 48)
    with torch.inference_mode():
        expected, _ = model["self"](x)
        assert pack(model, dtype) == 1
        output, weights = model["self"](x, None, past_key_values=None)
    assert weights is None
    assert output.dtype == dtype
    torch.testing.assert_close(output.float(), expected, rtol=tolerance, atol=tolerance)


@packs
@pytest.mark.parametrize(
    "more",
    [
        {"is_causal": True},
        {"is_decoder": True},
        {"position_embedding_type": "relative_key"},
        {"distance_embedding": nn.Embedding(9, 12)},
        {"key": nn.Linear(48, 48, bias=False)},
    ],
)
def test_other_attention_stays_unchanged(more: dict[str, Any]) -> None:
    model = nn.ModuleDict({"self": SelfAttention(**more)})
    assert pack(model, torch.float32) == 3
    assert isinstance(model["self"], SelfAttention)


def test_other_layers_stay_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.LayerNorm(4), nn.Bilinear(4, 4, 4))
    assert pack(model, torch.float32) == 0
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not packed_layers.can_pack()
    assert not packed_layers.can_pack(torch.bfloat16)
