"""The artefacts that others were made from: which of them are gone, and which are others by now.

A manifest names its inputs by identity: the digest of the corpus, the fingerprint of an encoding, and so on. Where an
input lies follows from the place of the artefact that names it (see `relabel.core.layout`).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relabel.core.layout import Place, place_of
from relabel.store.manifest import Manifest


@dataclass(frozen=True)
class Absent:
    """An artefact that is not there, and one of those that were made from it.

    Attributes
    ----------
    folder : Path
    kind : str
    referrers : tuple of Path
    """

    folder: Path
    kind: str
    referrers: tuple[Path, ...]


@dataclass(frozen=True)
class Stale:
    """An artefact that was made from others than those that are there.

    Attributes
    ----------
    folder : Path
    kind : str
    inputs : tuple of str
        Kinds of the others.
    """

    folder: Path
    kind: str
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class _Reference:
    """An input by its identity, and the folder where it lies; several if the manifest does not tell which."""

    kind: str
    identity: str
    folders: tuple[Path, ...]


def check_references(
    artefacts: Mapping[Path, Manifest], within: Sequence[Path], unread: Sequence[Path] = ()
) -> tuple[list[Absent], list[Stale]]:
    """Look for the inputs of artefacts among the artefacts themselves.

    Parameters
    ----------
    artefacts : mapping of Path to Manifest
        Manifests by absolute folder.
    within : sequence of Path
        Absolute folders; inputs that lie elsewhere are not looked for.
    unread : sequence of Path
        Absolute folders of artefacts whose manifest is damaged or lost. An input of the same kind and label may be one
        of these, under a name that is not known, so it is not called absent.

    Returns
    -------
    absent : list of Absent
        Inputs of which nothing is there, by folder.
    stale : list of Stale
        In the order of the artefacts.
    """
    identities = {value for manifest in artefacts.values() for value in _identities(manifest)}
    absent, stale = defaultdict[tuple[Path, str], list[Path]](list), list[Stale]()
    doubtful = {_subject(place) for place in map(place_of, unread) if place is not None}
    for folder, manifest in artefacts.items():
        place = place_of(folder)
        if place is None or place.kind != manifest.kind:
            continue
        others = []
        for reference in _references(place, manifest):
            if (reference.kind, reference.identity) in identities or not _inside(reference.folders[0], within):
                continue
            if any(path in artefacts for path in reference.folders):
                others.append(reference.kind)
            elif any(os.path.lexists(path) for path in reference.folders):
                continue  # named already, as an artefact without its manifest
            elif (lost := place_of(reference.folders[0])) is None or _subject(lost) not in doubtful:
                absent[reference.folders[0], reference.kind].append(folder)
        if others:
            stale.append(Stale(folder, manifest.kind, tuple(dict.fromkeys(others))))
    return [Absent(folder, kind, tuple(by)) for (folder, kind), by in sorted(absent.items())], stale


def _subject(place: Place) -> tuple[Path, str, tuple[str, ...]]:
    return place.layout.root, place.kind, place.names[-1:]


def _identities(manifest: Manifest) -> Iterator[tuple[str, str]]:
    if manifest.kind == "corpus":
        yield "corpus", str(manifest.facts.get("digest"))
    yield manifest.kind, manifest.identity
    yield manifest.kind, manifest.fingerprint


def _references(place: Place, manifest: Manifest) -> Iterator[_Reference]:
    layout, facts = place.layout, manifest.facts
    split, label = place.names[0] if place.names else "all", place.names[-1] if place.names else ""
    for name, identity in manifest.inputs.items():
        key, _, rest = name.partition(" ")
        if place.kind == "report":
            yield _Reference("judgement", identity, (layout.judgement(split, name.partition("/")[2]),))
        elif name == "corpus":
            yield _Reference("corpus", identity, (layout.corpus,))
        elif key == "encoding":
            part, splits = rest or str(facts.get("label", label)), _splits(str(facts.get("split", split)))
            yield _Reference("encoding", identity, tuple(layout.encoding(s, part) for s in splits))
        elif name == "neighbours":
            of = label if place.kind == "lookup" else str(facts.get("neighbours"))
            folders = tuple(layout.neighbours(s, "captions", of) for s in _splits(split))
            yield _Reference("neighbours", identity, folders)


def _splits(split: str) -> tuple[str, ...]:
    return (split,) if split == "all" else (split, "all")


def _inside(folder: Path, within: Sequence[Path]) -> bool:
    return any(path in (folder, *folder.parents) for path in within)
