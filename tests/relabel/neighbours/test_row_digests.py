"""Contract: two rows have equal digests exactly if their values are equal, for every column type, chunking, slicing and
encoding. Digests of flat columns equal those of a loop over bytes.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from relabel.neighbours.row_digests import digests

TUPLES: list[Any] = [
    [["dog"], ["dog", "big"], ["dog", "man", "on"]],
    [["dog"], ["dog", "big"], ["dog", "man", "of"]],
    [["dog", "dog", "big"], ["dog", "man", "on"]],
    [["dogdog", "big"], ["dog", "man", "on"]],
    [["dog", "big"], ["dog"], ["dog", "man", "on"]],
    [["dog"]],
    [["do", "g"]],
    [["dog", ""]],
    [["", "dog"]],
    [["dog", None]],
    [["dog"], []],
    [["dog"], None],
    [[]],
    [[], []],
    [None],
    [],
    None,
    [["café", "图"]],
]
NESTED = {
    "tuples": (pa.list_(pa.list_(pa.string())), TUPLES),
    "large": (pa.large_list(pa.large_list(pa.large_string())), TUPLES),
    "bytes": (pa.list_(pa.binary()), [[b""], [b"\0"], [b"\0", b""], [b"", b"\0"], [], None, [None]]),
    "integers": (pa.list_(pa.list_(pa.int32())), [[[1], [2]], [[1, 2]], [[], [1, 2]], [[1, 2], []], [[1, 0]], [[1]]]),
    "optional": (pa.list_(pa.int32()), [[0], [None], [0, None], [None, 0], [], None]),
    "flags": (pa.list_(pa.list_(pa.bool_())), [[[True]], [[False]], [[True, False]], [[True], [False]], [[None]]]),
    "pairs": (pa.list_(pa.list_(pa.int16(), 2)), [[[1, 2]], [[1, 2], [3, 4]], [None], [], [[None, 2]], [[1, 3]]]),
    "struct": (
        pa.struct([("word", pa.string()), ("at", pa.list_(pa.int8()))]),
        [
            {"word": "a", "at": [1]},
            {"word": "a", "at": []},
            {"word": "a", "at": None},
            {"word": None, "at": [1]},
            {"word": None, "at": None},
            None,
        ],
    ),
    "map": (pa.map_(pa.string(), pa.int32()), [[("a", 1)], [("b", 1)], [("a", 2)], [("a", 1), ("b", 1)], [], None]),
    "words": (pa.string(), ["", "a", "ab", "ç", None]),
    "decimal": (pa.list_(pa.decimal128(5, 1)), [[], [1], [2], [1, 2]]),
}


def digests_of(*columns: pa.ChunkedArray | pa.Array) -> list[bytes]:
    return list(digests(c if isinstance(c, pa.ChunkedArray) else pa.chunked_array([c]) for c in columns))


@pytest.mark.parametrize("name", NESTED)
def test_exactly_equal_values_have_equal_digests(name: str) -> None:
    kind, values = NESTED[name]
    digests_of_values = digests_of(pa.array([*values, *values], kind))
    assert digests_of_values[: len(values)] == digests_of_values[len(values) :]
    assert len(set(digests_of_values)) == len(values)


@pytest.mark.parametrize("name", NESTED)
def test_chunks_slices_and_other_rows_do_not_matter(name: str) -> None:
    kind, values = NESTED[name]
    array = pa.array(values, kind)
    expected = digests_of(array)
    assert [digests_of(array.slice(i, 1))[0] for i in range(len(values))] == expected
    assert [digests_of(pa.array([value], kind))[0] for value in values] == expected
    rng = np.random.default_rng(0)
    for _ in range(10):
        order = rng.permutation(len(values)).tolist()
        cuts = sorted(rng.integers(0, len(values) + 1, 3).tolist())
        shuffled = [values[i] for i in order]
        chunks = [pa.array(shuffled[a:b], kind) for a, b in itertools.pairwise([0, *cuts, len(values)])]
        column = pa.chunked_array(chunks, kind)
        assert digests_of(column) == [expected[i] for i in order]
        first = int(rng.integers(0, len(values)))
        assert digests_of(column.slice(first)) == [expected[i] for i in order[first:]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.list_(pa.string()), pa.large_list(pa.large_string())),
        (pa.list_(pa.string()), pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        (pa.list_(pa.string()), pa.list_(pa.binary())),
    ],
)
def test_a_text_is_one_value_in_every_encoding_of_it(one: Any, other: Any) -> None:
    values = [["a", "b"], ["ab"], [], ["a", None]]
    assert digests_of(pa.array(values, one)) == digests_of(pa.array(values, other))


def test_bytes_under_a_null_do_not_matter() -> None:
    valid = pa.array([True, False, True]).buffers()[1]
    for hidden in (b"\x01\x02\x03\x04", b"\0\0\0\0"):
        data = b"\x05\0\0\0" + hidden + b"\x06\0\0\0"
        column = pa.Array.from_buffers(pa.int32(), 3, [valid, pa.py_buffer(data)])
        assert digests_of(column) == digests_of(pa.array([5, None, 6], pa.int32()))


def test_columns_are_separated() -> None:
    a, b = pa.array([[1], [1, 2]], pa.list_(pa.int32())), pa.array([[2], []], pa.list_(pa.int32()))
    first, second = digests_of(a, b)
    assert first != second
    assert digests_of(b, a) != [first, second]


@pytest.mark.parametrize(
    ("kind", "values", "dtype"),
    [
        (pa.list_(pa.int32()), [[1, 2], [], [3]], "<i4"),
        (pa.list_(pa.float32(), 2), [[0.5, 1], [2, -0.0], [np.nan, 1]], "<f4"),
        (pa.list_(pa.float16(), 1), [[0.5], [2], [1]], "<f2"),
        (pa.int32(), [7, 8, 9], "<i4"),
        (pa.bool_(), [True, False, True], "u1"),
    ],
)
def test_flat_columns_are_hashed_as_length_and_bytes(kind: Any, values: list[Any], dtype: str) -> None:
    column = pa.array([np.asarray(v, dtype) if isinstance(v, list) else v for v in values], kind)
    expected = []
    for value in values:
        data = np.asarray(value, dtype).tobytes()
        expected.append(hashlib.blake2b(len(data).to_bytes(4, "little") + data, digest_size=16).digest())
    assert digests_of(column) == expected


def test_a_type_without_a_layout_is_refused() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    with pytest.raises(TypeError, match="no digest"):
        digests_of(union)
