"""Contract: the documentation site is built without warnings, the pages of reference say what the code says, llms.txt
lists all pages, each source, export and verb is stable or experimental, and the links of a document point to files and
headings that exist.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.examples.documents import ROOT, WRITTEN, pages

from relabel.export import EXPORTS
from relabel.sources import SOURCES
from relabel_cli.root import VERBS

DOCUMENTS = (
    *pages(),
    *WRITTEN,
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "examples/README.md",
)
_CODE = re.compile(r"```.*?```", re.DOTALL)


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("mkdocs"), reason="mkdocs is not installed (the `docs` extra)")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.skipif(not find_spec("griffe"), reason="griffe is not installed (the `docs` extra)")
def test_the_pages_of_reference_are_those_of_the_code() -> None:
    import docs_reference

    written = docs_reference.pages()
    assert {f"docs/{name}" for name in written} == {*WRITTEN}
    for name, text in written.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, f"docs/{name}: run `make docs`"
    index = docs_reference.index()
    assert (ROOT / "docs" / docs_reference.INDEX).read_text(encoding="utf-8") == index, "llms.txt: run `make docs`"
    assert (
        index.count("https://relabel-itr.github.io/relabel/") == len(pages()) + len(WRITTEN) - 2
    )  # README, the home page
    documented = ("relabel.score", "relabel.load", "relabel_train.lookup.Lookup", "relabel_train.losses.BCLSLoss")
    assert all(f'id="{name}"' in written["api.md"] for name in documented)
    assert all(f"### `relabel {verb}`" in written["reference.md"] for verb in VERBS)
    assert all(f"#### `source: {name}`" in written["reference.md"] for name in SOURCES)


def test_each_source_export_and_verb_is_stable_or_experimental() -> None:
    table = (ROOT / "docs/support.md").read_text(encoding="utf-8").partition("## ")[0]
    rows = {line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| ")}
    exports = {"lookup", "neighbours", "batches", "wds", *EXPORTS}
    for row, names in {"sources": {*SOURCES}, "exports": exports, "verbs": {*VERBS}}.items():
        assert sorted(re.findall(r"`([^`]*)`", rows[row])) == sorted(names)


def anchors(document: Path) -> set[str]:
    """Return the anchors of a page: its `id`s, and its headings as GitHub names them."""
    text = _CODE.sub("", document.read_text(encoding="utf-8"))
    headings = (re.sub(r"<[^>]*>", "", line) for line in re.findall(r"^#+ +(.*)$", text, re.MULTILINE))
    return {*re.findall(r'id="([^"]+)"', text)} | {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_links_of_a_document_point_to_files_and_headings(document: str) -> None:
    here = ROOT / document
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?[^)]*\)", _CODE.sub("", here.read_text(encoding="utf-8")))
    local = [(here.parent / path if path else here, anchor) for path, anchor in links if "://" not in path]
    assert not [str(file) for file, _ in local if not file.exists()]
    named = [(file, anchor) for file, anchor in local if anchor and file.suffix == ".md"]
    assert not [f"{file.name}#{anchor}" for file, anchor in named if anchor not in anchors(file)]
