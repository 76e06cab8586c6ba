"""Captions in shards of webdataset: tar files whose members of one sample have one name and several endings.

A caption is a member `KEY.txt`, or a string or list of strings in `KEY.json`. Tars are read member by member, and the
bytes of images are skipped.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Collection, Iterator, MutableMapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from relabel.core.errors import CheckError
from relabel.core.parsing import check_regular, identifier, parse_object
from relabel.corpus.build import Caption
from relabel.corpus.readers.columns import TEXT_NAMES, Columns

_KEY = "__key__"  # name of a sample's key in webdataset
_MAX_BYTES = 16 << 20  # of a member with captions
_NAME = re.compile(r"^((?:.*/|)[^./]+)\.([^/]*)$")
_DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError)


def read_webdataset(
    path: Path, namespace: str, columns: Columns, ids: str = "image", counts: MutableMapping[str, int] | None = None
) -> Iterator[Caption]:
    """Read the captions of one shard.

    `path`: a .tar file, plain or compressed. `columns`: `text` is the ending of a member or a key of `KEY.json`; by
    default ``KEY.txt``, else a usual key of the JSON. `image_id` is a key of the JSON; by default the key of the
    sample. `ids`: "shard" puts the name of the shard before the key, for keys that are unique in their shard only.
    `counts`: number of captions of each image in the shards before, which is updated.
    """
    counts = {} if counts is None else counts
    for key, members in groupby(_members(path, _text_endings(columns)), key=lambda member: member[0]):
        sample = {ending: body for _, ending, body in members}
        where = f"{path}: {key}"
        record = _record(sample, columns.text, where)
        name = key_in_shard(path, key) if ids == "shard" else key
        # Keys are image ids by default, so a repeated key would merge two images into one.
        if columns.image_id is None and name in counts:
            todo = "Give --ids shard, which puts the name of the shard before the key."
            raise CheckError("this key is also that of another sample", where=where, todo=todo)
        found = replace(columns, image_id=columns.image_id or _KEY).find(record := {_KEY: name, **record}, where)
        yield from found.captions(record, namespace, where, counts)


def webdataset_digest(path: Path, columns: Columns) -> str:
    """Return a sha256 of the members of a shard that hold captions; images do not change a corpus."""
    digest = hashlib.sha256()
    for key, ending, body in _members(path, _text_endings(columns)):
        if body is not None:
            # Lengths go into the hash, so that no two lists of members have one byte string.
            digest.update(f"{key}.{ending}\0{len(body)}\0".encode())
            digest.update(body)
    return digest.hexdigest()


def read_keys(path: Path, image_id: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield the key and the name of every sample of a shard, in file order, from the headers of its members.

    `path`: a .tar file, plain or compressed. `image_id`: key of ``KEY.json`` that holds the name; by default the name
    is the key of the sample.
    """
    for key, members in groupby(_members(path, {"json"} if image_id else set()), key=lambda member: member[0]):
        if image_id is None:
            yield key, key
            continue
        where = f"{path}: {key}.json"
        record = parse_object(next((body for _, _, body in members if body is not None), b"{}"), where)
        if image_id not in record:
            todo = "Name another key of the JSON with --join, or the keys of the samples with --join key."
            raise CheckError(f"no JSON object with {image_id!r}", where=where, todo=todo)
        yield key, identifier(record[image_id], image_id, where)


def key_in_shard(path: Path, key: str) -> str:
    """Return a key with the name of its shard before it."""
    return f"{path.name.split('.')[0]}/{key}"


def _text_endings(columns: Columns) -> set[str | None]:
    """Return the endings of members that may hold captions."""
    return {"txt", "json", columns.text}


def copy_captions(stream: IO[bytes], copy: Path, text: str | None, name: str) -> None:
    """Write a shard with the captions of another one: its images keep their names and lose their content.

    `stream`: a tar file, plain or compressed, which is read from start to end. `text`: ending of the members with
    captions, or key of their JSON. `name`: of the shard, for errors.
    """
    wanted = _text_endings(Columns(text=text))
    with tarfile.open(copy, "w") as target:
        for key, ending, body in _members(Path(name), wanted, stream):
            member = tarfile.TarInfo(f"{key}.{ending}")
            member.size = len(body or b"")
            target.addfile(member, io.BytesIO(body or b""))
            vars(target)["members"].clear()


def _members(
    path: Path, wanted: Collection[str | None], stream: IO[bytes] | None = None
) -> Iterator[tuple[str, str, bytes | None]]:
    """Yield key, ending and content of every member, in file order; None for the content of endings not wanted.

    `path`: a tar file, or its name if it is read from a stream.
    """
    try:
        with tarfile.open(fileobj=stream, mode="r|*") if stream else tarfile.open(check_regular(path)) as tar:
            members: list[tarfile.TarInfo] = vars(tar)["members"]
            while (member := tar.next()) is not None:
                # tarfile keeps every member, which would add up over a shard of many images.
                members.clear()
                match = _NAME.match(member.name)
                if match is None or not member.isfile():
                    continue
                body = None
                if match[2] in wanted:
                    if member.size > _MAX_BYTES:
                        raise CheckError(f"{member.name} has {member.size:,} bytes: no caption", where=str(path))
                    file = tar.extractfile(member)
                    body = b"" if file is None else file.read()
                yield match[1], match[2], body
    except _DAMAGE as error:
        raise CheckError(f"not a complete tar file: {error}", where=str(path)) from error


def _record(sample: dict[str, bytes | None], text: str | None, where: str) -> dict[str, Any]:
    """Return the JSON of a sample with its caption; without a member of text, its JSON holds the caption."""
    record: dict[str, Any] = {}
    if (body := sample.get("json")) is not None:
        record = parse_object(body, f"{where}.json")
    ending = text or "txt"
    if (body := sample.get(ending)) is not None and ending not in record:
        # A text file ends in a line break, which is no part of the caption. Bytes that are no UTF-8 become surrogates,
        # which no caption may contain.
        record[text or TEXT_NAMES[0]] = body.decode(errors="surrogateescape").rstrip("\r\n")
    elif not record:
        todo = "Name the ending of the members with captions, or a key of their JSON, with --text-column."
        raise CheckError(f"no .txt or .json member; there is {', '.join(sample)}", where=where, todo=todo)
    return record
