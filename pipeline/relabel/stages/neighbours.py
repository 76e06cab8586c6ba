"""neighbours: the most relevant captions of every caption or image of a split."""

from __future__ import annotations

from functools import partial

from relabel.core.errors import UsageError
from relabel.core.types import Queries
from relabel.neighbour_tables.build import NeighbourWork
from relabel.neighbour_tables.spec import NeighbourSpec
from relabel.stages.encode import encode, encoded_split, open_label, serving_split
from relabel.stages.job import Job, Values, label_values, make_steps
from relabel.stages.session import Session
from relabel.store.artefact import Inputs, Recipe
from relabel.store.workdir import Work
from relabel.topk.vector_index import make_index


def neighbours(
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
    # Those of the parameters, also for an export that names the split of the queries.
    if candidates in (None, params.candidates):
        split = split or params.split
    candidates = candidates or params.candidates or params.split or encoded_split(session, label)
    # The split whose encoding covers the queries.
    split = split or serving_split(session, lambda s: session.folder("encodings", s, label), candidates)
    queries = queries or params.queries
    corpus = session.corpus
    rows, searched = corpus.rows(session.splits(candidates)), corpus.rows(session.splits(split))
    # Queries and candidates are read from one encoding.
    if not (searched.start <= rows.start and rows.stop <= searched.stop):
        raise UsageError(f"the encoding of split {split} lacks captions of {candidates}", todo="Give another --split.")
    encoding = encode(session, label, split)
    spec = NeighbourSpec(label, queries, rows, params.k, source.params.pooling, session.runtime.rows_per_shard)
    config: Values = spec.config() | {"source": source.spec.name, "candidates": candidates, "index": params.index}
    inputs: Inputs = {"corpus": corpus.digest, "encoding": encoding}
    if gate := source.gate():
        # The candidates are the gate's best ones, which depend on its pooling; its encoding does not.
        inputs["gate"] = encode(session, gate, split)
        config["pooling of the gate"] = session.config.source(gate).params.pooling
    opened = partial(open_label, session, label, split)
    table = NeighbourWork(spec, corpus, opened, params.index, gate is not None, session.runtime)

    def fill(work: Work) -> None:
        manifest = encoding.open()
        # A wrong factory string fails before the search rather than after hours of it.
        if params.index is not None:
            make_index(params.index, int(manifest.metadata["width"]))
        work.metadata |= config | {"label": label, "split": split, "without_encoding": manifest.failed}
        work.metadata["bounds"] = list(source.spec.bounds)
        work.metadata["symmetric"] = source.spec.symmetric and queries == "captions"
        # Workers get the resolved splits: the encodings on disk may change while they start.
        make_steps(job, work, neighbours, label, candidates, queries, split)

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
