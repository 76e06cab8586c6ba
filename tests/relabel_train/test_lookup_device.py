"""Contract: a lookup on a device gives the blocks of the mapped lookup for each pooling and refuses the same input. The
collate adds labels to the batch of any other collate, in this process and in forked and spawned workers. A worker's
small tensors arrive by value and large ones through shared memory, as ordinary tensors that may be written.
"""

from __future__ import annotations

import multiprocessing
from collections import UserDict
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from relabel.stages import Session
from relabel_train.lookup import Lookup, RelevanceCollate, open_lookup
from relabel_train.scoring.calibration import CalibrationCurve
from relabel_train.tensors import sendable


@pytest.fixture(params=["cbow", "cider"])
def lookup(request: pytest.FixtureRequest, small_project: Session) -> Lookup:
    return open_lookup(small_project.folder("exports", "all", "lookup", request.param))


@pytest.fixture(params=["float32", "float16"])
def of_images(small_project: Session, request: pytest.FixtureRequest) -> Lookup:
    """Return a lookup with vectors of images beside those of captions."""
    lookup = open_lookup(small_project.folder("exports", "all", "lookup", "cbow"))
    images = np.random.default_rng(0).normal(size=(60, lookup.arrays["vectors"].shape[1])).astype(np.float32)
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    about = replace(lookup.about, kind="image_vectors", poolings=("first", "max", "mean", "set"))
    vectors = {"vectors": lookup.arrays["vectors"].astype(request.param), "image_vectors": images.astype(request.param)}
    return Lookup(lookup.folder, about, lookup.arrays | vectors)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_blocks_equal_those_of_the_mapped_lookup(of_images: Lookup, device: str) -> None:
    lookup, labels, rng = of_images, of_images.to(device), np.random.default_rng(3)
    rows, columns = (rng.integers(lookup.rows.start, lookup.rows.stop, n) for n in (40, 70))
    for pooling in lookup.about.poolings:
        for given in (columns, None):
            expected = lookup.block(rows, given, pooling)
            for sequence in (rows, torch.tensor(rows, device=device)):
                with torch.autocast(device, dtype=torch.bfloat16):
                    block = labels.block(sequence, given, pooling)
                assert (block.device.type, block.dtype, block.requires_grad) == (device, torch.float32, False)
                np.testing.assert_allclose(block.cpu(), expected, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(labels.same_image(rows, columns).cpu(), lookup.same_image(rows, columns))


def test_bad_input_is_refused(of_images: Lookup, small_project: Session) -> None:
    with pytest.raises(IndexError, match="row 100000 "):
        of_images.to("cpu").block([0, 100_000])
    with pytest.raises(IndexError, match="row -1 "):
        of_images.to("cpu").same_image(torch.tensor([-1]))
    with pytest.raises(ValueError, match="no pooling 'set'"):
        open_lookup(of_images.folder).to("cpu").block([0], pooling="set")
    with pytest.raises(ValueError, match="no vectors"):
        open_lookup(small_project.folder("exports", "all", "lookup", "cider")).to("cpu")


def test_captions_without_an_encoding(of_images: Lookup) -> None:
    of_images.failed[4] = True
    with pytest.raises(ValueError, match=f"caption {of_images.caption_ids([4])[0]} .row 4. "):
        of_images.to("cpu").block([0, 4], pooling="first")
    block = of_images.to("cpu").block([0, 4], pooling="first", missing="nan")
    assert torch.isnan(block).tolist() == [[False, True], [True, True]]


def samples_of(names: list[str]) -> Any:
    return [{"caption_id": name, "x": torch.tensor([float(i)])} for i, name in enumerate(names)]


def numbers_alone(samples: list[dict[str, Any]]) -> UserDict[str, Any]:
    """Collate like Hugging Face's: return a UserDict, and fail on strings."""
    return UserDict({k: torch.stack([s[k] for s in samples]) for k in samples[0]})


@pytest.mark.parametrize(
    ("lookup", "context"),
    [("cbow", "fork"), ("cider", "fork"), pytest.param("cider", "spawn", marks=pytest.mark.slow)],
    indirect=["lookup"],
)
@pytest.mark.filterwarnings("ignore:This process")  # the test forks a process with threads on purpose
def test_two_workers_return_the_same_labels_as_none(lookup: Lookup, context: Any) -> None:
    lookup.block([0, 1])  # the state of an earlier call is copied into the workers
    names = lookup.caption_ids(np.random.default_rng(0).permutation(len(lookup))[:96])
    workers: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": context}
    batches = list(DataLoader(samples_of(names), 16, collate_fn=RelevanceCollate(lookup), **workers))
    assert len(batches) == 6
    for i, batch in enumerate(batches):
        rows = lookup.rows_of(names[16 * i : 16 * i + 16])
        assert batch["caption_id"] == names[16 * i : 16 * i + 16]
        assert batch["x"].flatten().tolist() == list(range(16 * i, 16 * i + 16))
        rounding = 1e-6 if lookup.about.kind == "vectors" else 0.0  # a worker may multiply by another library
        np.testing.assert_allclose(batch["relevance"].numpy(), lookup.block(rows), rtol=0, atol=rounding)
        np.testing.assert_array_equal(batch["same_image"].numpy(), lookup.same_image(rows))


@pytest.mark.parametrize("lookup", ["cbow"], indirect=True)
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_process_returns_the_same_labels(lookup: Lookup, request: pytest.FixtureRequest) -> None:
    """Check that no product waits for torch's threads, which a forked process does not have."""
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(2)
    torch.rand(500, 500) @ torch.rand(500, 500)
    rows, context = np.arange(128) % 90, multiprocessing.get_context("fork")
    expected = lookup.block(rows, pooling="first")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(lookup.block(rows, pooling="first")))
    child.start()
    request.addfinalizer(child.kill)
    assert receiver.poll(60)
    np.testing.assert_allclose(receiver.recv(), expected, atol=1e-6)


