"""Jars by Maven coordinate: `jgo` knows, in pure Python, where a Maven folder keeps them and which repositories to ask.

The transfer itself is `download`'s: resumable and checked. No repository is named here; jgo's own settings may name a
private one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relabel.datasets.manifest import MavenSource
from relabel.errors import MissingError

INSTALL = "pip install 'relabel-itr[spice]'"


def kept_jar(source: MavenSource) -> Path | None:
    """Find a jar in this machine's Maven folder (`~/.m2`, or $M2_REPO).

    Raises
    ------
    MissingError
        Without jgo.
    """
    path = _artifact(source).cached_path
    return Path(path) if path is not None and Path(path).is_file() else None


def jar_urls(source: MavenSource) -> list[str]:
    """Name a jar's address in each repository; at least one.

    Raises
    ------
    MissingError
        Without jgo, or if it knows no repository.
    """
    artifact = _artifact(source)
    below = f"{artifact.component.path_prefix.as_posix()}/{artifact.filename}"
    found = [f"{str(place).rstrip('/')}/{below}" for place in artifact.context.remote_repos.values()]
    if not found:
        raise MissingError("jgo knows no Maven repository", where=str(source))
    return found


def _artifact(source: MavenSource) -> Any:
    try:
        from jgo.config import GlobalSettings
        from jgo.maven import MavenContext
    except ImportError:
        raise MissingError(f"needs jgo: {INSTALL}", where=str(source)) from None
    group, name, version, *classifier = source.maven.split(":")
    context = MavenContext()
    context.remote_repos = context.remote_repos | GlobalSettings.load().repositories
    return context.project(group, name).at_version(version).artifact(*classifier)
