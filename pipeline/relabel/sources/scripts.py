"""Detection of captions in scripts without spaces between words; word-based sources cannot split them."""

from __future__ import annotations

import re

from relabel.core.tables import plural
from relabel.sources.models.reading import MULTILINGUAL
from relabel.sources.shards import Shards
from relabel.store.workdir import Work

# Thai, Lao, Myanmar, Khmer; Hiragana, Katakana; Han.
_RUN = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]+"
)
_WORD = 6  # letters; the average word in these scripts is shorter
_MANY = 0.01  # minimum share of captions for a warning


def is_unspaced(text: str) -> bool:
    """Return True if more than half of a text is in a script without spaces, and its words are not separated."""
    runs, visible = _RUN.findall(text), len("".join(text.split()))
    letters = sum(map(len, runs))
    return 2 * letters > visible and letters >= _WORD * len(runs)


def warn_unspaced(shards: Shards, work: Work) -> None:
    """Warn if a source that splits at spaces cannot find the words of many captions."""
    texts = shards.sample()
    if (count := sum(map(is_unspaced, texts))) > _MANY * len(texts):
        sample = f"in a sample of {len(texts):,}: " if len(texts) < len(shards.rows) else ""
        work.warn(
            f"{sample}{plural(count, 'caption has', 'captions have')} no spaces between words, so each counts as one "
            f"word. Insert spaces between the words, or use sbert with model={MULTILINGUAL}; see "
            "docs/your-own-captions.md"
        )
