"""Layers that suit a CPU better than torch's, as replacements in any transformer.

- Linear layers with weights in oneDNN's layout. In float32, torch calls MKL, which converts the weights at every call
  and computes GELU in a second pass. oneDNN's layer is a private operator of torch, which torch's compiler emits, so
  callers must compare the result with the original model.
- Self-attention for texts of equal length with few words. Query, key and value are one product, and the softmax runs
  over complete vector registers; torch's softmax is three times slower on shorter rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

_GELU = ("GELUActivation", "GELU")  # the exact GELU, in transformers and in torch
_LANES = 16  # float32 numbers per vector register
_SHORT = 32  # longest text, in tokens, for which this attention is faster


def can_pack(dtype: torch.dtype = torch.float32) -> bool:
    """Return True if this torch has oneDNN and its private operators, and the processor supports the type.

    `dtype`: float32, which every processor supports, or bfloat16, for which oneDNN needs AVX-512.
    """
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    operators = ("_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported")
    if not available or not all(hasattr(torch.ops.mkldnn, name) for name in operators):
        return False
    return dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def pack(module: nn.Module, dtype: torch.dtype) -> int:
    """Replace every linear layer and BERT-like self-attention below `module`, in place.

    From then on, all texts of a batch must have the same length, because attention masks are ignored.

    `module`: on the CPU, for inference. `dtype`: type of products and of their results: float32 or bfloat16. Returns
    int: number of replaced layers.
    """
    swapped = 0
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear:
            setattr(module, name, PackedLinear(child.weight, child.bias, dtype, gelu=_remove_gelu(module, name)))
        elif _is_self_attention(child):
            setattr(module, name, PackedSelfAttention(child, dtype))
        else:
            # Other modules are searched; a replaced layer is not.
            swapped += pack(child, dtype)
            continue
        swapped += 1
    return swapped


class PackedLinear(nn.Module):
    """Linear layer x W^T + b, followed by GELU if requested.

    `weight`: (out, in) Tensor. `bias`: (out,) Tensor or None. `dtype`: type of the result.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, *, gelu: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(dtype))
        self.bias = None if bias is None else bias.detach().to(dtype)
        self.after: tuple[Any, ...] = ("gelu", [], "none") if gelu else ("none", [], "")

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in) of any float type to (..., out) of `dtype`."""
        output: Tensor = torch.ops.mkldnn._linear_pointwise(x.to(self.dtype), self.packed, self.bias, *self.after)
        return output


class PackedSelfAttention(nn.Module):
    """Self-attention softmax(Q K^T / sqrt(d)) V per head, for texts of equal length.

    `plain`: BERT's self-attention, which is replaced.
    """

    def __init__(self, plain: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, self.size = plain.num_attention_heads, plain.attention_head_size
        scale, layers = self.size**-0.5, (plain.query, plain.key, plain.value)
        weights, biases = [layer.weight.detach() for layer in layers], [layer.bias.detach() for layer in layers]
        # The scaling 1 / sqrt(d) is part of the query's weights, which saves a pass over the scores.
        weights[0], biases[0] = weights[0] * scale, biases[0] * scale
        self.product = PackedLinear(torch.cat(weights), torch.cat(biases), dtype)

    def forward(self, hidden_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        """Map (B, L, D) to (B, L, D), without attention weights."""
        batch, length, _width = hidden_states.shape
        heads = self.product(hidden_states).view(batch, length, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind()  # each (B, heads, L, d)
        # For longer texts, torch's attention is as fast.
        if length > _SHORT:
            mixed = scaled_dot_product_attention(query, key, value, scale=1.0)
        else:
            score = (query @ key.transpose(2, 3)).float()
            # Rows are padded with -inf to complete registers; these entries have weight 0.
            padded = pad(score, (0, -length % _LANES), value=float("-inf"))
            mixed = padded.softmax(-1)[..., :length].to(value.dtype) @ value
        return mixed.transpose(1, 2).reshape(batch, length, -1), None


def _is_self_attention(module: nn.Module) -> bool:
    """Return True for BERT-like self-attention: absolute positions and no mask inside the module."""
    layers = dict(module.named_children())
    projections = [layers.pop(name, None) for name in ("query", "key", "value")]
    layers.pop("dropout", None)
    plain = all(type(layer) is nn.Linear and layer.bias is not None for layer in projections) and not layers
    causal = getattr(module, "is_causal", False) or getattr(module, "is_decoder", False)
    absolute = getattr(module, "position_embedding_type", None) in (None, "absolute")
    return plain and absolute and not causal and hasattr(module, "attention_head_size")


def _remove_gelu(module: nn.Module, name: str) -> bool:
    """Remove the GELU from a BERT-like feed-forward layer; return True if there was one."""
    activation = getattr(module, "intermediate_act_fn", None)
    exact = type(activation).__name__ in _GELU and getattr(activation, "approximate", "none") == "none"
    if name != "dense" or not exact:
        return False
    # The packed product applies the GELU itself.
    module.intermediate_act_fn = nn.Identity()
    return True
