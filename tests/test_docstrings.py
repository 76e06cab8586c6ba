"""Contract: only what users import, and the contracts of sources, have docstrings with sections (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONTRACTS = ("relabel.sources.base", "relabel.sources.relevance")
TRAINER = ("lookup", "lookup.device", "lookup.rows", "losses", "metrics", "precomputed", "samplers", "webdataset")
IMPORTED = ("relabel", *(f"relabel_train.{name}" for name in TRAINER))
SECTION = re.compile(r"^ *(Parameters|Attributes|Returns|Yields|Raises|Examples)\n *-{3,}$", re.MULTILINE)
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public_names() -> set[str]:
    """Return the names of the functions and classes that users import, of all packages."""
    return {name for module in IMPORTED for name in importlib.import_module(module).__all__}


def internals() -> Iterator[tuple[str, str]]:
    """Yield the place and the docstring of everything that is neither public nor part of a contract."""
    public = public_names()
    for package in ("pipeline/relabel", "cli/relabel_cli", "training/relabel_train"):
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts[1:]).removesuffix(".__init__")
            if module in (*CONTRACTS, *IMPORTED):
                continue
            nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
            while nodes:
                node = nodes.pop()
                if getattr(node, "name", None) in public:
                    continue
                if isinstance(node, Documented) and (text := ast.get_docstring(node)):
                    yield f"{module}:{getattr(node, 'lineno', 1)}", text
                nodes += ast.iter_child_nodes(node)


def test_internals_have_no_sections() -> None:
    assert [place for place, text in internals() if SECTION.search(text)] == []
