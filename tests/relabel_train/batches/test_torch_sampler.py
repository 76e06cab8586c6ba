"""Contract: a DataLoader gets the batches of a sampler, epoch by epoch and rank by rank, and resumes at the stored
batch.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from relabel_train.batches import Captions, RandomBatches

torch = pytest.importorskip("torch")

IMAGE = np.repeat(np.arange(20, dtype=np.int32), 5)


def make_sampler(seed: int = 0, rank: int = 0, world_size: int = 1, **given: bool):  # type: ignore[no-untyped-def]
    from relabel_train.batches.torch_sampler import TorchBatchSampler

    return TorchBatchSampler(
        RandomBatches(Captions.of(IMAGE), 8, seed=seed, drop_last=False), rank, world_size, **given
    )


class Rows(torch.utils.data.Dataset):  # type: ignore[misc,name-defined]
    def __getitem__(self, row: int) -> int:
        return row

    def __len__(self) -> int:
        return len(IMAGE)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_yields_the_batches_of_the_sampler(workers: int) -> None:
    batches = make_sampler(seed=3)
    loader = torch.utils.data.DataLoader(Rows(), batch_sampler=batches, num_workers=workers)
    for epoch in (0, 1, 0):
        batches.set_epoch(epoch)
        assert len(loader) == 13
        assert [b.tolist() for b in loader] == [b.tolist() for b in batches.sampler.epoch(epoch)]


def test_resume_is_exact() -> None:
    sampler = make_sampler()
    sampler.set_epoch(2)
    expected = list(sampler)
    broken = make_sampler()
    broken.set_epoch(2)
    reader = iter(broken)
    seen = [next(reader) for _ in range(9)]  # two of them were only prefetched
    state = json.loads(json.dumps(broken.state_dict(done=7)))
    again = make_sampler()
    again.load_state_dict(state)
    again.set_epoch(2)
    assert len(again) == len(expected) - 7
    assert seen[:7] + list(again) == expected
    assert list(again) == expected  # the epoch after a resumed one starts at its first batch
    again.load_state_dict(state)
    again.set_epoch(3)
    assert list(again) == [b.tolist() for b in again.sampler.epoch(3)]


def test_a_checkpoint_of_other_batches_is_refused() -> None:
    state = make_sampler().state_dict(done=1)
    for other in (make_sampler(seed=1), make_sampler(rank=1, world_size=2), make_sampler(even=False)):
        with pytest.raises(ValueError, match="the checkpoint's batches are of"):
            other.load_state_dict(state)


def test_ranks_share_an_epoch() -> None:
    ranks = [make_sampler(rank=r, world_size=3, even=False) for r in range(3)]
    for r in ranks:
        r.set_epoch(1)
    assert sorted(b for r in ranks for b in r) == sorted(b.tolist() for b in ranks[0].sampler.epoch(1))
    assert [len(r) for r in ranks] == [5, 4, 4]
    assert [len(make_sampler(rank=r, world_size=3)) for r in range(3)] == [4, 4, 4]
    with pytest.raises(ValueError, match="rank 3"):
        make_sampler(rank=3, world_size=3)