def test_any_collate_and_any_key(lookup: Lookup) -> None:
    names, expected = lookup.caption_ids([7, 3, 9]), lookup.block([7, 3, 9], pooling="max")
    batch = RelevanceCollate(lookup, numbers_alone, pooling="max", keep=False)(samples_of(names))
    assert (type(batch), set(batch)) == (UserDict, {"x", "relevance", "same_image"})
    np.testing.assert_allclose(batch["relevance"], expected, atol=1e-6)
    pairs = [(torch.zeros(2), row) for row in (7, 3, 9)]  # a tuple whose second member is the row
    x, rows, relevance, same = RelevanceCollate(lookup, row=1, pooling="max")(pairs)
    assert (x.shape, rows.tolist(), same.dtype) == ((3, 2), [7, 3, 9], torch.bool)
    np.testing.assert_allclose(relevance, expected, atol=1e-6)
    named = RelevanceCollate(lookup, caption_id=lambda sample: "coco:" + sample["id"], pooling="max")
    bare = [{"id": name.removeprefix("coco:"), "x": 1} for name in names]
    np.testing.assert_allclose(named(bare)["relevance"], expected, atol=1e-6)
    stored = RelevanceCollate(lookup, pooling="max")([{"caption_id": name.encode()} for name in names])  # as h5py
    np.testing.assert_allclose(stored["relevance"], expected, atol=1e-6)
    of_image = RelevanceCollate(lookup, image_id="image", position="at", pooling="max", keep=False)
    rows = lookup.table().take([7, 3, 9]).to_pylist()
    batch = of_image([{"image": row["image_id"], "at": row["position"], "x": 1} for row in rows])
    assert set(batch) == {"x", "relevance", "same_image"}
    np.testing.assert_allclose(batch["relevance"], expected, atol=1e-6)
    for wrong in ({"image_id": "image"}, {"text": "caption"}):
        with pytest.raises(ValueError, match="image_id needs position or text"):
            RelevanceCollate(lookup, **wrong)
    with pytest.raises(ValueError, match="row or image_id, not both"):
        RelevanceCollate(lookup, image_id="image", text="caption", row="row")
    for text in ("7", b"7", True):
        with pytest.raises(TypeError, match="rows are integers, found"):
            RelevanceCollate(lookup, row="row")([{"row": text}])
    with pytest.raises(ValueError, match=r"missing is 'NaN'. Use one of raise, nan"):
        RelevanceCollate(lookup, missing="NaN")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected pairs of an image and a position or text, found 'x'"):
        lookup.rows_of([("coco:1", 0), "x"])
    with pytest.raises(ValueError, match="the batch is empty"):
        RelevanceCollate(lookup)([])
    for given, kind in (None, "NoneType"), (0.5, "float"), (True, "bool"):
        with pytest.raises(TypeError, match=f"caption ids are strings or integers, found {kind}"):
            RelevanceCollate(lookup)([{"caption_id": names[0]}, {"caption_id": given}])
    with pytest.raises(KeyError, match=r"this lookup of split 'all' covers no caption 3; ids look like"):
        RelevanceCollate(lookup)([{"caption_id": 3}, {"caption_id": np.int64(3)}])  # an id and not a row
    with pytest.raises(KeyError, match="unheard-of"):
        RelevanceCollate(lookup)([{"caption_id": "unheard-of"}])
    for sample, keys in (({"id": names[0], "x": 1}, "id, x"), ((1, 2), "tuple")):
        with pytest.raises(KeyError, match=f"'caption_id' in a sample of .*{keys}.*{lookup.caption_ids([0])[0]}"):
            RelevanceCollate(lookup)([sample])
    with pytest.raises(TypeError, match="a batch that is a Tensor"):
        RelevanceCollate(lookup, row=lambda _: 0)([torch.zeros(1), torch.zeros(1)])


