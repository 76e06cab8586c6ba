"""Contract: no line of any verb's help is wider than the terminal, and a wider terminal is used. Options of a verb
precede those that verbs share. `relabel` alone shows the help, and the shell completes verbs and options.
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


COMMANDS = commands()


def help_text(words: str, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    context = COMMANDS[words].make_context(f"relabel {words}".strip(), [], resilient_parsing=True)
    return str(context.get_help())


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("words", COMMANDS)
def test_help_fits_the_terminal(words: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = help_text(words, width, monkeypatch).splitlines()
    assert [line for line in lines if len(line) > width] == []


@pytest.mark.parametrize("words", ["", "ingest", "export plan"])
def test_help_uses_a_wide_terminal(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {width: help_text(words, width, monkeypatch).splitlines() for width in (80, 120)}
    assert max(map(len, lines[120])) > 80
    assert len(lines[120]) < len(lines[80])


def test_own_options_come_before_common_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    text = help_text("neighbours", 80, monkeypatch)
    assert text.index("--label") < text.index("--params")
    assert text.index("  -k") < text.index("--params")


def relabel(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "relabel", *arguments]
    return subprocess.run(command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False)


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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_completion_is_shown(shell: str, tmp_path: Path) -> None:
    # Without detection, typer takes the name of the shell as the option's value.
    run = relabel("--show-completion", shell, cwd=tmp_path, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert run.returncode == 0, run.stderr
    assert "_COMPLETE=complete_" in run.stdout
