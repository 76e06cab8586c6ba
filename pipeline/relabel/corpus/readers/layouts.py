"""Layouts: the columns of records that hold images, captions, ids and splits, and the records of JSON files.

Columns are detected by common names, ignoring case and surrounding spaces. Parameters can name each of them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from relabel.core.errors import CheckError, choices
from relabel.core.parameters import short
from relabel.corpus.params import IngestParams
from relabel.corpus.readers.containers import Bad, Record, Step, walk
from relabel.corpus.splits import Split, split_of

TEXT_NAMES = (
    *("text", "caption", "captions", "sentences", "sentence", "raw", "title", "comment", "description"),
    *("caption_str", "captions_str", "raw_caption", "alt_text", "query_text", "txt"),
    *("texts", "descriptions", "comments", "alt"),
)
IMAGE_NAMES = (
    *("image_id", "img_id", "cocoid", "filename", "file_name", "filepath", "image_path", "image", "image_name"),
    *("image_file", "image_key", "image_ids", "images", "img", "img_name", "video_id", "imgid", "photo_id", "photo"),
    *("video", "img_path", "image_filename", "imagename", "imageid", "path", "file"),
    # Last, because a key may belong to a caption, and a URL to a page or to several videos.
    *("image_url", "image_urls", "url", "key"),
)
CAPTION_ID_NAMES = ("caption_id", "sentids", "sentid", "sen_id")
SPLIT_NAMES = ("split", "set_name", "set", "partition", "subset")
"""Common names of each column, in the order in which they are tried if the parameters do not name it."""
_FACTS = ("info", "version", "name", "license", "licenses", "author", "date", "year", "model", "dataset", "splits")
_COLUMNS = frozenset((*TEXT_NAMES, *IMAGE_NAMES, *CAPTION_ID_NAMES, *SPLIT_NAMES, *_FACTS))
KEY, TEXT = "name of the sample", "text of the sample"
"""Names that readers use in a record for the key and the caption of a sample."""
STATUS = "status"
"""Column of img2dataset's metadata with the status of the download of the image."""
OPENING = ("[", "(", "{", "array(", "Index(", "deque(")
"""Prefixes of lists that were written as text."""
ABOUT = re.compile(
    r"(readme|licen[cs]e|copying|citation|changelog)([\W_].*)?\.txt|((dataset_)?infos?|dataset_dict|state|.*_stats)\.json"
    r"|(instances|person_keypoints|stuff|panoptic|image_info)_(train|val|test|unlabeled)[\w-]*\.json",
    re.IGNORECASE,
)
"""Names of files without captions: documentation, metadata, and COCO's other annotations."""
_PICTURE = re.compile(r"\d+|\w+://\S+|(?!/).+/[^/]+|[^/]+\.[A-Za-z][A-Za-z0-9]{1,4}")
_ROW = re.compile(r"(?!\w+://)[^\s,|;]+#\d+\s|[^,|;\t]+\.(jpe?g|png|gif|webp|bmp|tiff?)[\s,|;]+\S", re.IGNORECASE)
_NUMBERED = re.compile(r"(text|caption|sentence|comment|description|raw)s?[_.#\[]*\d+\]?")
_LIST = re.compile(
    r"""\s*(\[\s*([ub]?['"]|(np|numpy)\.str_\(|[\[{(]|\]\s*$|(None|nan|null)\s*[,\]])"""
    r"""|([({]\s*u?['"].*['"]\s*,?\s*[)}]|(array|Index|deque)\(.*\))\s*$)""",
    re.DOTALL,
)
_IDS = re.compile(r"\s*\[(.*,.*|[-\d.\s]+)\]\s*", re.DOTALL)
_ARRAY = re.compile(r"\s*(?:array|Index|deque)\((.*?)(,\s*dtype=\S+)?\)\s*", re.DOTALL)
_QUOTED = re.compile(
    r"""(?:u|(?:np|numpy)\.str_\()?('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|None|nan|null|-?\d[\d.]*)\)?(\s*,\s*|\s+|$)""",
    re.DOTALL,
)


