"""Captions in shards of webdataset: tar files whose members of one sample have one name and several endings.

A caption is a line of the member `KEY.txt`, or a string or list of strings in `KEY.json`. Tars are read member by
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

_MAX_BYTES = LONGEST  # of a member with captions
_MAX_HEADER = 1 << 16  # bytes of a name
_NAME = re.compile(r"^((?:.*/|)[^./]+)\.([^/]*)$")
_DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError)


class _Header(tarfile.TarInfo):
    """Header of a member, whose name may not be of megabytes: tarfile reads a long name in one piece."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        kinds = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME)
        if self.type in (*kinds, tarfile.GNUTYPE_LONGLINK) and not 0 <= self.size <= _MAX_HEADER:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes at byte {self.offset:,}")
        return super()._proc_member(tar)  # type: ignore[misc,no-any-return]


def open_tar(path: Path, params: IngestParams, bad: Bad) -> Container:
    """Open one shard, plain or compressed.

    The caption of a sample is the member or the key of ``KEY.json`` that `text_column` names; by default ``KEY.txt``,
    else a usual key of the JSON.
    """
    text = params.text_column

    def rows() -> Iterator[Record]:
        keys = set[str]()
        for key, members in groupby(_members(path, _text_endings(text)), key=lambda member: member[0]):
            if key in keys:
                todo = "Sort its members, as in tar --sort=name."
                raise CheckError("members of the sample are at several places", where=f"{path}: {key}", todo=todo)
            keys.add(key)
            sample = dict[str, bytes | None]()
            for _, ending, body in members:
                if ending in sample:
                    raise CheckError(f"{key}.{ending} is there twice", where=str(path))
                sample[ending] = body
            if (record := _record(key, sample, params, f"{path}: {key}", bad)) is not None:
                yield key, {KEY: key, **record}

    # Samples may hold different members, so that each finds its own text.
    return of_records(f"{path}: ", rows(), str(path))


def webdataset_digest(path: Path, text: str | None) -> str:
    """Return a sha256 of the members of a shard that hold captions; images do not change a corpus."""
    digest = hashlib.sha256()
    for key, ending, body in _members(path, _text_endings(text)):
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


def _text_endings(text: str | None) -> set[str | None]:
    """Return the endings of members that may hold captions."""
    return {"txt", "json", text}


def copy_captions(stream: IO[bytes], copy: Path, text: str | None, name: str) -> None:
    """Write a shard with the captions of another one: its images keep their names and lose their content.

    `stream`: a tar file, plain or compressed, which is read from start to end. `text`: ending of the members with
    captions, or key of their JSON. `name`: of the shard, for errors.
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
    """Yield key, ending and content of every member, in file order; None for the content of endings not wanted.

    `path`: a tar file, or its name if it is read from a stream.
    """
    try:
        with (
            tarfile.open(fileobj=stream, mode="r|*", tarinfo=_Header)
            if stream
            else tarfile.open(check_regular(path), tarinfo=_Header) as tar
        ):
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


def _record(
    key: str, sample: dict[str, bytes | None], params: IngestParams, where: str, bad: Bad
) -> dict[str, Any] | None:
    """Return the JSON of a sample with its caption as TEXT; None if it has none, or the JSON is damaged."""
    record: dict[str, Any] = {}
    if (body := sample.get("json")) is not None:
        try:
            found = parse_json("".join(decode([body], params.encoding, f"{where}.json")), f"{where}.json")
            record = found if isinstance(found, dict) else {"captions": found}
        except CheckError as error:
            if error.todo:  # the encoding is another one
                raise
            bad("JSON of a sample that does not parse", str(error))
            return None
    text = params.text_column
    ending, names = text or "txt", (text,) if text else usual_texts(record)
    if (body := sample.get(ending)) is not None and ending not in record:
        caption = "".join(decode([body], params.encoding, f"{where}.{ending}"))
        about = ABOUT.fullmatch(f"{key.rpartition('/')[2]}.{ending}") or form_of_text(caption) == "csv"
        if len(sample) == 1 and about:
            bad("text that is not of one image", f"{where}.{ending}")
            return None
        return {**record, TEXT: captions_of_text(caption)}
    paths = [steps for name in names if (steps := parse_path(name, record)) and steps[0] in record]
    if not paths:
        bad("sample without a caption", f"{where}: it has {', '.join([*sample, *record])}; name one by --text-column")
        return None
    captions = [walk(record, steps) for steps in paths]
    return {**record, TEXT: captions[0] if len(captions) == 1 else captions}


def captions_of_text(text: str) -> str | list[str]:
    """Return the captions of a text file of an image: each line that is not blank."""
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
    return lines if len(lines) > 1 else "".join(lines)
