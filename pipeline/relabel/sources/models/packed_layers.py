"""Layers that suit a CPU better than torch's own, swapped into any transformer.

- Linear layers whose weights oneDNN has laid out beforehand. For float32, torch calls MKL, which lays out the weights
  anew at every call and leaves GELU to a second pass. torch has oneDNN's layer as a private operator (what its compiler
  emits), so whoever packs must hold the result against the plain model.
- Self-attention over texts of one length and a few words: query, key and value as one product, and a softmax over
  whole vector registers; torch's is three times slower on rows shorter than one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

_GELU = ("GELUActivation", "GELU")  # the exact one, in transformers and in torch
_LANES = 16  # float32 numbers in a vector register
_SHORT = 32  # tokens; beyond, torch's attention is as good


def can_pack() -> bool:
    """Say whether this torch has oneDNN and its private operators."""
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return there and all(hasattr(torch.ops.mkldnn, n) for n in ("_linear_pointwise", "_reorder_linear_weight"))


def pack(module: nn.Module, dtype: torch.dtype) -> int:
    """Swap every linear layer and BERT-like self-attention below `module`, in place.

    Texts of a batch must be of one length from then on: attention masks are not looked at.

    Parameters
    ----------
    module : torch.nn.Module
        On the CPU, for inference.
    dtype : torch.dtype
        What products are computed in, and the type of their results: float32 or bfloat16.

    Returns
    -------
    int
        How many layers were swapped.
    """
    swapped = 0
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear:
            setattr(module, name, PackedLinear(child.weight, child.bias, dtype, gelu=_give_up_gelu(module, name)))
        elif _is_self_attention(child):
            setattr(module, name, PackedSelfAttention(child, dtype))
        else:
            swapped += pack(child, dtype)
            continue
        swapped += 1
    return swapped


class PackedLinear(nn.Module):
    """x W^T + b, then GELU if asked; (..., in) of any float type to (..., out) of `dtype`."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, *, gelu: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(dtype))
        self.bias = None if bias is None else bias.detach().to(dtype)
        self.after: tuple[Any, ...] = ("gelu", [], "none") if gelu else ("none", [], "")

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x.to(self.dtype), self.packed, self.bias, *self.after)
        return found


class PackedSelfAttention(nn.Module):
    """softmax(Q K^T / sqrt(d)) V of each head, for texts of one length; the scaling is part of the query's weights."""

    def __init__(self, plain: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, self.size = plain.num_attention_heads, plain.attention_head_size
        scale, layers = self.size**-0.5, (plain.query, plain.key, plain.value)
        weights, biases = [layer.weight.detach() for layer in layers], [layer.bias.detach() for layer in layers]
        weights[0], biases[0] = weights[0] * scale, biases[0] * scale
        self.product = PackedLinear(torch.cat(weights), torch.cat(biases), dtype)

    def forward(self, hidden_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        """(B, L, D) to (B, L, D), and no attention weights."""
        batch, length, _width = hidden_states.shape
        heads = self.product(hidden_states).view(batch, length, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind()  # each (B, heads, L, d)
        if length > _SHORT:
            found = scaled_dot_product_attention(query, key, value, scale=1.0)
        else:
            score = (query @ key.transpose(2, 3)).float()
            whole = pad(score, (0, -length % _LANES), value=float("-inf"))
            found = whole.softmax(-1)[..., :length].to(value.dtype) @ value
        return found.transpose(1, 2).reshape(batch, length, -1), None


def _is_self_attention(module: nn.Module) -> bool:
    """Whether it is BERT's self-attention, or of one of its kin: absolute positions, no mask of its own."""
    layers = dict(module.named_children())
    three = [layers.pop(name, None) for name in ("query", "key", "value")]
    layers.pop("dropout", None)
    plain = all(type(layer) is nn.Linear and layer.bias is not None for layer in three) and not layers
    causal = getattr(module, "is_causal", False) or getattr(module, "is_decoder", False)
    absolute = getattr(module, "position_embedding_type", None) in (None, "absolute")
    return plain and absolute and not causal and hasattr(module, "attention_head_size")


def _give_up_gelu(module: nn.Module, name: str) -> bool:
    """Take the GELU out of a BERT-like feed-forward layer, and say whether there was one: the product does it then."""
    activation = getattr(module, "intermediate_act_fn", None)
    exact = type(activation).__name__ in _GELU and getattr(activation, "approximate", "none") == "none"
    if name != "dense" or not exact:
        return False
    module.intermediate_act_fn = nn.Identity()
    return True
