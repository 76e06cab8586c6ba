"""Cache of parses in the data folder, because SPICE's parser takes half an hour on one core for 25,000 captions.

An entry belongs to a text and a version of the parser. It includes a digest, because SQLite does not detect bit errors.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from relabel.core.errors import CheckError
from relabel.core.runtime import Advance, Progress, Runtime, ignore_progress
from relabel.sources.spice.parser import Parsed, ParseFailure, SpiceParser, worker_command
from relabel.store.files import make_folder

T = TypeVar("T")
FILE = Path("spice/parses.sqlite3")
"""Path of the cache in the data folder."""
BATCH = 200
"""Number of texts per transaction. A killed run loses the parses of at most one batch."""
TABLE = "CREATE TABLE parses (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID"
"""Statement that creates a cache. A file with another schema is not a cache."""
_DIGEST = 16  # bytes
_PATIENCE = 60.0  # timeout in seconds for the lock; processes hold it for milliseconds


class CachedParser:
    """Parser with a cache. Failures are not cached.

    If the cache cannot be read or written, all texts are parsed.
    """

    def __init__(self, parser: SpiceParser, path: Path, progress: Progress) -> None:
        self._parser, self._path, self._progress, self._usable = parser, path, progress, True
        self.close = parser.close

    @cached_property
    def _version(self) -> str:
        return self._parser.version()

    def parse(self, texts: Sequence[str], advance: Advance = ignore_progress) -> list[Parsed]:
        """Parse captions as `SpiceParser.parse` does. Raises CheckError if the file is damaged or not a cache."""
        keys = [_digest(f"{self._version} {text}".encode("utf-8", "surrogatepass")) for text in texts]
        parses = self._transaction(partial(_read, keys=keys), dict[bytes, Parsed]())
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in parses}
        advance(len(texts) - len(new))
        for a in range(0, len(new), BATCH):
            batch = dict(list(new.items())[a : a + BATCH])
            fresh = dict(zip(batch, self._parser.parse(list(batch.values()), advance), strict=True))
            self._transaction(partial(_write, parses=fresh), None)
            parses |= fresh
        return [parses[key] for key in keys]

    def _transaction(self, run: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Run a transaction, or return `otherwise` if the file cannot be used."""
        if not self._usable:
            return otherwise
        try:
            make_folder(self._path.parent)
            with closing(sqlite3.connect(self._path, timeout=_PATIENCE)) as connection, connection:
                # Lock first, so that only one of several processes creates the table.
                connection.execute("BEGIN IMMEDIATE")
                schema = connection.execute("SELECT sql FROM sqlite_master").fetchall()
                if not schema:
                    connection.execute(TABLE)
                elif schema != [(TABLE,)]:
                    raise sqlite3.DatabaseError("unexpected schema")
                return run(connection)
        except (OSError, sqlite3.OperationalError) as error:
            # For example a missing permission, a full disk, or a lock that is not released.
            self._usable = False
            self._progress.note(f"spice: parses are not cached, because {self._path} cannot be used: {error}")
            return otherwise
        except sqlite3.DatabaseError as error:
            hint = "Delete or move it and run again; captions are then parsed again."
            raise CheckError(f"not a cache of SPICE's parses: {error}", where=str(self._path), hint=hint) from error


def cached_parser(runtime: Runtime) -> CachedParser:
    """Return the parser with its cache in the data folder."""

    def make() -> CachedParser:
        parser = SpiceParser(lambda: worker_command(runtime.data))
        return CachedParser(parser, runtime.data / FILE, runtime.progress)

    return runtime.keep("parser", make)


def _read(connection: sqlite3.Connection, keys: Iterable[bytes]) -> dict[bytes, Parsed]:
    """Read the intact entries with the given keys."""
    parses: dict[bytes, Parsed] = {}
    for key in keys:
        for (value,) in connection.execute("SELECT CAST(value AS BLOB) FROM parses WHERE key = ?", (key,)):
            if isinstance(value, bytes) and value[:_DIGEST] == _digest(key + value[_DIGEST:]):
                parses[key] = json.loads(value[_DIGEST:])
    return parses


def _write(connection: sqlite3.Connection, parses: dict[bytes, Parsed]) -> None:
    """Write all parses except failures."""
    bodies = {key: json.dumps(parse).encode() for key, parse in parses.items() if not isinstance(parse, ParseFailure)}
    rows = [(key, _digest(key + body) + body) for key, body in bodies.items()]
    # Replace damaged entries. Entries of other processes have the same values.
    connection.executemany("INSERT OR REPLACE INTO parses VALUES (?, ?)", rows)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()
