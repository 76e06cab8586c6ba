"""Contract: on a corpus with one caption per image, a label whose source needs several is encoded and exported with
one line that states the consequence; other labels and other corpora get no line.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from relabel.config import Config
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel_cli.root import app

TEXTS = ["a dog runs", "a cat sleeps", "two dogs play", "a red bus"]
PARAMS = """
ingest: {dataset: mine, path: captions.csv, tokenizer: none}
sources:
  same_image: {source: same_image}
  cider: {source: cider, tokenizer: lower_split}
  vectors: {source: vectors, captions: vectors.parquet}
"""


def relabel(*arguments: str) -> str:
    run = CliRunner().invoke(app, list(arguments))
    assert run.exit_code == 0, run.output
    return run.output


def lay(folder: Path, captions_per_image: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = [f"{i},{i // captions_per_image},{text}\n" for i, text in enumerate(TEXTS)]
    (folder / "captions.csv").write_text("caption_id,image_id,text\n" + "".join(lines))
    (folder / "params.yaml").write_text(PARAMS)
    table = pa.table({"id": [f"mine:{i}" for i in range(4)], "vector": [[1.0, i] for i in range(4)]})
    pq.write_table(table, folder / "vectors.parquet")
    relabel("ingest")


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("label", "phrase"), [("cider", "consensus"), ("same_image", "no pair is graded"), ("vectors", "")]
)
def test_a_label_that_needs_several_captions_says_so_in_one_line(
    label: str, phrase: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lay(tmp_path, count)
    lines = [line for line in relabel("encode", "--label", label).splitlines() if "every image has one caption" in line]
    assert len(lines) == (1 if phrase and count == 1 else 0)
    assert all(line.startswith(f"label {label}: ") and phrase in line for line in lines)


def test_the_sources_of_the_default_parameters_that_need_several_captions() -> None:
    config = Config()
    noted = [config.source(name).spec.name for name in config.sources if config.source(name).single_caption_note()]
    assert set(noted) == {"same_image", "cider"}


@pytest.mark.parametrize(("images", "single"), [("ab", True), ("aab", False), ("a", True), ("aa", False)])
def test_single_captions_of_a_corpus(images: str, single: bool) -> None:
    captions = [Caption(f"c:{i}", f"i:{image}", "test", "a dog") for i, image in enumerate(images)]
    assert Corpus.from_captions(captions).has_single_captions is single
