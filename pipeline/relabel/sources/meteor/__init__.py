"""meteor: METEOR 1.5 (Denkowski and Lavie, WMT 2014) of a caption against references, by the jar that made the papers.

An alignment of the words of two captions by surface form, stem, WordNet synonym and paraphrase gives a harmonic mean
of precision and recall, weighted towards recall and cut for fragmentation; of several references the best counts. PTB
tokens go in, as in pycocoevalcap. A text without words has relevance 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import override

from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.sources.base import OpenEncoding, Source, SourceSpec
from relabel.sources.meteor.encode import MeteorTasks
from relabel.sources.meteor.jar import paraphrases
from relabel.sources.meteor.relevance import MeteorParams, MeteorRelevance, scorers_of
from relabel.sources.wordnet import find_meteor_jar
from relabel.store.atomic import sha256_file
from relabel.store.manifest import read_parts


class Meteor(Source[MeteorParams]):
    """METEOR 1.5."""

    spec = SourceSpec(
        name="meteor",
        kind="pairs",
        bounds=(0.0, 1.0),
        symmetric=False,
        version=1,
        params=MeteorParams,
        neighbours_blocker="it scores pair by pair, and all pairs are too many",
    )

    def tokenizer(self) -> str | None:
        """METEOR reads PTB tokens."""
        return "ptb"

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        files = {"jar": find_meteor_jar(), "paraphrases": paraphrases(self.params.language)}
        hashes = {name: sha256_file(path) for name, path in files.items()}
        return {"source": self.spec.name, "language": self.params.language, **hashes}

    def tasks(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> MeteorTasks:
        """What METEOR would otherwise do again for every pair; the pairs themselves are scored when asked.

        That is `words`, each row's text normalised, and METEOR's tables cut to these texts (see `meteor_tables`).

        Raises
        ------
        MissingError
            If the corpus has no PTB tokens, or there is no Java or no pycocoevalcap.
        PartialError
            If Java dies or falls silent.
        """
        return MeteorTasks(corpus, rows, rows_per_shard, self.params.language, self.params.silence)

    @override
    def open(self, encoding: OpenEncoding) -> MeteorRelevance:
        """Java starts with the first question."""
        words = {"": 0}
        read = read_parts(encoding.folder, encoding.manifest, ["words"])["words"].to_pylist()
        text = np.fromiter((words.setdefault(w, len(words)) for w in read), np.int32, len(read))
        return MeteorRelevance(
            corpus=encoding.corpus,
            rows=encoding.rows,
            pooling=self.params.pooling,
            words=list(words),
            text=text,
            scorers=scorers_of(self.params, encoding.folder, encoding.runtime, encoding.manifest),
            params=self.params,
            runtime=encoding.runtime,
        )
