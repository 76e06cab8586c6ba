"""A local server with the faults of real ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from relabel.datasets import download as downloads

RAW = bytes(range(256)) * 4096  # 1 MiB


@dataclass
class Server:
    """Content and faults of the server."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)  # per request: bytes after which it hangs up
    codes: list[int] = field(default_factory=list)  # per request: an HTTP code instead of an answer
    ranges: bool = True
    length: bool = True  # whether it sends Content-Length
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # path and Range of each request
    after: Any = None  # called after an interrupted transfer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("RELABEL_MIRROR", raising=False)
    monkeypatch.setattr(downloads, "PAUSE", 0.001)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            span = self.headers.get("Range")
            state.requests.append((self.path, span))
            if state.codes:
                return self.send_error(state.codes.pop(0))
            if self.path not in state.files:
                return self.send_error(404)
            raw, start = state.files[self.path], 0
            if span and state.ranges:
                start = int(span.removeprefix("bytes=").rstrip("-"))
                if start >= len(raw):
                    return self.send_error(416)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(raw) - 1}/{len(raw)}")
            else:
                self.send_response(200)
            if state.length:
                self.send_header("Content-Length", str(len(raw) - start))
            self.end_headers()
            cut = state.cuts.pop(0) if state.cuts else len(raw)
            self.wfile.write(raw[start : start + cut])
            if start + cut < len(raw) and state.after:
                state.after()
            return None

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # the client hung up, as expected

    with Quiet(("127.0.0.1", 0), Handler) as http:
        state = Server(f"http://127.0.0.1:{http.server_address[1]}", {"/raw.bin": RAW})
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        http.shutdown()
        thread.join()
