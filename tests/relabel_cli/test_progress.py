"""Contract: a terminal shows one line for several artefacts: which one, what it does, and the time left of all. A log
has a line for each artefact, and others only for activities of more than a minute.

Contract: no text of a user controls a terminal: on stdout, stderr and among bars, control characters and marks of
direction are escapes, which JSON reads as the characters. The bars themselves are drawn.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console

from relabel_cli.main import load_root, run
from relabel_cli.options import SharedOptions
from relabel_cli.progress import Display
from relabel_cli.terminal import escape

EVIL = "a\x1b]0;owned\x07\x1b[2J dog\x08\r \x9b31m \x7f \x00 \u202egod\u2069 \u061c é 犬\t."
CONTROLS = {chr(code) for code in (*range(32), *range(127, 160))} - {"\n", "\t"} | set("\u202e\u2069\u061c")


@pytest.mark.parametrize("terminal", [True, False])
def test_artefacts_are_a_bar_on_a_terminal_and_lines_elsewhere(terminal: bool) -> None:
    output = io.StringIO()
    display = Display(Console(file=output, force_terminal=terminal, width=100))
    with display.artefacts({Path("one"): 5.0, Path("two"): 3600.0}):
        for name in ("one", "two"):
            with display.status(f"encoding {name}"), display.status("loading a model"):
                pass
            with display.bar("vectors", 10, "captions") as bar, display.bar("inner", 7, "blocks"):
                bar.advance(5)
            display.made(Path(name), f"encoding {name}: built")
        display.note("a note")
    display.made(Path("page"), "page: built")
    shown = output.getvalue()
    assert ("artefact 1 of 2: encoding one" in shown) == terminal
    assert ("artefact 2 of 2: loading a model" in shown) == terminal
    # The time left is that of both artefacts.
    assert ("1:00:05" in shown) == terminal
    # One line at a time, and none of what took less than a minute.
    assert "blocks" not in shown
    assert ("10 captions" in shown) == terminal
    assert ("encoding one: built" in shown) != terminal
    assert "a note" in shown
    assert "page: built" in shown


@pytest.mark.parametrize("terminal", [True, False])
def test_bars_are_drawn_and_their_titles_and_notes_are_escaped(terminal: bool) -> None:
    output = io.StringIO()
    display = Display(Console(file=output, force_terminal=terminal, width=200))
    with display.bar(EVIL[:20], 1, "B"):
        display.note(EVIL)
    shown = output.getvalue()
    assert escape(EVIL).partition("\t")[0] in shown
    assert ("\x1b[?25l" in shown) == terminal  # rich hides the cursor
    assert not any(control in shown for control in ("\x1b]", "\x1b[2J", "\x07", "\x08", "\x9b", "\u202e"))


@pytest.mark.parametrize("as_json", [True, False])
def test_what_a_command_prints_is_escaped(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer()

    @app.command()
    def command() -> None:
        SharedOptions(as_json=as_json).show({EVIL: [EVIL]}, EVIL)
        typer.echo(EVIL, err=True)
        sys.stderr.write(EVIL)

    monkeypatch.setattr(sys, "argv", ["command"])
    assert run(lambda: app) == 0
    out, err = capsys.readouterr()
    assert not CONTROLS & {*out, *err}
    assert err == f"{escape(EVIL)}\n{escape(EVIL)}"
    assert (json.loads(out) == {EVIL: [EVIL]}) if as_json else (out == f"{escape(EVIL)}\n")
    # A library resets the colours of the stream that it has kept when the process ends.
    print("\x1b[0m")
    assert capsys.readouterr().out == "\x1b[0m\n"


def test_names_of_files_and_columns_are_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name = EVIL.replace("\x00", "") + ".csv"
    Path(name).write_text(f"{name},b\n1,2\n", newline="")
    for arguments in (["--path", name], ["--path", f"gone{name}"], ["--set", f"{EVIL}=1"]):
        monkeypatch.setattr(sys, "argv", ["relabel", "ingest", "--dataset", "mine", *arguments])
        assert run(load_root) in (2, 3, 4)
        out, err = capsys.readouterr()
        assert not CONTROLS & {*out, *err}
        assert len(err.splitlines()) == 1
        assert r"\u001b]0;owned" in err
