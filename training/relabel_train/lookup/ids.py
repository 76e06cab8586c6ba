"""Ids as they stand outside, by place: strings end to end on disk, found again by a sorted hash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

Raw = bytes  # inside the class, the name is a field's


@dataclass(frozen=True, eq=False)
class Ids:
    """N distinct ids.

    Attributes
    ----------
    bytes : (offsets[-1],) uint8
        UTF-8 of all ids, end to end.
    offsets : (N + 1,) int64
        Id i is ``bytes[offsets[i]:offsets[i + 1]]``.
    hashes : (N,) uint64
        8-byte BLAKE2b of each id (little-endian), ascending.
    order : (N,) int32
        Place of the id with each hash.
    """

    bytes: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    order: NDArray[np.int32]

    @classmethod
    def of(cls, ids: Sequence[str]) -> Ids:
        """Index ids in memory; `arrays` names what is stored of them."""
        encoded = [identifier.encode() for identifier in ids]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(raw) for raw in encoded], out=offsets[1:])
        hashes = _hashes(encoded)
        order = np.argsort(hashes, kind="stable").astype(np.int32)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets, hashes[order], order)

    @classmethod
    def open(cls, arrays: dict[str, NDArray[Any]], what: str) -> Ids:
        """Take the arrays `WHAT.bytes`, `WHAT.offsets`, ... of a lookup."""
        return cls(*(arrays[f"{what}.{name}"] for name in ("bytes", "offsets", "hashes", "order")))

    def arrays(self, what: str) -> dict[str, NDArray[Any]]:
        """Name the arrays to store."""
        return {f"{what}.{name}": getattr(self, name) for name in ("bytes", "offsets", "hashes", "order")}

    def __len__(self) -> int:
        return len(self.order)

    def names(self, places: Iterable[int] | NDArray[np.integer[Any]]) -> list[str]:
        """Spell the ids at some places."""
        return [self._raw(int(place)).decode() for place in places]

    def find(self, ids: Iterable[str], what: str) -> NDArray[np.int64]:
        """Find the places of ids.

        Raises
        ------
        KeyError
            Naming the first ids that are not here; `what` says what they are.
        """
        encoded = [identifier.encode() for identifier in ids]
        hashes = _hashes(encoded)
        places = np.full(len(encoded), -1, np.int64)
        for i, first in enumerate(np.searchsorted(self.hashes, hashes).tolist()):
            slot = first
            while slot < len(self) and self.hashes[slot] == hashes[i]:  # two ids may share a hash
                place = int(self.order[slot])
                if self._raw(place) == encoded[i]:
                    places[i] = place
                    break
                slot += 1
        unknown = [encoded[i].decode() for i in np.flatnonzero(places < 0)]
        if unknown:
            more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
            raise KeyError(f"this lookup covers no {what} {', '.join(unknown[:5])}{more}")
        return places

    def _raw(self, place: int) -> Raw:
        return self.bytes[self.offsets[place] : self.offsets[place + 1]].tobytes()


def _hashes(encoded: Sequence[bytes]) -> NDArray[np.uint64]:
    joined = b"".join(blake2b(raw, digest_size=8).digest() for raw in encoded)
    return np.frombuffer(joined, "<u8").astype(np.uint64)
