"""Contract: shared options reach the runtime. The help of every verb fits 50 lines of 80 columns and explains at most
12 options of its own, with those that verbs share in one section below; `relabel --help` imports no heavy module.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import ValidationError

from relabel.core.errors import UsageError
from relabel_cli.options import SHARED, SharedOptions
from relabel_cli.root import VERBS, app


def test_shared_options_reach_the_runtime() -> None:
    runtime = SharedOptions(memory="2GiB", workers=3, threads=5).runtime()
    assert (runtime.memory, runtime.workers, runtime.threads, runtime.shard) == (2 << 30, 3, 5, None)
    runtime = SharedOptions(scheduler="tcp://here:8786").runtime()
    assert (runtime.memory, runtime.scheduler) == (4 << 30, "tcp://here:8786")
    assert SharedOptions(shard="2/8").runtime().shard == (2, 8)
    for memory in ("much", "255MiB"):
        with pytest.raises(ValidationError, match="memory"):
            SharedOptions(memory=memory)
    for shard in ("3/2", "0/2", "1"):
        with pytest.raises((UsageError, ValidationError), match="shard"):
            SharedOptions(shard=shard).runtime()
    with pytest.raises(UsageError, match="--scheduler"):
        SharedOptions(workers=2, scheduler="tcp://here:8786").runtime()


HEAVY = ("torch", "numpy", "pyarrow", "pydantic", "yaml", "rich", "scipy", "numba", "faiss", "sentence_transformers")


def commands() -> dict[str, Any]:
    """Return every command and group by its words."""
    commands: dict[str, Any] = {"": typer.main.get_command(app)}
    for verb in VERBS:
        command = import_module(f"relabel_cli.verbs.{verb.replace('-', '_')}").app
        commands[verb] = command
        commands |= {f"{verb} {name}": one for name, one in getattr(command, "commands", {}).items()}
    return commands


def test_the_help_of_every_command_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words, command in commands().items():
        lines = command.make_context(f"relabel {words}".strip(), [], resilient_parsing=True).get_help().splitlines()
        assert len(lines) <= 50, words
        assert max(map(len, lines)) <= 80, words
        options = [one for one in command.params if one.param_type_name == "option"]
        assert [one.name for one in options if not one.help] == [], words
        shared = [one for one in options if getattr(one, "rich_help_panel", None) == SHARED]
        assert len(options) - len(shared) <= 12, words
        assert lines.count(f"{SHARED}:") == bool(shared), words


def test_the_list_of_verbs_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, json\n"
        "from relabel_cli.root import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]), file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(run.stderr) == []
    section = run.stdout.partition("Commands:\n")[2]
    assert [line.split()[0] for line in section.splitlines() if line[2] != " "] == list(VERBS)
