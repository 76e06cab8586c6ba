"""Contract: relabel works with the lowest versions of its main dependencies in pyproject.toml. In an environment
with them, the command builds labels from captions, and no model folder runs code.

The environment takes about 6 GB and minutes to install. `RELABEL_LOWEST_VERSIONS` names a folder that keeps it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(2400)]
ROOT = Path(__file__).parents[2]
SPACE = 10 << 30  # bytes: torch with CUDA's libraries, and pip's temporary files
WORDS = "a the man dog on red bus two cats in street".split()  # noqa: SIM905
SETTINGS = {
    "ingest": {"dataset": "mine", "format": "jsonl", "path": "captions.jsonl"},
    "sources": {
        "sbert": {"source": "sbert", "model": "all-MiniLM-L6-v2"},
        "cider": {"source": "cider", "tokenizer": "lower_split"},
        "cbow": {"source": "cbow", "vectors": "vectors.txt", "tokenizer": "lower_split"},
    },
}
COMMANDS = (
    "ingest",
    "encode",
    "neighbours --label cbow -k 5",
    "export lookup --label sbert --split test",
    "export lookup --label cider --split test",
    "export batches --label sbert --split test --batch-size 8 --epochs 1 --seed 0 --batches-per-epoch 2",
    "verify",
    "encode --label cider --workers 1 --set encode.rows_per_shard=10 --replace",
)


def lowest() -> dict[str, str]:
    """Return the lowest version of every main dependency, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    stated = [*project["dependencies"], *extras["pipeline"], *extras["cpu"]]
    bounds = [re.fullmatch(r"([\w-]+)>=([\d.]+)(;.*)?", one) for one in stated]
    assert all(bounds), f"a dependency without a lowest version: {stated}"
    return {bound[1]: bound[2] for bound in bounds if bound}


def run(*command: str, cwd: Path = ROOT) -> str:
    """Run a command outside this environment; return its output."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env |= {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the Python of an environment with the lowest versions and this checkout."""
    probe = [sys.executable, "-m", "pip", "index", "versions", "typer"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no package registry can be reached")
    keep = os.environ.get("RELABEL_LOWEST_VERSIONS")
    folder = Path(keep) if keep else tmp_path_factory.mktemp("lowest")
    interpreter = folder / "bin" / "python"
    try:
        if not interpreter.exists():
            if shutil.disk_usage(folder.parent).free < SPACE:
                pytest.skip(f"less than {SPACE >> 30} GiB of disk are free")
            pins = tmp_path_factory.mktemp("pins") / "lowest.txt"
            pins.write_text("".join(f"{name}=={version}\n" for name, version in lowest().items()))
            run(sys.executable, "-m", "venv", str(folder))
            requirements = (f"{ROOT}[pipeline,cpu,offline]", "pytest", "pytest-timeout")
            run(str(interpreter), "-m", "pip", "install", "-q", "--no-cache-dir", "-c", str(pins), *requirements)
        run(str(interpreter), "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", str(ROOT))
        yield str(interpreter)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def test_the_environment_holds_the_lowest_versions(python: str) -> None:
    code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    installed = run(python, "-c", code, *lowest()).split()

    def plain(version: str) -> str:
        return re.sub(r"(\.0)+$", "", version)

    assert list(map(plain, installed)) == list(map(plain, lowest().values()))


def test_the_command_line_builds_labels(python: str, tmp_path: Path) -> None:
    lines = [
        {"caption_id": f"c{i}", "image_id": f"i{i // 4}", "split": "test", "text": " ".join(WORDS[i % 5 : 6 + i % 5])}
        for i in range(48)
    ]
    (tmp_path / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "vectors.txt").write_text(
        "".join(f"{word} {i % 3} {i % 5} {i % 7 + 1}\n" for i, word in enumerate(WORDS))
    )
    (tmp_path / "params.yaml").write_text(json.dumps(SETTINGS))
    relabel = str(Path(python).parent / "relabel")
    for command in COMMANDS:
        run(relabel, *command.split(), "--quiet", cwd=tmp_path)
    code = (
        "import numpy as np; from relabel_train.lookup import open_lookup\n"
        "from relabel_train.precomputed import open_batches\n"
        "from pathlib import Path; exports = Path('labels/mine/exports/test')\n"
        "lookup = open_lookup(exports / 'lookup/sbert'); (plan,) = (exports / 'batches').glob('*/batches.json')\n"
        "print(lookup.block(lookup.rows_of(['mine:c0', 'mine:c9'])).shape, end=' ')\n"
        "print(np.isfinite(open_batches(plan.parent)[0].relevance).all())"
    )
    assert run(python, "-c", code, cwd=tmp_path).strip() == "(2, 2) True"


def test_no_model_folder_runs_code(python: str) -> None:
    tests = ("tests/relabel/sources/models/test_checks.py", "tests/relabel/sources/models/test_files.py")
    assert "skipped" not in run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests).splitlines()[-1]
