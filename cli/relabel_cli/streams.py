"""Standard streams that may be closed, full or not UTF-8; a lost result is an error, a lost message is not."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from relabel.core.errors import RelabelError


class OutputError(RelabelError):
    """A result that could not be written to standard output."""

    exit_code = 5
    BROKEN_PIPE = 128 + 13
    """Exit code if the reader of a pipe has gone: that of a program which SIGPIPE ends."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"could not write to standard output: {error.strerror}")
        if error.errno == errno.EPIPE:
            self.exit_code = self.BROKEN_PIPE


def open_streams() -> None:
    """Replace sys.stdout and sys.stderr by streams with a defined behaviour.

    A failed write to stdout raises OutputError once; later text is dropped, even at the interpreter's exit. A failed
    write to stderr is ignored. Characters that the encoding lacks are written as escapes. A closed descriptor is opened
    on the null device; otherwise the next opened file would get its number, and the stream's text.
    """
    # A write to a descriptor that is open for reading fails as a write to a closed one does.
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)
    sys.stdout = _text(_Descriptor(1, _refuse), sys.stdout)
    sys.stderr = _text(_Descriptor(2, lambda _: None), sys.stderr)


def write_result(value: Any, text: str, as_json: bool) -> None:
    """Write a result to standard output, as JSON or as text."""
    if as_json:
        text = json.dumps(value, indent=1, ensure_ascii=False)
        # Escapes of JSON, which every reader decodes, rather than those of the stream.
        try:
            text.encode(sys.stdout.encoding)
        except UnicodeEncodeError:
            text = json.dumps(value, indent=1)
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write_message(text: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class _Descriptor(io.FileIO):
    """An open descriptor that drops all bytes after the first failed write."""

    def __init__(self, number: int, failed: Callable[[OSError], None]) -> None:
        super().__init__(number, "w", closefd=False)
        self._failed, self._dropping = failed, False

    def write(self, data: Any) -> int | None:  # type: ignore[override]
        # The interpreter flushes again at exit: the error is raised once.
        if not self._dropping:
            try:
                return super().write(data)
            except OSError as error:
                self._dropping = True
                self._failed(error)
        return len(data)


def _refuse(error: OSError) -> None:
    raise OutputError(error) from error


def _text(descriptor: io.FileIO, before: Any) -> io.TextIOWrapper:
    encoding = getattr(before, "encoding", None) or "utf-8"
    # Messages and interactive results appear line by line; results in a file or pipe are buffered.
    by_line = descriptor.fileno() == 2 or descriptor.isatty()
    buffer = io.BufferedWriter(descriptor)
    return io.TextIOWrapper(buffer, encoding=encoding, errors="backslashreplace", line_buffering=by_line)
