"""Contract: a release can be built and has one version. The wheel contains everything that an installation needs.
Outside the checkout, the command builds labels, and an environment with numpy and pyarrow alone reads them. With the
main dependencies alone, every verb works or names the missing extra in one line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import yaml

from relabel_cli.root import VERBS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
WORDS = ("a", "the", "man", "dog", "on", "red", "bus", "two", "cats", "in", "street")


def attempt(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command outside the checkout."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "RELABEL_DATA")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment["HF_HUB_OFFLINE"] = "1"
    words = list(map(str, command))
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command outside the checkout that must succeed; return its standard output."""
    result = attempt(*command, cwd=cwd)
    assert result.returncode == 0, f"{command}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build what a release uploads: a source archive, and from that the wheel; pip fetches the build backend."""
    if subprocess.run([sys.executable, "-m", "pip", "index", "versions", "hatchling"], capture_output=True).returncode:
        pytest.skip("no package registry can be reached")
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    run(sys.executable, "-m", "twine", "check", "--strict", *folder.iterdir(), cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return `bin` of an environment with the wheel and with this environment's dependencies, but without the
    checkout.
    """
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-deps", wheel, cwd=folder)
    site = next((folder / "lib").glob("python*/site-packages"))
    # Paths in a .pth file are searched after the environment's own packages. The .pth files in them, such as that of
    # the editable installation of this checkout, are ignored.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "bin"


@pytest.fixture(scope="module")
def labelled(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the installed command ingested captions, encoded them and wrote a lookup."""
    folder = tmp_path_factory.mktemp("user")
    lines = [
        {"caption_id": f"c{i}", "image_id": f"i{i // 4}", "split": "test", "text": " ".join(WORDS[i % 5 : 6 + i % 5])}
        for i in range(48)
    ]
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    relabel = installed / "relabel"
    source = ("--set", "sources.cider.tokenizer=lower_split")
    captions = ("--format", "jsonl", "--path", "captions.jsonl")
    run(relabel, "ingest", "--dataset", "mine", *captions, "--quiet", cwd=folder)
    for step in (("encode",), ("export", "lookup")):
        options = ("--dataset", "mine", "--label", "cider", "--split", "test", *source, "--quiet")
        run(relabel, *step, *options, cwd=folder)
    return folder


def test_a_release_has_one_version(wheel: Path) -> None:
    name, version = wheel.name.split("-")[:2]
    assert name == "relabel_itr"
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == version
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines() if line[:3] == "## "]
    assert headings[0] == "## Unreleased" or headings[0].startswith(f"## {version} ")


def test_the_wheel_holds_code_data_and_licences(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    manifests = {f"relabel/data_manifests/{file.name}" for file in (ROOT / "data_manifests").glob("*.yaml")}
    scores = {
        f"relabel/datasets/cxc_data/cxc_{task}_{split}.parquet"
        for task in ("sts", "sits", "sis")
        for split in ("val", "test")
    }
    assert manifests | scores <= names
    templates = {f"relabel/templates/examples/{file.name}" for file in (ROOT / "examples").glob("*.*")}
    assert {"relabel/templates/params.yaml", *templates} <= names
    assert {"relabel/py.typed", "relabel_train/py.typed"} <= names
    assert {"LICENSE", "NOTICE"} <= {name.rsplit("/", 1)[1] for name in names if ".dist-info/licenses/" in name}
    roots = {name.split("/", 1)[0] for name in names}
    assert {root for root in roots if not root.endswith(".dist-info")} == {"relabel", "relabel_cli", "relabel_train"}


def test_the_installed_command_builds_labels(labelled: Path) -> None:
    assert (labelled / "labels/mine/encodings/test/cider/manifest.json").is_file()
    assert (labelled / "labels/mine/exports/test/lookup/cider/lookup.json").is_file()


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return `bin` of an environment with the wheel and its main dependencies."""
    folder = tmp_path_factory.mktemp("base")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    return folder / "bin"


def test_the_main_dependencies_run_the_command(base: Path, tmp_path: Path) -> None:
    for command in ((), ("--version",), ("doctor",), ("init",), ("fetch",), *((verb, "--help") for verb in VERBS)):
        assert run(base / "relabel", *command, cwd=tmp_path)
    assert run(base / "python", "-m", "relabel", "--version", cwd=tmp_path).startswith("relabel ")
    assert "pip install 'relabel-itr[pipeline]'" in run(base / "relabel", "doctor", cwd=tmp_path)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("run",), "pipeline"),
        (("ingest", "--dataset", "mine", "--path", "captions.jsonl", "--format", "jsonl"), "pipeline"),
        (("fit", "--features", "a", "--captions", "b"), "train"),
        (("eval", "--run", "a", "--features", "b", "--captions", "c"), "train"),
    ],
)
def test_a_verb_names_the_extra_that_it_lacks(command: tuple[str, ...], extra: str, base: Path, tmp_path: Path) -> None:
    (tmp_path / "captions.jsonl").write_text('{"image_id": 1, "text": "a dog"}\n', encoding="utf-8")
    result = attempt(base / "relabel", *command, cwd=tmp_path)
    assert result.returncode == 3, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert f"pip install 'relabel-itr[{extra}]'" in line


@pytest.mark.parametrize(
    ("line", "extra"),
    [("import relabel; relabel.score('a dog', ['a cat'])", "pipeline"), ("import relabel_train.losses", "train")],
)
def test_python_names_the_extra_that_it_lacks(line: str, extra: str, base: Path, tmp_path: Path) -> None:
    assert f"pip install 'relabel-itr[{extra}]'" in attempt(base / "python", "-c", line, cwd=tmp_path).stderr


def test_numpy_and_pyarrow_alone_read_a_lookup(wheel: Path, labelled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    run(sys.executable, "-m", "venv", folder, cwd=tmp_path)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-deps", wheel, cwd=tmp_path)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", "numpy", "pyarrow", cwd=tmp_path)
    result = attempt(folder / "bin/relabel", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (
        3,
        "error: No module named 'typer'. Run `pip install 'relabel-itr[pipeline]'`.\n",
    )
    code = (
        "from relabel_train.lookup import open_lookup\n"
        "lookup = open_lookup('labels/mine/exports/test/lookup/cider')\n"
        "print(lookup.block(lookup.rows_of(['mine:c0', 'mine:c9'])).shape)"
    )
    assert run(folder / "bin/python", "-c", code, cwd=labelled).strip() == "(2, 2)"
