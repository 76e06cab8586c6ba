"""export batches: precomputes batches of captions or images, with their exact blocks of labels."""

from __future__ import annotations

from functools import cache, partial

from relabel.core.types import Pooling
from relabel.export.base import ArtefactRef
from relabel.export.neighbours import NeighbourTable, read_neighbours
from relabel.export.params import ExportBatchesParams
from relabel.export.precomputed import BatchesWork
from relabel.sources.shards import read_failed_rows
from relabel.sources.typical_costs import PLAN, typical_cost
from relabel.stages.corpus import open_corpus
from relabel.stages.encode import encoding, open_label, serving_split
from relabel.stages.job import Job, export_job, make_steps
from relabel.stages.neighbours import neighbour_table
from relabel.stages.session import Session
from relabel.store.artefact import Inputs, Recipe
from relabel.store.workdir import Work


def batches_export(
    session: Session, label: str, split: str, name: str | None = None, given: ExportBatchesParams | None = None
) -> Job:
    """Prepare to precompute batches of a split's captions or images with the blocks of a label.

    Items, sampler and sizes come from `export.batches` in the parameters. If the split has no encoding or neighbours,
    those of all captions are used (`serving_split`).

    `name`: name of the batches and of their folder. The default combines label, "images" if items are images, sampler,
    batch size, epochs and seed. `given`: parameters instead of `export.batches`, to check existing batches.
    """
    source, corpus = session.config.source(label), open_corpus(session)
    params = given or session.config.export.batches
    items, images = params.items, params.items == "images"
    name = name or f"{label}-{'images-' * images}{params.sampler}-b{params.size}-e{params.epochs}-s{params.seed}"
    # In the log-ratio paper, the distance of images is that of their sets of captions.
    pooling: Pooling = "set" if images and "set" in source.spec.poolings else source.params.pooling
    rows = corpus.split_rows(split)
    encoded = encoding(session, label, serving_split(session, lambda s: session.folder("encodings", s, label), split))
    inputs: Inputs = {"corpus": corpus.digest, "encoding": encoded}
    near, table = None, None
    if params.sampler != "random":
        near = params.neighbours or label
        candidates = serving_split(session, lambda s: session.folder("neighbours", s, items, near), split)
        table = neighbour_table(session, near, candidates, items)
        inputs["neighbours"] = table
    # `params.config` leaves out the parameters that the sampler does not use.
    config = params.config | {"source": source.spec.name, "pooling": pooling, "rows": [rows.start, rows.stop]}

    def near_rows(most: int, least: int) -> NeighbourTable:
        assert table is not None, "a random sampler does not read neighbours"
        return read_neighbours(ArtefactRef.of(table), corpus.images_of(rows) if images else rows, most, least)

    @cache
    def batches() -> BatchesWork:
        manifest, progress = encoded.open(), session.runtime.progress
        failed, identity = read_failed_rows(encoded.out, manifest), recipe.spec().fingerprint
        opened = partial(open_label, session, label, str(manifest.metadata["split"]))
        return BatchesWork(
            corpus, label, split, near, source, rows, failed, pooling, params, near_rows, identity, opened, progress
        )

    def fill(work: Work) -> None:
        size = batches().describe(typical_cost(PLAN, session.config.params(label)))
        session.runtime.progress.note(f"batches {name}: {size}")
        make_steps(job, work, batches_export, label, split, name)

    recipe = Recipe("batches", name, lambda: config, inputs, fill)
    job = export_job(session, label, split, recipe, lambda work: batches().steps(work))
    return job
