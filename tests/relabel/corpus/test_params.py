"""Contract: the parameters of ingest reject combinations that cannot be read, round-trip through JSON, and expect the
published counts of published datasets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from relabel.corpus.params import PUBLISHED_COUNTS, Counts, IngestParams


def test_published_counts_are_expected_of_published_datasets() -> None:
    assert IngestParams().counts == PUBLISHED_COUNTS["coco"]
    assert IngestParams().counts["val"] == Counts(images=5_000, captions=25_010)
    assert IngestParams(dataset="flickr30k", format="karpathy").counts == PUBLISHED_COUNTS["flickr30k"]
    assert IngestParams(format="csv").counts == PUBLISHED_COUNTS["coco"]  # expected of every format
    for other in ({"expected": {}}, {"dataset": "mine"}):
        assert IngestParams(**other).counts == {}


@pytest.mark.parametrize(
    "bad",
    [
        {"dataset": "a:b"},
        {"dataset": "../up"},
        {"namespace": ""},
        {"format": "xml"},
        {"tokenizer": "bpe"},
        {"delimiter": "||"},
        {"expected": {"dev": {}}},
        {"expected": {"test": {"sentences": 3}}},
        {"captions_per_image": 0, "format": "scan"},
        {"columns": {}},
        {"deliminator": ","},
    ],
    ids=str,
)
def test_invalid_parameters_are_refused(bad: Any) -> None:
    with pytest.raises(ValidationError):
        IngestParams(**bad)


def test_parameters_round_trip_through_json() -> None:
    full = IngestParams(dataset="mine", path=Path("a"), expected={"all": Counts(images=1)})
    assert IngestParams(**full.model_dump(mode="json")) == full
