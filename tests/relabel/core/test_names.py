"""Contract: a name that becomes a folder is a single part of a path; every function that takes a name refuses
others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from relabel.config import Config, load_config
from relabel.core.errors import UsageError
from relabel.core.parameters import check_name
from relabel.core.runtime import Runtime
from relabel.corpus.params import IngestParams
from relabel.stages import Project

GOOD = ["cider", "cider_lower_split", "cbow-glove", "A.1+b", "0", "x" * 100, "a..b"]
BAD = ["", ".", "..", "../lookup", "/tmp/d", "a/b", "a\\b", ".hidden", "-rf", "+x", "x" * 101, "a b", "ä", "a\n", "a\0"]


@pytest.mark.parametrize("name", GOOD)
def test_plain_names_are_accepted(name: str) -> None:
    assert check_name("label", name) == name


@pytest.mark.parametrize("name", BAD)
def test_any_other_name_is_refused_with_the_pattern(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a label") as error:
        check_name("label", name)
    assert error.value.exit_code == 2
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("name", BAD)
def test_no_name_leads_out_of_the_folder_of_a_dataset(name: str, tmp_path: Path) -> None:
    project = Project(Config(ingest=IngestParams(dataset="mine")), Runtime(), tmp_path)
    assert project.folder("encodings", "test") == tmp_path / "mine" / "encodings" / "test"
    for names in ((name,), ("encodings", name), ("encodings", "test", name)):
        with pytest.raises(UsageError):
            project.folder(*names)


@pytest.mark.parametrize("name", [".", "../../../../evil", "a/b", "", "x" * 101])
def test_an_invalid_label_of_params_yaml_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(f"sources: {{cider: {{source: cider}}, '{name}': {{source: cider}}}}\n")
    with pytest.raises(UsageError, match="cannot name a label"):
        load_config(path)
