"""Versions of sources beside their frozen values: values that change need another version in `versions.yaml`.

`values/versions.json` has the version of each source and a digest of its frozen values. `freeze` writes an entry only
where the version differs from the one there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import numpy as np
from tests.golden import store
from tests.golden.units import LABELS, SIZES

from relabel.store.manifest import version_of

FILE = store.VALUES / "versions.json"
# Source to its version and the digest of its frozen values.
Versions = dict[str, tuple[int | None, str]]


def read() -> Versions:
    """Return the versions that the frozen values were made with."""
    return {source: (version, digest) for source, (version, digest) in json.loads(FILE.read_text()).items()}


def current() -> Versions:
    """Return today's versions, and the digests of what is frozen today."""
    found: Versions = {}
    for source in sorted({str(label["source"]) for label in LABELS.values()}):
        digest = hashlib.sha256()
        for size in SIZES:
            for label in (name for name, params in LABELS.items() if params["source"] == source):
                for key, value in sorted(store.read(f"{size}/{label}").items()):
                    if key.startswith(("encoding/", "pairs/", "query/")):
                        digest.update(f"{size}/{label}/{key}".encode() + np.ascontiguousarray(value).tobytes())
        found[source] = (version_of("encoding", source), digest.hexdigest())
    return found


def record() -> None:
    """Write the entries of sources with another version."""
    frozen = read() if FILE.exists() else {}
    kept = {source: one for source, one in frozen.items() if one[0] == version_of("encoding", source)}
    now = current() | kept
    FILE.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")


def problems(frozen: Versions, now: Versions) -> Iterator[str]:
    """Yield a line with the remedy for each source whose values or version changed alone."""
    for source, one in now.items():
        if frozen.get(source) != one:
            same = source in frozen and frozen[source][0] == one[0]
            first = f"raise encoding.{source} in pipeline/relabel/versions.yaml, and " if same else ""
            hint = f"{first}run `python -m tests.golden freeze --only versions`"
            yield f"{source}: its frozen values are not those of version {one[0]}: {hint}"
