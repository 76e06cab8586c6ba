"""Contract of packed linear layers: the same product as torch's own, GELU included, whatever the shape; a torch without
the operators is said to be one.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from relabel.sources import packed_linear
from relabel.sources.packed_linear import can_pack, pack

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


@packs
def test_bfloat16_computes_and_answers_in_bfloat16() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(48, 80)), torch.randn(9, 48)
    with torch.inference_mode():
        expected = model(x)
        pack(model, torch.bfloat16)
        found = model(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.02)


def test_other_layers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.LayerNorm(4), nn.Bilinear(4, 4, 4))
    assert pack(model, torch.float32) == 0
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not packed_linear.can_pack()