@pytest.mark.parametrize("scale", ["relevance", "expected"])
@pytest.mark.parametrize("lookup", ["cbow"], indirect=True)
def test_ignored_pairs_are_those_of_a_loop(lookup: Lookup, scale: Any) -> None:
    curve = CalibrationCurve((-0.5, 0.6, 0.9), (0.5, 3.0, 4.5), (0.1, 0.5, 0.9), own=(4.9, 0.95))
    lookup = Lookup(lookup.folder, replace(lookup.about, curve=curve), lookup.arrays)
    rows = [*range(12), 40, 41, 41]
    batch = RelevanceCollate(lookup, lambda _: {}, row=lambda row: row, scale=scale, ignore=0.7)(rows)
    assert batch["ignore"].dtype == torch.bool
    relevance, image = lookup.block(rows), lookup.arrays["image"]
    # Halfway between the knots of 0.5 and 0.9.
    expected = [
        [image[a] != image[b] and bool(relevance[i, j] >= 0.75) for j, b in enumerate(rows)] for i, a in enumerate(rows)
    ]
    assert batch["ignore"].tolist() == expected
    assert 0 < np.sum(expected) < batch["ignore"].numel() / 2
    assert "ignore" not in RelevanceCollate(lookup, lambda _: {}, row=lambda row: row)(rows)
    for wrong in (-0.1, 50, float("nan"), True):
        with pytest.raises(ValueError, match=r"ignore is .*a probability"):
            RelevanceCollate(lookup, ignore=wrong)


def sent(square: torch.Tensor) -> dict[str, torch.Tensor]:
    """Collate: return a tensor to send, and what later steps in the worker make of it."""
    square = sendable(square)
    return {"square": square, "doubled": square + square, "copy": deepcopy(square)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
@pytest.mark.parametrize(("side", "shared"), [(4, False), (1100, True)])
def test_tensors_arrive_as_ordinary_ones(side: int, shared: bool, dtype: torch.dtype) -> None:
    squares: Any = [torch.full((side, side), i, dtype=dtype) for i in range(3)]
    for square, batch in zip(squares, DataLoader(squares, None, num_workers=1, collate_fn=sent), strict=True):
        assert all(map(torch.equal, batch.values(), (square, square + square, square)))
        found = batch["square"]
        assert (type(found), found.dtype, found.is_shared()) == (torch.Tensor, dtype, shared)
        found.fill_(1)
        assert sendable(found) is found
