"""A local server with the faults of real ones, and the manifest of a dataset `tiny`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from relabel.datasets import download as downloads

RAW = bytes(range(256)) * 4096  # 1 MiB
Describe = Callable[..., None]


def content(raw: bytes) -> dict[str, Any]:
    return {"bytes": len(raw), "sha256": sha256(raw).hexdigest()}


def entry(name: str, raw: bytes, *sources: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "holds": "text", **content(raw), "sources": [*sources] or [{"mirror": f"m/{name}"}], **more}


def files_below(folder: Path) -> list[str]:
    """Return every file except the empty locks of downloads."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock")


@pytest.fixture
def describe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Describe:
    """Return a function that writes the manifest of the only dataset."""
    folder = tmp_path / "manifests"
    folder.mkdir()
    monkeypatch.delenv("RELABEL_MIRROR", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("relabel.datasets.registry.manifests_folder", lambda: folder)

    def write(*files: dict[str, Any], **more: Any) -> None:
        head = dict.fromkeys(("title", "purpose", "licence", "citation", "homepage"), "x")
        (folder / "tiny.yaml").write_text(yaml.safe_dump({"name": "tiny", **head, **more, "files": list(files)}))

    return write


@dataclass
class Server:
    """Content and faults of the server."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)  # per request: bytes after which it hangs up
    codes: list[int] = field(default_factory=list)  # per request: an HTTP code instead of an answer; 0 for none
    ranges: bool = True
    length: bool = True  # whether it sends Content-Length
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # path and Range of each request
    after: Any = None  # called after an interrupted transfer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloads, "PAUSE", 0.001)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            span = self.headers.get("Range")
            state.requests.append((self.path, span))
            if code := state.codes.pop(0) if state.codes else 0 if self.path in state.files else 404:
                return self.send_error(code)
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
