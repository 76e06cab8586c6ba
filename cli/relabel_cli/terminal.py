"""Text for a terminal: control characters and marks of direction of captions, ids and file names are escaped."""

from __future__ import annotations

import sys
from typing import Any

_CONTROLS = (*range(9), *range(11, 32), *range(127, 160), *range(0xD800, 0xE000))  # and bytes that are not UTF-8
_BIDIRECTIONAL = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
# JSON reads these escapes as the characters.
_ESCAPES = {code: f"\\u{code:04x}" for code in (*_CONTROLS, *_BIDIRECTIONAL)}


def escape(text: str) -> str:
    r"""Escape the characters that control a terminal, except newline and tab, as in ``\u001b``, and surrogates."""
    return text.translate(_ESCAPES)


class EscapeStream:
    """A text stream that escapes its output. `raw`: the underlying stream, for progress displays."""

    buffer = None  # click would write to that of an ASCII stream

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def write(self, text: str) -> int:
        """Write text."""
        # Libraries that have kept this stream reset a terminal's colours when the process ends.
        return int(self.raw.write(text if self.raw in (sys.stdout, sys.stderr) else escape(text)))
