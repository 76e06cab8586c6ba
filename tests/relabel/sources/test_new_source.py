"""Contract: the source of docs/sources/new-source.md works as it stands there, in one file and one line of the
registry. It encodes a corpus, scores pairs and new texts, and has exact neighbours and a lookup.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.examples.documents import python_blocks

from relabel import sources, stages
from relabel.config import Config, load_config
from relabel.core.runtime import Runtime
from relabel.corpus import References
from relabel.stages import Session
from relabel_train.lookup import open_lookup

TEXTS = [["a man rides a bike", "the rider of a bike"], ["two dogs", "a dog runs"], ["riding bikes", "dogs running"]]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Yield a project of three images, with the source of the page in a module and in the registry."""
    module, line = (block.text for block in python_blocks("docs/sources/new-source.md"))
    (tmp_path / "letters_of_the_page.py").write_text(module, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sources, "SOURCES", dict(sources.SOURCES))
    monkeypatch.setattr("relabel.config.SOURCES", sources.SOURCES)
    exec(line.replace("relabel.sources.letters", "letters_of_the_page"), {"SOURCES": sources.SOURCES})
    captions = [
        {"caption_id": f"{i}-{j}", "image_id": str(i), "split": "test", "text": text}
        for i, image in enumerate(TEXTS)
        for j, text in enumerate(image)
    ]
    path = tmp_path / "captions.jsonl"
    path.write_text("".join(json.dumps(caption) + "\n" for caption in captions), encoding="utf-8")
    settings = ["ingest.format=jsonl", f"ingest.path={path}", "ingest.expected={}"]
    settings += ["neighbours.k=3", 'sources={"letters": {"source": "letters"}}']
    config = Config(**load_config(None, settings).model_dump())
    session = Session(config, Runtime(data=tmp_path / "data", threads=1, rows_per_shard=4), tmp_path / "labels")
    stages.ingestion(session).run()
    yield session
    sys.modules.pop("letters_of_the_page", None)


def test_the_source_of_the_page_does_what_a_source_does(session: Session) -> None:
    stages.encoding(session, "letters", "all").run()
    label = stages.open_label(session, "letters", "all")
    rows = np.arange(6, dtype=np.int32)
    block = label.block(References.single(rows), rows)
    pairs = label.pairs(References.single(np.repeat(rows, 6)), np.tile(rows, 6)).reshape(6, 6)
    np.testing.assert_allclose(block, pairs, atol=1e-6)
    assert np.allclose(np.diag(pairs), 1)
    assert pairs[2, 5] > pairs[0, 5]  # dogs, and not bikes
    assert label.query("a dog runs", rows).argmax() == 3

    stages.neighbour_table(session, "letters", "all").run()
    stages.lookup_export(session, "letters", "all").run()
    lookup = open_lookup(session.folder("exports", "all", "lookup", "letters"))
    np.testing.assert_allclose(lookup.block(rows, pooling="first"), pairs, atol=1e-6)
    found, scores = lookup.neighbours(rows, 3)[:2]
    np.fill_diagonal(pairs, -1)
    order = np.argsort(-pairs, axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(found, order)
    np.testing.assert_allclose(scores, np.take_along_axis(pairs, order, 1), atol=1e-6)
