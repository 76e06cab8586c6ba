"""Contract: the checks of a user's paths return a readable file. A missing file, a folder, a loop of links and a
file without permission are missing; a pipe is a usage error and is not opened.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relabel.core.errors import MissingError, UsageError
from relabel.core.user_files import check_regular, file_status, is_file, is_folder


def test_a_readable_file_is_returned(tmp_path: Path) -> None:
    path, link = tmp_path / "captions.csv", tmp_path / "link"
    path.write_text("a dog")
    link.symlink_to(path)
    assert check_regular(path) == path
    assert check_regular(link) == link
    assert is_file(link)
    assert not is_folder(link)
    assert is_folder(tmp_path)
    assert not is_file(tmp_path)


def test_a_missing_file_has_the_message_of_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "none"
    assert file_status(path) is None
    assert file_status(tmp_path / "none" / "inside") is None
    with pytest.raises(MissingError, match="no list of words") as caught:
        check_regular(path, "no list of words", "Write one.")
    assert caught.value.where == str(path)
    assert caught.value.todo == "Write one."


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="found a folder"):
        check_regular(tmp_path)


@pytest.mark.timeout(10)
def test_a_pipe_is_rejected_without_opening_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer
    with pytest.raises(UsageError, match="not a regular file"):
        check_regular(tmp_path / "pipe")
    assert not is_file(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["a" * 300, "nul\0byte", "loop"])
def test_a_path_that_cannot_be_followed_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for check in (file_status, is_file, is_folder, check_regular):
        with pytest.raises(MissingError, match="cannot be read"):
            check(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser reads every file")
def test_a_file_without_permission_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "private"
    path.write_text("a dog")
    path.chmod(0)
    with pytest.raises(MissingError, match="cannot be read"):
        check_regular(path)