@dataclass(frozen=True)
class Columns:
    """Columns of a record, as names or paths. None selects the first common name that exists.

    `caption_id`: strings or integers, or lists of them if captions are lists. Without such a column, or with "", ids
        are ``IMAGE#0``, ``IMAGE#1``, ... in the order of the file.
    `image_id`: strings or integers, or lists of them for a caption of several images.
    `text`: captions, or lists of captions of one image. Several columns form one list.
    `split`: without such a column, all captions belong to `in_split`, by default train.
    `in_split`: split of all captions; no column is read.
    `image_per_row`: True if each row is an image, named by its split and its number within the split: `train-0`.
    `status`: status of the download of the image.
    `unique`: True if each record is a separate image. Two records with the same image are then an error.
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
        image = params.image_id_column
        if params.format in ("webdataset", "text"):
            text, image = (TEXT,), image or KEY
        named = (params.caption_id_column, image, text, params.split_column)
        return cls(*named, params.in_split, params.image_per_row)

    def find(self, example: Mapping[str, Any], where: str, header_hint: str = "", annotations: bool = False) -> Columns:
        """Find the columns of records. `example`: values by name. `annotations`: True if `id` names captions."""

        def column(option: str, given: str | None, usual: Sequence[str], required: str = "") -> str | None:
            # A name from the user must exist, even if there is a column with a common name.
            if name := (_named(given, example) if given else _usual(usual, example, option == "text")):
                return name
            if not (given or required):
                return None
            problem = f"no column {given!r}" if given else f"no column of {required}"
            hint = _describe(example, given or usual[0], option)
            hint += "" if given else f" Name the column with --{option}-column NAME."
            # Tables without image ids often have one image per row.
            hint += " If every row is an image, pass --image-per-row." if option == "image-id" else ""
            raise CheckError(problem, where=where, hint=hint + header_hint)

        text = self._texts(example) or (str(column("text", ",".join(self.text) or None, TEXT_NAMES, "captions")),)
        image = None if self.image_per_row else column("image-id", self.image_id, IMAGE_NAMES, "image ids")
        # In a list of sentences, each sentence may have its own id.
        inner = text[0].rpartition("[].")[0]
        sentence = walk(example, [*parse_path(inner, example), 0]) if inner else None
        ids = [*CAPTION_ID_NAMES, *(["id"] if annotations and image != "id" else [])]
        caption_id = "" if self.caption_id == "" else column("caption-id", self.caption_id, ids) or ""
        if self.caption_id is None and isinstance(sentence, dict):
            sentence_id = _usual(ids, sentence)
            caption_id = f"{inner}[].{sentence_id}" if sentence_id else ""
        record = example.get(image) if image else None
        unique, status = isinstance(record, dict), None
        if image and isinstance(record, dict):
            if "path" not in record:
                hint = "Name a field with --image-id-column, or pass --image-per-row if every row is an image."
                fields = ", ".join(f"{image}.{name}" for name in record)
                raise CheckError(f"{image!r} is an object", where=where, hint=f"It has {fields}. {hint}")
            image = f"{image}.path"
        names = {_normal(name): name for name in example}
        if {"key", STATUS} <= set(names):
            # In img2dataset's metadata, the key is unique, while URLs may repeat.
            status, image = names[STATUS], (image if self.image_id or self.image_per_row else names["key"])
            unique = image == names["key"]
        split = None if self.in_split else column("split", self.split, SPLIT_NAMES)
        in_split = self.in_split or (None if split else "train")
        return Columns(caption_id, image, text, split, in_split, self.image_per_row, status, unique)

    def _texts(self, example: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the columns of captions, or () if one of them is missing."""
        if self.text:
            single = _named(self.text[0], example)
            several = self.text if len(self.text) > 1 else self.text[0].split(",")
            names = [single] if single and len(self.text) == 1 else [_named(name, example) for name in several]
            return tuple(name for name in names if name) if None not in names else ()
        return usual_texts(example)

    def paths(self, example: Mapping[str, Any]) -> list[list[Step]]:
        """Return the paths of image, caption id, split, status and captions. A missing column has an empty path."""
        named = (self.image_id, self.caption_id, self.split, self.status, *self.text)
        return [parse_path(name, example) if name else [] for name in named]

    def describe(self, example: Mapping[str, Any]) -> str:
        """Describe the columns, for the output of `relabel ingest`."""
        if not self.text:
            return "no records"

        def shown(*names: str | None) -> str:
            return ", ".join(f"{name}" if name in (KEY, TEXT) else f"column {name}" for name in names)

        image = "one per row" if self.image_per_row else shown(self.image_id)
        ids = shown(self.caption_id) if self.caption_id else "image and position"
        splits = f"all {self.in_split}" if self.split is None else shown(self.split)
        texts = [name for name in example if _normal(name) in TEXT_NAMES or _NUMBERED.fullmatch(_normal(name))]
        ignored = [name for name in texts if name not in self.text and f"{name}[" not in self.text[0]]
        unread = f" (not read: {shown(*ignored)})" if ignored and self.text[0] in example else ""
        return f"images: {image}; captions: {shown(*self.text)}{unread}; caption ids: {ids}; splits: {splits}"


