"""Encoding of meteor: shards of normalised captions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from typing_extensions import override

from relabel.core.runtime import Advance
from relabel.corpus import Corpus
from relabel.sources.meteor.jar import normalise
from relabel.sources.shards import ShardTasks
from relabel.store.workdir import Work


class MeteorTasks(ShardTasks):
    """Work on one encoding of meteor.

    `corpus`, `rows`, `rows_per_shard`: see ShardTasks. `silence`: seconds without an answer after which Java is
    considered hung.
    """

    title = "METEOR's words"

    def __init__(self, corpus: Corpus, rows: range, rows_per_shard: int, language: str, silence: float) -> None:
        super().__init__(corpus, rows, rows_per_shard)
        self.language, self.silence = language, silence

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make one shard: row int32, words string."""
        words = normalise(self.corpus.ptb_tokens()[rows.start : rows.stop], self.language, self.silence)
        row = np.arange(rows.start, rows.stop, dtype=np.int32)
        return pa.table({"row": row, "words": pa.array(words, pa.string())})

    @override
    def finish(self, work: Work) -> None:
        super().finish(work)
        work.facts["tokenizer"] = "ptb"
