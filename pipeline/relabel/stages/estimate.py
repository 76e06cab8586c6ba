"""Rows and bytes of one label's artefacts before they are built, from two samples that are encoded and exported.

Bytes are exact for files of fixed shape: vectors, a flat index, exact neighbours, a lookup of vectors. They are
approximate for files that depend on the words (n-grams, tuples), whose number grows more slowly than the captions.

Sizes of files whose shape is known before their content are exact: empty files of the same shape are written to memory.
`manifest.json` and a lookup's `lookup.json` are left out; they have a few KB and name the machine and the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from relabel import stages
from relabel.core.errors import UsageError
from relabel.core.runtime import SILENT
from relabel.corpus import Corpus
from relabel.corpus.build import SCHEMA
from relabel.neighbours.spec import NeighbourSpec, shard_bytes
from relabel.sources.cosine import INDEX
from relabel.sources.vector_index import import_faiss, make_index
from relabel.stages.job import Job
from relabel.stages.project import Project
from relabel.store.arrays import npy_bytes
from relabel.store.files import plain_bytes, zeros
from relabel.store.manifest import Manifest
from relabel.store.workdir import part_ranges
from relabel_train.ids import Ids
from relabel_train.lookup.format import KINDS, read_description


@dataclass(frozen=True)
class SizeEstimate:
    """Size of an artefact that is not built yet.

    `bytes`: size of its data files, without the manifest of a few KB.
    `exact`: whether `bytes` is exact.
    """

    rows: int
    bytes: int
    exact: bool


def estimate_sizes(project: Project, label: str, split: str) -> dict[str, SizeEstimate]:
    """Estimate the rows and bytes of a label's artefacts: `encode`, `neighbours` (of captions) and `export`.

    `project`: its corpus exists.
    """
    rows, sizes = project.corpus.rows(project.splits(split)), project.config.source(label).spec.sample_sizes
    if sizes is None:
        raise UsageError(f"the cost of {label} depends on the pairs that it scores; it is logged when the work begins")
    with ExitStack() as stack:
        # Two sizes give the exponent of the growth of files that depend on the words.
        small, large = (
            _encode_sample(stack.enter_context(sample_project(project, rows, n)), label, split) for n in sizes
        )
        return {
            "encode": _estimate_encoding(small, large, rows, project),
            "neighbours": _estimate_neighbours(label, rows, project),
            "export": _estimate_lookup(small, large, rows, project),
        }


@dataclass(frozen=True)
class _SampleArtefact:
    """An artefact of a sample."""

    folder: Path
    manifest: Manifest


@dataclass(frozen=True)
class _Sample:
    """Encoding and lookup of a label over a few captions."""

    captions: int
    encoding: _SampleArtefact
    lookup: _SampleArtefact


def _encode_sample(project: Project, label: str, split: str) -> _Sample:
    def run(job: Job) -> _SampleArtefact:
        manifest, _ = job.run()
        return _SampleArtefact(job.out, manifest)

    # The lookup reads the encoding, so the encoding is built first.
    encoding = run(stages.encode(project, label, split))
    return _Sample(len(project.corpus), encoding, run(stages.export_lookup(project, label, split)))


def _estimate_encoding(small: _Sample, large: _Sample, rows: range, project: Project) -> SizeEstimate:
    artefact, count = large.encoding, len(rows)
    manifest = artefact.manifest
    shards = shards_bytes(artefact.folder / manifest.parts[0], rows, project.config.encode.rows_per_shard)
    index: int | None = 0
    if INDEX in manifest.files:
        index = index_bytes(manifest.semantic["index"], manifest.facts["width"], count)
    image_files = _image_files_bytes(artefact, len(project.corpus.images_of(rows)))
    if shards is not None and index is not None and image_files is not None:
        return SizeEstimate(count, shards + index + image_files, exact=True)
    size = extrapolate((small.captions, small.encoding.manifest.bytes), (large.captions, manifest.bytes), count)
    return SizeEstimate(count, int(size), exact=False)


def _image_files_bytes(sample: _SampleArtefact, images: int) -> int | None:
    """Return the bytes of the files with one row per image; None if they depend on the content of the rows."""
    names = set(sample.manifest.files) - {*sample.manifest.parts, INDEX}
    tables = [zeros(pq.read_schema(sample.folder / name), images) for name in names if name.endswith(".parquet")]
    if len(tables) < len(names):
        return None
    sizes = [plain_bytes(table) for table in tables if table is not None]
    return sum(sizes) if len(sizes) == len(tables) else None


def _estimate_neighbours(label: str, rows: range, project: Project) -> SizeEstimate:
    params, pooling = project.config.neighbours, project.config.params(label).pooling
    spec = NeighbourSpec(label, "captions", rows, params.k, pooling, project.config.encode.rows_per_shard)
    # An approximate search may return fewer than k neighbours.
    return SizeEstimate(len(rows), neighbours_bytes(project.corpus, spec), exact=params.index is None)


def _estimate_lookup(small: _Sample, large: _Sample, rows: range, project: Project) -> SizeEstimate:
    n, count = large.captions, len(rows)
    images = len(project.corpus.images_of(rows))
    about, of_small = read_description(large.lookup.folder), read_description(small.lookup.folder)
    size, exact = 0, True
    for name in KINDS[about.kind]:
        length, *rest = about.arrays[name].shape
        # One row per caption or image, or one more in a CSR pointer: the length is known. Others grow with the words.
        sampled = about.arrays["indptr"].shape[0] - 1
        if length in (n, n + 1):
            length += count - n
        elif length in (sampled, sampled + 1):
            length += images - sampled
        else:
            first = of_small.arrays[name].shape[0]
            length, exact = int(extrapolate((small.captions, first), (n, length), count)), False
        size += npy_bytes(about.arrays[name].dtype, (length, *rest))
    width = min(project.config.neighbours.k, count - 1)
    return SizeEstimate(count, lookup_bytes(project.corpus, rows, size, width), exact)


def extrapolate(small: tuple[int, float], large: tuple[int, float], count: int) -> float:
    """Extrapolate a quantity along a power of the count, from two measurements.

    `small`, `large`: (int, float); two counts, each with the quantity at that count. `count`: count to extrapolate to.
    The exponent is at most 1: nothing grows faster than the captions.
    """
    if large[0] <= small[0] or not 0 < small[1] < large[1]:
        return large[1] * count / large[0]
    exponent = min(1.0, math.log(large[1] / small[1]) / math.log(large[0] / small[0]))
    return float(large[1] * (count / large[0]) ** exponent)


@dataclass(frozen=True)
class _SampleProject(Project):
    """A project whose corpus is in memory."""

    sample: Corpus | None = None

    @cached_property
    def corpus(self) -> Corpus:
        """The sample."""
        assert self.sample is not None
        return self.sample


@contextmanager
def sample_project(project: Project, rows: range, captions: int) -> Iterator[Project]:
    """Open a project of about `captions` of the rows, in a temporary folder."""
    with TemporaryDirectory(prefix="relabel-") as folder:
        # In this process: workers would need the corpus on disk.
        runtime = replace(project.runtime, progress=SILENT, workers=0, scheduler=None)
        corpus = sample_images(project.corpus, rows, captions)
        yield _SampleProject(project.config, runtime, Path(folder), sample=corpus)


def sample_images(corpus: Corpus, rows: range, captions: int) -> Corpus:
    """Select complete images, evenly spread over some rows, with about as many captions as asked for.

    `rows`: rows of complete images. Returns Corpus: at least one image; all of `rows` if they have no more captions
    than asked for.
    """
    images = corpus.images_of(rows)
    count = max(1, min(len(images), round(len(images) * captions / len(rows))))
    # Rounding may give the same image twice; a sample has each image once.
    chosen = images.start + np.unique(np.linspace(0, len(images) - 1, count).astype(np.int64))
    sets = corpus.references(chosen.tolist(), first=None)
    table = corpus.table.take(pa.array(sets.rows))
    # A corpus numbers its rows and images from 0.
    image = np.repeat(np.arange(len(sets), dtype=np.int32), np.diff(sets.indptr))
    for name, values in {"row": np.arange(len(table), dtype=np.int32), "image": image}.items():
        column = SCHEMA.get_field_index(name)
        table = table.set_column(column, SCHEMA.field(name), pa.array(values))
    return Corpus.from_table(table)


def shards_bytes(shard: Path, rows: range, rows_per_shard: int) -> int | None:
    """Return the bytes of all shards that have the schema of one; None if a row's bytes depend on its content."""
    schema, lengths = pq.read_schema(shard), [len(part) for part in part_ranges(rows, rows_per_shard)]
    sizes: dict[int, int] = {}
    for length in lengths:
        # All shards but the last have one length: two tables are written at most.
        if length not in sizes:
            table = zeros(schema, length)
            if table is None:
                return None
            sizes[length] = plain_bytes(table)
    return sum(sizes[length] for length in lengths)


