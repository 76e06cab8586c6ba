"""Contract: `fetch` writes complete files of the manifest into data/DATASET/, from a package or a mirror, and
refuses and removes any other content. For a file that it cannot get, it names the place to put it by hand. `locate`
finds the same files without copying, and `status` reports the state of each.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.relabel.datasets.conftest import Describe, entry, files_below

from relabel.core.errors import CheckError, MissingError
from relabel.datasets import fetch, load_manifest, locate, status

A, B = b"a caption\n" * 100, b"another caption\n" * 100


@pytest.fixture
def local_mirror(tmp_path: Path) -> Path:
    """Return a mirror of this test with the files a.txt and b.txt."""
    folder = tmp_path / "mirror"
    (folder / "m").mkdir(parents=True)
    (folder / "m" / "a.txt").write_bytes(A)
    (folder / "m" / "b.txt").write_bytes(B)
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_from_a_member_of_a_jar(data: Path) -> None:
    pytest.importorskip("pycocoevalcap")
    name = "captions_val2014.json"
    (path,) = fetch("coco-captions", data, files=[name])
    assert sha256(path.read_bytes()).hexdigest() == load_manifest("coco-captions").file(name).sha256
    assert files_below(data) == [f"coco-captions/{name}"]


def test_from_the_first_right_source_and_a_second_time_does_nothing(
    describe: Describe, local_mirror: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(entry("a.txt", A, {"mirror": "m/b.txt"}, {"mirror": "m/gone"}, {"mirror": "m/a.txt"}), entry("b.txt", B))
    with monkeypatch.context() as patch:
        patch.setenv("RELABEL_MIRROR", str(local_mirror))
        paths = fetch("tiny", data)
    assert [p.read_bytes() for p in paths] == [A, B]
    before = [p.stat().st_mtime_ns for p in paths]
    assert fetch("tiny", data) == paths
    assert [p.stat().st_mtime_ns for p in paths] == before


def test_the_first_available_alternative_is_fetched(describe: Describe, local_mirror: Path, data: Path) -> None:
    describe(entry("best.txt", b"best"), entry("a.txt", A), entry("b.txt", B), alternatives=True)
    assert locate("tiny", None, data, local_mirror) == local_mirror / "m" / "a.txt"
    for _ in range(2):
        assert fetch("tiny", data, local_mirror) == [data / "tiny" / "a.txt"]
        assert locate("tiny", None, data, local_mirror) == data / "tiny" / "a.txt"
        (local_mirror / "m" / "best.txt").write_bytes(b"best")  # another is present already


@pytest.mark.parametrize("wrong", [A[:-1], A + b"x", A[:-1] + b"x", b""])
def test_wrong_content_is_refused_and_removed(wrong: bytes, describe: Describe, local_mirror: Path, data: Path) -> None:
    describe(entry("a.txt", A))
    (local_mirror / "m" / "a.txt").write_bytes(wrong)
    with pytest.raises(CheckError, match=r"m/a\.txt: expected") as caught:
        fetch("tiny", data, local_mirror)
    # Of a longer file, one byte more is read.
    for content in (A, wrong[: len(A) + 1]):
        assert sha256(content).hexdigest() in caught.value.problem
    assert files_below(data) == []


def test_unavailable_files_are_explained(describe: Describe, data: Path) -> None:
    url = {"url": "http://127.0.0.1:9/x.zip", "member": "in/a.txt", "archive": {"bytes": 5, "sha256": "0" * 64}}
    describe(entry("a.txt", A, {"package": "no-such-thing", "path": "a.txt"}, url), entry("b.txt", B))
    with pytest.raises(MissingError) as caught:
        fetch("tiny", data)
    text = str(caught.value)
    hand = f"{data}/tiny/a.txt ({len(A)} bytes, sha256 {sha256(A).hexdigest()}), from {url['url']} (in/a.txt in it)"
    for part in (
        "a.txt: package no-such-thing: ",
        "; http://127.0.0.1:9/x.zip: ",
        "b.txt: only available from a mirror",
        hand,
    ):
        assert part in text
    assert files_below(data) == []
    assert [s.state for s in status(data)] == ["remote", "missing"]
    with pytest.raises(MissingError, match=r"b\.txt of tiny not found"):
        locate("tiny", "b.txt", data)

    (data / "tiny").mkdir(exist_ok=True)  # the step that the message names
    (data / "tiny" / "a.txt").write_bytes(A)
    (data / "tiny" / "b.txt").write_bytes(B)
    assert len(fetch("tiny", data)) == 2


def test_texts_of_a_split_on_the_hub_are_copied_without_images(describe: Describe, data: Path, tmp_path: Path) -> None:
    for part in range(2):
        row = {"refs": ["a", "b"], "cand": f"c{part}", "img": {"bytes": b"x", "path": "p"}, "human_score": 0.5}
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / f"test-{part}.parquet")
    file = {"name": "a.parquet", "holds": "rows"}
    describe(file | {"sources": [{"url": f"file://{tmp_path}/gone-*.parquet"}]})
    with pytest.raises(MissingError) as caught:
        fetch("tiny", data)
    for place in (f"{data}/tiny/a.parquet (any content)", f"from file://{tmp_path}/gone-*.parquet"):
        assert place in str(caught.value)
    describe(file | {"sources": [{"url": f"file://{tmp_path}/test-*.parquet"}]})
    (path,) = fetch("tiny", data)
    table = pq.read_table(path)
    assert table.column_names == ["refs", "cand", "human_score"]
    assert table["cand"].to_pylist() == ["c0", "c1"]
    assert locate("tiny", None, data) == path
    # A copy of it in a mirror is taken whole.
    assert fetch("tiny", tmp_path / "other", data)[0].read_bytes() == path.read_bytes()


def test_a_wrong_file_put_by_hand_is_reported_and_kept(describe: Describe, local_mirror: Path, data: Path) -> None:
    describe(entry("a.txt", A))
    mine = data / "tiny" / "a.txt"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(B)
    with pytest.raises(CheckError, match=r"a\.txt: delete or move the existing file"):
        fetch("tiny", data, local_mirror)
    assert mine.read_bytes() == B
    with pytest.raises(CheckError, match=r"expected sha256 .*Delete it, then `relabel fetch tiny`"):
        locate("tiny", "a.txt", data, local_mirror)
    assert [s.state for s in status(data, local_mirror)] == ["damaged"]
    mine.unlink()
    assert [p.read_bytes() for p in fetch("tiny", data, local_mirror)] == [A]
