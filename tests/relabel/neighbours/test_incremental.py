"""Contract: an updated table has the bytes of a new search. Lists that are still valid are kept, matched by caption
id and by the inputs of the encoding. If an input that all values share has changed, nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relabel import stages
from relabel.neighbours.row_digests import KEYS, keys_bytes
from relabel.neighbours.spec import NeighboursParams, shard_bytes
from relabel.sources.finder import Finder
from relabel.stages import Job

TRAIN = 24  # images


def grown(make_lines: Any) -> list[Any]:
    return make_lines(TRAIN, "train") + make_lines(3, "val", 200)


def one_more_percent(make_lines: Any) -> list[Any]:
    lines = make_lines(TRAIN, "train")
    return [
        *lines[:40],
        *make_lines(1, "train", first=7, seed=90),
        *lines[40:],
    ]  # more captions of image 7, in the middle


def without_one(make_lines: Any) -> list[Any]:
    lines = make_lines(TRAIN, "train")
    return [*lines[:33], *lines[34:]]


def with_another_text(make_lines: Any) -> list[Any]:
    lines = make_lines(TRAIN, "train")
    lines[50] = lines[50]._replace(text="two birds sits on the red bus")
    return lines


def renamed(make_lines: Any) -> list[Any]:
    """Replace one caption by another, and move all rows between them by one."""
    lines = make_lines(TRAIN, "train")
    return [lines[0]._replace(caption="c99999", image="i99999", text="a dog a dog water"), *lines[1:]]


def copied(make_lines: Any) -> list[Any]:
    """Put new captions with existing texts before all others in row order: ties with older neighbours."""
    lines = make_lines(TRAIN, "train")
    return [*(lines[i]._replace(caption=f"a{i}", image="a0") for i in (10, 30, 50, 70)), *lines]


def other_references(make_lines: Any) -> list[Any]:
    """Add a fifth caption to an image of four, and remove the first of an image of six."""
    lines = make_lines(TRAIN, "train")
    of = {line.image: [other for other in lines if other.image == line.image] for line in lines}
    four, six = (next(captions for captions in of.values() if len(captions) == n) for n in (4, 6))
    return [*(line for line in lines if line != six[0]), four[0]._replace(caption="c99999", text="red bus")]


CHANGES = [copied, other_references, grown, one_more_percent, without_one, with_another_text, renamed]


class Notes:
    """Progress that records its messages."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def bar(self, *_: Any) -> Any:
        from contextlib import nullcontext

        return nullcontext(self)

    def advance(self, n: int = 1) -> None:
        pass

    def note(self, text: str) -> None:
        self.said.append(text)


def unique(lines: list[Any]) -> list[Any]:
    return list({line.caption: line for line in lines}.values())


@pytest.mark.slow
@pytest.mark.parametrize("of", ["captions", "images"])
@pytest.mark.parametrize("change", CHANGES)
def test_an_update_is_a_rebuild_to_the_byte(
    finders: str, dataset: Any, make_lines: Any, read_files: Any, change: Callable[[Any], list[Any]], of: str
) -> None:
    params, notes = NeighboursParams(k=7, of=of), Notes()
    stages.neighbours(dataset.encoded(make_lines(TRAIN, "train")), "near", params).run()
    dataset.encoded(unique(change(make_lines)))
    job = stages.neighbours(dataset.project(progress=notes), "near", params)
    manifest, built = job.run()
    assert built
    update = manifest.runtime["update"]
    queries = manifest.facts["queries"]
    assert 0.3 * queries < update["kept"] <= queries
    assert any("updating the neighbours" in line for line in notes.said)
    updated = read_files(job.out)
    assert set(updated) == {*manifest.parts, KEYS}
    job.out.rename("elsewhere")
    again = stages.neighbours(dataset.project(), "near", params)
    assert again.run()[0].runtime["update"]["from"] is None
    assert read_files(again.out) == updated


@pytest.mark.parametrize("gone", [0, -1])
def test_an_image_that_lost_a_reference_is_a_new_query(
    dataset: Any, make_lines: Any, read_table: Any, block_finder: None, gone: int
) -> None:
    dataset.settings = ["sources.near.pooling=mean"]
    lines, params = make_lines(TRAIN, "train"), NeighboursParams(k=1, of="images")
    of = {line.image: [other for other in lines if other.image == line.image] for line in lines}
    lists = [captions[gone] for captions in of.values() if len(captions) == (6 if gone == 0 else 5)]
    stages.neighbours(dataset.encoded(lines), "near", params).run()
    dataset.encoded([line for line in lines if line not in lists])
    job = stages.neighbours(dataset.project(), "near", params)
    assert job.run()[0].runtime["update"]["kept"] > 0
    updated = read_table(job)
    job.out.rename("elsewhere")
    stages.neighbours(dataset.project(), "near", params).run()
    assert read_table(job).equals(updated)