KARPATHY = Columns("sentences[].sentid", KEY, ("sentences[].raw",), "split", unique=True)
"""Columns of Karpathy's files, such as `dataset_coco.json` and `dataset_flickr30k.json`."""


def parse_path(text: str, example: Mapping[str, Any]) -> list[Step]:
    """Split a path such as ``answers[].text`` into its steps. The name of an existing column is a single step."""
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
    """Return the column or path of the records that matches a name from the user, or None."""
    if given in example:
        return given
    for name in example:
        if _normal(name) == _normal(given):
            return name
    steps = parse_path(given, example)
    return given if len(steps) > 1 and steps[0] in example and _reaches(example[str(steps[0])], steps[1:]) else None


def _reaches(value: Any, steps: Sequence[Step]) -> bool:
    """Return True if a path exists in an example. A missing value or an empty list may hold anything."""
    if not steps or value is None or value == []:
        return True
    if not isinstance(steps[0], str):
        return isinstance(value, list) and _reaches(value[min(steps[0] or 0, len(value) - 1)], steps[1:])
    return isinstance(value, dict) and (steps[0] in value) and _reaches(value[steps[0]], steps[1:])


def _usual(usual: Sequence[str], example: Mapping[str, Any], text: bool = False) -> str | None:
    """Return the first column with one of the common names. `text`: True if it must hold texts."""
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
    # A column of numbers is returned too; its values raise an error later.
    return next((name for name in existing if not isinstance(example[name], dict | list)), None)


