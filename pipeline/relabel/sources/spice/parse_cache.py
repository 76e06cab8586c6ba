"""Cache of parses among the fetched files, because SPICE's parser takes half an hour of a core for 25,000 captions.

An entry belongs to a text and a version of the parser. It holds a digest of itself: SQLite notices no flipped byte.
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
"""Place of the cache in the folder of fetched files."""
BATCH = 200
"""Texts that are parsed before they are kept: a killed run parses no more than these again."""
TABLE = "CREATE TABLE parses (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID"
"""Statement by which a cache is made, and by which a file is recognised as one."""
_DIGEST = 16  # bytes
_PATIENCE = 60.0  # seconds to wait for other processes, each of which holds the lock for milliseconds


class CachedParser:
    """Parser that parses a text only if the cache does not hold it. Failures are not kept.

    Where the file cannot be read or written, all texts are parsed.
    """

    def __init__(self, parser: SpiceParser, path: Path, progress: Progress) -> None:
        self._parser, self._path, self._progress, self._usable = parser, path, progress, True
        self.close = parser.close

    @cached_property
    def _version(self) -> str:
        return self._parser.version()

    def parse(self, texts: Sequence[str], advance: Advance = ignore_progress) -> list[Parsed]:
        """Parse captions as `SpiceParser.parse` does; raise CheckError if the file is damaged or no cache of parses."""
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
                # The lock is taken first, so that of two processes one makes the table.
                connection.execute("BEGIN IMMEDIATE")
                schema = connection.execute("SELECT sql FROM sqlite_master").fetchall()
                if not schema:
                    connection.execute(TABLE)
                elif schema != [(TABLE,)]:
                    raise sqlite3.DatabaseError("it holds something else")
                return run(connection)
        except (OSError, sqlite3.OperationalError) as error:
            # A folder without write permission, a full disk, or a lock that is never released.
            self._usable = False
            self._progress.note(f"spice: its parses are not kept, for {self._path} cannot be used: {error}")
            return otherwise
        except sqlite3.DatabaseError as error:
            todo = "Move it away and run it again: captions are then parsed anew."
            raise CheckError(f"not a cache of SPICE's parses: {error}", where=str(self._path), todo=todo) from error


def cached_parser(runtime: Runtime) -> CachedParser:
    """Return the parser and its cache."""

    def make() -> CachedParser:
        parser = SpiceParser(lambda: worker_command(runtime.data))
        return CachedParser(parser, runtime.data / FILE, runtime.progress)

    return runtime.keep("parser", make)


def _read(connection: sqlite3.Connection, keys: Iterable[bytes]) -> dict[bytes, Parsed]:
    """Read the intact entries of some keys."""
    parses: dict[bytes, Parsed] = {}
    for key in keys:
        for (value,) in connection.execute("SELECT CAST(value AS BLOB) FROM parses WHERE key = ?", (key,)):
            if isinstance(value, bytes) and value[:_DIGEST] == _digest(key + value[_DIGEST:]):
                parses[key] = json.loads(value[_DIGEST:])
    return parses


def _write(connection: sqlite3.Connection, parses: dict[bytes, Parsed]) -> None:
    """Write the parses that did not fail."""
    bodies = {key: json.dumps(parse).encode() for key, parse in parses.items() if not isinstance(parse, ParseFailure)}
    rows = [(key, _digest(key + body) + body) for key, body in bodies.items()]
    # A damaged entry is replaced; other processes write the same values.
    connection.executemany("INSERT OR REPLACE INTO parses VALUES (?, ?)", rows)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()
