"""The corpus: a table with one row per caption. It is the only source of row numbers.

Rows are sorted by split, image and position, so each split, and each image, is a range of rows. Images are in the
natural order of their ids, and the captions of an image are in the order of the file. `relabel.corpus.readers` reads
captions of any format, and `relabel.corpus.build` builds the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.core.errors import UsageError, choices
from relabel.core.numeric.csr import indptr_of, ranges
from relabel.core.runtime import SILENT, Progress
from relabel.core.tables import Table, html, to_pandas
from relabel.corpus.build import SCHEMA, SPLITS, Caption, RowIds, arrange
from relabel.corpus.tokenizers import CHUNK, Tokenizer, lower_tokens, tokenize
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import open_artefact, read_parts, view_column
from relabel.store.workdir import Work, part_name, part_ranges
from relabel_train.ids import Id, id_text
from relabel_train.scoring.references import References

__all__ = ["REFERENCES", "SCHEMA", "SPLITS", "Caption", "Corpus", "References"]

REFERENCES = 5
"""Number of captions that represent an image in published protocols: its first five."""


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """All captions of one dataset.

    `read_table`: returns the table, with `SCHEMA`, sorted by row. It is called once, when a value is first needed.
    `digest`: sha256 of all values that can change a label. Encodings record it as their input.
    `splits`: range of rows of each split that has captions, in row order.
    `namespace`: prefix of the ids.
    `tokenize`: returns the PTB tokens of the captions, for labels that use them.
    `read_ids`: returns the caption ids of each row of the ingested table.
    """

    read_table: Callable[[], pa.Table]
    digest: str
    splits: dict[str, range]
    namespace: str
    tokenize: Callable[[Corpus], list[str]] = lambda corpus: tokenize(corpus.texts)
    read_ids: Callable[[Corpus], list[RowIds]] = lambda _: _no_table()

    @classmethod
    def from_captions(cls, captions: Iterable[Caption]) -> Corpus:
        """Build a corpus from captions, which are checked, sorted and numbered."""
        rows = arrange(captions)
        return cls.from_table(rows.table(range(len(rows))))

    @classmethod
    def from_table(cls, table: pa.Table) -> Corpus:
        """Build a corpus from a table with `SCHEMA`, in row order."""
        table = table.combine_chunks()
        namespace = table["caption_id"][0].as_py().partition(":")[0] if len(table) else ""
        return cls(lambda: table, table_digest(table), table_splits(table), namespace)

    @classmethod
    def open(cls, folder: Path, progress: Progress = SILENT, command: str = "again") -> Corpus:
        """Open a corpus that `relabel ingest` wrote. Its captions are read and verified when they are first needed.

        PTB tokens are kept in the folder `tokens` next to it. `command`: the command that makes the corpus.
        """
        manifest = open_artefact(folder, "corpus", command)
        opened = partial(open_artefact, folder, "corpus", command, content=True)
        digest, namespace = manifest.metadata["digest"], manifest.config["namespace"]
        splits = {s: range(*manifest.metadata["splits"][s]) for s in SPLITS if s in manifest.metadata["splits"]}
        make = partial(open_tokens, folder.parent / "tokens", progress)
        return cls(lambda: read_parts(folder, opened()), digest, splits, namespace, make)

    @cached_property
    def table(self) -> pa.Table:
        """Table of the captions with `SCHEMA`, sorted by row."""
        return self.read_table()

    def __len__(self) -> int:
        return max((rows.stop for rows in self.splits.values()), default=0)

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} {len(rows):,}" for split, rows in self.splits.items())
        return f"<Corpus: {len(self):,} captions of {len(self.indptr) - 1:,} images ({splits})>"

    def _repr_html_(self) -> str:
        parts = [*self.splits.items(), *([("all", range(len(self)))] if len(self.splits) > 1 else [])]
        rows = tuple((name, f"{len(rows):,}", f"{len(self.images_of(rows)):,}") for name, rows in parts)
        return html(Table(f"Captions of {self.namespace}", ("split", "captions", "images"), rows))

    def to_pandas(self) -> Any:
        """Return the captions as a pandas.DataFrame, by row; MissingError if pandas is not installed.

        Columns: row, caption_id, image_id, image (its number), split, position among the captions of the image, text.
        """
        return to_pandas(self.table)

    @cached_property
    def texts(self) -> list[str]:
        """Captions by row, unchanged."""
        return self.table["text"].to_pylist()  # type: ignore[no-any-return]

    def read(self, column: str, rows: range) -> list[str]:
        """Return a text column at a range of rows, without loading the texts of all rows."""
        return self.table[column].slice(rows.start, len(rows)).to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def tokens(self) -> list[str]:
        """PTB tokens by row, joined by spaces. Raises MissingError if Java is needed and missing."""
        return self.tokenize(self)

    def words(self, tokenizer: Tokenizer, rows: range) -> list[str]:
        """Return the words of a range of captions, joined by spaces. Raises the errors of `tokens`."""
        if tokenizer == "lower_split":
            return lower_tokens(self.read("text", rows))
        return self.tokens[rows.start : rows.stop]

    @cached_property
    def image(self) -> NDArray[np.int32]:
        """Image number of each row, (N,) int32."""
        return view_column(self.table["image"])

    @cached_property
    def indptr(self) -> NDArray[np.int64]:
        """Row pointers of M images, (M + 1,) int64: image m has the rows ``indptr[m]`` to ``indptr[m + 1] - 1``."""
        # Images are numbered in row order, so the last row has the maximum.
        count = int(self.image[-1]) + 1 if len(self) else 0
        return np.searchsorted(self.image, np.arange(count + 1)).astype(np.int64)

    @cached_property
    def caption_ids(self) -> list[str]:
        """Caption ids by row of the corpus, sorted by image. `ids` has them by row of the ingested table."""
        return self.table["caption_id"].to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def ids(self) -> list[RowIds]:
        """Caption ids by row of the ingested table, for ``table["caption_id"] = corpus.ids``.

        A row with several captions or images has a list, and a caption that was left out has None. Raises UsageError
        unless the captions are a table in memory or one Parquet or Arrow file, and CheckError if they have changed.
        """
        return self.read_ids(self)

    @cached_property
    def image_ids(self) -> list[str]:
        """Image ids by image number."""
        return self.table["image_id"].take(pa.array(self.indptr[:-1])).to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Row of each caption id."""
        return {c: i for i, c in enumerate(self.caption_ids)}

    def find_row(self, caption_id: Id, encoded: range) -> int:
        """Return the row of an encoded caption by its id, without building `row_of`."""
        column = self.table["caption_id"]
        rows = (pc.index(column, name).as_py() for name in self._spellings(caption_id, "caption"))
        row: int = next((row for row in rows if row >= 0), -1)
        if row not in encoded:
            hint = f"Ids look like {self.caption(encoded.start).caption_id}."
            problem = "no encoded caption has this id"
            if row >= 0:
                problem = f"this caption is in split {self.caption(row).split}, which is not encoded here"
            raise UsageError(problem, where=str(caption_id), hint=hint)
        return row

    def find_image(self, image_id: Id, encoded: range) -> int:
        """Return the number of an image with encoded captions by its id."""
        names = self._spellings(image_id, "image")
        number = next((self.image_of[name] for name in names if name in self.image_of), None)
        if number is None or int(self.indptr[number]) not in encoded:
            hint = f"Ids look like {self.caption(encoded.start).image_id}."
            raise UsageError("no image with encoded captions has this id", where=str(image_id), hint=hint)
        return number

    def _spellings(self, name: Id, kind: str) -> tuple[str, str]:
        """Return an id as text, and with the namespace as its prefix."""
        try:
            name = id_text(name, kind)
        except TypeError as error:
            raise UsageError(str(error), where=repr(name)) from error
        return name, f"{self.namespace}:{name}"

    def caption(self, row: int) -> Caption:
        """Return the caption of one row, without loading all captions."""
        names = ("caption_id", "image_id", "split", "text")
        return Caption(*(self.table[name][row].as_py() for name in names))

    @cached_property
    def image_of(self) -> dict[str, int]:
        """Image number of each image id."""
        return {c: i for i, c in enumerate(self.image_ids)}

    def rows(self, splits: Sequence[str]) -> range:
        """Return the range of rows of one or more adjacent splits."""
        parts = [rows for split, rows in self.splits.items() if split in splits]
        unknown = sorted(set(splits) - set(SPLITS))
        if unknown or not parts:
            message = f"no split {', '.join(unknown or splits)} in this corpus"
            raise UsageError(message, hint=choices((unknown or splits)[0], self.splits))
        # The rows of val are between those of train and test.
        if sum(map(len, parts)) != parts[-1].stop - parts[0].start:
            raise UsageError(f"splits {', '.join(splits)} are not adjacent in the corpus", hint="Name all three.")
        return range(parts[0].start, parts[-1].stop)

    def split_rows(self, split: str) -> range:
        """Return the range of rows of a split; `all` gives all rows. Raises the errors of `rows`."""
        return self.rows([*self.splits] if split == "all" else [split])

    def images(self, splits: Sequence[str]) -> range:
        """Return the range of image numbers of one or more adjacent splits. Raises the errors of `rows`."""
        return self.images_of(self.rows(splits))

    def images_of(self, rows: range) -> range:
        """Return the range of image numbers of a non-empty range of rows."""
        return range(int(self.image[rows.start]), int(self.image[rows.stop - 1]) + 1)

    def references(self, images: Iterable[int], first: int | None = REFERENCES) -> References:
        """Return the first captions of each image as reference sets, in position order. `first=None` returns all."""
        m = np.fromiter(images, np.int64)
        starts = self.indptr[m]
        sizes = self.indptr[m + 1] - starts
        # The rows of an image are in position order.
        if first is not None:
            sizes = np.minimum(sizes, first)
        return References(indptr_of(sizes), ranges(starts, sizes).astype(np.int32))


