"""meteor: METEOR 1.5 of a caption against references, computed by the jar that papers use.

Denkowski and Lavie: "Meteor Universal: Language Specific Translation Evaluation for Any Target Language", WMT 2014.

The words of two captions are aligned by surface form, stem, WordNet synonym and paraphrase. The score is a harmonic
mean of precision and recall, weighted towards recall and reduced for fragmentation. Of several references the best
counts. Captions are read as PTB tokens, as in pycocoevalcap. A text without words has relevance 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import override

from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.sources.base import OpenEncoding, Source
from relabel.sources.meteor.encode import MeteorTasks
from relabel.sources.meteor.jar import paraphrase_table
from relabel.sources.meteor.relevance import MeteorParams, MeteorRelevance, make_scorer
from relabel.sources.spec import SourceSpec
from relabel.sources.typical_cost import TypicalCost
from relabel.sources.wordnet import find_meteor_jar
from relabel.store.atomic import sha256_file
from relabel.store.manifest import read_parts


class Meteor(Source[MeteorParams]):
    """METEOR 1.5.

    Examples
    --------
    >>> from relabel.sources.meteor import Meteor, MeteorParams
    >>> source = Meteor(MeteorParams(processes=2))
    >>> source.is_pairwise(), source.lookup_blocker()
    (True, 'it scores pair by pair')
    """

    spec = SourceSpec(
        name="meteor",
        kind="pairs",
        bounds=(0.0, 1.0),
        symmetric=False,
        version=1,
        params=MeteorParams,
        neighbours_blocker="it scores pair by pair, and all pairs are too many",
    )

    @override
    def tokenizer(self) -> str | None:
        return "ptb"

    @override
    def typical_cost(self) -> TypicalCost:
        # COCO's 25,010 test captions took 37 s and 1.34 MB, once, on a machine with other work.
        return TypicalCost(encode_bytes=53.5, encode_seconds=37 / 25_010)

    @override
    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        files = {"jar": find_meteor_jar(), "paraphrases": paraphrase_table(self.params.language)}
        hashes = {name: sha256_file(path) for name, path in files.items()}
        return {"source": self.spec.name, "language": self.params.language, **hashes}

    def tasks(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> MeteorTasks:
        """Cut the work that pairs share: each row's normalised text (`words`), and METEOR's tables cut to these texts.

        Pairs themselves are scored by the opened encoding.

        Raises
        ------
        MissingError
            If the corpus has no PTB tokens, or there is no Java or no pycocoevalcap.
        PartialError
            If Java ends early, or gives no answer within `silence` seconds.
        """
        return MeteorTasks(corpus, rows, rows_per_shard, self.params.language, self.params.silence)

    @override
    def open(self, encoding: OpenEncoding) -> MeteorRelevance:
        """Open an encoding; Java starts with the first pair."""
        # Number 0 is the empty text, which is scored without Java.
        words = {"": 0}
        read = read_parts(encoding.folder, encoding.manifest, ["words"])["words"].to_pylist()
        text = np.fromiter((words.setdefault(w, len(words)) for w in read), np.int32, len(read))
        return MeteorRelevance(
            corpus=encoding.corpus,
            rows=encoding.rows,
            pooling=self.params.pooling,
            words=list(words),
            text=text,
            scorer=make_scorer(self.params, encoding.folder, encoding.runtime, encoding.manifest),
            params=self.params,
            runtime=encoding.runtime,
        )
