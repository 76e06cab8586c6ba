"""Contract: no module imports itself through others, neither when it is loaded nor by an import inside a function.

A package is the module of its `__init__`. Imports for type checking do not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOTS = [Path(__file__).parents[1] / name for name in ("pipeline", "cli", "training")]
LATER = {
    # The corpus of a session is checked by the stage that ingests it.
    ("relabel.stages.session", "relabel.stages.ingest"),
}
"""Imports inside functions that may close a circle."""


def names(nodes: Iterable[ast.AST], inside: bool) -> Iterator[str]:
    """Yield the dotted names that statements import; those of functions only if `inside`."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        elif inside or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from names(ast.iter_child_nodes(node), inside)


def find_circle(roots: Iterable[Path], inside: bool) -> list[str]:
    """Return the modules of a circle, the first one twice; an empty list if there is none."""
    paths = {path.relative_to(root).with_suffix("").parts: path for root in roots for path in root.rglob("*.py")}
    files = {".".join(parts).removesuffix(".__init__"): path for parts, path in paths.items()}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        graph[name] = set()
        for full in names(ast.parse(path.read_text(encoding="utf-8")).body, inside):
            module = full if full in files else full.rpartition(".")[0]
            # The packages above a module are loaded before it, except those that are being loaded already.
            parts = module.split(".")
            above = {".".join(parts[:n]) for n in range(1, len(parts))}
            graph[name] |= {module, *(other for other in above if not name.startswith(f"{other}."))} & files.keys()
        graph[name] -= {name, *(other for importer, other in LATER if importer == name and inside)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("inside", [False, True], ids=["modules", "functions"])
def test_no_module_imports_itself_through_others(inside: bool) -> None:
    assert find_circle(ROOTS, inside) == []


@pytest.mark.parametrize(("statement", "inside"), [("import p.b", False), ("def f():\n    from p import b", True)])
def test_a_circle_is_found(tmp_path: Path, statement: str, inside: bool) -> None:
    (tmp_path / "p").mkdir()
    for name, text in {"__init__": "", "a": statement, "b": "from p.a import x"}.items():
        (tmp_path / "p" / f"{name}.py").write_text(text, encoding="utf-8")
    assert set(find_circle([tmp_path], inside)) == {"p.a", "p.b"}
    assert find_circle([tmp_path], False) == [] or not inside
