"""Contract: `relabel --help` imports no heavy module and lists every verb in its group with the first line of its
docstring. A user error ends in one line on stderr and the documented exit code.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from relabel_cli.border import report
from relabel_cli.root import GROUPS, VERBS, app

HEAVY = ("torch", "numpy", "pyarrow", "pydantic", "yaml", "rich", "scipy", "numba", "faiss", "sentence_transformers")


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, json\n"
        "from relabel_cli.root import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]), file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(run.stderr) == []
    for group, verbs in GROUPS.items():
        section = run.stdout.partition(f"{group}:\n")[2].partition("\n\n")[0]
        for verb, line in verbs.items():
            assert verb in section
            assert line.split()[0] in section


def test_the_entry_point_imports_next_to_nothing_before_ctrl_c_is_handled(tmp_path: Path) -> None:
    code = "import sys; before = set(sys.modules); import relabel_cli.main; print(*set(sys.modules) - before)"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert not {"relabel", "typer", "json", "logging", "subprocess", "tempfile"} & set(run.stdout.split())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_the_summary_of_the_list(verb: str) -> None:
    name = verb.replace("-", "_")
    module = import_module(f"relabel_cli.verbs.{name}")
    docstring = getattr(module, name).__doc__
    assert docstring is not None
    assert docstring.splitlines()[0] == VERBS[verb]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nonsense"], 2, "no such command 'nonsense'. There are init, "),
        (["nearst", "a dog"], 2, "no such command 'nearst'. Did you mean nearest"),
        (["encode", "--label", "nonsense"], 2, "no label 'nonsense'"),
        (["encode", "--set", "encode.rows_per_shard=0"], 2, "encode.rows_per_shard"),
        (["encode", "--set", "sources.cider.pooling=refs", "--set", "sources.sbert.pooling=refs"], 3, "relabel ingest"),
        (["encode", "--params", "gone.yaml"], 3, "gone.yaml"),
        (["encode", "--label", "cider"], 3, "relabel ingest"),
        (["ingest"], 3, "relabel fetch coco-captions"),
        (["fetch", "nonsense"], 2, "nonsense"),
        (["fetch"], 2, "--list"),
        (["nearest"], 2, "Give a caption, as in"),
        (["nearest", "a dog"], 3, "relabel ingest"),
        (["run", "--set", "ingest.dataset=mine"], 2, "ingest.path"),
    ],
)
def test_user_errors_are_one_line_and_an_exit_code(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        ended = app(arguments, standalone_mode=False)
    except Exception as error:
        ended = report(error)
    assert ended == code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len([line for line in err.splitlines() if line.startswith("error:")]) == 1
