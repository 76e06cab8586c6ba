"""Contract: a message states the problem, its place and the remedy, and quotes at most 1,500 characters of each. The
commands in messages exist. A mistyped name is answered with the names that exist and the ones that resemble it.

Contract: a table has the same content in every format, and characters with a meaning in a format are escaped.
"""

from __future__ import annotations

import ast
import re
import shlex
from importlib import import_module
from pathlib import Path

from relabel.core.errors import CheckError, choices, name_parameters
from relabel.core.parameters import setting
from relabel.core.tables import Table, latex, markdown, text
from relabel_cli.root import VERBS

ROOT = Path(__file__).parents[3]
COMMAND = re.compile(r"`relabel ([a-z][a-z-]*)(?: ([a-z0-9_]+))?")


def test_commands_in_messages_exist() -> None:
    named = set()
    for path in [*(ROOT / "pipeline/relabel").rglob("*.py"), *(ROOT / "cli/relabel_cli").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= set(COMMAND.findall(node.value))
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "command" and node.args:
                # The rest of an f-string is a name of the user's.
                verb = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
                named |= set(COMMAND.findall(f"`relabel {ast.literal_eval(verb)}"))
    assert len(named) > 20
    for verb, name in named:
        assert verb in VERBS, verb
        group = getattr(import_module(f"relabel_cli.verbs.{verb.replace('-', '_')}").app, "commands", None)
        assert group is None or name in {"", *group}, (verb, name)


def test_a_message_has_three_parts_of_bounded_length() -> None:
    message = str(CheckError("x" * 100_000, where="w" * 2000, hint="t" * 2000))
    assert message == f"{'w' * 1500}: {'x' * 1500}. {'t' * 1500}"


def test_choices_list_all_names_and_those_that_resemble() -> None:
    for name, resembling in (("sbrt", "Did you mean sbert? "), ("SBERT", "Did you mean sbert? "), ("zzz", "")):
        assert choices(name, ["cider", "sbert"]) == f"{resembling}There are cider, sbert."


def test_options_in_a_message_are_parameters_in_python() -> None:
    for said, expected in {
        "Map them, as in --set 'ingest.split_names={exam: val}', or pass --in-split.": "Map them, as in "
        "split_names={'exam': 'val'}, or pass in_split.",
        "Name the column with --image-id-column NAME.": "Name the column with image_id_column=NAME.",
        "pass --set ingest.quotes=false.": "pass quotes=False.",
        f"as in --set {shlex.quote(setting('ingest.split_names', {chr(39): 'val', 'no': 'test'}))}.": "as in "
        "split_names={\"'\": 'val', 'no': 'test'}.",
        "pass --set ingest.a=@, or set captions_per_image with --captions-per-image 0": "pass a=@, or set "
        "captions_per_image with captions_per_image=0",
        "Name the key with --set ingest.records=KEY.": "Name the key with records=KEY.",
        "use --set sources.sbert.model=a/b-c; see x.": "use model='a/b-c'; see x.",
        "Add `--set sources.cider.sigma=3` or run `relabel encode --label x`.": "Add `--set sources.cider.sigma=3` "
        "or run `relabel encode --label x`.",
    }.items():
        assert name_parameters(said) == expected


TABLE = Table("Title & more", ("label", "r"), (("a_b", "0.5"), ("c|d", "undefined")), ("100% of it.", "Second."))


def test_text_markdown_and_latex() -> None:
    body = ["label          r", "----------------", "a_b          0.5", "c|d    undefined"]
    assert text(TABLE).splitlines() == ["Title & more", "", *body, "", "  100% of it.", "  Second."]
    shown = markdown(TABLE).splitlines()
    assert shown[2:6] == ["| label | r |", "|---|---:|", "| a_b | 0.5 |", r"| c\|d | undefined |"]
    assert shown[-2:] == ["- 100% of it.", "- Second."]
    for escaped in (r"\caption{Title \& more}", r"a\_b & 0.5 \\", r"100\% of it."):
        assert escaped in latex(TABLE)
    assert latex(TABLE).count(r"\begin") == latex(TABLE).count(r"\end") == 2
