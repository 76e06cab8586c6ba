"""Contract: a release can be built and has one version. The wheel contains everything that an installation needs.
Outside the checkout, the command builds labels, and an environment with numpy and pyarrow alone reads them. With the
main dependencies alone, every verb works or names the missing extra in one line. `uvx` labels a file in one command.

`RELABEL_WHEEL` names a wheel to test instead of one that is built here.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.version import Version
from tests.packaging.environments import READ, ROOT, attempt, make_environment, need_registry, run, write_captions

from relabel_cli.root import VERBS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SPACE = 10 << 30  # bytes: torch with CUDA's libraries in the cache of uv, to which environments link


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build what a release uploads: a source archive, and from that the wheel; pip fetches the build backend."""
    need_registry("hatchling")
    if given := os.environ.get("RELABEL_WHEEL"):
        return Path(given).resolve()
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
    programs = make_environment(folder, "--no-deps", wheel)
    site = next((folder / "lib").glob("python*/site-packages"))
    # Paths in a .pth file are searched after the environment's own packages. The .pth files in them, such as that of
    # the editable installation of this checkout, are ignored.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return programs


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return `bin` of an environment with the wheel and its main dependencies."""
    return make_environment(tmp_path_factory.mktemp("base"), wheel)


@pytest.fixture(scope="module")
def labelled(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the installed command ingested captions, encoded them and wrote a lookup."""
    folder = tmp_path_factory.mktemp("user")
    write_captions(folder)
    label = "--label cider --split test --set sources.cider.tokenizer=lower_split"
    for command in ("ingest --format jsonl --path captions.jsonl", f"encode {label}", f"export lookup {label}"):
        run(installed / "relabel", *command.split(), "--dataset", "mine", "--quiet", cwd=folder)
    return folder


def test_a_release_has_one_version(wheel: Path, installed: Path, tmp_path: Path) -> None:
    name, version = wheel.name.split("-")[:2]
    assert name == "relabel_itr"
    assert run(installed / "relabel", "--version", cwd=tmp_path) == f"relabel {version}\n"
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"]
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines() if line[:3] == "## "]
    # The tag of a commit gives its version. Between two tags, the documents name the last release or the next one.
    assert Version(version).is_devrelease or cited == version
    assert headings[0] == "## Unreleased" or headings[0].startswith(f"## {cited} ")


@pytest.mark.network
@pytest.mark.timeout(2400)
def test_uvx_labels_a_file(wheel: Path, tmp_path: Path) -> None:
    programs = sysconfig.get_path("scripts")
    uvx = shutil.which("uvx", path=os.pathsep.join([programs, os.environ["PATH"]])) or pytest.skip(
        "uv is not installed"
    )
    if shutil.disk_usage(tmp_path).free < SPACE:
        pytest.skip(f"less than {SPACE >> 30} GiB of disk are free")
    shutil.copy(ROOT / "tests/packaging/captions.csv", tmp_path)
    requirement = f"{wheel}[cpu,pipeline,offline,java]"
    run(uvx, "--from", requirement, "relabel", "run", "captions.csv", cwd=tmp_path)
    lookups = (tmp_path / "labels/captions/exports/train/lookup").glob("*/lookup.json")
    assert {file.parent.name for file in lookups} == {"sbert", "cider"}


def test_the_wheel_holds_code_data_and_licences(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    manifests = {f"relabel/data_manifests/{file.name}" for file in (ROOT / "data_manifests").glob("*.yaml")}
    judged = [f"{task}_{split}" for task in ("sts", "sits", "sis") for split in ("val", "test")]
    scores = {f"relabel/datasets/cxc_data/cxc_{name}.parquet" for name in judged}
    assert manifests | scores <= names
    templates = {f"relabel/templates/examples/{file.name}" for file in (ROOT / "examples").glob("*.*")}
    assert {"relabel/templates/params.yaml", *templates} <= names
    assert {"relabel/py.typed", "relabel_train/py.typed"} <= names
    assert {"LICENSE", "NOTICE"} <= {name.rsplit("/", 1)[1] for name in names if ".dist-info/licenses/" in name}
    roots = {name.split("/", 1)[0] for name in names}
    assert {root for root in roots if not root.endswith(".dist-info")} == {"relabel", "relabel_cli", "relabel_train"}


def test_the_main_dependencies_run_the_command(base: Path, tmp_path: Path) -> None:
    for command in ((), ("--version",), ("doctor",), ("init",), ("fetch",), *((verb, "--help") for verb in VERBS)):
        assert run(base / "relabel", *command, cwd=tmp_path)
    assert run(base / "python", "-m", "relabel", "--version", cwd=tmp_path).startswith("relabel ")
    assert "pip install 'relabel-itr[pipeline]'" in run(base / "relabel", "doctor", cwd=tmp_path)


LACKING = [
    (["relabel", "run"], "pipeline"),
    (["relabel", "ingest", "--dataset", "mine", "--path", "captions.jsonl", "--format", "jsonl"], "pipeline"),
    (["relabel", "fit", "--features", "a", "--captions", "b"], "train"),
    (["relabel", "eval", "--run", "a", "--features", "b", "--captions", "c"], "train"),
    (["python", "-c", "import relabel; relabel.score('a dog', ['a cat'])"], "pipeline"),
    (["python", "-c", "import relabel_train.losses"], "train"),
]


@pytest.mark.parametrize(("command", "extra"), LACKING)
def test_what_needs_an_extra_names_it(command: list[str], extra: str, base: Path, tmp_path: Path) -> None:
    (tmp_path / "captions.jsonl").write_text('{"image_id": 1, "text": "a dog"}\n', encoding="utf-8")
    program, *arguments = command
    result = attempt(base / program, *arguments, cwd=tmp_path)
    assert result.returncode == (3 if program == "relabel" else 1), result.stderr
    assert f"pip install 'relabel-itr[{extra}]'" in result.stderr.splitlines()[-1]


def test_numpy_and_pyarrow_alone_read_a_lookup(wheel: Path, labelled: Path, tmp_path: Path) -> None:
    programs = make_environment(tmp_path / "empty", "--no-deps", wheel)
    run(programs / "python", "-m", "pip", "install", "--quiet", "numpy", "pyarrow", cwd=tmp_path)
    result = attempt(programs / "relabel", cwd=tmp_path)
    message = "error: No module named 'typer'. Run `pip install 'relabel-itr[pipeline]'`.\n"
    assert (result.returncode, result.stderr) == (3, message)
    assert run(programs / "python", "-c", READ.format(label="cider"), cwd=labelled).strip() == "(2, 2)"
