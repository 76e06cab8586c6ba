"""Why a dataset could not be had, and how to put it there by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from relabel.datasets.manifest import DataFile, Manifest, MavenSource, UrlSource
from relabel.errors import CheckError, MissingError, RelabelError


def failure(manifest: Manifest, folder: Path, failed: Mapping[str, Sequence[RelabelError]]) -> RelabelError:
    """Make the error of a fetch that failed.

    Parameters
    ----------
    manifest : Manifest
    folder : Path
        Where its files go.
    failed : mapping of str to sequence of RelabelError
        For each file that could not be had, why each source failed.

    Returns
    -------
    RelabelError
        CheckError if something was there but wrong, else MissingError; names for every file its place, size, sha256
        and origin.
    """
    why: dict[str, list[str]] = {}
    for name, reasons in failed.items():
        said = dict.fromkeys(f"{r.where}: {r.what}" if r.where else r.what for r in reasons)
        why.setdefault("; ".join(said), []).append(name)
    what = "\n".join(f"could not get {', '.join(names)}: {said}" for said, names in why.items())
    which = "it" if len(failed) == 1 else "any one" if manifest.alternatives else "them"
    lines = [_by_hand(manifest.file(name), folder) for name in failed]
    todo = f"Or put {which} there by hand, then run `relabel fetch {manifest.name}` again:"
    wrong = any(isinstance(r, CheckError) for reasons in failed.values() for r in reasons)
    kind = CheckError if wrong else MissingError
    return kind(what, where=manifest.name, todo="\n".join([todo, *lines]))


def _by_hand(file: DataFile, folder: Path) -> str:
    must = " or ".join(f"{c.bytes} bytes, sha256 {c.sha256}" for c in file.contents)
    origin = next((f", from {_origin(s)}" for s in file.sources if isinstance(s, UrlSource | MavenSource)), "")
    return f"  {folder / file.name} ({must}){origin}"


def _origin(source: UrlSource | MavenSource) -> str:
    if isinstance(source, MavenSource):
        return str(source)
    return source.url + (f" ({source.member} in it)" if source.member else "")
