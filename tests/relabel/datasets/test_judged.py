"""Contract: each evaluation set of texts is found by the name of its module and read as its authors publish it. A
malformed line is named, and a set without its file names the command or folder for it.

Contract: files of judgements have equal content as JSON Lines, CSV and Parquet. Caption ids become captions.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relabel.core.errors import CheckError, MissingError
from relabel.datasets.evaluation_file import evaluation_file
from relabel.datasets.evaluation_sets import Judgements, evaluation_set, set_names


def read(name: str, folder: Path, **files: str) -> Judgements:
    for file, text in files.items():
        (folder / file.replace("__", ".")).write_text(text)
    return evaluation_set(name).read(
        lambda file=None, dataset="": folder / (file or next(iter(files)).replace("__", "."))
    )


def test_flickr8k_expert_excludes_the_images_own_captions(tmp_path: Path) -> None:
    captions = "".join(f"{image}.jpg#{k}\t{image} caption {k} .\n" for image in "ab" for k in range(5))
    lines = "a.jpg\tb.jpg#1\t1\t2\t1\na.jpg\ta.jpg#0\t4\t4\t4\nb.jpg\ta.jpg#2\t3\t4\t3\n"
    pairs = read("flickr8k-expert", tmp_path, Flickr8k__token__txt=captions, ExpertAnnotations__txt=lines)
    assert pairs.candidates == ["b caption 1 .", "a caption 2 ."]
    assert pairs.references[0] == [f"a caption {k} ." for k in range(5)]
    assert (pairs.clusters, pairs.ids) == (["a.jpg", "b.jpg"], ["a.jpg b.jpg#1", "b.jpg a.jpg#2"])
    np.testing.assert_array_equal(pairs.ratings, [[1, 2, 1], [3, 4, 3]])


@pytest.mark.parametrize("form", ["txt", "parquet"])
def test_flickr8k_cf_of_its_authors_and_of_the_hub(tmp_path: Path, form: str) -> None:
    captions = "".join(f"{image}.jpg#{k}\t{image} caption {k}\n" for image in "ab" for k in range(5))
    lines = "a.jpg\tb.jpg#2\t0.25\t1\t3\na.jpg\ta.jpg#2\t1\t3\t0\n"
    # A judged caption is no reference of its image, for any of the image's pairs.
    references = [f"a caption {k}" for k in (0, 1, 3, 4)]
    if form == "parquet":
        rows = [("b caption 2", 0.25), ("a caption 2", 1.0)]
        about = [{"img": {"bytes": b"", "path": "a"}, "refs": references, "cand": c, "human_score": s} for c, s in rows]
        pq.write_table(pa.Table.from_pylist(about), tmp_path / "cf.parquet")
        pairs = evaluation_set("flickr8k-cf").read(lambda: tmp_path / "cf.parquet")
    else:
        pairs = read("flickr8k-cf", tmp_path, CrowdFlower__txt=lines, Flickr8k__token__txt=captions)
    assert (pairs.references, pairs.candidates) == ([references] * 2, ["b caption 2", "a caption 2"])
    np.testing.assert_array_equal(pairs.ratings, [[0.25], [1]])
    assert len(set(pairs.clusters)) == 1


@pytest.mark.parametrize("name", ["composite", "polaris", "nebula"])
def test_rated_captions_of_the_hub(tmp_path: Path, name: str) -> None:
    rows = [{"imgid": "i", "mt": "a dog", "refs": ["a puppy", "a pet"], "score": s} for s in (0.5, 0.75)]
    pairs = read(name, tmp_path, test__json=json.dumps(rows))
    assert (pairs.references, pairs.candidates) == ([["a puppy", "a pet"]] * 2, ["a dog"] * 2)
    assert (pairs.ids, len(set(pairs.clusters))) == (["1", "2"], 1)
    np.testing.assert_array_equal(pairs.ratings, [[0.5], [0.75]])
    with pytest.raises(CheckError, match="human"):
        read(name, tmp_path, test__json=json.dumps([rows[0] | {"score": None}]))


def test_vsts(tmp_path: Path) -> None:
    rows = "id\tsource\tsent1\timage1\tsent2\timage2\tsim\ncoco-1\tcoco\ta dog\tx.jpg\ta puppy\ty.jpg\t4.6\n\n"
    pairs = read("vsts", tmp_path, **{"visual_sts.v2.0.all.tsv": rows})
    assert (pairs.references, pairs.candidates, pairs.groups) == ([["a dog"]], ["a puppy"], ["coco"])
    assert (pairs.both_orders, pairs.ids) == (True, ["coco-1"])


def test_sick_and_its_malformed_lines(tmp_path: Path) -> None:
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    row = "6\ta dog\ta puppy\t3.3\tNEUTRAL\n"
    pairs = read("sick", tmp_path, SICK_test_annotated__txt=header + row)
    np.testing.assert_array_equal(pairs.ratings, [[3.3]])
    for text, line in ((row.replace("\tNEUTRAL", ""), 1), (header + row.replace("3.3", "high"), 2)):
        with pytest.raises(CheckError) as error:
            read("sick", tmp_path, SICK_test_annotated__txt=text)
        assert str(error.value.where).endswith(f":{line}")


def test_sugarcrepe_compares_the_positives_with_the_negative(tmp_path: Path) -> None:
    entry = {"id": 0, "filename": "i.jpg", "caption": "p", "caption2": "q", "negative_caption": "n"}
    kinds = ("replace_obj", "replace_rel", "replace_att", "swap_att", "swap_obj")
    pairs = read("sugarcrepe-pp", tmp_path, **{f"{kind}__json": json.dumps([entry]) for kind in kinds})
    assert pairs.references[:3] == [["p"], ["p"], ["q"]]
    assert pairs.candidates[:3] == ["q", "n", "n"]
    assert pairs.choices is not None
    assert pairs.choices[1].tolist() == [[3, 4], [3, 5]]
    assert pairs.ids[:3] == [f"replace_obj:0:{text}" for text in ("positives", "caption", "caption2")]


def test_a_set_without_its_files_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELABEL_MIRROR", raising=False)
    for name in set_names():
        with pytest.raises(MissingError, match=f"relabel fetch {evaluation_set(name).dataset}"):
            evaluation_set(name).open(tmp_path)


RECORDS: list[dict[str, Any]] = [
    {"references": ["a dog", "a puppy"], "candidate": "a dog runs", "human": 4.5, "group": "x"},
    {"references": ["coco:1"], "candidate": "a dog runs", "human": 1.0, "group": "y"},
]


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_three_formats_are_equal(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"mine.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(RECORDS), path)
    elif ending == "jsonl":
        path.write_text("\n".join(map(json.dumps, RECORDS)) + "\n\n")
    else:
        with path.open("w", newline="") as file:
            rows = csv.DictWriter(file, RECORDS[0])
            rows.writeheader()
            rows.writerows({**record, "references": json.dumps(record["references"])} for record in RECORDS)
    judged = evaluation_file(path, "tau_b", {"coco:1": "two cats"})
    pairs = judged.open(tmp_path)
    assert pairs.references == [["a dog", "a puppy"], ["two cats"]]
    assert pairs.candidates == ["a dog runs"] * 2
    np.testing.assert_array_equal(pairs.ratings, [[4.5], [1.0]])
    assert pairs.groups == ["x", "y"]
    assert judged.statistics == ("tau_b",)
