"""Program that trains in a process of its own, and what a run leaves in its folder, for comparisons."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from relabel_train.reference.options import EvalOptions, FitOptions
from relabel_train.reference.runs import LAST, load_checkpoint

Run = Callable[..., FitOptions]
"""Type of the fixture `run`: makes the options of a tiny run, with a name and changed options."""
PROGRAM = """
import sys, torch
from relabel_train.reference.fit import fit
from relabel_train.reference.options import FitOptions
torch.set_num_threads(1)
fit(FitOptions.model_validate_json(sys.argv[1]), "cpu", lambda line: print(line, flush=True))
"""
"""Trains with the options in its argument, a JSON object."""


def child(options: FitOptions) -> list[str]:
    return [sys.executable, "-c", PROGRAM, options.model_dump_json()]


def state(options: FitOptions, name: str = LAST) -> dict[str, Any]:
    restored = load_checkpoint(options.out / name)
    restored["progress"].pop("seconds")
    restored.pop("log", None)
    return restored


def assert_same(a: Any, b: Any, where: str = "") -> None:
    """Compare nested values bit by bit, with their types and the order of their keys."""
    assert type(a) is type(b), where
    if isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            assert_same(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, list | tuple):
        assert_same(dict(enumerate(a)), dict(enumerate(b)), where)
    elif isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype, where
        assert torch.equal(a, b), where
    else:
        assert a == b, where


def held(options: FitOptions, split: str = "test", **more: Any) -> EvalOptions:
    own = {name: getattr(options, name) for name in ("features", "captions")}
    return EvalOptions(run=options.out, split=split, graded=6, **own, **more)


def lines(options: FitOptions) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (options.out / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in records]
