"""Contract: compiled functions are cached between processes; an index that names removed types is replaced."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TYPES = "from typing import NamedTuple\nclass {name}(NamedTuple):\n    x: float\n"
KERNEL = """
from relabel.core.numeric.jit import jit
from {module} import {name}

@jit
def double(pair):
    return 2.0 * pair.x
"""
CALL = """
from {module} import {name}
from kernel import double
print(double({name}(21.0)), sum(double.stats.cache_hits.values()))
"""


def call(folder: Path, module: str, name: str) -> str:
    """Write both modules, call the function in a new process, and return its result and its cache hits."""
    (folder / f"{module}.py").write_text(TYPES.format(name=name))
    (folder / "kernel.py").write_text(KERNEL.format(module=module, name=name))
    code = f"import sys; sys.path.insert(0, {str(folder)!r})" + CALL.format(module=module, name=name)
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    assert call(tmp_path, "types_of_kernel", "Pair") == "42.0 0"
    before = {path: path.read_bytes() for path in (tmp_path / "__pycache__").glob("*.nb*")}
    assert len(before) == 2
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})" + CALL.format(module="types_of_kernel", name="Pair")
    again = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert again.stdout.strip() == "42.0 1"


def test_an_index_that_names_a_moved_type_is_replaced(tmp_path: Path) -> None:
    assert call(tmp_path, "old_types", "Pair") == "42.0 0"
    (tmp_path / "old_types.py").unlink()
    assert call(tmp_path, "new_types", "Pair") == "42.0 0"
    assert call(tmp_path, "new_types", "RenamedPair") == "42.0 0"
