"""Contract: `relabel neighbours` searches with each label, by comma or repeated, builds the tables and describes them.
User errors end in one line.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.relabel.export.formats import in_folder
from tests.relabel_cli.runner import invoke

from relabel.stages import Project


def test_the_table_is_built_and_described(
    small_project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    in_folder(small_project, tmp_path / "labels")
    Path("params.yaml").write_text(yaml.safe_dump(json.loads(small_project.config.model_dump_json())))
    for labels in (["--label", "cbow"], ["-l", "cbow,cider"], ["-l", "cbow", "--label", "cider"]):
        code, output = invoke("neighbours", *labels, "-k", "3", "--queries", "images", "--candidates", "val")
        assert code == 0, output
        names = [name for option in labels[1::2] for name in option.split(",")]
        assert output.count("3 neighbours of each of 20 images; exact") == len(names)
    assert Path("labels/coco/neighbours/val/images/cbow/manifest.json").exists()
    metadata = json.loads(invoke("neighbours", "-k", "3", "--json", "--label", "cbow", "--index", "IVF2,Flat")[1])
    assert 0 < metadata["recall"]["value"] <= 1
    assert metadata["exact"] is False
    code, output = invoke("neighbours", "-k", "4", "--label", "cbow")
    assert code == 2
    assert "neighbours.k (3 there, 4 here)" in output
