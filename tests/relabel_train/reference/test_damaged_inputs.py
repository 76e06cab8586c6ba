"""Contract: a damaged file of positives is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from relabel_train.metrics.positives import read_ids


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b"9" * 5000, b"[]", b'{"1": 2}'])
def test_damaged_positives_are_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "eccv_image_to_caption.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"eccv_image_to_caption\.json: "):
        read_ids(path, "coco")
