"""Contract of the words of tuples: METEOR's synonym sets, base forms and phrases included; a leading `be ` goes from
relations alone; what is no tuple is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from relabel.core.errors import CheckError
from relabel.sources.spice.synonyms import spelled, words_table


def test_a_word_has_its_own_sets_and_those_of_its_base_forms(meteor_jar: Path, oracle: Any) -> None:
    words = ["men", "man", "dogs", "hot dog", "riding", " Street ", "zzz", "", "children", "glass"]
    table = words_table([*words, "man"], meteor_jar)
    assert table["word"].to_pylist() == sorted(words)
    found = dict(zip(table["word"].to_pylist(), map(set, table["synsets"].to_pylist()), strict=True))
    assert found == {word: {int(s) for s in oracle.sets(word)} for word in words}
    assert found["man"]
    assert found["man"] <= found["men"]
    assert found["zzz"] == found[""] == set()
    assert found["hot dog"]
    assert not found["hot dog"] & found["zzz"]


def test_tuples_are_taken_apart() -> None:
    tuples = [[["be it"], ["man", "be on"], ["be man", "be road", "be on"]], None, [], [["man", "road", "behind"]]]
    column = pa.chunked_array([pa.array(tuples[:2], pa.list_(pa.list_(pa.string()))), pa.array(tuples[2:])])
    start, sizes, words = spelled(column)
    assert start.tolist() == [0, 3, 3, 3, 4]
    assert sizes.tolist() == [1, 2, 3, 3]
    assert words.to_pylist() == ["be it", "man", "be on", "be man", "be road", "on", "man", "road", "behind"]


@pytest.mark.parametrize("wrong", [[[]], [["a", "b", "c", "d"]], [["a", None]]])
def test_what_is_no_tuple_is_refused(wrong: Any) -> None:
    with pytest.raises(CheckError, match="one to three words"):
        spelled(pa.chunked_array([pa.array([wrong], pa.list_(pa.list_(pa.string())))]))
