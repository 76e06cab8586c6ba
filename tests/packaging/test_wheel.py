"""Contract: the wheel holds everything that an installation needs. Outside the checkout, the command builds labels from
it, and an environment with its two main dependencies alone reads them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
WORDS = ("a", "the", "man", "dog", "on", "red", "bus", "two", "cats", "in", "street")


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that knows nothing of the checkout; return its standard output."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "RELABEL_DATA")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"HF_HUB_OFFLINE": "1", "RELABEL_CACHE": str(cwd / "cache")}
    words = list(map(str, command))
    result = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(words)}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout; pip fetches the build backend."""
    if subprocess.run([sys.executable, "-m", "pip", "index", "versions", "hatchling"], capture_output=True).returncode:
        pytest.skip("no package registry can be reached")
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bin` of an environment with the wheel, and with the dependencies of this environment but not the checkout."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-deps", wheel, cwd=folder)
    site = next((folder / "lib").glob("python*/site-packages"))
    # A path in a .pth file is searched after the environment's own packages, and .pth files in it (the editable
    # installation of this checkout) are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "bin"


@pytest.fixture(scope="module")
def labelled(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of its own in which the installed command ingested captions, encoded them and wrote a lookup."""
    folder = tmp_path_factory.mktemp("user")
    lines = [
        {"caption_id": f"c{i}", "image_id": f"i{i // 4}", "split": "test", "text": " ".join(WORDS[i % 5 : 6 + i % 5])}
        for i in range(48)
    ]
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    relabel = installed / "relabel"
    source = ("--set", "sources.cider.tokenizer=lower_split")
    captions = ("--format", "jsonl", "--path", "captions.jsonl", "--tokenizer", "none")
    run(relabel, "ingest", "--dataset", "mine", *captions, "--quiet", cwd=folder)
    for step in (("encode",), ("export", "lookup")):
        options = ("--dataset", "mine", "--label", "cider", "--split", "test", *source, "--quiet")
        run(relabel, *step, *options, cwd=folder)
    return folder


def test_the_wheel_holds_code_data_and_licences(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    manifests = {f"relabel/data_manifests/{file.name}" for file in (ROOT / "data_manifests").glob("*.yaml")}
    scores = {
        f"relabel/datasets/cxc_data/cxc_{task}_{split}.parquet"
        for task in ("sts", "sits", "sis")
        for split in ("val", "test")
    }
    assert manifests | scores <= names
    assert {"relabel/py.typed", "relabel_train/py.typed"} <= names
    assert {"LICENSE", "NOTICE"} <= {name.rsplit("/", 1)[1] for name in names if ".dist-info/licenses/" in name}
    roots = {name.split("/", 1)[0] for name in names}
    assert {root for root in roots if not root.endswith(".dist-info")} == {"relabel", "relabel_cli", "relabel_train"}


def test_the_installed_command_says_its_version_and_checks_the_machine(installed: Path, tmp_path: Path) -> None:
    where = run(installed / "python", "-c", "import relabel; print(relabel.__file__)", cwd=tmp_path)
    assert str(installed.parent) in where
    assert run(installed / "relabel", "--version", cwd=tmp_path).strip()
    assert "python" in run(installed / "relabel", "doctor", cwd=tmp_path)


def test_the_installed_command_builds_labels(labelled: Path) -> None:
    assert (labelled / "labels/mine/encodings/test/cider/manifest.json").is_file()
    assert (labelled / "labels/mine/exports/test/lookup/cider/lookup.json").is_file()


def test_numpy_and_pyarrow_alone_read_a_lookup(wheel: Path, labelled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    run(sys.executable, "-m", "venv", folder, cwd=tmp_path)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    code = (
        "from relabel_train.lookup import open_lookup\n"
        "lookup = open_lookup('labels/mine/exports/test/lookup/cider')\n"
        "print(lookup.block(lookup.rows_of(['mine:c0', 'mine:c9'])).shape)"
    )
    assert run(folder / "bin/python", "-c", code, cwd=labelled).strip() == "(2, 2)"
