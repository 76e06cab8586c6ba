"""Check of the inputs of artefacts: which are absent, and which have been rebuilt since.

A manifest names its inputs by identity: the digest of the corpus, the fingerprint of an encoding, and so on. The folder
of an input follows from the place of the artefact that names it (see `relabel.core.layout`).
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
    """An absent artefact, and the artefacts that were made from it."""

    folder: Path
    kind: str
    referrers: tuple[Path, ...]


@dataclass(frozen=True)
class Stale:
    """An artefact whose inputs have been rebuilt since it was made.

    `inputs`: kinds of the inputs that were rebuilt.
    """

    folder: Path
    kind: str
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class _Reference:
    """Identity of an input, and its folder; several folders if the manifest does not determine which."""

    kind: str
    identity: str
    folders: tuple[Path, ...]


def check_references(
    artefacts: Mapping[Path, Manifest], within: Sequence[Path], unread: Sequence[Path] = ()
) -> tuple[list[Absent], list[Stale]]:
    """Look up the inputs of artefacts among the artefacts themselves.

    `artefacts`: manifests by absolute folder. `within`: absolute folders. Inputs outside of them are not looked up.
    `unread`: absolute folders of artefacts with a damaged or lost manifest. An input of the same kind and label may be
    one of these, so it is not reported as absent. Returns `absent`: inputs that do not exist, sorted by folder;
    `stale`: in the order of the artefacts.
    """
    identities = {value: folder for folder, manifest in artefacts.items() for value in _identities(manifest)}
    absent, stale = defaultdict[tuple[Path, str], list[Path]](list), dict[Path, list[str]]()
    made_from = defaultdict[Path, list[tuple[str, Path]]](list)
    doubtful = {_subject(place) for place in map(place_of, unread) if place is not None}
    for folder, manifest in artefacts.items():
        place = place_of(folder)
        if place is None or place.kind != manifest.kind:
            continue
        for reference in _references(place, manifest):
            # The input exists, wherever it lies.
            if (found := identities.get((reference.kind, reference.identity))) is not None:
                made_from[folder].append((reference.kind, found))
                continue
            if not _inside(reference.folders[0], within):
                continue
            # An artefact with another identity takes its place.
            if any(path in artefacts for path in reference.folders):
                stale.setdefault(folder, []).append(reference.kind)
            elif any(os.path.lexists(path) for path in reference.folders):
                # The folder exists without a manifest, which is reported elsewhere.
                continue
            elif (lost := place_of(reference.folders[0])) is None or _subject(lost) not in doubtful:
                absent[reference.folders[0], reference.kind].append(folder)
    # What was made from a stale artefact is stale.
    while True:
        inputs = {folder: [k for k, one in made_from[folder] if one in stale] for folder in {*made_from} - {*stale}}
        if not any(inputs.values()):
            break
        stale |= {folder: kinds for folder, kinds in inputs.items() if kinds}
    of_artefacts = [Stale(f, m.kind, tuple(dict.fromkeys(stale[f]))) for f, m in artefacts.items() if f in stale]
    return [Absent(folder, kind, tuple(by)) for (folder, kind), by in sorted(absent.items())], of_artefacts


def _subject(place: Place) -> tuple[Path, str, tuple[str, ...]]:
    """Return dataset, kind and label of a place, whatever its split."""
    return place.layout.root, place.kind, place.names[-1:]


def _identities(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the identities by which other manifests may name an artefact."""
    if manifest.kind == "corpus":
        yield "corpus", str(manifest.facts.get("digest"))
    yield manifest.kind, manifest.identity
    yield manifest.kind, manifest.fingerprint


def _references(place: Place, manifest: Manifest) -> Iterator[_Reference]:
    """Yield the inputs of an artefact with the folders in which they may lie."""
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
        elif name == "lookup":
            yield _Reference("lookup", identity, (layout.lookup(split, label),))
        elif name == "neighbours":
            # A plan states the label of its neighbours; other exports have those of their own label.
            of = str(facts.get("neighbours")) if place.kind == "plan" else label
            folders = tuple(layout.neighbours(s, str(facts.get("of", "captions")), of) for s in _splits(split))
            yield _Reference("neighbours", identity, folders)


def _splits(split: str) -> tuple[str, ...]:
    # An artefact of all captions may take the place of one of a split.
    return (split,) if split == "all" else (split, "all")


def _inside(folder: Path, within: Sequence[Path]) -> bool:
    return any(path in (folder, *folder.parents) for path in within)
