"""Contract: relabel works with the lowest versions of its main dependencies in pyproject.toml. In an environment
with them, the command builds labels from captions, and no model folder runs code.

The environment takes about 6 GB and minutes to install. `RELABEL_LOWEST_VERSIONS` names a folder that keeps it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.packaging.environments import READ, ROOT, WORDS, make_environment, need_registry, run, write_captions

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(2400)]
SPACE = 10 << 30  # bytes: torch with CUDA's libraries, and pip's temporary files
SETTINGS = {
    "ingest": {"dataset": "mine", "format": "jsonl", "path": "captions.jsonl"},
    "sources": {
        "sbert": {"source": "sbert", "model": "all-MiniLM-L6-v2"},
        "cider": {"source": "cider", "tokenizer": "lower_split"},
        "cbow": {"source": "cbow", "vectors": "vectors.txt", "tokenizer": "lower_split"},
    },
}
COMMANDS = (
    "encode",
    "neighbours --label cbow -k 5",
    "export lookup --label sbert --split test",
    "export lookup --label cider --split test",
    "export batches --label sbert --split test --batch-size 8 --epochs 1 --seed 0 --batches-per-epoch 2",
    "verify",
    "encode --label cider --workers 1 --rebuild",
)
EACH = """import sys
from relabel_cli.root import app
for command in sys.argv[1:]:
    assert not app([*command.split(), "--quiet"], standalone_mode=False), command
"""
"""Program that runs commands one after another, with one import of torch and one compilation of numba's kernels."""
READ_BATCHES = """from pathlib import Path
import numpy as np
from relabel_train.precomputed import open_batches
(plan,) = Path("labels/mine/exports/test/batches").glob("*/batches.json")
print(np.isfinite(open_batches(plan.parent)[0].relevance).all())
"""


def lowest() -> dict[str, str]:
    """Return the lowest version of every main dependency, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    stated = [*project["dependencies"], *extras["pipeline"], *extras["cpu"]]
    bounds = [re.fullmatch(r"([\w-]+)>=([\d.]+)(;.*)?", one) for one in stated]
    assert all(bounds), f"a dependency without a lowest version: {stated}"
    return {bound[1]: bound[2] for bound in bounds if bound}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the Python of an environment with the lowest versions and this checkout."""
    need_registry("typer")
    keep = os.environ.get("RELABEL_LOWEST_VERSIONS")
    folder = Path(keep).resolve() if keep else tmp_path_factory.mktemp("lowest")
    interpreter = folder / "bin" / "python"
    try:
        if not interpreter.exists():
            if shutil.disk_usage(folder.parent).free < SPACE:
                pytest.skip(f"less than {SPACE >> 30} GiB of disk are free")
            pins = tmp_path_factory.mktemp("pins") / "lowest.txt"
            pins.write_text("".join(f"{name}=={version}\n" for name, version in lowest().items()))
            extras = f"{ROOT}[pipeline,cpu,offline]"
            make_environment(folder, "--no-cache-dir", "-c", pins, extras, "pytest", "pytest-timeout")
        run(interpreter, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", ROOT, cwd=folder)
        yield interpreter
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def test_the_environment_holds_the_lowest_versions(python: Path, tmp_path: Path) -> None:
    code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    installed = run(python, "-c", code, *lowest(), cwd=tmp_path).split()
    found, stated = ([re.sub(r"(\.0)+$", "", version) for version in some] for some in (installed, lowest().values()))
    assert found == stated


def test_the_command_line_builds_labels(python: Path, tmp_path: Path) -> None:
    write_captions(tmp_path)
    vectors = "".join(f"{word} {i % 3} {i % 5} {i % 7 + 1}\n" for i, word in enumerate(WORDS))
    (tmp_path / "vectors.txt").write_text(vectors)
    (tmp_path / "params.yaml").write_text(json.dumps(SETTINGS))
    run(python.with_name("relabel"), "ingest", "--quiet", cwd=tmp_path)
    run(python, "-c", EACH, *COMMANDS, cwd=tmp_path)
    printed = run(python, "-c", READ.format(label="sbert") + READ_BATCHES, cwd=tmp_path)
    assert printed.splitlines() == ["(2, 2)", "True"]


def test_no_model_folder_runs_code(python: Path) -> None:
    tests = ("tests/relabel/sources/models/test_checks.py", "tests/relabel/sources/models/test_files.py")
    printed = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=ROOT)
    assert "skipped" not in printed.splitlines()[-1]
