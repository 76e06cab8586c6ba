"""Linear layers whose weights oneDNN has laid out for the CPU beforehand, swapped into any torch module.

torch multiplies float32 matrices on a CPU by MKL, which lays out the weights anew at every call and leaves GELU to a
second pass. oneDNN's own linear layer does neither. torch has it as a private operator (what its compiler emits), so
whoever packs must check the result and keep the plain layers otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

_GELU = ("GELUActivation", "GELU")  # the exact one, in transformers and in torch


def can_pack() -> bool:
    """Say whether this torch has oneDNN and its private operators."""
    import torch

    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return there and all(hasattr(torch.ops.mkldnn, n) for n in ("_linear_pointwise", "_reorder_linear_weight"))


def pack(module: nn.Module, dtype: torch.dtype) -> int:
    """Swap every linear layer below `module` for a packed one, in place.

    Parameters
    ----------
    module : torch.nn.Module
        On the CPU, for inference.
    dtype : torch.dtype
        What the products are computed in, and the type of their results: float32 or bfloat16.

    Returns
    -------
    int
        How many were swapped.
    """
    from torch import nn

    swapped = 0
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear:
            setattr(module, name, _packed(child, dtype, fuse_gelu=_give_up_gelu(module, name)))
            swapped += 1
        else:
            swapped += pack(child, dtype)
    return swapped


def _give_up_gelu(module: nn.Module, name: str) -> bool:
    """Take the GELU out of a BERT-like feed-forward layer, and say whether there was one: the product does it then."""
    from torch import nn

    activation = getattr(module, "intermediate_act_fn", None)
    exact = type(activation).__name__ in _GELU and getattr(activation, "approximate", "none") == "none"
    if name != "dense" or not exact:
        return False
    module.intermediate_act_fn = nn.Identity()
    return True


def _packed(linear: nn.Linear, dtype: torch.dtype, *, fuse_gelu: bool) -> nn.Module:
    import torch
    from torch import nn

    product = torch.ops.mkldnn._linear_pointwise.default
    after: tuple[Any, ...] = ("gelu", [], "none") if fuse_gelu else ("none", [], "")

    class PackedLinear(nn.Module):
        """x W^T + b, then GELU if asked."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().to(dtype))
            self.bias = None if linear.bias is None else linear.bias.detach().to(dtype)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """(..., in) any float type -> (..., out) `dtype`."""
            return product(x.to(dtype), self.weight, self.bias, *after)  # type: ignore[no-any-return]

    return PackedLinear()
