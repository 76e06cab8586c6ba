"""Contract: `relabel neighbours` searches with each label, by comma or repeated, builds the tables and describes them.
User errors end in one line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from tests.relabel_cli.runner import invoke


def run(dataset: Any, *arguments: str) -> tuple[int, str]:
    body: dict[str, Any] = {}
    for setting in (*dataset.all_settings, "neighbours.k=100"):
        name, _, value = setting.partition("=")
        *parents, last = name.split(".")
        inner = body
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = yaml.safe_load(value)
    Path("params.yaml").write_text(yaml.safe_dump(body), encoding="utf-8")
    return invoke("neighbours", *arguments)


def test_the_table_is_built_and_described(dataset: Any, make_lines: Any) -> None:
    dataset.encoded(make_lines(6, "train") + make_lines(4, "val", 50), labels=["near", "cider"])
    for labels in (["--label", "near"], ["-l", "near,cider"], ["-l", "near", "--label", "cider"]):
        code, output = run(dataset, *labels, "-k", "3", "--of", "images", "--within", "val")
        assert code == 0, output
        names = [name for option in labels[1::2] for name in option.split(",")]
        assert output.count("3 neighbours of each of 4 images; exact") == len(names)
    assert Path("labels/coco/neighbours/val/images/near/manifest.json").exists()
    facts = json.loads(run(dataset, "-k", "3", "--json", "--label", "near", "--index", "IVF2,Flat")[1])
    assert 0 < facts["recall"]["value"] <= 1
    assert facts["exact"] is False
    code, output = run(dataset, "-k", "4", "--label", "near")
    assert code == 2
    assert "neighbours.k (3 there, 4 here)" in output
    _, output = run(dataset)
    assert [line.split(":")[0] for line in output.splitlines()] == ["cider", "near"]
