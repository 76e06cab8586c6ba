"""Cost of labels on one judged set: captions per CPU second on one thread, and bytes per caption.

    python benchmarks/judged_labels.py --data data [--on flickr8k-expert] [--label sbert,cider] [--save]
    python benchmarks/judged_labels.py --data data --label bert_sts --set sources.bert_sts.gate=null

Nothing is reused: texts are tokenized, encoded and scored in an empty folder. The seconds are CPU seconds of a process
and its children, so that other programs on the machine hardly count. They include the loading of models and Java's
start, and leave out the imports of Python. Models of `relabel tune` must exist in the folder of fetched files.
Results: results/judged_labels.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import cpu_seconds, describe, machine, save, show

LABELS = "sbert,tuned,fuse,cbow,cider,cider_lower_split,meteor,wmd"


def score(name: str, label: str, data: Path, settings: list[str]) -> None:
    """Score a judged set with a label, and print its cost as JSON."""
    from relabel.config import load_config
    from relabel.core.runtime import Runtime
    from relabel.datasets.judged import judged_set
    from relabel.judge.judged_scores import score_judgements
    from relabel.stages import Project

    project = Project(load_config(None, settings), Runtime(data=data, threads=1))
    judgements = judged_set(name).open(data)
    source, parts = project.config.source(label), project.config.parts(label)
    started = cpu_seconds(own=True)
    scores = score_judgements(judgements, source, project.runtime, parts, label=label)
    print(json.dumps({"started": started, "captions": scores.captions, "bytes": scores.bytes}))


def measure(name: str, label: str, data: Path, settings: list[str]) -> dict[str, Any]:
    """Score a judged set in a process, and return the label's cost."""
    before = cpu_seconds(children=True)
    command = [sys.executable, __file__, "--on", name, "--label", label, "--data", str(data), "--child"]
    command += [word for setting in settings for word in ("--set", setting)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    cost = json.loads(done.stdout.splitlines()[-1])
    # The child and its own children have ended, so their seconds are complete.
    seconds = cpu_seconds(children=True) - before - cost["started"]
    captions = cost["captions"]
    print(f"{label}: {seconds:,.1f} CPU s", flush=True)
    rates = {"captions per CPU second": captions / seconds, "bytes per caption": cost["bytes"] / captions}
    return {"captions": captions, "CPU s": seconds} | rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", default="flickr8k-expert")
    parser.add_argument("--label", default=LABELS)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter, as of relabel")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    if args.child:
        score(args.on, args.label, args.data, args.set)
        return
    results = {label: measure(args.on, label, args.data, args.set) for label in args.label.split(",")}
    title = f"Cost of labels on {args.on}, one thread"
    table = [
        [label, f"{one['CPU s']:,.1f}", f"{one['captions per CPU second']:,.0f}", f"{one['bytes per caption']:,.0f}"]
        for label, one in results.items()
    ]
    show(title, ["label", "CPU s", "captions per CPU second", "bytes per caption"], table)
    facts = machine("torch", "sentence-transformers")
    print(describe(facts))
    if args.save:
        print(save("judged_labels", {"title": title, "machine": facts, "rows": results}))


if __name__ == "__main__":
    main()