def index_bytes(factory: str | None, width: int, count: int) -> int | None:
    """Return the bytes of a FAISS index of `count` vectors; None if they depend on the vectors."""
    if factory is None:
        return 0
    if factory != "Flat":
        return None
    # A flat index is a header and one block per vector: two small indexes give both sizes.
    empty, single = (make_index(factory, width) for _ in range(2))
    single.add(np.zeros((1, width), np.float32))
    header, with_vector = (len(import_faiss().serialize_index(index)) for index in (empty, single))
    return int(header + (with_vector - header) * count)


def neighbours_bytes(corpus: Corpus, spec: NeighbourSpec) -> int:
    """Return the bytes of a table of exact neighbours."""
    width = spec.search(corpus).width
    return sum(shard_bytes(len(part), width) for part in spec.shards(corpus))


def lookup_bytes(corpus: Corpus, rows: range, kind_bytes: int, width: int | None) -> int:
    """Return the bytes of a lookup.

    `kind_bytes`: bytes of the arrays that are specific to the kind of the lookup. `width`: neighbours per caption; None
    for a lookup without neighbours.
    """
    n, images = len(rows), corpus.images_of(rows)
    m = len(images)
    # Image of each caption, row ranges of images, failed rows; then both tables of ids; then the lists in CSR form.
    arrays: list[tuple[str, tuple[int, ...]]] = [("<i4", (n,)), ("<i8", (m + 1,)), ("<i4", (0,))]
    for names in (corpus.caption_ids[rows.start : rows.stop], corpus.image_ids[images.start : images.stop]):
        arrays += [(a.dtype.str, a.shape) for a in Ids.of(names).arrays("ids").values()]
    if width is not None:
        arrays += [("<i8", (n + 1,)), ("<i4", (n * width,)), ("<f4", (n * width,))]
    return kind_bytes + sum(npy_bytes(dtype, shape) for dtype, shape in arrays)