def test_a_split_that_did_not_change_is_not_searched_again(
    dataset: Any, make_lines: Any, read_files: Any, block_finder: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    params, train = NeighboursParams(k=7, within="train"), make_lines(TRAIN, "train")
    job = stages.neighbours(dataset.encoded(train + make_lines(5, "test", 500)), "near", params)
    job.run()
    before = read_files(job.out)
    project = dataset.encoded(train + make_lines(9, "test", 700))
    monkeypatch.setattr("relabel.sources.cosine.VectorRelevance.finder", no_finder)
    manifest, built = stages.neighbours(project, "near", params).run()
    assert built
    assert manifest.runtime["update"]["captions added"] == 0
    assert read_files(job.out) == before


def no_finder(*_: Any) -> Finder:
    raise AssertionError("nothing should be searched")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (["neighbours.k=6"], "k was 7"),
        (["sources.near.pooling=mean"], "pooling was max"),
        (["sources.near.stored=float16"], "parameters, model or document frequencies have changed"),
    ],
)
def test_other_parameters_are_a_new_search(
    dataset: Any, make_lines: Any, block_finder: None, settings: list[str], why: str
) -> None:
    lines, notes = make_lines(TRAIN, "train"), Notes()
    stages.neighbours(dataset.encoded(lines), "near").run()
    dataset.settings = settings
    dataset.encoded(lines)
    manifest, _ = stages.neighbours(dataset.project(progress=notes), "near").run()
    assert manifest.runtime["update"]["from"] is None
    assert any(why in line for line in notes.said)


def test_document_frequencies_change_every_value_of_cider(
    finders: str, dataset: Any, make_lines: Any, read_files: Any
) -> None:
    lines, notes = make_lines(TRAIN, "train"), Notes()
    stages.neighbours(dataset.encoded(lines, labels=["cider"]), "cider").run()
    dataset.encoded(grown(make_lines), labels=["cider"])
    job = stages.neighbours(dataset.project(progress=notes), "cider")
    assert job.run()[0].runtime["update"]["from"] is None
    assert any("document frequencies" in line for line in notes.said)
    updated = read_files(job.out)
    job.out.rename("elsewhere")
    stages.neighbours(dataset.project(), "cider").run()
    assert read_files(job.out) == updated


def test_too_many_new_captions_are_a_rebuild(dataset: Any, make_lines: Any, block_finder: None) -> None:
    notes = Notes()
    stages.neighbours(dataset.encoded(make_lines(10, "train")), "near").run()
    dataset.encoded(make_lines(10, "train") + make_lines(40, "val", 100))
    manifest, _ = stages.neighbours(dataset.project(progress=notes), "near").run()
    assert manifest.runtime["update"]["from"] is None
    assert any("too many" in line for line in notes.said)


def test_captions_in_another_order_are_a_rebuild(
    dataset: Any, make_lines: Any, block_finder: None, read_files: Any
) -> None:
    lines = make_lines(TRAIN, "train")
    stages.neighbours(dataset.encoded(lines), "near").run()
    moved = [line._replace(split="val") if line.image == "i3" else line for line in lines]
    dataset.encoded(moved)
    job: Job = stages.neighbours(dataset.project(), "near")
    manifest, built = job.run()
    assert built
    assert "order" in manifest.runtime["update"]["why"]
    updated = read_files(job.out)
    job.out.rename("elsewhere")
    stages.neighbours(dataset.project(), "near").run()
    assert read_files(job.out) == updated


def test_a_damaged_older_table_is_not_used(dataset: Any, make_lines: Any, block_finder: None) -> None:
    job = stages.neighbours(dataset.encoded(make_lines(TRAIN, "train")), "near")
    manifest, _ = job.run()
    shard = job.out / manifest.parts[0]
    body = bytearray(shard.read_bytes())
    body[len(body) // 2] ^= 1
    shard.write_bytes(body)
    updated, built = stages.neighbours(dataset.encoded(grown(make_lines)), "near").run()
    assert built
    assert updated.runtime["update"]["from"] is None


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 41, 90])
def test_a_killed_update_resumes(finders: str, dataset: Any, make_lines: Any, read_files: Any, left: int) -> None:
    stages.neighbours(dataset.encoded(make_lines(TRAIN, "train")), "near").run()
    dataset.encoded(grown(make_lines))

    class StoppingProgress(Notes):
        left = 0

        def advance(self, n: int = 1) -> None:
            self.left -= n
            if self.left < 0:
                raise KeyboardInterrupt

    stopping = StoppingProgress()
    stopping.left = left
    job = stages.neighbours(dataset.project(progress=stopping), "near")
    with pytest.raises(KeyboardInterrupt):
        job.run()
    assert (job.out / "manifest.json").exists()  # the older table exists until the new one is complete
    manifest, built = stages.neighbours(dataset.project(), "near").run()
    assert built
    assert manifest.runtime["update"]["kept"] > 0
    updated = read_files(job.out)
    job.out.rename("elsewhere")
    stages.neighbours(dataset.project(), "near").run()
    assert read_files(job.out) == updated


def test_all_bytes_are_estimated_exactly(dataset: Any, make_lines: Any, block_finder: None) -> None:
    project = dataset.encoded(make_lines(TRAIN, "train"))
    manifest, _ = stages.neighbours(project, "near").run()
    width = manifest.facts["width"]
    for name in manifest.parts:
        entry = manifest.files[name]
        assert entry.rows is not None
        assert entry.bytes == shard_bytes(entry.rows, width)
    assert manifest.files[KEYS].bytes == keys_bytes(project.corpus, range(len(project.corpus)))
    assert np.sum([manifest.files[n].rows for n in manifest.parts]) == len(project.corpus)
