"""Keys of the shards of a side-car, read from the tar files of images or derived from caption ids."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pyarrow as pa

from relabel.core.errors import CheckError, UsageError
from relabel.core.parsing import check_regular, namespaced
from relabel.core.runtime import Progress
from relabel.corpus import Corpus
from relabel.corpus.readers.files import ENDINGS, table_files
from relabel.corpus.readers.rules import file_prefix
from relabel.corpus.readers.webdataset import read_keys
from relabel.export.params import ExportWdsParams
from relabel.store.workdir import part_ranges
from relabel_train.sidecar import Keys

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_COMPRESSION = re.compile(r"\.(tar(\.\w+)?|tgz)$", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class KeyShard:
    """Keys of one shard, and the image or caption id of each key, with the namespace.

    `name`: file name of the side-car's shard.
    """

    name: str
    keys: pa.Array
    ids: pa.Array


def caption_shards(corpus: Corpus, rows: range, captions_per_shard: int) -> list[KeyShard]:
    """Split captions into shards `00000.tar`, `00001.tar`, ... The key of a caption is its id without namespace."""
    shards = []
    for i, part in enumerate(part_ranges(rows, captions_per_shard)):
        ids = corpus.read("caption_id", part)
        keys = [name.removeprefix(f"{corpus.namespace}:") for name in ids]
        shards.append(KeyShard(f"{i:05d}.tar", pa.array(keys), pa.array(ids)))
    return shards


def image_shards(params: ExportWdsParams, keys: Keys, namespace: str, progress: Progress) -> list[KeyShard]:
    """Read the keys of image shards. Keys are in the order of the samples, and shards are sorted by name.

    `params`: `shards` and `join` are used.
    """
    files = expand_shards(str(params.shards))
    root = os.path.commonpath([os.path.normpath(file.absolute().parent) for file in files])
    shards: dict[str, KeyShard] = {}
    with progress.bar("read keys", len(files), "shards") as bar:
        for file in files:
            name = _COMPRESSION.sub("", os.path.relpath(file, root)) + ".tar"
            if name in shards:
                raise UsageError(f"two shards have the name {name}", where=str(params.shards))
            listed, ids = list[str](), list[str]()
            for key, value in read_keys(file, None if params.join == "key" else params.join):
                listed.append(key)
                ids.append(namespaced(namespace, file_prefix(file, root, keys) + value if keys == "shard" else value))
            if not listed:
                raise CheckError("the shard has no samples", where=str(file))
            key, count = Counter(listed).most_common(1)[0]
            if count > 1:
                raise CheckError(f"duplicate key {key} in the shard", where=str(file))
            shards[name] = KeyShard(name, pa.array(listed), pa.array(ids))
            bar.advance(1)
    return [shards[name] for name in sorted(shards)]


def expand_shards(pattern: str) -> list[Path]:
    """Return the tar files of a folder, or of a path with braces (``{00..09}``, ``{a,b}``) as in webdataset."""
    parts = _BRACES.split(pattern)
    if len(parts) == 1:
        return table_files(Path(pattern), ENDINGS["webdataset"])
    # The result of `split` alternates between text and the content of braces.
    options = [[part] if i % 2 == 0 else _alternatives(part) for i, part in enumerate(parts)]
    return [check_regular(Path("".join(chosen)), hint="Check the braces of --shards.") for chosen in product(*options)]


def _alternatives(content: str) -> list[str]:
    numbers = _RANGE.fullmatch(content)
    if numbers is None:
        return content.split(",")
    first, last = int(numbers[1]), int(numbers[2])
    return [str(n).zfill(len(numbers[1])) for n in range(first, last + 1)]


def digest_keys(shards: Iterable[KeyShard]) -> str:
    """Return the sha256 of all names, keys and ids."""
    digest = hashlib.sha256()
    for shard in shards:
        digest.update(json.dumps([shard.name, shard.keys.to_pylist(), shard.ids.to_pylist()]).encode())
    return digest.hexdigest()
