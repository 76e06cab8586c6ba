"""Contract: `open_lookup("hf://...")` answers as the uploaded folder does, with every checksum right, by branch and by
commit, and again offline. It downloads no other folder of the dataset. What is missing is named: the package, the
dataset, the revision, or which of several lookups is meant.

The hub is a server of this process with the four answers that a download asks for.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest

from relabel_train.examples import write_lookup
from relabel_train.lookup import open_lookup

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PROGRAM = """import json, sys
from relabel_train.lookup import open_lookup
try:
    lookup = open_lookup(sys.argv[1], verify=True)
    print(json.dumps([str(lookup.folder), lookup.block(lookup.rows).tolist()]))
except Exception as error:
    print(json.dumps([type(error).__name__, str(error), *getattr(error, "__notes__", [])]))
"""


class Handler(BaseHTTPRequestHandler):
    """Hub with one commit of `me/one` and `me/two`: information, list of files, and files by commit."""

    def __init__(self, root: Path, *arguments: object) -> None:
        self.root = root
        super().__init__(*arguments)  # type: ignore[arg-type]

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].strip("/").removeprefix("api/").removeprefix("datasets/").split("/")
        owner, name, action, revision, *rest = [*path, "", "", "", ""]
        folder = self.root / owner / name
        if not action or not folder.is_dir():
            self.reply(404, b"{}", **{"X-Error-Code": "RepoNotFound"})
        elif revision not in ("main", COMMIT):
            self.reply(404, b"{}", **{"X-Error-Code": "RevisionNotFound"})
        elif action == "revision":
            self.reply(200, json.dumps({"id": f"{owner}/{name}", "sha": COMMIT}).encode())
        elif action == "tree":
            files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
            entries = [
                {"type": "file", "path": file.relative_to(folder).as_posix(), "size": file.stat().st_size, "oid": "0"}
                for file in files
            ]
            self.reply(200, json.dumps(entries).encode())
        else:
            content = folder.joinpath(*rest).read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            self.reply(200, content, **{"ETag": f'"{digest}"', "X-Repo-Commit": COMMIT})

    def reply(self, status: int, content: bytes, **headers: str) -> None:
        """Answer with a body, which a HEAD request does not get."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


class Hub(NamedTuple):
    root: Path
    endpoint: str
    cache: Path

    def open(self, url: str, **environment: str) -> list[object]:
        """Return what a new process prints that opens a lookup of a folder or URL."""
        variables = {**os.environ, "HF_ENDPOINT": self.endpoint, "HF_HOME": str(self.cache), "HF_HUB_OFFLINE": "0"}
        command = [sys.executable, "-c", PROGRAM, url]
        run = subprocess.run(command, env={**variables, **environment}, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        answer: list[object] = json.loads(run.stdout)
        return answer


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    pytest.importorskip("huggingface_hub")
    root = tmp_path / "hub"
    for name in ("me/one/lookup/test", "me/two/lookup/test", "me/two/lookup/train"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_lookup(root / name)
    (root / "me/one/README.md").write_text("a card")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, root))
    Thread(target=server.serve_forever, daemon=True).start()
    yield Hub(root, f"http://127.0.0.1:{server.server_port}", tmp_path / "cache")
    server.shutdown()
    server.server_close()


def test_a_lookup_on_the_hub_answers_as_its_folder(hub: Hub) -> None:
    _, expected = hub.open(str(hub.root / "me/one/lookup/test"))
    folder, block = hub.open("hf://datasets/me/one")
    assert block == expected
    urls = ("hf://datasets/me/one@main/lookup/test", f"hf://datasets/me/one@{COMMIT}/lookup")
    assert [hub.open(url) for url in urls] == [[folder, expected]] * 2
    assert hub.open("hf://datasets/me/one", HF_HUB_OFFLINE="1") == [folder, expected]
    assert hub.open("hf://datasets/me/two/lookup/train")[1] == expected
    downloaded = {path.parent.name for path in hub.cache.rglob("*") if path.suffix in (".npy", ".md")}
    assert downloaded == {"test", "train"}
    assert not [*hub.cache.rglob("datasets--me--two/**/lookup/test/*.npy")]


@pytest.mark.parametrize(
    ("url", "environment", "expected"),
    [
        ("hf://datasets/me/none", {}, ["FileNotFoundError", "me/none: not found on the hub"]),
        ("hf://datasets/me/one@v2", {}, ["FileNotFoundError", "one@v2: not found on the hub"]),
        ("hf://datasets/me/one/lookup/val", {}, ["FileNotFoundError", "there is none"]),
        ("hf://datasets/me/two", {}, ["FileNotFoundError", "lookup/test, lookup/train"]),
        ("hf://me/one", {}, ["ValueError", "hf://me/one: expected hf://datasets/OWNER/NAME"]),
        ("hf://datasets/me/one/../../two", {}, ["ValueError", "expected hf://datasets/OWNER/NAME"]),
        ("hf://datasets/me", {}, ["ValueError", "expected hf://datasets/OWNER/NAME"]),
        ("hf://datasets/me/one", {"HF_HUB_OFFLINE": "1"}, ["FileNotFoundError", "not in the cache"]),
        ("hf://datasets/me/one", {"HF_ENDPOINT": "http://127.0.0.1:9"}, ["FileNotFoundError", "not in the cache"]),
        ("hf://datasets/one", {}, ["ValueError", "datasets/one"]),
    ],
)
def test_what_is_missing_is_named(hub: Hub, url: str, environment: dict[str, str], expected: list[str]) -> None:
    kind, message = expected
    found = hub.open(url, **environment)
    assert found[0] == kind
    assert message in str(found[1])


def test_the_package_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match="huggingface_hub") as caught:
        open_lookup("hf://datasets/me/one")
    assert caught.value.__notes__ == ["Run `pip install 'relabel-itr[hub]'`."]
