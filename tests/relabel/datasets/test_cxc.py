"""Contract: the shipped human scores equal CxC's cell by cell, with the published counts, means and images, exact
decimals and small files.

`check_originals` accepts the originals and names file and line of any difference; `convert` reproduces the shipped
values.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import relabel.datasets
from relabel.core.errors import CheckError
from relabel.datasets import cxc

DATA = Path(relabel.datasets.__file__).parent / "cxc_data"
COUNTS = {
    ("sts", "val"): {"c2c_cocaption": 25_000, "c2c_isim": 19_009},
    ("sts", "test"): {"c2c_cocaption": 25_000, "c2c_isim": 19_045},
    ("sits", "val"): {"c2i_original": 25_000, "c2i_intrasim": 19_722},
    ("sits", "test"): {"c2i_original": 25_000, "c2i_intrasim": 19_833},
    ("sis", "val"): {"i2i_csim": 42_767},
    ("sis", "test"): {"i2i_csim": 46_719},
}


@pytest.fixture
def originals(mirror: Path, tmp_path: Path) -> Path:
    if not (mirror / "cxc" / "sts_val.csv").exists():
        pytest.skip("the mirror has no cxc/*.csv")
    folder = tmp_path / "cxc"
    folder.mkdir()
    for file in (mirror / "cxc").glob("*.csv"):
        (folder / file.name).symlink_to(file)
    return folder


@pytest.fixture
def only_sits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restrict the check to one task, for speed."""
    monkeypatch.setattr(cxc, "TASKS", ("sits",))


def put(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize(("task", "split"), COUNTS)
def test_counts_and_ranges(task: cxc.Task, split: cxc.Split) -> None:
    scores = cxc.human_scores(task, split)
    counts = {m: scores.method.count(m) for m in cxc.METHODS[task]}
    assert counts == COUNTS[task, split]
    assert len(scores) == len(scores.right) == len(scores.score) == sum(counts.values())
    assert scores.score.dtype == np.float64
    assert (scores.score.min(), scores.score.max()) == (0.0, 5.0)
    assert all(i.startswith("coco:") and i[5:].isdecimal() for i in scores.left[:100] + scores.right[:100])


def test_first_row_and_exact_decimals() -> None:
    scores = cxc.human_scores("sits", "test")
    assert (scores.left[0], scores.right[0], scores.method[0]) == ("coco:732091", "coco:365325", "c2i_intrasim")
    assert [repr(s) for s in scores.score[:3].tolist()] == ["2.2", "4.97", "2.72"]
    own_caption = np.array(scores.method) == "c2i_original"
    assert scores.score[own_caption].mean() == pytest.approx(4.891, abs=5e-4)
    assert scores.score[~own_caption].mean() == pytest.approx(2.906, abs=5e-4)


@pytest.mark.parametrize("split", ["val", "test"])
def test_image_ids(split: cxc.Split) -> None:
    ids = cxc.image_ids(split)
    assert ids.dtype == np.int64
    assert len(ids) == 5000
    assert (np.diff(ids) > 0).all()
    named = {f"coco:{i}" for i in ids}
    sis = cxc.human_scores("sis", split)
    assert {*sis.left, *sis.right} == named


def test_files_are_small_and_name_their_origin() -> None:
    files = sorted(DATA.glob("*.parquet"))
    assert len(files) == 6
    assert all(f.stat().st_size < 2**20 for f in files)
    assert sum(f.stat().st_size for f in files) < 2.2e6
    for file in files:
        metadata = pq.read_schema(file).metadata
        assert b"Google LLC" in metadata[b"licence"]
        assert b"sha256" in metadata[b"source"]
    assert "Google LLC" in (DATA / "README.md").read_text()


def test_originals_agree(originals: Path) -> None:
    cxc.check_originals(originals)


def test_convert_makes_the_shipped_values(originals: Path, tmp_path: Path) -> None:
    cxc.convert(originals, tmp_path / "out")
    for file in DATA.glob("*.parquet"):
        again = pq.read_table(tmp_path / "out" / file.name)
        assert again.equals(pq.read_table(file), check_metadata=True)


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (0, "caption1,caption2,agg_score,sampling_method", "expected the header"),
        (3, "COCO_val2014:sentid:33416,COCO_val2014_000000545309.jpg,2.94,c2i_intrasim", "expected score 2.93"),
        (3, "COCO_val2014:sentid:33417,COCO_val2014_000000545309.jpg,2.93,c2i_intrasim", "expected left 33416"),
        (3, "COCO_val2014:sentid:33416,COCO_val2014_000000545309.jpg,2.93,c2i_original", "expected method c2i_intra"),
        (3, "COCO_val2014:sentid:33416,COCO_val2014_000000545309.jpg,much,c2i_intrasim", "not a score"),
        (3, "COCO_val2014:sentid:33416,COCO_val2014_000000545309.jpg,2.72", "expected 4 cells, found 3"),
    ],
)
@pytest.mark.usefixtures("only_sits")
def test_a_changed_cell_is_named_with_file_and_line(originals: Path, line: int, text: str, message: str) -> None:
    path = originals / "sits_val.csv"
    lines = path.read_text().split("\n")[:10]
    lines[line] = text
    put(path, "\n".join(lines).encode())
    with pytest.raises(CheckError, match=message) as caught:
        cxc.check_originals(originals)
    assert caught.value.where == f"{path}:{line + 1}"


@pytest.mark.usefixtures("only_sits")
def test_lost_and_added_lines_are_detected(originals: Path) -> None:
    path = originals / "sits_val.csv"
    lines = path.read_text().rstrip("\n").split("\n")
    put(path, "\n".join(lines[:-1]).encode())
    with pytest.raises(CheckError, match="expected 44,722 pairs, found 44,721"):
        cxc.check_originals(originals)
    put(path, "\n".join([*lines, lines[-1]]).encode())
    with pytest.raises(CheckError, match="more than the 44,722 pairs"):
        cxc.check_originals(originals)
