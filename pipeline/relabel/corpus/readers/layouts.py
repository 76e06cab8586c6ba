"""Layouts: where records hold images, captions, ids and splits, and the forms of JSON that hold records.

A layout is recognised by usual names, in any case and without surrounding spaces. Parameters name each part.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from relabel.core.errors import CheckError, choices
from relabel.core.parameters import short
from relabel.corpus.params import IngestParams, Split
from relabel.corpus.readers.containers import Bad, Record, Step, walk
from relabel.corpus.splits import split_of

TEXT_NAMES = (
    *("text", "caption", "captions", "sentences", "sentence", "raw", "title", "comment", "description"),
    *("caption_str", "captions_str", "raw_caption", "alt_text", "query_text", "txt"),
    *("texts", "descriptions", "comments", "alt"),
)
IMAGE_NAMES = (
    *("image_id", "img_id", "cocoid", "filename", "file_name", "filepath", "image_path", "image", "image_name"),
    *("image_file", "image_key", "image_ids", "images", "img", "img_name", "video_id", "imgid", "photo_id", "photo"),
    *("video", "img_path", "image_filename", "imagename", "imageid", "path", "file"),
    # A key may be that of a caption, and a URL that of several videos.
    *("url", "key", "image_url", "image_urls"),
)
CAPTION_ID_NAMES = ("caption_id", "sentids", "sentid", "sen_id")
SPLIT_NAMES = ("split", "set_name", "set", "partition", "subset")
"""Names that are tried, in this order, for a column that is not named."""
KEY, TEXT = "name of the sample", "text of the sample"
"""Names of the key and the caption of a sample in a record that a reader makes of it."""
STATUS = "status"
"""Column of img2dataset's metadata that tells whether the image was downloaded."""
_NUMBERED = re.compile(r"(text|caption|sentence|comment|description|raw)s?[_ -]?\d+")
_LIST = re.compile(
    r"""\[\s*(u?['"]|[\[{(]|\]\s*$|(None|nan|null)\s*[,\]])|([({]\s*u?['"].*['"]\s*,?\s*[)}]|array\(.*\))\s*$""",
    re.DOTALL,
)
_ARRAY = re.compile(r"array\((.*?)(,\s*dtype=\S+)?\)\s*", re.DOTALL)
_QUOTED = re.compile(r"""u?('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|None|nan|null)(\s*,\s*|\s+|$)""", re.DOTALL)
_ITEM = re.compile(r"""'[^']*'|"[^"]*"|[^\s,\[\]()]+""")


