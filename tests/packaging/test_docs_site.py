"""Contract: the documentation site is built without warnings, and the links of a document point to files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.examples.documents import ROOT, pages

from relabel.sources import SOURCES
from relabel_cli.root import VERBS

DOCUMENTS = (*pages(), "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("mkdocs"), reason="mkdocs is not installed (the `docs` extra)")
@pytest.mark.skipif(not find_spec("mkdocstrings"), reason="mkdocstrings is not installed (the `docs` extra)")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    page = (tmp_path / "site/api/index.html").read_text(encoding="utf-8")
    documented = ("relabel.score", "relabel.load", "relabel_train.lookup.Lookup", "relabel_train.losses.BCLSLoss")
    assert all(f'id="{name}"' in page for name in documented)
    reference = (tmp_path / "site/reference/index.html").read_text(encoding="utf-8")
    assert all(f'id="relabel-{verb}"' in reference for verb in VERBS)
    assert all(f'id="source-{name}"' in reference for name in SOURCES)
    shown = ("--memory &lt;str&gt;", "--device &lt;device&gt;", 'sampler: "random"', "sigma: 6.0")
    assert all(f"<code>{row}" in reference for row in shown)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_links_of_a_document_point_to_files(document: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / document).read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    missing = [link for link in links if "://" not in link and not (ROOT / document).parent.joinpath(link).exists()]
    assert not missing
