"""neighbours: finds the most relevant captions for every caption or image of a split."""

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
    """Prepare to find the neighbours of every caption or image of a split. Defaults come from the parameters."""
    params = session.config.neighbours
    source = session.config.source(label)
    source.require("neighbours")
    if params.index is not None:
        source.require("index")
    candidates = candidates or params.candidates or encoded_split(session, label)
    # Split of the encoding that covers the queries. Workers get it as an argument.
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
        # The gate's pooling determines the candidates, but it is not part of the identity of the gate's encoding.
        inputs["gate"] = encoding(session, gate, split)
        config["pooling of the gate"] = session.config.source(gate).params.pooling
    opened = partial(open_label, session, label, split)
    table = NeighbourWork(
        label, queries, rows, params.k, pooling, corpus, opened, params.index, gate is not None, runtime
    )

    def fill(work: Work) -> None:
        manifest = encoded.open()
        # Check the factory string before hours of search.
        if params.index is not None:
            make_index(params.index, int(manifest.metadata["width"]))
        work.metadata |= config | {"label": label, "split": split, "without_encoding": manifest.failed}
        work.metadata["bounds"] = list(source.spec.bounds)
        work.metadata["symmetric"] = source.spec.symmetric and queries == "captions"
        # Pass the resolved split, because the encodings on disk may change while workers start.
        make_steps(job, work, neighbour_table, label, candidates, queries, split)

    # All other parameters are in the path of the table.
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
