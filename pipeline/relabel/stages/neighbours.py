"""neighbours: the most relevant captions of every caption or image of a split."""

from __future__ import annotations

from functools import partial

from relabel.core.types import Queries
from relabel.corpus import REFERENCES
from relabel.neighbour_tables.build import NeighbourWork
from relabel.stages.corpus import open_corpus
from relabel.stages.encode import encoded_split, encoding, open_label, serving_split
from relabel.stages.job import Job, Values, label_values, make_steps
from relabel.stages.session import Session
from relabel.store.artefact import Inputs, Recipe
from relabel.store.workdir import Work
from relabel.topk.vector_index import make_index


def neighbour_table(
    session: Session,
    label: str,
    candidates: str | None = None,
    queries: Queries | None = None,
    split: str | None = None,
) -> Job:
    """Prepare to find the neighbours of every caption or image of a split; defaults are in the parameters."""
    params = session.config.neighbours
    source = session.config.source(label)
    source.require("neighbours")
    if params.index is not None:
        source.require("index")
    candidates = candidates or params.candidates or encoded_split(session, label)
    # The split whose encoding covers the queries; workers are told.
    split = split or serving_split(session, lambda s: session.folder("encodings", s, label), candidates)
    queries = queries or params.queries
    corpus = open_corpus(session)
    rows, encoded = corpus.split_rows(candidates), encoding(session, label, split)
    pooling, runtime = source.params.pooling, session.runtime
    config: Values = {"source": source.spec.name, "queries": queries, "candidates": candidates}
    config |= {"rows": [rows.start, rows.stop], "rows_per_shard": runtime.rows_per_shard}
    config |= {"k": params.k, "pooling": pooling, "references": REFERENCES, "index": params.index}
    inputs: Inputs = {"corpus": corpus.digest, "encoding": encoded}
    if gate := source.gate():
        # The candidates are the gate's best ones, which depend on its pooling; its encoding does not.
        inputs["gate"] = encoding(session, gate, split)
        config["pooling of the gate"] = session.config.source(gate).params.pooling
    opened = partial(open_label, session, label, split)
    table = NeighbourWork(
        label, queries, rows, params.k, pooling, corpus, opened, params.index, gate is not None, runtime
    )

    def fill(work: Work) -> None:
        manifest = encoded.open()
        # A wrong factory string fails before the search rather than after hours of it.
        if params.index is not None:
            make_index(params.index, int(manifest.metadata["width"]))
        work.metadata |= config | {"label": label, "split": split, "without_encoding": manifest.failed}
        work.metadata["bounds"] = list(source.spec.bounds)
        work.metadata["symmetric"] = source.spec.symmetric and queries == "captions"
        # Workers get the resolved splits: the encodings on disk may change while they start.
        make_steps(job, work, neighbour_table, label, candidates, queries, split)

    # The other parameters are in the path of the table.
    chosen = {f"neighbours.{name}": getattr(params, name) for name in ("k", "index")}
    job = Job(
        session,
        session.folder("neighbours", candidates, queries, label),
        Recipe("neighbours", label, lambda: config, inputs, fill),
        session.command("neighbours", label=label, candidates=candidates, queries=queries),
        label_values(session.config, label) | chosen,
        steps=table.steps,
    )
    return job
