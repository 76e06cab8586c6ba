"""Contract: with `--shard I/N`, every verb that offers it makes its share and no artefact; the verb without it collects
the files. An incomplete step before is exit code 5.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.relabel_cli.runner import invoke

PARAMS = """
ingest: {dataset: mine, format: jsonl, path: captions.jsonl, tokenizer: none, expected: {}}
encode: {rows_per_shard: 7}
neighbours: {k: 3}
export: {batches: {batch_size: 4, epochs: 2, sampler: random}}
sources: {cider: {source: cider, tokenizer: lower_split}}
"""


def test_shares_of_every_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = (
        {"caption_id": f"c{i}", "image_id": f"i{i // 2}", "split": "test", "text": f"a dog {i}"} for i in range(20)
    )
    Path("captions.jsonl").write_text("".join(json.dumps(name) + "\n" for name in names), encoding="utf-8")
    Path("params.yaml").write_text(PARAMS, encoding="utf-8")
    assert invoke("ingest")[0] == 0
    assert "vocabulary.parquet" in invoke("encode", "--shard", "2/2")[1]
    assert invoke("encode", "--shard", "2/2")[0] == 5
    for verb in (["encode"], ["neighbours"], ["export", "batches"], ["export", "wds"]):
        if verb[-1] == "wds":
            assert invoke("export", "lookup", "--label", "cider", "--split", "test")[0] == 0
        options = ["--label", "cider", *(["--split", "test"] if verb[0] != "neighbours" else [])]
        for share in ("1/2", "2/2"):
            made = set(Path("labels").rglob("manifest.json"))
            code, output = invoke(*verb, *options, "--shard", share)
            assert (code, f"share {share[0]} of 2" in output) == (0, True), output
            assert set(Path("labels").rglob("manifest.json")) == made
        code, output = invoke(*verb, *options, quiet=False)
        assert (code, "built in" in output) == (0, True), output
    for option in (["--workers", "2"], ["--scheduler", "tcp://127.0.0.1:1"]):
        assert invoke("encode", "--shard", "1/2", *option)[0] == 2
