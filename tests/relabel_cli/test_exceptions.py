"""Contract: every exception that ends a command is one line on stderr and a documented exit code. The line of a bug
names a file with the traceback; no other error shows one. Values outside the bounds of an option are refused before any
file is read.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relabel.core.errors import CheckError, MissingError
from relabel_cli.exceptions import report
from relabel_cli.main import load_root, run
from relabel_train.files import LookupFileError
from relabel_train.ids import UnknownIdError
from relabel_train.reference.options import FitError

Printed = pytest.CaptureFixture[str]


def system(number: int, filename: str | None = "labels/x") -> OSError:
    return OSError(number, os.strerror(number), filename)


class OutOfMemoryError(RuntimeError):
    """Error with the name of torch's."""


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (MissingError("gone", where="a.txt", hint="Make it."), 3, "a.txt: gone. Make it."),
        (CheckError("damaged\nin line 2"), 4, "damaged in line 2"),
        (system(errno.ENOSPC), 5, "labels/x: could not write: No space left on device. Free some space"),
        (system(errno.EMFILE, None), 4, "open files"),
        (system(errno.EACCES), 4, "labels/x: Permission denied. Check the path and its permissions"),
        (system(errno.ENOENT), 3, "labels/x"),
        (MemoryError(), 5, "--memory"),
        (OutOfMemoryError("CUDA out of memory. Tried"), 5, "--memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 5, "--memory"),
        (ModuleNotFoundError("No module named 'numba'", name="numba"), 3, "relabel-itr[pipeline]"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), 3, "relabel-itr[train]"),
        (FileNotFoundError("runs/fit: no checkpoint found"), 3, "runs/fit"),
        (UnicodeEncodeError("utf-8", "labels/caf\udce9", 10, 11, "surrogates not allowed"), 2, r"labels/caf\udce9"),
        (UnicodeDecodeError("utf-8", b"caf\xe9", 3, 4, "unexpected end of data"), 2, r"caf\xe9"),
        (RuntimeError("Could not determine home directory."), 3, "HOME"),
        (FitError("epochs is 0"), 2, "epochs"),
        (LookupFileError("damaged"), 4, "damaged"),
        (UnknownIdError("this lookup covers no caption x"), 4, ": this lookup covers no caption x"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_error_of_a_user_or_a_machine_is_one_line(error: Exception, code: int, words: str, capsys: Printed) -> None:
    assert report(error) == code
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert err.startswith("error: ")
    assert words in err
    assert "bug" not in err


@pytest.mark.parametrize(
    "error",
    [
        ValueError("first\nsecond ü"),
        OSError("no number"),
        ModuleNotFoundError("No module named 'relabel.gone'", name="relabel.gone"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_bug_is_one_line_that_names_the_traceback(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(fail) == 1
    (line,) = capsys.readouterr().err.splitlines()
    (file,) = tmp_path.glob("relabel-bug-*.txt")
    assert type(error).__name__ in line
    assert str(file) in line
    text = file.read_text(encoding="utf-8")
    assert "Traceback (most recent call last)" in text
    assert str(error) in text


@pytest.mark.parametrize(
    "command",
    [
        "ingest --path FILE",
        "ingest --path a.parquet",
        "ingest --path a.arrow",
        "correlate --on a.parquet",
        "ingest --path ~nobody/a",
        "nearest a --params FILE",
    ],
)
def test_a_name_that_is_not_utf_8_is_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"caf\xe9.csv")
    Path(name).write_text("text,image_id\na dog,1\n")
    table = pa.table({"text": ["a dog"], "image_id": ["1"], "zzzz": ["x"]})
    pq.write_table(table, "a.parquet", store_schema=False)
    with pa.OSFile("a.arrow", "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    for path in ("a.parquet", "a.arrow"):
        Path(path).write_bytes(Path(path).read_bytes().replace(b"zzzz", b"z\xe9\xffz"))
    arguments = [name if word == "FILE" else word for word in command.split()]
    monkeypatch.setattr(sys, "argv", ["relabel", *arguments, "--dataset", "mine", "--quiet"])
    assert run(load_root) in (2, 3, 4)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert "bug" not in line


FIT = ["fit", "--features", "d", "--captions", "c"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nonsense"], 2, "no such command 'nonsense'"),
        (["nearst", "a dog"], 2, "Did you mean nearest"),
        (["export"], 2, "export --help`"),
        (["export", "looup"], 2, "Did you mean 'lookup'? See `"),
        (["encode", "--nonsense"], 2, "encode --help`"),
        (["encode", "--label", "nonsense"], 2, "no label 'nonsense'"),
        (["encode", "--set", "neighbours.k=0"], 2, "neighbours.k"),
        (["encode", "--params", "gone.yaml"], 3, "gone.yaml"),
        (["encode", "--label", "cider"], 3, "relabel ingest"),
        (["ingest"], 3, "relabel fetch coco-captions"),
        (["fetch", "nonsense"], 2, "nonsense"),
        (["nearest"], 2, "--id"),
        (["run", "--set", "ingest.dataset=mine"], 2, "ingest.path"),
        (["run", "--set", f"ingest.expected={'[' * 10_000}"], 2, "--set ingest.expected: not YAML"),
        (["run", "--labels", "sbert", "--dry-run"], 2, "--label sbert"),
        ([*FIT, "--epochs", "1000000000000"], 2, "epochs"),
        ([*FIT, "--set", "wide=1"], 2, "wide: no such parameter"),
        ([*FIT, "--lookup", "x", "--batches", "y"], 2, "--lookup"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_that_names_it(
    arguments: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["relabel", *arguments])
    assert run(load_root) == code
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert (out, line.startswith("error: ")) == ("", True)
    assert said in line
