"""Readers under test, each with the good files that mutations start from."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save
from tests.drills.damage import READERS
from tests.golden.hostile import _tar as tar_of
from tests.golden.hostile import numpy_file

from relabel import stages
from relabel.core.errors import RelabelError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.params import Format, IngestParams
from relabel.corpus.readers import open_input
from relabel.corpus.readers.coco import FILES, coco_files, read_coco
from relabel.corpus.splits import coco_test_captions
from relabel.datasets.evaluation_sets.stsb import read_stsb
from relabel.judge.eccv import read_positives
from relabel.sources.models.checks import check_model_folder
from relabel.sources.precomputed.files import read_vector_file
from relabel.sources.words.vectors import WordVectorsFile, read_word_vectors
from relabel.stages import Session
from relabel.store.manifest import MANIFEST, read_manifest
from relabel_train.features import open_features
from relabel_train.lookup import LookupFileError

RECORDS = [
    {"caption_id": 10 * i + j, "image_id": i, "text": f"a dog, number {j}, «ça» on street {i}", "split": split}
    for i, split in enumerate(["train", "train", "val", "test"])
    for j in range(2)
]
VECTORS = np.random.default_rng(0).normal(size=(len(RECORDS), 6)).astype(np.float32)
REFUSALS = (LookupFileError, FileNotFoundError)  # those of the thin package
NAMES = [f"n{i}" for i in range(len(VECTORS))]


@dataclass(frozen=True)
class Input:
    """Good files by name, what reads a folder of them, files that are never changed, and errors that it may raise."""

    files: dict[str, bytes]
    read: Callable[[Path], Any]
    fixed: tuple[str, ...] = ()
    errors: tuple[type[Exception], ...] = (RelabelError,)


def dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def corpus(path: Path, form: Format | None = None, **params: Any) -> Corpus:
    # A caption that damage left out is a caption that is missing in silence.
    read = IngestParams(dataset="d", format=form, path=path, bad_records="error", **params)
    return Corpus.from_captions(open_input(read, Runtime()).read())


def coco() -> Input:
    files = {}
    for name, images in zip(FILES, ([0, 1], [2, 3]), strict=True):
        records = [r for r in RECORDS if r["image_id"] in images]
        captions = [{"id": r["caption_id"], "image_id": r["image_id"], "caption": r["text"]} for r in records]
        files[name] = dumped({"images": [{"id": i} for i in images], "annotations": captions})

    def read(folder: Path) -> Corpus:
        train_alone = lambda _, ids: dict.fromkeys(ids.tolist(), "train")  # noqa: E731
        return Corpus.from_captions(read_coco(coco_files(folder), train_alone))

    return Input(files, read)


def karpathy() -> Input:
    sentences = [{"raw": r["text"], "sentid": r["caption_id"]} for r in RECORDS]
    images = [{"filename": f"{i}.jpg", "split": "train", "sentences": sentences[2 * i : 2 * i + 2]} for i in range(4)]
    content = dumped({"images": images})
    return Input({"a.json": content}, lambda f: corpus(f / "a.json", "karpathy"))


def table(name: str, content: bytes, form: Format) -> Input:
    def read(folder: Path) -> Corpus:
        return corpus(folder / name, form)

    return Input({name: content}, read)


def recognised(name: str, content: bytes) -> Input:
    return Input({name: content}, lambda f: corpus(f / name))


def csv_text(rows: list[list[Any]]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()


def parquet(columns: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def scan(ids: Any) -> Input:
    lines = "".join(f"{r['text']}\n" for r in RECORDS).encode()
    names = "".join(f"{r[f'{ids}_id']}\n" for r in RECORDS).encode()

    def read(folder: Path) -> Corpus:
        return corpus(folder, "scan", ids=ids, captions_per_image=2)

    return Input({"test_caps.txt": lines, "test_ids.txt": names}, read)


def vectors(name: str, content: bytes, ids: str | None = None, names: bytes = b"") -> Input:
    def read(folder: Path) -> Any:
        opened = read_vector_file(folder / name)
        np.asarray(opened.vectors).sum()  # reads every byte
        return opened

    return Input({name: content} | ({ids: names} if ids else {}), read)


def words(name: str, content: bytes) -> Input:
    return Input({name: content}, lambda f: read_word_vectors(WordVectorsFile.at(f / name)))


def zipped(name: str, content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return out.getvalue()


def scan_features() -> Input:
    arrays = {f"{split}_ims.npy": numpy_file(VECTORS[:, None].repeat(3, 1)) for split in ("train", "test")}
    ids = {f"{s}_ids.txt": "".join(f"{s}{n}\n" for n in NAMES).encode() for s in ("train", "test")}
    return Input(arrays | ids, lambda f: open_features(f, namespace="d"), errors=REFUSALS)


def proxy_features() -> Input:
    about = {"format": 1, "files": ["a.npy"], "image_ids": NAMES, "vectors": 3, "width": 6, "proxy": "token vectors"}
    files = {
        "features.json": dumped(about),
        "a.npy": numpy_file(VECTORS[:, None].repeat(3, 1).astype(np.float16)),
        "lengths.npy": numpy_file(np.full(len(NAMES), 2)),
    }
    return Input(files, open_features, errors=REFUSALS)


def model_folder() -> Input:
    part = "sentence_transformers.models"
    config = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 8, "num_hidden_layers": 1}
    files = {
        "modules.json": dumped(
            [
                {"idx": 0, "name": "0", "path": "", "type": f"{part}.Transformer"},
                {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{part}.Pooling"},
            ]
        ),
        "config.json": dumped(config),
        "tokenizer_config.json": dumped({"do_lower_case": True, "tokenizer_class": "BertTokenizer"}),
        "model.safetensors": save({"x": VECTORS}),
    }
    return Input(files, check_model_folder, fixed=("model.safetensors",))


JSONL = b"\n".join(map(dumped, RECORDS)) + b"\n"
CSV = csv_text([list(RECORDS[0]), *([str(v) for v in r.values()] for r in RECORDS)])
PARQUET = parquet({name: [str(r[name]) for r in RECORDS] for name in RECORDS[0]})
GLOVE = "".join(f"{n} {' '.join(f'{x:.4f}' for x in v)}\n" for n, v in zip(NAMES, VECTORS, strict=True)).encode()
WORD2VEC = f"{len(NAMES)} 6\n".encode() + GLOVE
TOKENS = "".join(f"{r['image_id']}.jpg#{n % 2}\t{r['text']}\n" for n, r in enumerate(RECORDS)).encode()
TEXTS = [[r["text"] for r in RECORDS[i : i + 2]] for i in range(0, 8, 2)]
LISTS = csv_text([["image", "captions"], *([f"{i}.jpg", str(texts)] for i, texts in enumerate(TEXTS))])
FORMS = {
    "mapping": {f"{i}.jpg": texts for i, texts in enumerate(TEXTS)},
    "annotations": {"images": [{"id": i} for i in range(4)], "annotations": [{**r, "id": 1} for r in RECORDS]},
    "columns": {"image": [f"{i}.jpg" for i in range(4)], "captions": TEXTS},
    "videos": {
        "videos": [{"video_id": r["image_id"], "split": r["split"]} for r in RECORDS],
        "sentences": [{"video_id": r["image_id"], "caption": r["text"]} for r in RECORDS],
    },
}
INPUTS: dict[str, Input] = {
    **{f"json, {name}": recognised("a.json", dumped(form)) for name, form in FORMS.items()},
    "token file": recognised("a.txt", TOKENS),
    "lists as text": recognised("a.csv", LISTS),
    "utf-16": recognised("a.bin", CSV.decode().encode("utf-16")),
    "parquet of lists": recognised("a.parquet", parquet({"image": list("abcd"), "captions": TEXTS})),
    "webdataset": recognised("a.tar", tar_of(*((f"{n}.txt", r["text"].encode()) for n, r in enumerate(RECORDS)))),
    "coco": coco(),
    "karpathy": karpathy(),
    "jsonl": table("a.jsonl", JSONL, "jsonl"),
    "jsonl.gz": table("a.jsonl.gz", gzip.compress(JSONL, mtime=0), "jsonl"),
    "json": table("a.json", dumped(RECORDS), "json"),
    "csv": table("a.csv", CSV, "csv"),
    "csv.gz": table("a.csv.gz", gzip.compress(CSV, mtime=0), "csv"),
    "parquet": table("a.parquet", PARQUET, "parquet"),
    "scan, ids of images": scan("image"),
    "scan, ids of captions": scan("caption"),
    "coco's test ids": Input({"a.npy": numpy_file(np.arange(9))}, lambda f: coco_test_captions(f / "a.npy")),
    "vectors npy": vectors("a.npy", numpy_file(VECTORS), "a.ids.json", dumped(NAMES)),
    "vectors npy, ids txt": vectors("a.npy", numpy_file(VECTORS), "a.ids.txt", "\n".join(NAMES).encode()),
    "vectors npy, ids npy": vectors("a.npy", numpy_file(VECTORS), "a.ids.npy", numpy_file(np.arange(len(NAMES)))),
    "vectors parquet": vectors("a.parquet", parquet({"id": NAMES, "vector": VECTORS.tolist()})),
    "vectors safetensors": vectors("a.safetensors", save({"x": VECTORS}), "a.ids.json", dumped(NAMES)),
    "word vectors": words("a.txt", GLOVE),
    "word vectors, header": words("a.txt", WORD2VEC),
    "word vectors gz": words("a.txt.gz", gzip.compress(GLOVE, mtime=0)),
    "word vectors zip": words("a.zip", zipped("a.txt", GLOVE)),
    "sts-b": Input(
        {"a.csv": csv_text([[r["text"], f"b {i}", i / 2] for i, r in enumerate(RECORDS)])},
        lambda f: read_stsb(f / "a.csv"),
    ),
    "eccv": Input({"a.json": dumped({"1": [1, 2], "2": [3]})}, lambda f: read_positives(f / "a.json")),
    "scan features": scan_features(),
    "proxy features": proxy_features(),
    "model folder": model_folder(),
}


def manifest(session: Session) -> Input:
    content = (session.folder("corpus") / MANIFEST).read_bytes()
    return Input({MANIFEST: content}, lambda folder: read_manifest(folder, "corpus"))


def exported(kind: str, folder: Path) -> Input:
    """Return an export that is read completely."""
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    return Input(files, lambda folder: READERS[kind](folder, True), errors=REFUSALS)


def lookup(label: str, session: Session) -> Input:
    return exported("lookup", session.folder("exports", "all", "lookup", label))


def plan(session: Session) -> Input:
    job = stages.batches_export(session, "cider", "all", "fuzzed")
    job.run()
    return exported("batches", job.out)


EXPORTS: dict[str, Callable[[Session], Input]] = {
    "manifest.json": manifest,
    "lookup of vectors": partial(lookup, "cbow"),
    "lookup of features": partial(lookup, "cider"),
    "batches": plan,
}
