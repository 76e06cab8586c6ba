"""Contract: every row of the table of docs/your-own-captions.md works as shown: the command reads the file next to it,
with all its captions, and makes labels of them.
"""

from __future__ import annotations

import html
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.examples.documents import ROOT
from tests.golden.hostile import _tar as tar_of
from tests.relabel_cli.runner import invoke

from relabel.corpus import Corpus

PAGE = html.unescape((ROOT / "docs/your-own-captions.md").read_text(encoding="utf-8"))
ROWS = re.findall(r"<tr><td>(.*?)</td><td><pre>(.*?)</pre></td></tr>", PAGE, re.DOTALL)
TEXTS = ["a dog rides a surfboard", "a surfing dog", "two cats, asleep on a sofa", "a red bus in a city street"]
CHINESE = ["一只狗在冲浪", "冲浪的狗", "两只猫睡在沙发上", "街上的红色公交车"]
ONE_CAPTION = ("cc3m", "shards", "cc12m")
"""Files with one caption per image."""


def columns_of(shown: str) -> dict[str, list[str]]:
    """Return the columns of a table that is shown with spaces, which begin where their names do."""
    head, *lines = shown.splitlines()
    starts = [*(match.start() for match in re.finditer(r"\S+", head)), None]
    return {head[a:b].strip(): [line[a:b].strip() for line in lines] for a, b in pairwise(starts)}


def members(shown: str) -> dict[str, str]:
    """Return the files of a listing, such as ``1.jpg  1.txt: a dog``, and their texts."""
    found = dict.fromkeys(re.findall(r"\S+\.jpg", shown), "an image")
    for name, text in re.findall(r"(\S+\.txt): (.*)", shown):
        found[name] = found.get(name, "") + f"{text}\n"
    return found


def tar(shown: dict[str, str]) -> bytes:
    return tar_of(*sorted((name, text.encode()) for name, text in shown.items()))


def write(name: str, shown: str, encoding: str) -> None:
    """Write the file of a row: text as it is shown, and other formats from the rows that are shown."""
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    if name == "pets/":
        import datasets

        datasets.Dataset.from_dict(columns_of(shown)).save_to_disk(name)
    elif name == "photos/":
        path.mkdir()
        for member, text in members(shown).items():
            (path / member).write_text(text)
    elif path.suffix == ".tar":
        path.write_bytes(tar(members(shown)))
    elif path.suffix == ".parquet":
        columns = columns_of(shown)
        pq.write_table(pa.table(columns), path)
        if "key" in columns:
            path.with_suffix(".tar").write_bytes(tar({f"{key}.jpg": "an image" for key in columns["key"]}))
    else:
        path.write_text(shown, encoding=encoding)


@pytest.mark.parametrize(("cell", "command"), ROWS, ids=[re.findall("<b>(.*?)</b>", cell)[0] for cell, _ in ROWS])
def test_a_row_of_the_table(cell: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = re.findall(r"<b>(.*?)</b>[^<]*<pre>\n(.*?)</pre>", cell, re.DOTALL)
    encoding = "gb18030" if "gb18030" in cell else "utf-8"
    if files[0][0] == "df":
        namespace = {"df": pd.DataFrame(columns_of(files[0][1]))}
        # A label that loads no model.
        exec(command.replace('"sbert"', '"cider", tokenizer="lower_split"'), namespace)  # the page is of this checkout
        ids = namespace["df"]["caption_id"]
    else:
        for name, shown in files:
            write(name, shown, encoding)
        program, *arguments = shlex.split(command)
        assert program == "relabel"
        code, output = invoke(*arguments, "--label", "cider_lower_split")
        assert code == 0, output
        # The printed script runs as it is.
        script = re.search(r"^import torch\n.*?loss\.item\(\)\)$", output, re.DOTALL | re.MULTILINE)
        assert script is not None, output
        exec(script[0], {})
    (folder,) = Path("labels").glob("*/corpus")
    corpus = Corpus.open(folder)
    texts = CHINESE if encoding == "gb18030" else TEXTS
    assert sorted(corpus.texts) == sorted(texts)
    assert len(corpus.image_ids) == (4 if files[0][0].startswith(ONE_CAPTION) else 3)
    if files[0][0] == "df":
        assert dict(zip(ids, texts, strict=True)) == dict(zip(corpus.caption_ids, corpus.texts, strict=True))


def test_the_table_shows_every_kind_of_file() -> None:
    assert len(ROWS) == PAGE.count("<tr>") - 1 >= 14
    # It is the first thing on the page, and short.
    assert PAGE.index("<table>") < 500
    assert all(cell.count("\n") <= 11 for cell, _ in ROWS)