def _no_table() -> list[RowIds]:
    raise UsageError("these captions do not come from a table", hint="Pass a table to relabel.ingest or relabel.label.")


def table_splits(table: pa.Table) -> dict[str, range]:
    """Return the range of rows of each split that has captions, in row order."""
    counts = {c["values"]: c["counts"] for c in table["split"].value_counts().to_pylist()}
    stops = np.cumsum([counts.get(split, 0) for split in SPLITS]).tolist()
    return {s: range(stop - counts[s], stop) for s, stop in zip(SPLITS, stops, strict=True) if s in counts}


def table_digest(table: pa.Table) -> str:
    """Return the sha256 of all values of a corpus that can change a label. It does not depend on the table's chunks."""
    digest = hashlib.sha256()
    for name in ("caption_id", "image_id", "split", "text"):
        # Lengths are hashed first. Without them, moving a character to the next text would not change the digest.
        digest.update(f"{name}\0{len(table)}\0".encode())
        digest.update(pc.binary_length(table[name]).to_numpy().astype("<i8").data)
        for batch in table.select([name]).to_batches(max_chunksize=1 << 16):
            digest.update("".join(batch[0].to_pylist()).encode())
    return digest.hexdigest()


def open_tokens(folder: Path, progress: Progress, corpus: Corpus) -> list[str]:
    """Return the PTB tokens of a corpus. The first call builds them as an artefact."""

    def fill(work: Work) -> None:
        shards = part_ranges(range(len(corpus)), CHUNK)
        with progress.bar("PTB tokens", len(corpus), "captions") as bar:
            for i, rows in enumerate(shards):
                make = partial(_token_table, corpus, rows)
                work.table(part_name(i, len(shards)), make)
                bar.advance(len(rows))

    manifest, built = build(folder, Recipe("tokens", "ptb", dict, {"corpus": corpus.digest}, fill), progress)
    if built:
        progress.note(f"tokens ptb: built in {manifest.provenance['seconds']:.1f} s ({folder})")
    return read_parts(folder, manifest)["tokens"].to_pylist()  # type: ignore[no-any-return]


def _token_table(corpus: Corpus, rows: range) -> pa.Table:
    return pa.table({"tokens": pa.array(tokenize(corpus.read("text", rows)), pa.string())})
