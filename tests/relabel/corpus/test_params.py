"""Contract: captions of a published dataset must have its published counts, in any format."""

from __future__ import annotations

from relabel.corpus.params import PUBLISHED_COUNTS, Counts, IngestParams


def test_published_counts_are_expected_of_published_datasets() -> None:
    assert IngestParams().counts == PUBLISHED_COUNTS["coco"]
    assert IngestParams().counts["val"] == Counts(images=5_000, captions=25_010)
    assert IngestParams(dataset="flickr30k", format="karpathy").counts == PUBLISHED_COUNTS["flickr30k"]
    assert IngestParams(format="csv").counts == PUBLISHED_COUNTS["coco"]  # expected of every format
    for other in ({"expected": {}}, {"dataset": "mine"}):
        assert IngestParams(**other).counts == {}
