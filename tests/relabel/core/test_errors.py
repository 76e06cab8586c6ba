"""Contract: an error of the operating system becomes an error with the matching advice and exit code.

A message states the problem, its place and the remedy, and quotes at most 1,500 characters of each.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from relabel.core.errors import CheckError, system_error
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec


@pytest.mark.parametrize(
    ("number", "code", "advice"),
    [
        (errno.ENOSPC, 5, "Free some space and run it again"),
        (errno.EDQUOT, 5, "Free some space and run it again"),
        (errno.EFBIG, 5, "Free some space and run it again"),
        (errno.EROFS, 4, "Change the permissions"),
        (errno.EACCES, 4, "Change the permissions"),
        (errno.EPERM, 4, "Change the permissions"),
        (errno.ENAMETOOLONG, 2, "Name another file or folder"),
        (errno.ELOOP, 2, "Name another file or folder"),
        (errno.ENOTDIR, 2, "Name another file or folder"),
        (errno.EMFILE, 5, "ulimit -n"),
        (errno.EIO, 5, "Run it again; finished files are kept"),
        (errno.ESTALE, 5, "Run it again; finished files are kept"),
    ],
)
def test_the_advice_matches_the_error(number: int, code: int, advice: str) -> None:
    error = system_error(OSError(number, os.strerror(number), "some/file"), "folder")
    assert error.exit_code == code
    assert str(error).startswith("some/file: ")
    assert os.strerror(number) in str(error)
    assert advice in str(error)
    assert ("space" in str(error)) == (advice.startswith("Free some space"))


def test_an_error_without_a_file_names_the_folder() -> None:
    assert str(system_error(OSError(errno.EIO, "Input/output error"), Path("folder"))).startswith("folder: Input")
    assert "out of reach" in str(system_error(OSError("out of reach"), "folder"))


@pytest.mark.parametrize(("path", "message"), [("x" * 300, "File name too long"), ("file/out", "Not a directory")])
def test_a_build_at_an_invalid_path_is_an_error(path: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(Exception, match=message) as error:
        build(tmp_path / path, ArtefactSpec("fuse_model", "fuse", {}, {}), lambda work: None)
    assert getattr(error.value, "exit_code", None) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_message_has_three_parts_of_bounded_length() -> None:
    assert str(CheckError("wrong", where="file:1", todo="Mend it.")) == "file:1: wrong. Mend it."
    assert str(CheckError("wrong")) == "wrong"
    message = str(CheckError("x" * 100_000, where="w" * 2000, todo="t" * 2000))
    assert message == f"{'w' * 1500}...: {'x' * 1500}.... {'t' * 1500}..."
