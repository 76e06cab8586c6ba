"""Results on standard output and messages on standard error."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

CLOSED_PIPE = 128 + 13
"""Exit code if the reader of a pipe has gone: that of a program which SIGPIPE ends."""


def write_result(value: Any, text: str, as_json: bool) -> None:
    """Write a result to standard output, as JSON or as text."""
    if as_json:
        # Escapes of JSON, which every reader decodes, rather than those of the stream.
        text = json.dumps(value, indent=1, ensure_ascii=sys.stdout.encoding.lower() != "utf-8")
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError as error:
        # The interpreter flushes again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(CLOSED_PIPE) from error


def write_message(text: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
