"""Contract of packed layers: the same product as torch's own, GELU included, whatever the shape; the same attention as
explicit loops; layers of another kind are left alone; a torch without the operators is said to be one.
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
    """Shaped and named as BERT's."""

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
def test_a_gelu_is_done_once(activation: nn.Module) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(FeedForward(activation), nn.Linear(80, 48)), torch.randn(9, 48)
    with torch.inference_mode():
        expected = model(x)
        assert pack(model, torch.float32) == 2
        torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)
    fused = isinstance(model[0].intermediate_act_fn, nn.Identity)
    assert fused == (isinstance(activation, nn.GELU) and activation.approximate == "none")


@packs_bfloat16
def test_bfloat16_computes_and_answers_in_bfloat16() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(48, 80)), torch.randn(9, 48)
    with torch.inference_mode():
        expected = model(x)
        pack(model, torch.bfloat16)
        found = model(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.02)


class SelfAttention(nn.Module):
    """Named as BERT's."""

    def __init__(self, **more: Any) -> None:
        super().__init__()
        self.num_attention_heads, self.attention_head_size = 4, 12
        self.query, self.key, self.value = (nn.Linear(48, 48) for _ in range(3))
        for name, value in more.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor, mask: object = None) -> tuple[torch.Tensor, None]:
        """The oracle: one text, one head, one word at a time."""
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
        found, weights = model["self"](x, None, past_key_values=None)
    assert weights is None
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=tolerance, atol=tolerance)


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
def test_attention_of_another_kind_keeps_its_form(more: dict[str, Any]) -> None:
    model = nn.ModuleDict({"self": SelfAttention(**more)})
    assert pack(model, torch.float32) == 3
    assert isinstance(model["self"], SelfAttention)


def test_other_layers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.LayerNorm(4), nn.Bilinear(4, 4, 4))
    assert pack(model, torch.float32) == 0
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not packed_layers.can_pack()
    assert not packed_layers.can_pack(torch.bfloat16)