def usual_texts(example: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns of captions with common names. Numbered columns, such as caption_1, are preferred."""
    plain, families = _usual(TEXT_NAMES, example, True), dict[str, list[str]]()
    for name in example:
        if match := _NUMBERED.fullmatch(_normal(name)):
            families.setdefault(match[1], []).append(name)
    first = [plain] if plain else []
    # The first of several captions often has no number.
    family = families.get(_normal(plain).removesuffix("s"), []) if plain else []
    numbered = family or max(families.values(), key=len, default=[])
    numbered.sort(key=lambda name: int(re.findall(r"\d+", name)[-1]))
    return tuple(first + family if family or (first and len(numbered) < 2) else numbered)


def _fields(value: Any) -> tuple[str, list[str]]:
    """Return ``[]`` if a value is a list, otherwise "", and the names in the object or in the list's first object."""
    inner = value[0] if isinstance(value, list) and value else value
    return "[]" * isinstance(value, list), [str(name) for name in inner] if isinstance(inner, dict) else []


def _describe(example: Mapping[str, Any], given: str, option: str) -> str:
    """Describe the names in records, with an example of a path to a nested field."""
    nested = {name: _fields(value) for name, value in example.items()}
    names = [f"{name}{mark}.{{{', '.join(inner)}}}" if inner else name for name, (mark, inner) in nested.items()]
    advice = choices(given, names)
    for name, (mark, inner) in nested.items():
        if inner:
            path = f"{name}{mark}.{_usual(TEXT_NAMES, dict.fromkeys(inner)) or inner[-1]}"
            return f"{advice} A path reaches into objects, and lists ([0] is the first): --{option}-column '{path}'."
    return advice


def form_of_text(text: str) -> str:
    """Classify a text file by its head: "csv" for a table, "names" for names of images, "text" for captions."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if _ROW.match(line) or max(usual_roles(line.split(separator)) for separator in ",\t;|") == 2:
        return "csv"
    return "names" if line and all(map(_PICTURE.fullmatch, line.split())) else "text"


def usual_roles(names: Sequence[str]) -> int:
    """Return the number of roles, of image and text, that have a column with a common name: 0, 1 or 2."""
    example = dict.fromkeys(names)
    return sum(_usual(usual, example) is not None for usual in (TEXT_NAMES, IMAGE_NAMES))


def as_list(text: str, where: str, ids: bool = False) -> list[str | None] | None:
    """Parse a list of captions that Python, numpy or JSON wrote as text; return None for any other text.

    `ids`: True if the items are ids, which may be numbers.
    """
    if not (_LIST.match(text) or (ids and _IDS.fullmatch(text))):
        return None
    array = _ARRAY.fullmatch(text)
    body, items = (array[1] if array else text).strip(), list[str | None]()
    at, end = len(body) - len(body[1:].lstrip()), len(body[:-1].rstrip())
    while at < end or body[-1] not in "])}":
        one = _QUOTED.match(body, at, end) if body[-1] in "])}" else None
        if one is None or not (ids or one[1][0] in "'\"Nn"):
            hint = "Correct it, or pass --set ingest.lists=false if brackets are part of the text."
            problem = f"looks like a list of {'ids' if ids else 'captions'}, but does not parse: {short(text)}"
            raise CheckError(problem, where=where, hint=hint)
        items.append(None if one[1][0] in "Nn" else _unquoted(one[1]))
        at = one.end()
    return items


def _unquoted(text: str) -> str:
    for parse in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError):
            return str(parse(text))
    return text[1:-1]


def records_of(body: Any, name: str, params: IngestParams, bad: Bad) -> tuple[Iterator[Record], str]:
    """Return the records of a JSON file, and the key that holds them, or "".

    A file is a list of objects or of pairs of an image and a caption, such a list under a key, columns, one record,
    captions by the names of images, or any of these by split.
    """
    place, key = "record ", ""
    if params.records:
        body, place = walk(body, parse_path(params.records, {})), f"{params.records} "
        params = params.model_copy(update={"records": None})
    if isinstance(body, list):
        return _objects(body, place, name, bad), ""
    if not isinstance(body, dict):
        hint = "Name the key of the records with --set ingest.records=KEY."
        raise CheckError(f"expected records, found {type(body).__name__}", where=f"{name}: {place}".strip(), hint=hint)
    values, split = _columns(body, name) or _by_image(body, name), body.get(_usual(SPLIT_NAMES, body) or "")
    rows = _objects(values or [body], place, name, bad)
    if not values:
        rows, key = _under_keys(body, name, params, bad) or (rows, "")
    return (((n, {"split": split, **one}) for n, one in rows) if isinstance(split, str) else rows), key


def _under_keys(
    body: Mapping[str, Any], name: str, params: IngestParams, bad: Bad
) -> tuple[Iterator[Record], str] | None:
    """Return the records in an object that has keys for splits or for one list. None if it is itself a record."""
    inner = {key: value for key, value in body.items() if isinstance(value, list | dict)}
    parts = [key for key, value in inner.items() if holds_captions(value)]
    splits = [key for key in inner if split_of(key, params.split_names)]
    if set(splits) & set(parts) or 0 < len(splits) == len(body):
        return _of_splits({key: inner[key] for key in dict.fromkeys(splits + parts)}, name, params, bad), ""
    lists = {key: value for key, value in inner.items() if isinstance(value, list) and isinstance(_head(value), dict)}
    one = isinstance(body.get(_usual(IMAGE_NAMES, body) or ""), str | int)
    if not parts and not one:
        parts = [key for key, value in lists.items() if _usual(TEXT_NAMES, value[0], True)] or list(lists)[:1]
    if not parts or (one and not set(parts) & set(lists)):
        return None
    chosen = parts[0] if len(parts) == 1 else "annotations"
    if chosen not in parts:
        hint = "Name one with --set ingest.records=KEY."
        raise CheckError(f"captions under several keys: {', '.join(parts)}", where=name, hint=hint)
    if isinstance(body[chosen], dict):
        return records_of(body[chosen], name, params, bad)
    rows = _objects(_with_splits(body, chosen, name, params), f"{chosen}[", name, bad)
    images = [image.keys() for image in body[chosen] if isinstance(image, dict)] if chosen == "images" else []
    if any({"filename", "sentences"} <= names for names in images):
        rows = _karpathy_images(rows)
    return rows, chosen


def holds_captions(value: Any) -> bool:
    """Return True if a JSON value holds images with captions, as records, as columns or by the names of images."""
    if isinstance(value, dict):
        return bool(_columns(value, "") or _by_image(value, "")) or any(map(holds_captions, value.values()))
    first = _head(value) if isinstance(value, list) else None
    # Pairs of an image and a caption, or objects with both.
    return usual_roles(list(first)) == 2 if isinstance(first, dict) else isinstance(first, list) and len(first) == 2


def _is_by_image(body: Mapping[str, Any], name: str) -> bool:
    """Return True if an object maps the names of images to captions, or to records with captions."""
    values = list(islice((value for value in body.values() if value not in ("", None, [], {})), 1000))
    # Values must be captions, lists or records of captions, and not names of files.
    heads = [(value, _head(value) if isinstance(value, list) else value) for value in values]
    texts = [one for one, v in heads if (usual_texts(v) if isinstance(v, dict) else isinstance(v, str))]
    captions = [one for one in texts if not (isinstance(one, str) and _PICTURE.fullmatch(one))]
    images = {key for key in body if _PICTURE.fullmatch(key) and not ("/" in key and _known([key]))}
    if 2 * len(images) < len(body) or 2 * len(captions) < len(values) or not values:
        # Keys without a file ending may be settings, but the values of settings rarely have several words.
        words = sum(not isinstance(value, str) or " " in value.strip() for value in captions)
        parts = any(map(holds_captions, values[:100]))
        return len(captions) == len(values) < 2 * words and not (parts or _known(body))
    if name and (other_keys := [key for key in body if key not in images]):
        problem = f"some keys are not images: {', '.join(other_keys[:5])}"
        raise CheckError(problem, where=name, hint="Remove them, or write a list of records with image and caption.")
    return True


def _known(names: Iterable[str]) -> bool:
    """Return True if any name is common for a column, or for metadata of a dataset."""
    return any(_normal(name) in _COLUMNS or split_of(name, {}) for name in names)


def _by_image(body: Mapping[str, Any], name: str) -> list[Any]:
    """Return the records of an object that maps images to captions; [] for any other object."""
    if not _is_by_image(body, name):
        return []
    text = "captions" if any(isinstance(value, list) for value in body.values()) else "caption"
    first, records = _head(body), list[Any]()
    # pandas writes row numbers as keys with orient="index".
    row_numbers = isinstance(first, dict) and _usual(IMAGE_NAMES, first) and all(map(str.isdigit, body))
    for image, value in body.items():
        inner = value if isinstance(value, list) and isinstance(_head(value), dict | None) else [value]
        named = {} if row_numbers else {"image": image}
        records += [named | one if isinstance(one, dict) else named | {text: one} for one in inner]
    return records


def _columns(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the records of an object of columns; [] for any other. Columns are equal in length or have equal keys."""
    if isinstance(body.get("columns"), list) and isinstance(body.get("data"), list):
        # pandas writes this with orient="split".
        names = list(map(str, body["columns"]))
        return [dict(zip(names, row, strict=False)) for row in body["data"] if isinstance(row, list)]
    heads = {key: _head(value) for key, value in body.items()}
    image, texts = _usual(IMAGE_NAMES, body) or "", usual_texts(heads)
    kind: Any = type(body.get(image))
    columns = {key: value for key, value in body.items() if isinstance(value, kind)}
    if kind not in (list, dict) or not texts or not set(texts) <= set(columns) or isinstance(heads[image], dict):
        return []
    if kind is list:
        columns = {key: dict(enumerate(value)) for key, value in columns.items()}
    for key, value in columns.items():
        if value.keys() != columns[image].keys():
            raise CheckError(f"columns {image} and {key} have different keys or lengths", where=name)
    return [{key: value[row] for key, value in columns.items()} for row in columns[image]]


def _head(value: Any) -> Any:
    """Return the first value of a list or object; return any other value unchanged."""
    if not isinstance(value, dict | list):
        return value
    return next(iter(value.values() if isinstance(value, dict) else value), None)


def _objects(body: Sequence[Any], place: str, name: str, bad: Bad) -> Iterator[Record]:
    end = "]" if place.endswith("[") else ""
    for n, record in enumerate(body):
        if isinstance(record, dict):
            yield f"{place}{n}{end}", record
        elif isinstance(record, list) and len(record) == 2 and not isinstance(record[0], list | dict):
            yield f"{place}{n}{end}", {"image": record[0], "caption": record[1]}
        else:
            bad("not a JSON object", f"{name}: {place}{n}{end}: found {type(record).__name__}")


def _karpathy_images(rows: Iterator[Record]) -> Iterator[Record]:
    """Name the images of Karpathy's files by `cocoid`, or by the stem of `filename` if there is none."""
    for number, record in rows:
        name = record.get("cocoid", PurePosixPath(str(record.get("filename", ""))).stem)
        yield number, {**record, KEY: name}


def _of_splits(bodies: Mapping[str, Any], name: str, params: IngestParams, bad: Bad) -> Iterator[Record]:
    for key, body in bodies.items():
        for number, record in records_of(body, name, params, bad)[0] if body else ():
            yield f"{key}: {number}", {"split": key, **record}


def _with_splits(body: Mapping[str, Any], chosen: str, name: str, params: IngestParams) -> Sequence[Any]:
    """Return records with their splits. Another list of the file may hold the split of each image or video."""
    records: list[Any] = body[chosen]
    first, split = records[0], _usual(SPLIT_NAMES, body)
    if not isinstance(first, dict) or _usual(SPLIT_NAMES, first) or split or params.in_split or params.split_column:
        return records
    image = _usual(IMAGE_NAMES, first)
    for other in body.values():
        about = other[0] if isinstance(other, list) and isinstance(_head(other), dict) and other is not records else {}
        key, split = image if image in about else "id", _usual(SPLIT_NAMES, about)
        if image and split and key in about:
            splits = {str(one.get(key)): one.get(split) for one in other if isinstance(one, dict)}
            return [
                one | {"split": splits.get(str(one.get(image)))} if isinstance(one, dict) else one for one in records
            ]
    if "splits" in body:
        hint = "Write the split into each record, or set one for all with --in-split."
        raise CheckError("'splits' is not in the records, so it cannot be read", where=name, hint=hint)
    return records
