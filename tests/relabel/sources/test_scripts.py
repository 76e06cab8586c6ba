"""Contract: sources of words warn of captions without spaces between words, unless spaces were put there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.relabel.sources.encodings import corpus_of, encode

from relabel.sources.cider import Cider, CiderParams
from relabel.sources.scripts import is_unspaced


@pytest.mark.parametrize(
    ("unspaced", "spaced"),
    [
        ("一只棕色的狗在沙滩上奔跑", "一只 棕色 的 狗 在 沙滩 上 奔跑"),
        ("ソファで寝ている二匹の猫", "ソファ で 寝て いる 二匹 の 猫"),
        ("สุนัขสีน้ำตาลวิ่งบนชายหาด", "สุนัข สีน้ำตาล วิ่ง บน ชายหาด"),
        ("ໝາສີນ້ຳຕານແລ່ນຢູ່ຫາດຊາຍ", "A brown dog runs on the 砂浜"),
        ("ឆ្កែពណ៌ត្នោតរត់នៅឆ្នេរ", "갈색 개가 해변을 달린다"),
        ("အညိုရောင်ခွေးတစ်ကောင်", "كلب بني يركض على الشاطئ"),
    ],
)
def test_scripts_without_spaces(unspaced: str, spaced: str, tmp_path: Path) -> None:
    assert (is_unspaced(unspaced), is_unspaced(spaced)) == (True, False)
    source = Cider(CiderParams(tokenizer="lower_split"))
    texts = ["a dog", "two cats"]
    (warning,) = encode(source, corpus_of([[*texts, unspaced], texts]), tmp_path / "unspaced")[1].warnings
    assert warning.startswith("1 caption has no spaces between words")
    assert encode(source, corpus_of([[*texts, spaced], texts]), tmp_path / "spaced")[1].warnings == []
