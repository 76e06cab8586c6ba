"""Contract: every event of a run is logged once, as a line and on TensorBoard, also after kills and resumptions."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path

import pytest

from relabel_train.training.log import NAME, Log


def messages_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / NAME).read_text(encoding="utf-8").splitlines()]


def events_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the (step, value) pairs of TensorBoard by name."""
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = events.EventAccumulator(str(folder))
    board.Reload()
    return {name: [(e.step, e.value) for e in board.Scalars(name)] for name in board.Tags()["scalars"]}


def test_a_killed_run_logs_every_event_once(tmp_path: Path) -> None:
    messages: list[str] = []
    first = Log(tmp_path, messages.append)
    for step in (1, 2, 3):
        first.write("train", step, {"loss": 10.0 - step, "note": "no number"}, f"step {step}")
        if step == 2:
            size = first.size  # a checkpoint, one more step, then the end
    first.close()
    again = Log(tmp_path, messages.append, size, 2)
    for step in (3, 4):
        again.write("train", step, {"loss": 20.0 - step})
    again.write("evaluation", 4, {"rsum": 123.0})
    again.close()
    expected = [(1, 9.0), (2, 8.0), (3, 17.0), (4, 16.0)]
    assert [(line["step"], line["loss"]) for line in messages_of(tmp_path) if line["kind"] == "train"] == expected
    assert events_of(tmp_path) == {"train/loss": expected, "evaluation/rsum": [(4, 123.0)]}
    assert messages == ["step 1", "step 2", "step 3"]


def test_further_processes_log_nothing() -> None:
    messages: list[str] = []
    log = Log(None, messages.append)
    log.write("train", 1, {"loss": 1.0}, "step 1")
    log.note("done")
    log.close()
    assert log.size == 0
    assert not messages


def test_tensorboard_without_room_prints_no_traceback(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class _AsyncWriterThread(threading.Thread):  # the name of TensorBoard's class
        def run(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    class Other(_AsyncWriterThread):
        pass

    pytest.importorskip("tensorboard")
    before = threading.excepthook
    log = Log(tmp_path, lambda _: None)
    for kind in (_AsyncWriterThread, Other):
        thread = kind()
        thread.start()
        thread.join()
    log.close()
    assert capfd.readouterr().err.count("Traceback") == 1
    assert threading.excepthook is before
