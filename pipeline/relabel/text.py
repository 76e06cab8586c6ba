"""Tokenizers: `lower_split` here; `ptb` in `relabel.ptb`, since it needs Java."""

from __future__ import annotations

from typing import Literal

Tokenizer = Literal["ptb", "lower_split"]


def lower_split(text: str) -> list[str]:
    """Lower-case and split on white space; punctuation stays glued to its word (SAM's evaluation code)."""
    return text.lower().split()
