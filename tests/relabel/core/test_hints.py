"""Contract: every command that a message names is written by `command`, which repeats the options of the running
command; a mistyped name is answered with the names that exist and the ones that resemble it."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from relabel.core.hints import choices, command, repeat_options
from relabel_cli.root import VERBS

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
