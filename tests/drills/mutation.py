"""Seeded mutation of files: of their bytes, and of the values in JSON, CSV, Parquet and .npy files."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TEXTS = [
    "",
    " ",
    "\0",
    "\ufeff",
    "\u2028",
    "\ud800",
    "\r\n",
    "9" * 5000,
    "x" * 70_000,
    "-",
    "nan",
    "../..",
    "/dev/zero",
]
NUMBERS = [0, -1, 1, 2**31, 2**32, 2**63, 2**64, -(2**63), 10**12, 10**400, 0.5, -0.0, 1e308, 5e-324]
VALUES: list[Any] = [None, True, False, [], {}, float("nan"), float("inf"), *TEXTS, *NUMBERS]
BYTES = [b"\0", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\n", b'"', b",", b"{", b"[" * 9, b"9" * 5000, b"-1"]
TYPES: list[pa.DataType] = [
    pa.float64(),
    pa.int8(),
    pa.uint64(),
    pa.large_string(),
    pa.binary(),
    pa.bool_(),
    pa.null(),
    pa.list_(pa.float64()),
    pa.large_list(pa.int16()),
    pa.struct([("a", pa.int64())]),
    pa.dictionary(pa.int8(), pa.string()),
    pa.timestamp("ns"),
    pa.date64(),
    pa.decimal128(38, 9),
    pa.float16(),
]


class Mutator:
    """Mutator of files with a seeded generator.

    Parameters
    ----------
    seed : str
        Equal seeds give equal changes.
    """

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)

    def change(self, name: str, content: bytes) -> bytes:
        """Return a changed file; most changes of a known format keep its syntax."""
        kind = name.rpartition(".")[2]
        if kind == "gz" and self.rng.random() < 0.7:
            return gzip.compress(self.change(name.removesuffix(".gz"), gzip.decompress(content)), 1, mtime=0)
        if kind == "zip" and self.rng.random() < 0.5:
            return self._zip(content)
        structured: Callable[[bytes], bytes] | None = {
            "json": self._json,
            "jsonl": self._json_lines,
            "csv": self._csv,
            "parquet": self._parquet,
            "npy": self._npy,
        }.get(kind)
        if structured is not None and self.rng.random() < 0.6:
            return structured(content)
        for _ in range(self.rng.choice((1, 1, 1, 2, 5))):
            content = self._bytes(content)
        return content

    def _bytes(self, content: bytes) -> bytes:
        rng, size = self.rng, len(content)
        at = rng.randrange(size + 1)
        stop = min(size, at + rng.choice((1, 2, 8, 64, 1000)))
        change = rng.randrange(8)
        if change == 0 and at < size:
            return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
        if change == 1:
            return content[:at]
        if change == 2:
            return content[:at] + rng.choice(BYTES) + content[at:]
        if change == 3:
            return content[:at] + rng.choice(BYTES) + content[stop:]
        if change == 4:
            return content[:at] + content[stop:]
        if change == 5:
            start = rng.randrange(size + 1)
            return content[:at] + content[start : start + stop - at] + content[at:]
        if change == 6:
            number = rng.choice((0, 1, 255, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63, 2**64 - 1))
            packed = struct.pack(rng.choice("<>") + "Q", number)[: rng.choice((1, 2, 4, 8))]
            return content[:at] + packed + content[at + len(packed) :]
        return content + rng.randbytes(rng.choice((1, 10, 1000)))

    def value(self, body: Any) -> Any:
        """Return a copy of nested values with one of them changed, removed, doubled or wrapped."""
        if isinstance(body, dict) and body and self.rng.random() < 0.9:
            key = self.rng.choice(list(body))
            change = self.rng.randrange(6)
            if change == 0:
                return {k: v for k, v in body.items() if k != key}
            if change == 1:
                return {
                    self.rng.choice(["", "\0", "9" * 5000, "source"]) if k == key else k: v for k, v in body.items()
                }
            return body | {key: self.value(body[key])}
        if isinstance(body, list) and body and self.rng.random() < 0.9:
            at, change = self.rng.randrange(len(body)), self.rng.randrange(6)
            if change == 0:
                return body[:at] + body[at + 1 :]
            if change == 1:
                return body[: at + 1] + body[at:]
            return [*body[:at], self.value(body[at]), *body[at + 1 :]]
        change = self.rng.randrange(10)
        if change == 0:
            for _ in range(self.rng.choice((1, 50, 400))):
                body = [body]
            return body
        if isinstance(body, str) and change < 4:
            at = self.rng.randrange(len(body) + 1)
            return body[:at] + self.rng.choice(TEXTS) + body[at:]
        if isinstance(body, int | float) and change < 4:
            return -body if change == 1 else body + self.rng.choice((1, 0.5, 10**6)) if change == 2 else str(body)
        return self.rng.choice(VALUES)

    def _json(self, content: bytes) -> bytes:
        text = _dumps(self.value(json.loads(content)))
        if self.rng.random() < 0.1:
            text = text.replace(":", f": {'[' * 3000}", 1)
        return text.encode(errors="surrogatepass")

    def _json_lines(self, content: bytes) -> bytes:
        lines = content.split(b"\n")
        at = self.rng.randrange(max(1, len(lines) - 1))
        lines[at] = self._json(lines[at])
        return self.rng.choice((b"\n", b"\n", b"\r\n", b"\n\n")).join(lines)

    def _csv(self, content: bytes) -> bytes:
        rows = list(csv.reader(io.StringIO(content.decode(), newline="")))
        at = self.rng.randrange(len(rows))
        rows[at] = [str(cell) for cell in _as_list(self.value(rows[at]))]
        out = io.StringIO(newline="")
        csv.writer(out, lineterminator=self.rng.choice(("\n", "\r\n", "\r"))).writerows(rows)
        return out.getvalue().encode(errors="surrogatepass")

    def _parquet(self, content: bytes) -> bytes:
        table = pq.read_table(io.BytesIO(content))
        at, change = self.rng.randrange(table.num_columns), self.rng.randrange(6)
        name, column = table.column_names[at], table.column(at)
        if change == 0:
            table = pa.Table.from_arrays([*table.columns, column], names=[*table.column_names, name])
        elif change == 1:
            table = table.slice(0, self.rng.choice((0, 1)))
        elif change == 2:
            table = table.drop_columns([name])
        elif change == 3:
            values = column.to_pylist()
            values[self.rng.randrange(len(values))] = None
            table = table.set_column(at, name, pa.array(values, column.type))
        elif change == 4 and pa.types.is_list(column.type):
            values = column.to_pylist()
            values[self.rng.randrange(len(values))] = self.rng.choice(([], [1.0], [float("nan")] * 3, [None] * 3))
            table = table.set_column(at, name, pa.array(values, column.type))
        else:
            table = table.set_column(at, name, pa.nulls(len(table), self.rng.choice(TYPES)))
        out = io.BytesIO()
        pq.write_table(table, out, compression=self.rng.choice(("none", "snappy", "zstd")))
        return out.getvalue()

    def _npy(self, content: bytes) -> bytes:
        length = struct.unpack("<H", content[8:10])[0]
        header = ast.literal_eval(content[10 : 10 + length].decode())
        key = self.rng.choice(["descr", "fortran_order", "shape"])
        if key == "shape":
            shape = self.rng.choice([(), (0,), (-1, 3), (2**62, 4), (10**30,), ("a",), *[header["shape"][::-1]] * 3])
            header["shape"] = shape
        elif key == "descr":
            header["descr"] = self.rng.choice(
                [">f4", "<f8", "|O", "|S3", "<U2", "<c8", "|b1", "x", [("a", "<f4")], 7, None]
            )
        else:
            header[key] = self.rng.choice([True, None, "yes"])
        if self.rng.random() < 0.2:
            header = self.rng.choice([[], {}, header | {"more": 1}, "(" * 3000])
        text = (header if isinstance(header, str) else repr(header)).encode() + b"\n"
        return content[:8] + struct.pack("<H", len(text)) + text + content[10 + length :]

    def _zip(self, content: bytes) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                new.writestr(name, self.change(name, old.read(name)))
        return out.getvalue()


def numpy_file(array: Any) -> bytes:
    """Return an array as the bytes of a .npy file."""
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def _dumps(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**4000:
        return "9" * 5000
    return json.dumps(value)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
