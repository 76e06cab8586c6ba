"""Keys of the shards of a side-car: from the tar files of images, or the ids of captions."""

from __future__ import annotations

import hashlib
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from relabel.core.errors import CheckError, UsageError
from relabel.core.parsing import check_regular, namespaced
from relabel.core.runtime import Progress
from relabel.corpus import Corpus
from relabel.corpus.readers import ENDINGS, table_files
from relabel.corpus.readers.webdataset import key_in_shard, read_keys
from relabel.export.params import ExportWdsParams
from relabel_train.sidecar import Keys

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_COMPRESSION = re.compile(r"\.(tar(\.\w+)?|tgz)$", re.IGNORECASE)


class KeyShard(ABC):
    """Keys of the shard `name` of a side-car."""

    name: str
    count: int

    @abstractmethod
    def read(self) -> tuple[list[str], list[str]]:
        """Return the keys and the ids of an image or a caption that they stand for, with the namespace."""

    @abstractmethod
    def digest(self) -> str:
        """Return a sha256 of the keys and ids."""


@dataclass(frozen=True)
class TarKeys(KeyShard):
    """Keys that were read from an image shard, as JSON: strings would take ten times the memory."""

    name: str
    count: int
    encoded: bytes

    @classmethod
    def of(cls, name: str, keys: Sequence[str], ids: Sequence[str]) -> TarKeys:
        """Encode keys and ids."""
        return cls(name, len(keys), json.dumps([keys, ids], ensure_ascii=False).encode())

    def read(self) -> tuple[list[str], list[str]]:
        """Return the keys and ids."""
        keys, ids = json.loads(self.encoded)
        return keys, ids

    def digest(self) -> str:
        """Return a sha256 of the keys and ids."""
        return hashlib.sha256(self.encoded).hexdigest()


@dataclass(frozen=True, eq=False)
class CaptionKeys(KeyShard):
    """Ids of some captions of the corpus: the keys where there are no image shards."""

    name: str
    corpus: Corpus
    rows: range

    @property
    def count(self) -> int:  # type: ignore[override]
        """Number of captions."""
        return len(self.rows)

    def read(self) -> tuple[list[str], list[str]]:
        """Return the keys and ids."""
        ids = self.corpus.table["caption_id"].slice(self.rows.start, len(self.rows)).to_pylist()
        return [name.removeprefix(f"{self.corpus.namespace}:") for name in ids], ids

    def digest(self) -> str:
        """Return the rows: the corpus itself is an input of the side-car."""
        return f"{self.rows.start}-{self.rows.stop}"


def caption_shards(corpus: Corpus, rows: range, captions_per_shard: int) -> list[KeyShard]:
    """Cut captions into shards `00000.tar`, `00001.tar`, ..., one key per caption."""
    starts = range(rows.start, rows.stop, captions_per_shard)
    return [
        CaptionKeys(f"{i:05d}.tar", corpus, range(a, min(a + captions_per_shard, rows.stop)))
        for i, a in enumerate(starts)
    ]


def image_shards(params: ExportWdsParams, keys: Keys, namespace: str, progress: Progress) -> list[KeyShard]:
    """Read the keys of the image shards in `params.shards`, in the order of their samples."""
    files = expand_shards(str(params.shards))
    root = Path(os.path.commonpath([file.parent for file in files]))
    shards: dict[str, KeyShard] = {}
    with progress.bar("read keys", len(files), "shards") as bar:
        for file in files:
            name = _COMPRESSION.sub("", file.relative_to(root).as_posix()) + ".tar"
            if name in shards:
                raise UsageError(f"two shards have the name {name}", where=str(params.shards))
            shards[name] = _read_shard(name, file, params.image_id_column, keys, namespace)
            bar.advance(1)
    return list(shards.values())


def expand_shards(pattern: str) -> list[Path]:
    """Return the files of a folder or of a path with braces, as webdataset expands them; raises as `image_shards`."""
    paths = list(_expand(pattern))
    if len(paths) == 1:
        return table_files(Path(pattern), ENDINGS["webdataset"])
    return [check_regular(Path(path), todo="Check the braces of --shards.") for path in paths]


def _expand(pattern: str) -> Iterator[str]:
    """Yield the texts of a pattern with braces: ``{00..09}`` and ``{a,b}``."""
    parts = _BRACES.split(pattern)
    # `split` alternates text and the content of braces.
    options = [[part] if i % 2 == 0 else _alternatives(part) for i, part in enumerate(parts)]
    return map("".join, product(*options))


def _alternatives(content: str) -> list[str]:
    numbers = _RANGE.fullmatch(content)
    if numbers is None:
        return content.split(",")
    first, last = int(numbers[1]), int(numbers[2])
    return [str(n).zfill(len(numbers[1])) for n in range(first, last + 1)]


def _read_shard(name: str, file: Path, column: str | None, keys: Keys, namespace: str) -> TarKeys:
    listed: list[str] = []
    ids: list[str] = []
    for key, value in read_keys(file, column):
        listed.append(key)
        ids.append(namespaced(namespace, key_in_shard(file, value) if keys == "shard" else value))
    if not listed:
        raise CheckError("no sample in this shard", where=str(file))
    if len(set(listed)) < len(listed):
        repeated = next(key for i, key in enumerate(listed) if key in listed[:i])
        raise CheckError(f"the key {repeated} comes back in the same shard", where=str(file))
    return TarKeys.of(name, listed, ids)
