"""Contract: the help of every command fits 80 columns, explains each option, and lists a verb's own options before the
common ones. `relabel` alone shows the help, and the shell completes verbs and options.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from relabel_cli.root import VERBS, app


def commands() -> dict[str, Any]:
    """Return every command and group by its words."""
    commands: dict[str, Any] = {"": typer.main.get_command(app)}
    for verb in VERBS:
        command: Any = typer.main.get_command(import_module(f"relabel_cli.verbs.{verb}").app)
        commands[verb] = command
        commands |= {f"{verb} {name}": one for name, one in getattr(command, "commands", {}).items()}
    return commands


def test_the_help_of_every_command_fits_and_explains_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    texts = {}
    for words, command in commands().items():
        texts[words] = command.make_context(f"relabel {words}".strip(), [], resilient_parsing=True).get_help()
        assert max(map(len, texts[words].splitlines())) <= 80, words
        assert [one.name for one in command.params if one.param_type_name == "option" and not one.help] == [], words
    assert texts["neighbours"].index("--label") < texts["neighbours"].index("--params")


def relabel(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "relabel", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_the_module_without_arguments_shows_the_help(tmp_path: Path) -> None:
    run = relabel(cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout == relabel("--help", cwd=tmp_path).stdout
    assert "Build labels:" in run.stdout


def completions(line: str, cwd: Path) -> list[str]:
    """Return the completions that bash offers for a line."""
    code = "import sys; sys.argv[0] = 'relabel'; from relabel_cli.main import main; main()"
    env = {"_RELABEL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    run = subprocess.run([sys.executable, "-c", code], cwd=cwd, env=os.environ | env, capture_output=True, text=True)
    return run.stdout.split()


def test_the_shell_completes_verbs_and_options(tmp_path: Path) -> None:
    assert sorted(completions("relabel e", tmp_path)) == ["encode", "eval", "export"]
    assert completions("relabel export pl", tmp_path) == ["plan"]
    assert "--resamples" in completions("relabel judge --re", tmp_path)
