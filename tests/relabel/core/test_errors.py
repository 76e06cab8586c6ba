"""Contract: an error of the operating system becomes an error with the matching advice and exit code.

A message states the problem, its place and the remedy, and quotes at most 1,500 characters of each. Every command
that a message names is written by `command`, which repeats the options of the running command. A mistyped name is
answered with the names that exist and the ones that resemble it. The requirement of a module names the extra of
pyproject.toml that lists its distribution.
"""

from __future__ import annotations

import ast
import errno
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from relabel.core.errors import (
    CheckError,
    choices,
    command,
    is_installed,
    missing_distributions,
    repeat_options,
    requirement_of,
    system_error,
)
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec
from relabel_cli.root import VERBS


@pytest.mark.parametrize(
    ("number", "code", "advice"),
    [
        (errno.ENOSPC, 5, "Free some space and run it again"),
        (errno.EDQUOT, 5, "Free some space and run it again"),
        (errno.EFBIG, 5, "Free some space and run it again"),
        (errno.EROFS, 4, "Change the permissions"),
        (errno.EACCES, 4, "Change the permissions"),
        (errno.EPERM, 4, "Change the permissions"),
        (errno.ENAMETOOLONG, 2, "Name another file or folder"),
        (errno.ELOOP, 2, "Name another file or folder"),
        (errno.ENOTDIR, 2, "Name another file or folder"),
        (errno.EMFILE, 5, "ulimit -n"),
        (errno.EIO, 5, "Run it again; finished files are kept"),
        (errno.ESTALE, 5, "Run it again; finished files are kept"),
    ],
)
def test_the_advice_matches_the_error(number: int, code: int, advice: str) -> None:
    error = system_error(OSError(number, os.strerror(number), "some/file"), "folder")
    assert error.exit_code == code
    assert str(error).startswith("some/file: ")
    assert os.strerror(number) in str(error)
    assert advice in str(error)
    assert ("space" in str(error)) == (advice.startswith("Free some space"))


def test_an_error_without_a_file_names_the_folder() -> None:
    assert str(system_error(OSError(errno.EIO, "Input/output error"), Path("folder"))).startswith("folder: Input")
    assert "out of reach" in str(system_error(OSError("out of reach"), "folder"))


@pytest.mark.parametrize(("path", "message"), [("x" * 300, "File name too long"), ("file/out", "Not a directory")])
def test_a_build_at_an_invalid_path_is_an_error(path: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(Exception, match=message) as error:
        build(tmp_path / path, ArtefactSpec("fuse_model", "fuse", {}, {}), lambda work: None)
    assert getattr(error.value, "exit_code", None) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_message_has_three_parts_of_bounded_length() -> None:
    assert str(CheckError("wrong", where="file:1", todo="Mend it.")) == "file:1: wrong. Mend it."
    assert str(CheckError("wrong")) == "wrong"
    message = str(CheckError("x" * 100_000, where="w" * 2000, todo="t" * 2000))
    assert message == f"{'w' * 1500}...: {'x' * 1500}.... {'t' * 1500}..."


ROOT = Path(__file__).parents[3]
COMMAND = re.compile(rf"\brelabel ({'|'.join(VERBS)})\b")
HELP = {"Field", "Option", "Argument"}
"""Functions whose texts are help, which names no command of the user's own."""


def documentation(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield docstrings, other bare strings, and the arguments of fields and options."""
    for node in ast.walk(tree):
        # Comments in the files of `relabel init`.
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.lstrip().startswith("#"):
            yield node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in HELP:
                yield from ast.walk(node)


def literal_commands(source: str) -> list[str]:
    """Return the strings of a module, outside its documentation, that name a command."""
    tree = ast.parse(source)
    left_out = set(map(id, documentation(tree)))
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [node.value for node in texts if id(node) not in left_out and COMMAND.search(node.value)]


@pytest.mark.parametrize("package", ["pipeline/relabel", "cli/relabel_cli"])
def test_no_message_holds_a_command_as_a_bare_literal(package: str) -> None:
    modules = sorted((ROOT / package).rglob("*.py"))
    assert len(modules) > 10
    literals = {
        str(path): commands for path in modules if (commands := literal_commands(path.read_text(encoding="utf-8")))
    }
    assert literals == {}


def test_messages_name_commands_in_many_places_and_their_verbs_exist() -> None:
    calls = []
    for path in sorted((ROOT / "pipeline/relabel").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "command":
                calls += [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
    assert len(calls) > 25
    assert set(calls) <= set(VERBS)


def test_a_bare_literal_is_detected() -> None:
    assert literal_commands('"""Docstring of `relabel run`."""\nraise E(todo=f"Run `relabel encode --label {x}`.")')
    assert not literal_commands('k = Field(1, description="Used by `relabel run`.")')


def test_a_command_repeats_applicable_options_once() -> None:
    repeat_options([("--set", "sources.a={source: sbert}"), ("--dataset", "mine"), ("--labels", "out")])
    text = command("encode", "--label", "a")
    assert shlex.split(text.strip("`"))[-6:] == [
        "--set",
        "sources.a={source: sbert}",
        *["--dataset", "mine", "--labels", "out"],
    ]
    assert command("ingest", "--dataset", "coco").count("--dataset") == 1
    assert command("fetch", "glove") == "`relabel fetch glove`"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("sbrt", "Did you mean sbert? There are cider, sbert."),
        ("SBERT", "Did you mean sbert? There are cider, sbert."),
        ("zzz", "There are cider, sbert."),
    ],
)
def test_choices_list_all_names_and_those_that_resemble(name: str, advice: str) -> None:
    assert choices(name, ["cider", "sbert"]) == advice


def test_choices_of_no_name_and_of_many() -> None:
    assert choices("a", []) == "There are none."
    assert choices("a", map(str, range(50))).endswith("39, and 10 more.")


METADATA = [
    "numpy>=1.26",
    "pyyaml>=6",
    "gensim>=4.3; extra == 'dev'",
    "faiss-cpu>=1.8; extra == 'cpu'",
    "scikit-learn>=1.4; extra == 'pipeline'",
    "no-such-distribution; extra == 'pipeline'",
    'torch>=2.4; extra == "pipeline"',
    "torch>=2.4; extra == 'train'",
    "gensim>=4.3; python_version < '3.14' and extra == 'tune'",
]


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.requires", lambda name: METADATA)


@pytest.mark.parametrize(
    ("module", "requirement"),
    [
        ("numpy.linalg", "relabel-itr"),
        ("yaml", "relabel-itr"),
        ("faiss", "relabel-itr[cpu]"),
        ("sklearn.svm", "relabel-itr[pipeline]"),
        ("torch", "relabel-itr[pipeline]"),
        ("gensim.models", "relabel-itr[tune]"),
        ("huggingface_hub", "relabel-itr[pipeline]"),
    ],
)
@pytest.mark.usefixtures("metadata")
def test_the_requirement_names_the_extra(module: str, requirement: str) -> None:
    assert requirement_of(module) == requirement


@pytest.mark.usefixtures("metadata")
def test_missing_distributions_are_those_of_the_extra() -> None:
    assert missing_distributions("pipeline") == [
        name for name in ("scikit-learn", "no-such-distribution", "torch") if not is_installed(name)
    ]
    assert "no-such-distribution" in missing_distributions("pipeline")
