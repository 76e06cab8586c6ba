"""Contract: an amount of memory is parsed with its unit, and anything else is refused with an example. Freed memory is
returned to the system, so that the next stage can use it.
"""

from __future__ import annotations

import pytest

from relabel.core.runtime import parse_size


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4GiB", 4 << 30),
        ("512MiB", 512 << 20),
        ("4G", 4 << 30),
        ("4GB", 4_000_000_000),
        ("1.5 gib", 3 << 29),
        ("1TiB", 1 << 40),
        ("1000000", 1_000_000),
        (" 300000 KiB ", 300_000 << 10),
    ],
)
def test_amounts(text: str, found: int) -> None:
    assert parse_size(text) == found


@pytest.mark.parametrize("text", ["", "GiB", "4 gigs", "-4GiB", "4GiBs", "inf", "nan", "1e9", "4,5GiB", "٤GiB"])
def test_invalid_amounts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="4GiB or 512MiB"):
        parse_size(text)
