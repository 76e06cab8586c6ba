"""External ids by position: strings end to end on disk, found by a sorted hash."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

ID_ARRAYS = {"bytes": "|u1", "offsets": "<i8", "hashes": "<u8", "order": "<i4"}
"""Arrays of ids by name, with their types; all of one dimension."""


class UnknownIdError(KeyError):
    """An id that labels do not cover."""

    exit_code = 4

    def __str__(self) -> str:
        return str(self.args[0])


Raw = bytes  # the class has a field of the name `bytes`
Id = str | Raw | SupportsIndex
"""An id: text, its UTF-8, or a number, as in COCO's files."""


@dataclass(frozen=True, eq=False)
class Ids:
    """N distinct ids.

    `bytes`: (offsets[-1],) uint8; UTF-8 of all ids, end to end.
    `offsets`: (N + 1,) int64; id i is ``bytes[offsets[i]:offsets[i + 1]]``.
    `hashes`: (N,) uint64; 8-byte BLAKE2b of each id (little-endian), ascending.
    `order`: (N,) int32; position of the id with each hash.
    """

    bytes: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    order: NDArray[np.int32]

    @classmethod
    def of(cls, ids: Sequence[str]) -> Ids:
        """Index ids in memory."""
        encoded = [identifier.encode() for identifier in ids]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(raw) for raw in encoded], out=offsets[1:])
        hashes = hash_ids(encoded)
        order = np.argsort(hashes, kind="stable").astype(np.int32)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets, hashes[order], order)

    @classmethod
    def open(cls, arrays: dict[str, NDArray[Any]], prefix: str) -> Ids:
        """Wrap the arrays `PREFIX.bytes`, `PREFIX.offsets`, ... of an export."""
        return cls(*(arrays[f"{prefix}.{name}"] for name in ID_ARRAYS))

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return the arrays to store, under the names that `open` reads."""
        return {f"{prefix}.{name}": getattr(self, name) for name in ID_ARRAYS}

    def __len__(self) -> int:
        return len(self.order)

    def names(self, positions: Iterable[int] | NDArray[np.integer[Any]]) -> list[str]:
        """Return the ids at some positions."""
        return [self._raw(int(position)).decode() for position in positions]

    def find(self, ids: Iterable[Id], kind: str, owner: str = "this lookup") -> NDArray[np.int64]:
        """Return the positions of ids: text, its UTF-8, or numbers. `kind` ("caption", "image"), `owner`: for messages.

        An id may lack the prefix that all ids have: `a.jpg` for `mine:a.jpg`.
        """
        listed = [id_text(name, kind) for name in ids]
        positions = self.positions(listed)
        if len(self) and (absent := np.flatnonzero(positions < 0)).size:
            prefix = self.names([0])[0].partition(":")[0]
            positions[absent] = self.positions([f"{prefix}:{listed[i]}" for i in absent])
        unknown = list(dict.fromkeys(listed[i] for i in np.flatnonzero(positions < 0)))
        if unknown:
            more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
            like = f"; ids look like {self.names([0])[0]}" if len(self) else ""
            raise UnknownIdError(f"{owner} covers no {kind} {', '.join(unknown[:5])}{more}{like}")
        return positions

    def positions(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Return the positions of ids, -1 for an unknown one."""
        encoded = [identifier.encode() for identifier in ids]
        hashes = hash_ids(encoded)
        positions = np.full(len(encoded), -1, np.int64)
        for i, first in enumerate(np.searchsorted(self.hashes, hashes).tolist()):
            slot = first
            # Two ids may share a hash, so the bytes decide.
            while slot < len(self) and self.hashes[slot] == hashes[i]:
                position = int(self.order[slot])
                if self._raw(position) == encoded[i]:
                    positions[i] = position
                    break
                slot += 1
        return positions

    def _raw(self, position: int) -> Raw:
        """Return the UTF-8 of the id at a position."""
        return self.bytes[self.offsets[position] : self.offsets[position + 1]].tobytes()


def id_text(name: Any, kind: str) -> str:
    """Return an id as text; TypeError if it is of another type."""
    if isinstance(name, Raw):
        return name.decode(errors="replace")
    if isinstance(name, str):
        return name
    if hasattr(name, "__index__") and not isinstance(name, bool):
        return str(operator.index(name))
    raise TypeError(f"{kind} ids are strings or integers, found {type(name).__name__}")


def hash_ids(encoded: Sequence[bytes]) -> NDArray[np.uint64]:
    """Return the 8-byte BLAKE2b of each id."""
    joined = b"".join(blake2b(raw, digest_size=8).digest() for raw in encoded)
    return np.frombuffer(joined, "<u8").astype(np.uint64)
