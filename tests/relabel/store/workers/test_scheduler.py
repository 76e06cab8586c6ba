"""Contract: `--scheduler` takes the address of a Dask scheduler in another process, over TCP or TLS. The files have
the bytes of a local run, and every fault of scheduler or workers ends in one line with exit code 2 to 5.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import pytest
from tests.relabel.store.workers.watching import once_there

from relabel.config import load_config
from relabel.core.errors import MissingError, PartialError, UsageError
from relabel.core.runtime import Runtime
from relabel.stages import Project
from relabel.store.workers import dask_run

pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
HERE = Path(__file__).parent
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Put the demo stage where other processes import it."""
    monkeypatch.syspath_prepend(str(HERE))
    import demo_stage

    return demo_stage


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Dask processes that end with the test."""
    with ExitStack() as stack:

        def begin(program: str, *options: str, path: str = str(HERE), **env: str) -> subprocess.Popen[bytes]:
            paths = os.pathsep.join([path, *filter(None, [os.environ.get("PYTHONPATH")])])
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{program}", *options],
                env={**os.environ, "PYTHONPATH": paths, **env},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait, 30)
            stack.callback(process.kill)
            return process

        yield begin


def scheduler(start: Start, folder: Path, *options: str, protocol: str = "tcp") -> tuple[subprocess.Popen[bytes], str]:
    """Start a scheduler; return it with its address."""
    file = folder / f"scheduler-{protocol}.json"
    where = ("--host", f"{protocol}://127.0.0.1", "--port", "0", "--no-dashboard", "--no-jupyter")
    process = start("scheduler", *where, "--scheduler-file", str(file), *options)
    for _ in range(600):
        if file.exists() and file.stat().st_size:
            return process, str(json.loads(file.read_text())["address"])
        assert process.poll() is None, "the scheduler ended"
        time.sleep(0.1)
    raise AssertionError("the scheduler wrote no address")


def worker(start: Start, address: str, *options: str, **more: str) -> subprocess.Popen[bytes]:
    return start("worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard", *options, **more)


def project(notes: Path, address: str) -> Project:
    notes.mkdir(exist_ok=True)
    return Project(load_config(None), Runtime(data=notes, device="cpu", threads=1, scheduler=address), notes)


def relabel(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from relabel_cli.main import main; main()", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)


def captions(folder: Path) -> list[str]:
    """Ingest 40 captions into `labels` and `remote`; return the options that encode them."""
    lines = [
        {
            "caption_id": f"c{i}",
            "image_id": f"i{i // 4}",
            "split": "test",
            "text": f"a dog and {i} cats on a bus {i % 7}",
        }
        for i in range(40)
    ]
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = ["ingest.format=jsonl", "ingest.path=captions.jsonl", "ingest.tokenizer=none", "ingest.dataset=mine"]
    settings += ["encode.rows_per_shard=10", 'sources={"cider": {"source": "cider", "tokenizer": "lower_split"}}']
    options = [part for setting in settings for part in ("--set", setting)]
    run = relabel(folder, "ingest", *options)
    assert run.returncode == 0, run.stderr
    shutil.copytree(folder / "labels", folder / "remote")
    return options


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "manifest.json"}


def test_the_command_line_over_tcp(start: Start, tmp_path: Path) -> None:
    options = captions(tmp_path)
    process, address = scheduler(start, tmp_path)
    for _ in range(2):
        worker(start, address)
    local = relabel(tmp_path, "encode", "--label", "cider", *options)
    remote = relabel(tmp_path, "encode", "--label", "cider", *options, "--labels", "remote", "--scheduler", address)
    assert (local.returncode, remote.returncode) == (0, 0), remote.stderr
    assert f"workers of {address}" in remote.stderr
    encoding = Path("mine", "encodings", "test", "cider")
    assert len(files(tmp_path / "labels" / encoding)) > 4
    assert files(tmp_path / "remote" / encoding) == files(tmp_path / "labels" / encoding)
    process.kill()
    process.wait()
    shutil.rmtree(tmp_path / "remote" / encoding)
    without_scheduler = relabel(
        tmp_path, "encode", "--label", "cider", *options, "--labels", "remote", "--scheduler", address
    )
    assert without_scheduler.returncode == 3
    assert "no Dask scheduler answers" in without_scheduler.stderr
    assert "Traceback" not in without_scheduler.stderr


def test_a_silent_port_times_out(stage: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relabel.store.workers.dask_run._TIMEOUT", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(MissingError, match="no Dask scheduler answers"):
            stage.demo(project(tmp_path / "notes", address), str(tmp_path / "out")).run()


@pytest.mark.parametrize("address", ["nonsense://127.0.0.1:1", "tls://127.0.0.1:1", "tcp://127.0.0.1:port", ""])
def test_an_invalid_address_is_a_usage_error(address: str, stage: ModuleType, tmp_path: Path) -> None:
    with pytest.raises((UsageError, MissingError)) as caught:
        stage.demo(project(tmp_path / "notes", address), str(tmp_path / "out")).run()
    assert "\n" not in str(caught.value)


def test_a_scheduler_that_ends_during_a_run(
    stage: ModuleType, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_run, "PATIENCE", 5.0)
    process, address = scheduler(start, tmp_path)
    notes = tmp_path / "notes"
    worker(start, address)
    remote = project(notes, address)
    with once_there(notes / "here", process.kill), pytest.raises(PartialError) as caught:
        stage.demo(remote, str(tmp_path / "out"), "waits").run()
    assert "\n" not in str(caught.value)
    assert caught.value.todo == "Run it again; finished files are kept."


@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, str]:
    """Return Dask's settings of TLS, with a self-signed certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command")
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=relabel"]
    subprocess.run([*new, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    settings = {"REQUIRE_ENCRYPTION": "true", "TLS__CA_FILE": certificate}
    for role in ("CLIENT", "SCHEDULER", "WORKER"):
        settings |= {f"TLS__{role}__CERT": certificate, f"TLS__{role}__KEY": key}
    return {f"DASK_DISTRIBUTED__COMM__{name}": value for name, value in settings.items()}


def test_tls_reads_certificates_from_dasks_configuration(
    start: Start, tmp_path: Path, certificates: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = captions(tmp_path)
    for name, value in certificates.items():
        monkeypatch.setenv(name, value)
    _, address = scheduler(start, tmp_path, protocol="tls")
    assert address.startswith("tls://")
    worker(start, address)
    local = relabel(tmp_path, "encode", "--label", "cider", *options)
    encode = ("encode", "--label", "cider", *options, "--labels", "remote", "--scheduler")
    remote = relabel(tmp_path, *encode, address)
    assert (local.returncode, remote.returncode) == (0, 0), remote.stderr
    encoding = Path("mine", "encodings", "test", "cider")
    assert files(tmp_path / "remote" / encoding) == files(tmp_path / "labels" / encoding)
    shutil.rmtree(tmp_path / "remote" / encoding)
    plain = relabel(tmp_path, *encode, address.replace("tls", "tcp"))
    for name in certificates:
        monkeypatch.delenv(name)
    bare = relabel(tmp_path, *encode, address)
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TLS__CA_FILE", "nowhere.pem")
    lost = relabel(tmp_path, *encode, address)
    assert (plain.returncode, bare.returncode, lost.returncode) == (2, 2, 2), plain.stderr + bare.stderr + lost.stderr
    for run in (plain, bare, lost):
        assert len(run.stderr.splitlines()) == 1
    assert "docs/scaling.md" in bare.stderr
