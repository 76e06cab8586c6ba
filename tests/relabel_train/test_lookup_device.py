"""Contract: a lookup on a device gives the blocks of the mapped lookup for each pooling and refuses the same input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relabel.stages import Project
from relabel_train.lookup import Lookup, open_lookup


@pytest.fixture
def lookup(small_project: Project) -> Lookup:
    return open_lookup(small_project.folder("exports", "all", "lookup", "cbow"))


def compare(lookup: Lookup, device: str) -> None:
    labels, rng = lookup.to(device), np.random.default_rng(3)
    rows, columns = (rng.integers(lookup.rows.start, lookup.rows.stop, n) for n in (40, 70))
    for pooling in lookup.about.poolings:
        for sequence in (rows, torch.tensor(rows, device=device)):
            block = labels.block(sequence, torch.tensor(columns), pooling)
            assert (block.device.type, block.dtype) == (device, torch.float32)
            np.testing.assert_allclose(block.cpu(), lookup.block(rows, columns, pooling), rtol=0, atol=1e-6)
            np.testing.assert_allclose(
                labels.block(sequence, None, pooling).cpu(), lookup.block(rows, None, pooling), atol=1e-6
            )
    np.testing.assert_array_equal(labels.same_image(rows, columns).cpu(), lookup.same_image(rows, columns))


def test_blocks_equal_those_of_the_mapped_lookup(lookup: Lookup) -> None:
    compare(lookup, "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_blocks_on_a_gpu(lookup: Lookup) -> None:
    compare(lookup, "cuda")


def test_bad_input_is_refused(lookup: Lookup, small_project: Project) -> None:
    labels = lookup.to("cpu")
    with pytest.raises(IndexError, match="row 100000 is not among rows 0 to"):
        labels.block([0, 100_000])
    with pytest.raises(IndexError, match="row -1 "):
        labels.same_image(torch.tensor([-1]))
    with pytest.raises(ValueError, match="has no pooling 'set'"):
        labels.block([0], pooling="set")
    with pytest.raises(ValueError, match="has no vectors to hold"):
        open_lookup(small_project.folder("exports", "all", "lookup", "cider")).to("cpu")


def test_captions_without_an_encoding(lookup: Lookup) -> None:
    labels = lookup.to("cpu")
    lookup.failed[4] = True
    labels.vectors[4] = torch.nan
    name = lookup.caption_ids([4])[0]
    with pytest.raises(ValueError, match=f"caption {name} .row 4. has no encoding"):
        labels.block([0, 4], pooling="first")
    block = labels.block([0, 4], pooling="first", missing="nan")
    assert torch.isnan(block).tolist() == [[False, True], [True, True]]
