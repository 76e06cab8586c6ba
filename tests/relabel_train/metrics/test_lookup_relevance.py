"""Contract: labels from a lookup equal its blocks for the rows and columns of the score matrix."""

from __future__ import annotations

import numpy as np
import pytest

from relabel.stages import Project
from relabel_train.lookup import open_lookup
from relabel_train.metrics import LookupRelevance, ReportSettings, retrieval_report


@pytest.mark.parametrize("pooling", [None, "first"])
def test_a_report_with_a_lookup(small_project: Project, pooling: str | None) -> None:
    lookup = open_lookup(small_project.folder("exports", "all", "lookup", "cider"))
    rows = np.random.default_rng(0).permutation(len(lookup))[:40] + lookup.rows.start
    of_caption = lookup.image_of(rows)
    images = np.unique(of_caption)[::-1]
    image_rows = np.array([rows[of_caption == i][0] for i in images])
    image = np.array([images.tolist().index(i) for i in of_caption])
    scores = np.random.default_rng(1).standard_normal((len(images), 40), np.float32)
    settings = ReportSettings(label_top=lookup.about.bounds[1])
    relevance = LookupRelevance(lookup, image_rows, rows, pooling)
    report = retrieval_report(scores, image, relevance=relevance, settings=settings)
    block = lookup.block(image_rows, rows, pooling)  # type: ignore[arg-type]
    assert report.to_json() == retrieval_report(scores, image, relevance=block, settings=settings).to_json()
    assert report["labels.ncs1_percent"].i2t != report["labels.ncs1_percent"].t2i
    with pytest.raises(ValueError, match="relevance is"):
        retrieval_report(scores[:-1], np.minimum(image, len(images) - 2), relevance=relevance)
