"""Contract: each evaluation set of texts is found by the name of its module and read as its authors publish it. A
malformed line is named, and a set without its file names the command or folder for it.

Contract: files of judgements have equal content as JSON Lines, CSV and Parquet. Caption ids become captions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relabel.core.errors import CheckError
from relabel.datasets.evaluation_file import evaluation_file
from relabel.datasets.evaluation_sets import Judgements, evaluation_set

CAPTIONS = "".join(f"{image}.jpg#{k}\t{image} caption {k} .\n" for image in "ab" for k in range(5))


def read(name: str, folder: Path, **files: str) -> Judgements:
    for file, text in files.items():
        (folder / file.replace("__", ".")).write_text(text)
    return evaluation_set(name).read(lambda file: folder / file)


def test_flickr8k_expert_excludes_the_images_own_captions(tmp_path: Path) -> None:
    lines = "a.jpg\tb.jpg#1\t1\t2\t1\na.jpg\ta.jpg#0\t4\t4\t4\nb.jpg\ta.jpg#2\t3\t4\t3\n"
    pairs = read("flickr8k-expert", tmp_path, Flickr8k__token__txt=CAPTIONS, ExpertAnnotations__txt=lines)
    assert pairs.candidates == ["b caption 1 .", "a caption 2 ."]
    assert pairs.references[0] == [f"a caption {k} ." for k in range(5)]
    assert pairs.clusters == ["a.jpg", "b.jpg"]
    assert pairs.ids == ["a.jpg b.jpg#1", "b.jpg a.jpg#2"]
    np.testing.assert_array_equal(pairs.ratings, [[1, 2, 1], [3, 4, 3]])


def test_vsts_and_sick(tmp_path: Path) -> None:
    header = "id\tsource\tsent1\timage1\tsent2\timage2\tsim\n"
    row = "coco-1\tcoco\ta dog\tx.jpg\ta puppy\ty.jpg\t4.6\n"
    pairs = read("vsts", tmp_path, **{"visual_sts.v2.0.all.tsv": header + row + "\n"})
    assert (pairs.references, pairs.candidates, pairs.groups) == ([["a dog"]], ["a puppy"], ["coco"])
    assert pairs.both_orders
    assert pairs.ids == ["coco-1"]
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    pairs = read("sick", tmp_path, SICK_test_annotated__txt=header + "6\ta dog\ta puppy\t3.3\tNEUTRAL\n")
    np.testing.assert_array_equal(pairs.ratings, [[3.3]])
    with pytest.raises(CheckError, match="expected the columns pair_ID") as error:
        read("sick", tmp_path, SICK_test_annotated__txt=row)
    assert str(error.value.where).endswith(":1")
    with pytest.raises(CheckError, match="a number in relatedness_score") as error:
        read("sick", tmp_path, SICK_test_annotated__txt=header + "6\ta dog\ta puppy\thigh\tNEUTRAL\n")
    assert str(error.value.where).endswith(":2")


def test_sugarcrepe_compares_the_positives_with_the_negative(tmp_path: Path) -> None:
    entry = {"id": 0, "filename": "i.jpg", "caption": "p", "caption2": "q", "negative_caption": "n"}
    kinds = ("replace_obj", "replace_rel", "replace_att", "swap_att", "swap_obj")
    pairs = read("sugarcrepe-pp", tmp_path, **{f"{kind}__json": json.dumps([entry]) for kind in kinds})
    assert pairs.references[:3] == [["p"], ["p"], ["q"]]
    assert pairs.candidates[:3] == ["q", "n", "n"]
    assert pairs.choices is not None
    assert pairs.choices[1].tolist() == [[3, 4], [3, 5]]
    assert pairs.ids[:4] == [
        "replace_obj:0:positives", "replace_obj:0:caption", "replace_obj:0:caption2", "replace_rel:0:positives"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "pairs", "judged"),
    [("flickr8k-expert", 5664, 5664), ("vsts", 2677, 2677), ("sick", 4927, 4927), ("pascal-50s", 8000, 4000),
     ("stsb", 2879, 2879), ("sugarcrepe-pp", 14271, 4757)],
)  # fmt: skip
def test_the_published_files(mirror: Path, name: str, pairs: int, judged: int) -> None:
    if not (mirror / "judged").is_dir():
        pytest.skip("the mirror has no evaluation sets")
    opened_set = evaluation_set(name).open(Path("nowhere"))
    assert (len(opened_set.candidates), len(opened_set)) == (pairs, judged)
    assert len(opened_set.references) == pairs
    assert len(opened_set.clusters) == judged
    assert len(set(opened_set.ids)) == pairs


RECORDS: list[dict[str, Any]] = [
    {"references": ["a dog", "a puppy"], "candidate": "a dog runs", "human": 4.5, "group": "x"},
    {"references": ["two cats"], "candidate": "a dog runs", "human": 1.0, "group": "y"},
]


def write(folder: Path, ending: str) -> Path:
    path = folder / f"mine{ending}"
    if ending == ".parquet":
        pq.write_table(pa.Table.from_pylist(RECORDS), path)
    elif ending == ".jsonl":
        path.write_text("\n".join(map(json.dumps, RECORDS)) + "\n\n")
    else:
        lines = ["references,candidate,human,group"]
        for r in RECORDS:
            cell = json.dumps(r["references"]).replace('"', '""')
            lines.append(f'"{cell}",{r["candidate"]},{r["human"]},{r["group"]}')
        path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
def test_three_formats_are_equal(tmp_path: Path, ending: str) -> None:
    judged = evaluation_file(write(tmp_path, ending), "tau_b")
    pairs = judged.open(tmp_path)
    assert pairs.references == [["a dog", "a puppy"], ["two cats"]]
    assert pairs.candidates == ["a dog runs"] * 2
    assert pairs.ratings is not None
    assert pairs.ratings.tolist() == [[4.5], [1.0]]
    assert pairs.groups == ["x", "y"]
    assert judged.statistics == ("tau_b",)
