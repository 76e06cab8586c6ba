"""Cost of labels on one evaluation set: captions per CPU second on one thread, and bytes per caption.

    python benchmarks/judged_labels.py --data data [--on flickr8k-expert] [--labels sbert cider]
    python benchmarks/judged_labels.py --data data --labels bert_sts --set sources.bert_sts.gate=null

Nothing is reused: texts are tokenized, encoded and scored in an empty folder, each label in a process of its own. The
CPU seconds include the loading of models and Java's start, and leave out the imports of Python. Models of `relabel
tune` must exist in the folder of fetched files.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from harness import Program, Table, options

LABELS = ["sbert", "tuned", "fuse", "word2vec", "cider", "cider_lower_split", "meteor", "wmd"]


def score(name: str, label: str, data: Path, settings: list[str]) -> None:
    """Score an evaluation set with a label, and print its cost as JSON."""
    from relabel.config import load_config
    from relabel.core.runtime import Runtime
    from relabel.datasets.evaluation_sets import evaluation_set
    from relabel.judge.scores import score_judgements
    from relabel.stages import Session

    session = Session(load_config(None, settings), Runtime(data=data, threads=1))
    judgements = evaluation_set(name).open(data)
    source, parts = session.config.source(label), session.config.parts(label)
    imports = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    scores = score_judgements(judgements, source, session.runtime, parts, label=label)
    print(json.dumps({"imports": imports, "captions": scores.captions, "bytes": scores.bytes}))


def main() -> None:
    args = options(__doc__, on="flickr8k-expert", labels=LABELS, data=Path("data"), set=[""], child="")
    if args.child:
        score(args.on, args.child, args.data, [setting for setting in args.set if setting])
        return
    table = Table(f"Cost of labels on {args.on}, one thread")
    for label in args.labels:
        command = ["env", "OMP_NUM_THREADS=1", "NUMBA_NUM_THREADS=1", sys.executable, __file__, "--on", args.on]
        program = Program([*command, "--child", label, "--data", str(args.data), "--set", *args.set])
        cost = json.loads(program.output.splitlines()[-1])
        per_caption = cost["bytes"] / cost["captions"]
        rate = cost["captions"] / (program.cpu - cost["imports"])
        table.add(label, "captions/s", rate, **{"bytes per caption": per_caption})
    table.end("judged_labels", args.save, "torch", "sentence-transformers")


if __name__ == "__main__":
    main()
