"""Seeded mutation of files: of their bytes, and of the values in JSON, CSV, Parquet and .npy files."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
import zipfile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

TEXTS = ["", " ", "\0", "\ufeff", "\u2028", "\ud800", "\r\n", "9" * 5000, "x" * 70_000]
TEXTS += ["-", "nan", "../..", "/dev/zero"]
NUMBERS = [0, -1, 1, 2**31, 2**32, 2**63, 2**64, -(2**63), 10**12, 10**400, 0.5, -0.0, 1e308, 5e-324]
VALUES: list[Any] = [None, True, False, [], {}, float("nan"), float("inf"), *TEXTS, *NUMBERS]
BYTES = [b"", b"\0", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\n", b'"', b",", b"{", b"[" * 9, b"9" * 5000]
BYTES += [b"-1", b"\xff" * 8, b"\0\0\0\x80", b"\xff\xff\xff\x7f"]
TYPES: list[Any] = [pa.float64(), pa.int8(), pa.uint64(), pa.large_string(), pa.binary(), pa.bool_(), pa.null()]
TYPES += [pa.list_(pa.float64()), pa.large_list(pa.int16()), pa.struct([("a", pa.int64())]), pa.float16()]
TYPES += [pa.dictionary(pa.int8(), pa.string()), pa.timestamp("ns"), pa.date64(), pa.decimal128(38, 9)]
SHAPES = ["()", "(0,)", "(-1, 3)", "(4611686018427387904, 4)", "('a',)", "(3, 3)", "(" * 3000]
DTYPES = ["'>f4'", "'<f8'", "'|O'", "'|S3'", "'<U2'", "'<c8'", "'|b1'", "'x'", "[('a', '<f4')]", "7", "None"]


class Mutator:
    """Mutator of files with a seeded generator; equal seeds give equal changes."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)

    def change(self, name: str, content: bytes) -> bytes:
        """Return a changed file; most changes of a known format keep its syntax."""
        kind = name.rpartition(".")[2]
        if kind == "gz" and self.rng.random() < 0.7:
            return gzip.compress(self.change(name.removesuffix(".gz"), gzip.decompress(content)), 1, mtime=0)
        if kind == "zip" and self.rng.random() < 0.5:
            out = io.BytesIO()
            with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
                for member in old.namelist():
                    new.writestr(member, self.change(member, old.read(member)))
            return out.getvalue()
        structured = {"json": self._json, "jsonl": self._jsonl, "csv": self._csv, "parquet": self._parquet}
        structured["npy"] = self._npy
        if kind in structured and self.rng.random() < 0.6:
            return structured[kind](content)
        for _ in range(self.rng.choice((1, 1, 1, 2, 5))):
            content = self.change_bytes(content)
        return content

    def change_bytes(self, content: bytes) -> bytes:
        """Flip a bit; or insert, replace, delete, repeat or cut a span."""
        rng, size = self.rng, len(content)
        at, start = rng.randrange(size + 1), rng.randrange(size + 1)
        stop = min(size, at + rng.choice((1, 2, 8, 64, 1000)))
        if at < size and rng.random() < 0.2:
            return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
        span = rng.choice((rng.choice(BYTES), content[start : start + stop - at], rng.randbytes(stop - at), b""))
        return content[:at] + span + content[rng.choice((at, stop, stop, size)) :]

    def value(self, body: Any) -> Any:
        """Return a copy of nested values with one of them changed, removed, doubled, renamed or wrapped."""
        rng = self.rng
        if isinstance(body, dict) and body and rng.random() < 0.9:
            key = rng.choice(list(body))
            others = {k: v for k, v in body.items() if k != key}
            changed = body | {key: self.value(body[key])}
            return rng.choice((others, others | {rng.choice(TEXTS[:8]): body[key]}, *[changed] * 4))
        if isinstance(body, list) and body and rng.random() < 0.9:
            at = rng.randrange(len(body))
            changed = [*body[:at], self.value(body[at]), *body[at + 1 :]]
            return rng.choice((body[:at] + body[at + 1 :], body[: at + 1] + body[at:], *[changed] * 4))
        if rng.random() < 0.1:
            for _ in range(rng.choice((1, 50, 400))):
                body = [body]
            return body
        if isinstance(body, str) and rng.random() < 0.4:
            at = rng.randrange(len(body) + 1)
            return body[:at] + rng.choice(TEXTS) + body[at:]
        return rng.choice([*VALUES, str(body)])

    def _json(self, content: bytes) -> bytes:
        text = json.dumps(self.value(json.loads(content)))
        if self.rng.random() < 0.1:
            text = text.replace(":", f": {'[' * 3000}", 1)
        return text.encode(errors="surrogatepass")

    def _jsonl(self, content: bytes) -> bytes:
        lines = content.split(b"\n")
        at = self.rng.randrange(max(1, len(lines) - 1))
        lines[at] = self._json(lines[at])
        return self.rng.choice((b"\n", b"\n", b"\r\n", b"\n\n")).join(lines)

    def _csv(self, content: bytes) -> bytes:
        rows = list(csv.reader(io.StringIO(content.decode(), newline="")))
        at = self.rng.randrange(len(rows))
        changed = self.value(rows[at])
        rows[at] = list(map(str, changed)) if isinstance(changed, list) else [str(changed)]
        out = io.StringIO(newline="")
        csv.writer(out, lineterminator=self.rng.choice(("\n", "\r\n", "\r"))).writerows(rows)
        return out.getvalue().encode(errors="surrogatepass")

    def _parquet(self, content: bytes) -> bytes:
        table = pq.read_table(io.BytesIO(content))
        at, values = self.rng.randrange(table.num_columns), [None]
        name, column = table.column_names[at], table.column(at)
        if pa.types.is_list(column.type):
            texts = pa.types.is_string(column.type.value_type)
            values += [[], [None] * 3, *([[""], ["x"] * 9] if texts else [[1.0], [float("nan")] * 3])]
        cells = column.to_pylist()
        cells[self.rng.randrange(len(cells))] = self.rng.choice(values)
        changes = [
            pa.Table.from_arrays([*table.columns, column], names=[*table.column_names, name]),
            table.slice(0, self.rng.choice((0, 1))),
            table.drop_columns([name]),
            table.set_column(at, name, pa.array(cells, column.type)),
            table.set_column(at, name, pa.nulls(len(table), self.rng.choice(TYPES))),
        ]
        out = io.BytesIO()
        pq.write_table(self.rng.choice(changes), out, compression=self.rng.choice(("none", "snappy", "zstd")))
        return out.getvalue()

    def _npy(self, content: bytes) -> bytes:
        """Change a value of the header, whose length is stated in two bytes before it."""
        length = int.from_bytes(content[8:10], "little")
        header = content[10 : 10 + length].decode()
        key, values = self.rng.choice((("shape", SHAPES), ("descr", DTYPES), ("fortran_order", ["True", "None", "7"])))
        value = self.rng.choice(values)
        changed = re.sub(rf"'{key}': (\([^)]*\)|'[^']*'|\w+)", lambda _: f"'{key}': {value}", header)
        text = self.rng.choice((changed, changed, changed, "[]", "{}")).encode()
        return content[:8] + len(text).to_bytes(2, "little") + text + content[10 + length :]
