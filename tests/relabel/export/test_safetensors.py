"""Contract: safetensors reads the vectors of a label, with the rows and ids of their captions; labels without vectors
are refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from tests.relabel.export.formats import with_params

from relabel import stages
from relabel.core.errors import UsageError
from relabel.stages import Project, open_label


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_safetensors_reads_vectors_rows_and_ids(small_project: Project, dtype: Literal["float32", "float16"]) -> None:
    job = stages.export(
        with_params(small_project, "safetensors", rows_per_shard=30, dtype=dtype), "safetensors", "cbow", "all"
    )
    manifest, _ = job.run()
    vectors = open_label(small_project, "cbow", "all").unit_vectors()
    assert vectors is not None
    corpus, seen = small_project.corpus, 0
    for split, rows in corpus.splits.items():
        names = sorted(name for name in manifest.files if name.startswith(f"{split}-"))
        assert len(names) == -(-len(rows) // 30)
        first = rows.start
        for name in names:
            tensors = load_file(job.out / name)
            size = len(tensors["rows"])
            assert tensors["rows"].tolist() == list(range(first, first + size))
            assert tensors["vectors"].dtype == dtype
            np.testing.assert_array_equal(tensors["vectors"], vectors[first : first + size].astype(dtype))
            text, offsets = tensors["caption_ids.bytes"].tobytes(), tensors["caption_ids.offsets"]
            ids = [text[a:b].decode() for a, b in pairwise(offsets)]
            assert ids == corpus.caption_ids[first : first + size]
            first, seen = first + size, seen + size
    assert seen == len(corpus)
    with safe_open(job.out / names[0], "np") as file:
        assert file.metadata()["label"] == "cbow"


def test_a_label_without_vectors_is_refused(small_project: Project) -> None:
    with pytest.raises(UsageError, match=r"cider .* has no vectors"):
        stages.export(small_project, "safetensors", "cider", "all")