@dataclass(frozen=True)
class Columns:
    """Paths of the parts of a record. None takes the first of the usual names that exists.

    `caption_id`: strings or whole numbers; lists of them where captions are lists. Without such a column, or with "",
        ids are ``IMAGE#0``, ``IMAGE#1``, ... in the order of the file.
    `image_id`: strings, whole numbers, or lists of them for a text of several images.
    `text`: captions, or lists of captions of one image; several names stand for a list.
    `split`: without such a column, all captions are of `in_split`, or train.
    `in_split`: split of every caption; no column is read.
    `image_per_row`: whether each row is an image, named by its split and its number there: `train-0`.
    `status`: whether the image was downloaded.
    `unique`: whether each record is an image of its own, whose name no other record may have.
    """

    caption_id: str | None = None
    image_id: str | None = None
    text: tuple[str, ...] = ()
    split: str | None = None
    in_split: Split | None = None
    image_per_row: bool = False
    status: str | None = None
    unique: bool = False

    @classmethod
    def given(cls, params: IngestParams) -> Columns:
        """Return the columns that the parameters name."""
        text = (params.text_column,) if params.text_column else ()
        named = (params.caption_id_column, params.image_id_column, text, params.split_column)
        return cls(*named, params.in_split, params.image_per_row)

    def find(self, example: Mapping[str, Any], where: str, hint: str = "", annotations: bool = False) -> Columns:
        """Return the columns of records. `example`: values by name. `annotations`: whether `id` names captions."""

        def column(option: str, given: str | None, usual: Sequence[str], required: str = "") -> str | None:
            # A name that the user gave must exist, even where a usual column would do.
            if name := (_named(given, example) if given else _usual(usual, example, option == "text")):
                return name
            if not (given or required):
                return None
            problem = f"no column {given!r}" if given else f"no column of {required}"
            todo = _describe(example, given or usual[0], option)
            todo += "" if given else f" Name the column with --{option}-column NAME."
            # A table of captions alone often has no image ids because each row is one image.
            todo += " If every row is an image, give --image-per-row." if option == "image-id" else ""
            raise CheckError(problem, where=where, todo=todo + hint)

        text = self._texts(example) or (str(column("text", ",".join(self.text) or None, TEXT_NAMES, "captions")),)
        image = None if self.image_per_row else column("image-id", self.image_id, IMAGE_NAMES, "image ids")
        # Sentences of one record have ids beside their texts.
        inner = text[0].rpartition("[].")[0]
        beside = walk(example, [*parse_path(inner, example), 0]) if inner else None
        ids = [*CAPTION_ID_NAMES, *(["id"] if annotations and image != "id" else [])]
        caption_id = "" if self.caption_id == "" else column("caption-id", self.caption_id, ids) or ""
        if self.caption_id is None and isinstance(beside, dict):
            sentence_id = _usual(ids, beside)
            caption_id = f"{inner}[].{sentence_id}" if sentence_id else ""
        record = example.get(image) if image else None
        unique, status = isinstance(record, dict), None
        if image and isinstance(record, dict):
            if "path" not in record:
                todo = "Name a field with --image-id-column, or give --image-per-row if every row is an image."
                raise CheckError(f"{image!r} is an object", where=where, todo=f"It has {', '.join(record)}. {todo}")
            image = f"{image}.path"
        names = {_normal(name): name for name in example}
        if {"key", STATUS} <= set(names):
            # Urls may repeat; keys are those of samples.
            status, image = names[STATUS], (image if self.image_id or self.image_per_row else names["key"])
            unique = image == names["key"]
        split = None if self.in_split else column("split", self.split, SPLIT_NAMES)
        in_split = self.in_split or (None if split else "train")
        return Columns(caption_id, image, text, split, in_split, self.image_per_row, status, unique)

    def _texts(self, example: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the columns of captions; none if they are not found."""
        if self.text:
            whole = _named(self.text[0], example)
            given = self.text if len(self.text) > 1 else self.text[0].split(",")
            found = [whole] if whole and len(self.text) == 1 else [_named(name, example) for name in given]
            return tuple(name for name in found if name) if None not in found else ()
        plain = _usual(TEXT_NAMES, example, True)
        numbered = [name for name in example if _NUMBERED.fullmatch(_normal(name))]
        numbered.sort(key=lambda name: int(re.findall(r"\d+", name)[-1]))
        if plain is None:
            return tuple(numbered)
        # The first of several captions often has no number.
        return plain, *(name for name in numbered if _normal(name).startswith(_normal(plain)))

    def paths(self, example: Mapping[str, Any]) -> list[list[Step]]:
        """Return the paths of image, caption id, split, status and captions; an empty one for what records lack."""
        named = (self.image_id, self.caption_id, self.split, self.status, *self.text)
        return [parse_path(name, example) if name else [] for name in named]

    def describe(self, example: Mapping[str, Any]) -> str:
        """Describe columns for the lines that `relabel ingest` prints."""
        if not self.text:
            return "no records"

        def shown(*names: str | None) -> str:
            return ", ".join(f"{name}" if name in (KEY, TEXT) else f"column {name}" for name in names)

        image = "one per row" if self.image_per_row else shown(self.image_id)
        ids = shown(self.caption_id) if self.caption_id else "image and position"
        splits = f"all {self.in_split}" if self.split is None else shown(self.split)
        others = [name for name in example if _normal(name) in TEXT_NAMES and name not in self.text[0]]
        unread = f" (not read: {shown(*others)})" if others and self.text[0] in example else ""
        return f"images: {image}; captions: {shown(*self.text)}{unread}; caption ids: {ids}; splits: {splits}"


KARPATHY = Columns("sentences[].sentid", KEY, ("sentences[].raw",), "split", unique=True)
"""Columns of `dataset_coco.json`, `dataset_flickr30k.json` and their like."""


def parse_path(text: str, example: Mapping[str, Any]) -> list[Step]:
    """Return the steps of a path such as ``answers[].text``; a name that exists is one step, whatever it holds."""
    if text in example:
        return [text]
    root = max((name for name in example if re.match(re.escape(name) + r"[.\[]", text)), key=len, default="")
    steps: list[Step] = [root] if root else []
    for name, number in re.findall(r"([^.\[\]]+)|\[(\d*)\]", text[len(root) :]):
        steps.append(name or (int(number) if number else None))
    return steps


def _normal(name: str) -> str:
    return re.sub(r"[\s/-]+", "_", name.strip().lower())


def _named(given: str, example: Mapping[str, Any]) -> str | None:
    """Return the name or path that a user gave, as the records have it; None if they do not."""
    if given in example:
        return given
    for name in example:
        if _normal(name) == _normal(given):
            return name
    steps = parse_path(given, example)
    return given if len(steps) > 1 and steps[0] in example and _reaches(example[str(steps[0])], steps[1:]) else None


def _reaches(value: Any, steps: Sequence[Step]) -> bool:
    """Return whether a path leads to something in an example; objects may lack a name, and lists may be empty."""
    if not steps or value is None or value == []:
        return True
    if not isinstance(steps[0], str):
        return isinstance(value, list) and _reaches(value[min(steps[0] or 0, len(value) - 1)], steps[1:])
    return isinstance(value, dict) and (steps[0] in value) and _reaches(value[steps[0]], steps[1:])


def _usual(usual: Sequence[str], example: Mapping[str, Any], text: bool = False) -> str | None:
    """Return the first usual name of records, as they write it. `text`: whether it must hold texts."""
    names: dict[str, str] = {}
    for name in example:
        names.setdefault(_normal(name), name)
    existing = [names[name] for name in usual if name in names]
    for name in existing:
        value = example[name]
        if not text or value is None or isinstance(value, str) or value == []:
            return name
        if isinstance(value, list) and isinstance(value[0], dict):
            if inner := _usual(usual, value[0], text):
                return f"{name}[].{inner}"
        elif isinstance(value, list) and (value[0] is None or isinstance(value[0], str)):
            return name
    # A column of numbers is an error that says so.
    return next((name for name in existing if not isinstance(example[name], dict | list)), None)


def usual_text(example: Mapping[str, Any]) -> str | None:
    """Return the usual name of captions in a record."""
    return _usual(TEXT_NAMES, example, True)


def _fields(value: Any) -> tuple[str, list[str]]:
    """Return ``[]`` for a list of objects, and the names in an object or in the first one of a list."""
    inner = value[0] if isinstance(value, list) and value else value
    return "[]" * isinstance(value, list), [str(name) for name in inner] if isinstance(inner, dict) else []


def _describe(example: Mapping[str, Any], given: str, option: str) -> str:
    """Return the names in records, and how to name a field inside one of them."""
    nested = {name: _fields(value) for name, value in example.items()}
    names = [f"{name}{mark}.{{{', '.join(inner)}}}" if inner else name for name, (mark, inner) in nested.items()]
    advice = choices(given, names)
    for name, (mark, inner) in nested.items():
        if inner:
            path = f"{name}{mark}.{usual_text(dict.fromkeys(inner)) or inner[-1]}"
            return f"{advice} A path reaches into objects, and lists ([0] is the first): --{option}-column '{path}'."
    return advice


def usual_roles(names: Sequence[str]) -> int:
    """Return how many of image and text some names of columns are usual for."""
    example = dict.fromkeys(names)
    return sum(_usual(usual, example) is not None for usual in (TEXT_NAMES, IMAGE_NAMES))


def as_list(text: str, where: str) -> list[str | None] | None:
    """Return the captions of a list that Python, numpy or JSON wrote as a text; None for any other text."""
    if not _LIST.match(text):
        return None
    array = _ARRAY.fullmatch(text)
    body, items = (array[1] if array else text).strip(), list[str | None]()
    at, end = len(body) - len(body[1:].lstrip()), len(body[:-1].rstrip())
    while at < end or body[-1] not in "])}":
        if body[-1] not in "])}" or (one := _QUOTED.match(body, at, end)) is None:
            todo = "Mend it, or give --set ingest.lists=false if brackets are part of the captions."
            raise CheckError(f"looks like a list of captions and is none: {short(text)}", where=where, todo=todo)
        items.append(_unquoted(one[1]) if one[1][0] in "'\"" else None)
        at = one.end()
    return items


def _unquoted(text: str) -> str:
    for parse in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError):
            return str(parse(text))
    return text[1:-1]


def listed(text: str) -> list[str]:
    """Return the ids in a list that was written as a text."""
    return [item.strip("'\"") for item in _ITEM.findall(text)]


def records_of(body: Any, name: str, records: str | None, bad: Bad) -> tuple[Iterator[Record], str]:
    """Return the records of a JSON file, and the key that holds them, or "".

    A list of objects or of pairs of an image and a caption; lists of objects under keys, of which one holds the
    captions; columns of equal length; one object per image name; any of these for each split.
    """
    place = "record "
    if records:
        body, place = walk(body, parse_path(records, {})), f"{records} "
        if body is None:
            raise CheckError(f"no {records!r} in this file", where=name, todo="Name another --set ingest.records=KEY.")
    if isinstance(body, dict):
        if body and all(split_of(key, {}) and isinstance(value, list | dict) for key, value in body.items()):
            return _of_splits(body, name, bad), ""
        lists = {k: v for k, v in body.items() if isinstance(v, list) and v and isinstance(v[0], dict)}
        if lists:
            texts = [key for key, value in lists.items() if _usual(TEXT_NAMES, value[0], True)] or list(lists)[:1]
            both = [key for key in texts if _usual(IMAGE_NAMES, lists[key][0])]
            if len(texts) == sum(map(bool, body.values())) > 1 and not both:
                records_by_image = [{"image": image, **one} for image, value in lists.items() for one in value]
                return _objects(records_by_image, place, name, bad), ""
            chosen = texts if len(texts) == 1 else ["annotations"] if "annotations" in texts else both
            if len(chosen) != 1:
                todo = "Name one with --set ingest.records=KEY."
                raise CheckError(f"captions under several keys: {', '.join(texts)}", where=name, todo=todo)
            others = [value for other, value in lists.items() if other != chosen[0]]
            return _objects(_with_splits(lists[chosen[0]], others), f"{chosen[0]}[", name, bad), chosen[0]
        inner = [v for v in body.values() if isinstance(v, dict) and any(holds_captions(x) for x in v.values())]
        if len(inner) == 1:
            return records_of(inner[0], name, None, bad)
        body = _of_object(body, name)
    if not isinstance(body, list):
        raise CheckError(f"expected objects, found {type(body).__name__}", where=name)
    return _objects(body, place, name, bad), ""


def holds_captions(value: Any) -> bool:
    """Return whether a value is a list of records with captions and images."""
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, dict) and usual_roles(list(first)) == 2


def _objects(body: Sequence[Any], place: str, name: str, bad: Bad) -> Iterator[Record]:
    end = "]" if place.endswith("[") else ""
    for n, record in enumerate(body):
        if isinstance(record, dict):
            yield f"{place}{n}{end}", record
        elif isinstance(record, list) and len(record) == 2 and not isinstance(record[0], list | dict):
            yield f"{place}{n}{end}", {"image": record[0], "caption": record[1]}
        else:
            bad("not a JSON object", f"{name}: {place}{n}{end}: found {type(record).__name__}")


def karpathy_images(rows: Iterator[Record]) -> Iterator[Record]:
    """Name the images of Karpathy's files: by `cocoid`, else by the stem of `filename`."""
    for number, record in rows:
        name = record.get("cocoid", PurePosixPath(str(record.get("filename", ""))).stem)
        yield number, {**record, KEY: name}


def _of_splits(bodies: Mapping[str, Any], name: str, bad: Bad) -> Iterator[Record]:
    for key, body in bodies.items():
        for number, record in records_of(body, name, None, bad)[0] if body else ():
            yield f"{key}: {number}", {"split": key, **record}


def _with_splits(body: Sequence[Any], others: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return records with the split of their image or video, which another list of the file may hold."""
    first = body[0]
    for other in others:
        image = _usual(IMAGE_NAMES, first)
        key = image if image in other[0] else "id"
        split = _usual(SPLIT_NAMES, other[0])
        if image and split and key in other[0] and _usual(SPLIT_NAMES, first) is None:
            splits = {one.get(key): one.get(split) for one in other if isinstance(one, dict)}
            return [{**one, "split": splits.get(one.get(image))} if isinstance(one, dict) else one for one in body]
    return body


def _of_object(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the records of an object without lists of objects."""
    if {"columns", "data"} <= set(body) and all(isinstance(body[key], list) for key in ("columns", "data")):
        return [dict(zip(body["columns"], row, strict=False)) for row in body["data"] if isinstance(row, list)]
    if all(_usual(names, body) for names in (TEXT_NAMES, IMAGE_NAMES)):
        columns = {key: list(value.values()) if isinstance(value, dict) else value for key, value in body.items()}
        columns = {key: value for key, value in columns.items() if isinstance(value, list)}
        if not columns or _usual(TEXT_NAMES, columns) is None or _usual(IMAGE_NAMES, columns) is None:
            return [dict(body)]
        if len({len(value) for value in columns.values()}) > 1:
            sizes = ", ".join(f"{key} {len(value):,}" for key, value in columns.items())
            raise CheckError(f"columns of different lengths: {sizes}", where=name)
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if not any(isinstance(value, str | list | dict) and value for value in body.values()):
        todo = f"{choices('annotations', body)} Name the key of the records with --set ingest.records=KEY."
        raise CheckError("no records", where=name, todo=todo)
    if any(isinstance(value, dict) for value in body.values()):
        return [{"image": key, **value} if isinstance(value, dict) else value for key, value in body.items()]
    return [{"image": key, "caption": value} for key, value in body.items()]
