"""Hostile files: what a command is given, its exit code, and the name at fault that its message must hold."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

RECORD = {"caption_id": "1", "image_id": "1", "text": "a dog", "split": "test"}
HEAD = b"caption_id,image_id,text,split\n"


def _line(**changed: Any) -> bytes:
    good = json.dumps(RECORD | {"caption_id": "0"})
    return f"{good}\n{json.dumps(RECORD | changed)}\n".encode()


def _parquet(**columns: Any) -> bytes:
    body = io.BytesIO()
    pq.write_table(pa.table({name: pa.array([value]) for name, value in RECORD.items()} | columns), body)
    return body.getvalue()


def numpy_file(array: Any, allow_pickle: bool = False) -> bytes:
    """Return an array as the bytes of a .npy file."""
    body = io.BytesIO()
    np.save(body, array, allow_pickle=allow_pickle)
    return body.getvalue()


def _tar(*members: tuple[str, bytes]) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return body.getvalue()


def _karpathy(**changed: Any) -> bytes:
    sentence = {"sentid": 1, "raw": "a dog", "tokens": ["a", "dog"]}
    image = {"filename": "1.jpg", "imgid": 1, "split": "test", "sentences": [sentence], "sentids": [1]} | changed
    return json.dumps({"images": [image], "dataset": "mine"}).encode()


# Case to the captions' file, its content, and the name at fault.
INGEST: dict[str, tuple[str, bytes, str]] = {
    "empty": ("a.jsonl", b"\n\n", "a.jsonl"),
    "not json": ("a.jsonl", b"{\n", "a.jsonl:1"),
    "deep": ("a.jsonl", _line() + b"[" * 100_000 + b"\n", "a.jsonl:3"),
    "digits": ("a.jsonl", b'{"caption_id": ' + b"9" * 5000 + b"}\n", "a.jsonl:1"),
    "id of a list": ("a.jsonl", _line(caption_id=[1]), "a.jsonl:2"),
    "surrogate": ("a.jsonl", _line(text="\ud800"), "a.jsonl:2"),
    "blank text": ("a.jsonl", _line(text=" \u2003"), "a.jsonl:2"),
    "unknown split": ("a.jsonl", _line(split="../x"), "../x"),
    "same id twice": ("a.jsonl", _line(caption_id="0"), "mine:0"),
    "not utf-8": ("a.jsonl", _line() + b'{"text": "\xff"}\n', "a.jsonl:3"),
    "long field": ("a.csv", HEAD + b"1,1," + b"x" * 200_000 + b",test\n", "a.csv:2"),
    "missing field": ("a.csv", HEAD + b"1,1\n", "a.csv:2"),
    "no such column": ("a.csv", b"a,b\n1,2\n", "a.csv"),
    "no archive": ("a.jsonl.gz", b"x", "a.jsonl.gz"),
    "cut archive": ("a.jsonl.gz", gzip.compress(_line() * 99, mtime=0)[:-9], "a.jsonl.gz"),
    "no parquet": ("a.parquet", b"PAR1" * 9, "a.parquet"),
    "ids of floats": ("a.parquet", _parquet(caption_id=pa.array([1.5])), "caption_id"),
    "texts of bytes": ("a.parquet", _parquet(text=pa.array([b"\xff"])), "text"),
    "no images": ("a.json", b'{"images": []}', "a.json"),
    "sentence of a number": ("a.json", _karpathy(sentences=[7]), "a.json"),
    "split of a number": ("a.json", _karpathy(split=7), "a.json"),
    "no tar": ("a.tar", b"x" * 600, "a.tar"),
    "image without caption": ("a.tar", _tar(("1.jpg", b"x")), "a.tar"),
    "json of a list": ("a.tar", _tar(("1.jpg", b"x"), ("1.json", b"[1]")), "a.tar"),
}

ENCODE = ("encode", "--dataset", "two", "--split", "test", "--label", "given", "--set")
CIDER = "sources={given: {source: cider, tokenizer: lower_split}}"
VECTORS = (*ENCODE, "sources={given: {source: precomputed, captions: v.npy}}")
WORDS = (*ENCODE, "sources={given: {source: cbow, vectors: w.txt, tokenizer: lower_split}}")
JUDGED = ("correlate", "--dataset", "two", "--on", "j.jsonl", "--label", "given", "--set", CIDER)
# Group to the file that a command reads, the command, and case to content and name at fault.
READ: dict[str, tuple[str, tuple[str, ...], dict[str, tuple[bytes, str]]]] = {
    "vectors": ("v.npy", VECTORS, {
        "pickle": (numpy_file(np.array([{}, {}], object), allow_pickle=True), "v.npy"),
        "nan": (numpy_file(np.array([[1.0, np.nan], [1.0, 0.0]], np.float32)), "v.npy"),
        "zero": (numpy_file(np.zeros((2, 2), np.float32)), "v.npy"),
        "too few": (numpy_file(np.ones((1, 2), np.float32)), "v.npy"),
        "texts": (numpy_file(np.array([["a"], ["b"]])), "v.npy"),
        "cut": (numpy_file(np.ones((2, 200), np.float32))[:-5], "v.npy"),
        "header": (b"\x93NUMPY\x01\x00v\x00{" + b"(" * 117 + b"\n", "v.npy"),
    }),
    "words": ("w.txt", WORDS, {
        "infinite": (b"a 1 2\ndog inf 1\n", "w.txt, line 2"),
        "shorter line": (b"a 1 2\ndog 1\n", "w.txt, line 2"),
        "no vectors": (b"", "w.txt"),
    }),
    "judged": ("j.jsonl", JUDGED, {
        "no human": (b'{"reference": "a", "candidate": "b"}\n', "j.jsonl:1"),
        "nan": (b'{"reference": "a", "candidate": "b", "human": NaN}\n', "j.jsonl:1"),
        "empty reference": (b'{"reference": [], "candidate": "b", "human": 1}\n', "j.jsonl:1"),
        "empty": (b"", "j.jsonl"),
    }),
}  # fmt: skip


def run_all(relabel: Callable[..., Any], folder: Path) -> dict[str, dict[str, Any]]:
    """Run each case in `folder`; return exit code and whether one line of stderr holds the name at fault."""
    found = {}

    def case(name: str, fault: str, *arguments: str) -> None:
        result = relabel(*arguments)
        found[name] = {"exit code": result.code, "named": fault in result.err + result.out, "fault": fault}

    for name, (file, body, fault) in INGEST.items():
        place = folder / "hostile" / name.replace(" ", "-") / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body)
        more = ["--format", "karpathy"] if file.endswith(".json") else []
        path = str(place.relative_to(folder))
        case(
            f"ingest/{name}",
            fault,
            "ingest",
            "--dataset",
            "mine",
            "--path",
            path,
            "--set",
            "ingest.bad_records=error",
            *more,
        )
    (folder / "two.csv").write_bytes(HEAD + b"1,1,a dog,test\n2,2,the dog,test\n")
    relabel("ingest", "--dataset", "two", "--path", "two.csv")
    (folder / "v.ids.txt").write_text("1\n2\n")
    for group, (file, command, cases) in READ.items():
        for name, (body, fault) in cases.items():
            (folder / file).write_bytes(body)
            case(f"{group}/{name}", fault, *command)
    # An exported file with one changed byte, and a model folder with pickled weights.
    relabel(*ENCODE, CIDER)
    relabel("export", "lookup", *ENCODE[1:], CIDER)
    for file in sorted((folder / "labels/two/exports/test/lookup/given").glob("*.npy"))[:1]:
        file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
        case("verify/changed byte", file.name, "verify", "labels/two")
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "bert", "auto_map": {"AutoModel": "evil.Model"}}')
    (model / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    case("model/code and pickle", "model", *ENCODE, "sources={given: {source: sbert, model: model}}")
    return found
