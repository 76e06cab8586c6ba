"""Contract: the collate adds labels to the batch of any other collate, in this process and in forked and spawned
workers.
"""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from relabel.stages import Project
from relabel_train.lookup import Lookup, RelevanceCollate, open_lookup


@dataclass
class Samples(Dataset[Any]):
    """Samples as dicts with a caption id."""

    names: list[str]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"caption_id": self.names[i], "x": torch.tensor([float(i)])}


def numbers_alone(samples: list[dict[str, Any]]) -> UserDict[str, Any]:
    """Collate like Hugging Face's: return a UserDict, and fail on strings."""
    return UserDict({k: torch.stack([s[k] for s in samples]) for k in samples[0]})


@pytest.fixture(params=["cbow", "cider"])
def lookup(request: pytest.FixtureRequest, small_project: Project) -> Lookup:
    return open_lookup(small_project.folder("exports", "all", "lookup", request.param))


@pytest.mark.parametrize(
    ("lookup", "context"), [("cbow", "fork"), ("cider", "fork"), ("cider", "spawn")], indirect=["lookup"]
)
@pytest.mark.filterwarnings("ignore:This process")  # the test forks a process with threads on purpose
def test_two_workers_return_the_same_labels_as_none(lookup: Lookup, context: str) -> None:
    lookup.block([0, 1])  # the state of an earlier call is copied into the workers
    names = lookup.caption_ids(np.random.default_rng(0).permutation(len(lookup))[:96])
    loader: DataLoader[Any] = DataLoader(
        Samples(names),
        batch_size=16,
        num_workers=2,
        multiprocessing_context=context,
        collate_fn=RelevanceCollate(lookup),
    )
    batches = list(loader)
    assert len(batches) == 6
    for i, batch in enumerate(batches):
        rows = lookup.rows_of(names[16 * i : 16 * i + 16])
        assert batch["caption_id"] == names[16 * i : 16 * i + 16]
        assert batch["x"].tolist() == [[float(j)] for j in range(16 * i, 16 * i + 16)]
        rounding = 1e-6 if lookup.about.kind == "vectors" else 0.0  # a worker may multiply by another library
        np.testing.assert_allclose(batch["relevance"].numpy(), lookup.block(rows), rtol=0, atol=rounding)
        np.testing.assert_array_equal(batch["same_image"].numpy(), lookup.same_image(rows))


def test_any_collate_and_any_key(lookup: Lookup) -> None:
    names = lookup.caption_ids([7, 3, 9])
    expected = lookup.block([7, 3, 9], pooling="max")
    samples = [Samples(names)[i] for i in range(3)]
    batch = RelevanceCollate(lookup, numbers_alone, pooling="max", keep=False)(samples)
    assert isinstance(batch, UserDict)
    assert set(batch) == {"x", "relevance", "same_image"}
    np.testing.assert_array_equal(batch["relevance"], expected)
    pairs = [(torch.zeros(2), row) for row in (7, 3, 9)]  # a tuple whose second member is the row
    x, rows, relevance, same = RelevanceCollate(lookup, key=1, pooling="max")(pairs)
    assert (x.shape, rows.tolist()) == ((3, 2), [7, 3, 9])
    np.testing.assert_array_equal(relevance, expected)
    assert same.dtype == torch.bool
    named = RelevanceCollate(lookup, key=lambda s: "coco:" + s["id"], pooling="max")
    batch = named([{"id": name.removeprefix("coco:"), "x": 1} for name in names])
    np.testing.assert_array_equal(batch["relevance"], expected)
    with pytest.raises(KeyError, match="covers no caption unheard-of"):
        RelevanceCollate(lookup)([{"caption_id": "unheard-of"}])
    with pytest.raises(TypeError, match="a batch that is a Tensor"):
        RelevanceCollate(lookup, key=lambda _: 0)([torch.zeros(1), torch.zeros(1)])
