"""Which columns of a table (JSONL, CSV, Parquet) hold what, and how a record becomes a caption."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from relabel.captions import Caption
from relabel.errors import CheckError, MissingError, UsageError
from relabel.readers.files import identifier, namespaced, split_name

TEXT_NAMES = ("text", "caption")
"""What the column of captions is called where nobody says."""


@dataclass(frozen=True)
class Columns:
    """Names of columns.

    Attributes
    ----------
    caption_id, image_id : str
        Ids: strings or whole numbers.
    text : str, optional
        None takes the first of `TEXT_NAMES` that is there.
    split : str
        Ignored where `in_split` is given.
    in_split : "train", "val" or "test", optional
        The split of every caption, for tables without such a column.
    """

    caption_id: str = "caption_id"
    image_id: str = "image_id"
    text: str | None = None
    split: str = "split"
    in_split: Literal["train", "val", "test"] | None = None

    def find(self, there: Collection[str], where: str) -> tuple[str, ...]:
        """Return the names to read: caption id, image id, text and, unless `in_split` is given, split.

        Raises
        ------
        CheckError
            If one is not there; says which are.
        """
        text = self.text or next((name for name in TEXT_NAMES if name in there), None)
        names = (self.caption_id, self.image_id, text, *((self.split,) if self.in_split is None else ()))
        for name in names:
            if name is None or name not in there:
                wanted = " or ".join(map(repr, TEXT_NAMES)) if name is None else repr(name)
                has = ", ".join(there) or "none"
                raise CheckError(f"no column {wanted}", where=where, todo=f"It has {has}; say which is which.")
        return tuple(name for name in names if name is not None)

    def caption(self, names: Sequence[str], values: Sequence[object], namespace: str, where: str) -> Caption:
        """Make a caption of a record's values, in the order of `find`'s names.

        Raises
        ------
        CheckError
            If a value is of the wrong type. A null stands for "", which `Corpus.from_captions` refuses.
        """
        text = values[2]
        if text is not None and type(text) is not str:
            raise CheckError(f"{names[2]!r}: expected a string, found {type(text).__name__}", where=where)
        split = self.in_split or split_name(identifier(values[3], names[3], where))
        return Caption(
            namespaced(namespace, identifier(values[0], names[0], where)),
            namespaced(namespace, identifier(values[1], names[1], where)),
            split,
            text or "",
            where,
        )


def table_files(path: Path, *endings: str) -> list[Path]:
    """Return the file itself, or a folder's files of some endings, sorted by name.

    Raises
    ------
    MissingError
        If there is none.
    """
    if not path.is_dir():
        if not path.exists():
            raise MissingError("no such file", where=str(path))
        return [path]
    found = sorted(p for p in path.iterdir() if p.name.endswith(endings) and not p.name.startswith("."))
    if not found:
        raise UsageError(f"no {' or '.join(endings)} file in this folder", where=str(path))
    return found
