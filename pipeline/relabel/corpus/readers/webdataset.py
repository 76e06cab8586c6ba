"""Captions in webdataset shards: tar files in which the members of a sample share a name and differ in the ending.

A caption is a line of the member `KEY.txt`, or a string or list of strings in `KEY.json`. Tar files are read member by
member, and the bytes of images are skipped.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Collection, Iterator
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from relabel.core.errors import CheckError
from relabel.core.parsing import check_regular, identifier, parse_json, parse_object
from relabel.corpus.params import IngestParams
from relabel.corpus.readers.containers import LONGEST, Bad, Container, Record, decode, of_records, walk
from relabel.corpus.readers.layouts import ABOUT, KEY, TEXT, form_of_text, parse_path, usual_texts

_MAX_BYTES = LONGEST  # size of a member with captions
_MAX_HEADER = 1 << 16  # size of a name in bytes
_NAME = re.compile(r"^((?:.*/|)[^./]+)\.([^/]*)$")
_DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError)


class _Header(tarfile.TarInfo):
    """Header of a member with a limit on the length of names, because tarfile reads a long name at once."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        kinds = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME)
        if self.type in (*kinds, tarfile.GNUTYPE_LONGLINK) and not 0 <= self.size <= _MAX_HEADER:
            raise tarfile.ReadError(f"header of {self.size:,} bytes at byte {self.offset:,}")
        return super()._proc_member(tar)  # type: ignore[misc,no-any-return]


def open_tar(path: Path, params: IngestParams, bad: Bad) -> Container:
    """Open one shard, plain or compressed.

    `text_column` names the member, or the key of ``KEY.json``, that holds the captions. By default, they are read from
    ``KEY.txt`` or from a key of the JSON with a common name.
    """
    text = params.text_column

    def rows() -> Iterator[Record]:
        keys = set[str]()
        for key, members in groupby(_members(path, _text_endings(text)), key=lambda member: member[0]):
            if key in keys:
                hint = "Sort the members of the shard, as with tar --sort=name."
                raise CheckError("members of the sample are not adjacent", where=f"{path}: {key}", hint=hint)
            keys.add(key)
            sample = dict[str, bytes | None]()
            for _, ending, body in members:
                if ending in sample:
                    raise CheckError(f"duplicate member {key}.{ending}", where=str(path))
                sample[ending] = body
            if (record := _record(key, sample, params, f"{path}: {key}", bad)) is not None:
                yield key, {KEY: key, **record}

    return of_records(f"{path}: ", rows(), str(path))


def webdataset_digest(path: Path, text: str | None) -> str:
    """Return a sha256 of the members of a shard that hold captions. Images do not affect a corpus."""
    digest = hashlib.sha256()
    for key, ending, body in _members(path, _text_endings(text)):
        if body is not None:
            # Lengths are hashed too. Otherwise, different lists of members could have the same bytes.
            digest.update(f"{key}.{ending}\0{len(body)}\0".encode())
            digest.update(body)
    return digest.hexdigest()


def read_keys(path: Path, image_id: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield the key and the image name of every sample of a shard, in file order.

    `path`: a tar file, plain or compressed. `image_id`: key of ``KEY.json`` that holds the name. By default, the name
    is the key of the sample, and only headers are read.
    """
    for key, members in groupby(_members(path, {"json"} if image_id else set()), key=lambda member: member[0]):
        if image_id is None:
            yield key, key
            continue
        where = f"{path}: {key}.json"
        record = parse_object(next((body for _, _, body in members if body is not None), b"{}"), where)
        if image_id not in record:
            hint = "Name another key of the JSON with --join, or join by the keys of the samples with --join key."
            raise CheckError(f"no JSON object with {image_id!r}", where=where, hint=hint)
        yield key, identifier(record[image_id], image_id, where)


def _text_endings(text: str | None) -> set[str | None]:
    """Return the endings of members that may hold captions."""
    return {"txt", "json", text}


def copy_captions(stream: IO[bytes], copy: Path, text: str | None, name: str) -> None:
    """Copy a shard with its captions. Images become empty members with the same names.

    `stream`: a tar file, plain or compressed, which is read from start to end. `text`: ending of the members with
    captions, or key of their JSON. `name`: name of the shard, for errors.
    """
    wanted = _text_endings(text)
    with tarfile.open(copy, "w") as target:
        for key, ending, body in _members(Path(name), wanted, stream):
            member = tarfile.TarInfo(f"{key}.{ending}")
            member.size = len(body or b"")
            target.addfile(member, io.BytesIO(body or b""))
            vars(target)["members"].clear()


def _members(
    path: Path, wanted: Collection[str | None], stream: IO[bytes] | None = None
) -> Iterator[tuple[str, str, bytes | None]]:
    """Yield key, ending and content of every member, in file order. The content is None for endings not in `wanted`.

    `path`: a tar file, or its name for errors if it is read from `stream`.
    """
    try:
        with (
            tarfile.open(fileobj=stream, mode="r|*", tarinfo=_Header)
            if stream
            else tarfile.open(check_regular(path), tarinfo=_Header) as tar
        ):
            members: list[tarfile.TarInfo] = vars(tar)["members"]
            while (member := tar.next()) is not None:
                # tarfile keeps every member; for a shard of many images, this takes much memory.
                members.clear()
                match = _NAME.match(member.name)
                if match is None or not member.isfile():
                    continue
                body = None
                if match[2] in wanted:
                    if member.size > _MAX_BYTES:
                        problem = f"{member.name} has {member.size:,} bytes; the maximum is {_MAX_BYTES:,}"
                        raise CheckError(problem, where=str(path))
                    file = tar.extractfile(member)
                    body = b"" if file is None else file.read()
                yield match[1], match[2], body
    except _DAMAGE as error:
        raise CheckError(f"not a complete tar file: {error}", where=str(path)) from error


def _record(
    key: str, sample: dict[str, bytes | None], params: IngestParams, where: str, bad: Bad
) -> dict[str, Any] | None:
    """Return the JSON of a sample with its captions as TEXT, or None if there is no caption or the JSON is damaged."""
    record: dict[str, Any] = {}
    if (body := sample.get("json")) is not None:
        try:
            value = parse_json("".join(decode([body], params.encoding, f"{where}.json")), f"{where}.json")
            record = value if isinstance(value, dict) else {"captions": value}
        except CheckError as error:
            if error.hint:  # the encoding is wrong
                raise
            bad("JSON of a sample that does not parse", str(error))
            return None
    text = params.text_column
    ending, names = text or "txt", (text,) if text else usual_texts(record)
    if (body := sample.get(ending)) is not None and ending not in record:
        caption = "".join(decode([body], params.encoding, f"{where}.{ending}"))
        about = ABOUT.fullmatch(f"{key.rpartition('/')[2]}.{ending}") or form_of_text(caption) == "csv"
        if len(sample) == 1 and about:
            bad("text that does not belong to one image", f"{where}.{ending}")
            return None
        return {**record, TEXT: captions_of_text(caption)}
    paths = [steps for name in names if (steps := parse_path(name, record)) and steps[0] in record]
    if not paths:
        bad("sample without a caption", f"{where}: it has {', '.join([*sample, *record])}; choose one by --text-column")
        return None
    captions = [walk(record, steps) for steps in paths]
    return {**record, TEXT: captions[0] if len(captions) == 1 else captions}


def captions_of_text(text: str) -> str | list[str]:
    """Return the captions in the text file of an image: the lines that are not blank."""
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
    return lines if len(lines) > 1 else "".join(lines)
