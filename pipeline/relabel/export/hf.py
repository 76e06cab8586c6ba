"""Dataset folders for Hugging Face's datasets: Parquet files named by split, lookups, and a card with a YAML header."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from typing_extensions import override

from relabel.core.errors import UsageError
from relabel.core.tables import Table, markdown
from relabel.export.base import ArtefactRef, Export, ExportInputs, shards, write_tables
from relabel.export.neighbours import COLUMNS, neighbour_ids
from relabel.export.params import ExportHfParams
from relabel.sources.cosine import make_vector_table, vectors_from_table
from relabel.store.files import write_text
from relabel.store.manifest import MANIFEST
from relabel.store.workdir import Work, part_ranges

CARD = "README.md"
SPLIT_NAMES = {"val": "validation"}
"""Names of splits that are different in Hugging Face's datasets library."""
_LICENCES = {"CC BY 4.0": "cc-by-4.0", "CC BY-SA 4.0": "cc-by-sa-4.0", "CC BY-NC-SA 3.0": "cc-by-nc-sa-3.0"}
_SIZES = (("n<1K", 10**3), ("1K<n<10K", 10**4), ("10K<n<100K", 10**5), ("100K<n<1M", 10**6), ("1M<n<10M", 10**7))
_COLUMNS = {
    "caption_id": "id of the caption",
    "image_id": "id of its image",
    "text": "the caption",
    "vector": "unit vector of the caption; the cosine of two vectors is their relevance",
    "neighbours": "ids of the most relevant captions, best first",
    "neighbour_images": "ids of their images",
    "scores": "their relevance",
    "same_image": "whether they describe the same image",
}


class HfExport(Export[ExportHfParams]):
    """Dataset folder with one row per caption: ids, text, and the label's vector and neighbours if it has them.

    The files of a split are ``data/SPLIT-00000-of-000NN.parquet``. The header of the card names them, so that
    `datasets.load_dataset` finds the splits. The split `val` is named `validation` there. The lookup of each split, if
    it exists, is copied to ``lookup/SPLIT``, which `relabel_train.lookup.open_lookup` reads on the hub as well.
    """

    neighbours_of = "captions"

    @override
    def check(self, inputs: ExportInputs) -> None:
        if inputs.neighbours is None and not self._has_vectors(inputs):
            hint = f"Run `relabel neighbours --label {inputs.label} --candidates {inputs.split}`."
            raise UsageError(f"{inputs.label} has neither vectors nor neighbours to export", hint=hint)

    @override
    def write(self, inputs: ExportInputs, work: Work) -> None:
        for split, rows in inputs.splits.items():
            for name, part in shards(f"data/{SPLIT_NAMES.get(split, split)}", rows, self.rows_per_file):
                work.file(f"{name}.parquet", partial(self._write_shard, inputs, part))
        for split, lookup in inputs.lookups.items():
            for file in lookup.manifest.files:
                work.file(f"lookup/{split}/{file}", partial(shutil.copyfile, lookup.folder / file))
            # Times and machine are left out, so every build has the same bytes.
            manifest = replace(lookup.manifest, provenance={}).to_json()
            work.file(f"lookup/{split}/{MANIFEST}", partial(write_text, text=manifest))
        # All files have the same columns.
        columns = pq.read_schema(work.folder / f"{name}.parquet")
        card = render_card(inputs, columns, self.params.licence)
        work.file(CARD, lambda path: write_text(path, card))
        work.metadata["columns"] = columns.names

    def _has_vectors(self, inputs: ExportInputs) -> bool:
        return self.params.vectors != "none" and inputs.source.spec.kind == "vectors"

    def _write_shard(self, inputs: ExportInputs, rows: range, path: Path) -> None:
        # In row groups, because the neighbours of a shard can be larger than the memory.
        write_tables(path, (self._table(inputs, group) for group in part_ranges(rows, _GROUP)))

    def _table(self, inputs: ExportInputs, rows: range) -> pa.Table:
        texts = inputs.corpus.table.slice(rows.start, len(rows))
        columns: dict[str, Any] = {name: texts[name] for name in ("caption_id", "image_id", "text")}
        stored = self.params.vectors
        if stored != "none" and self._has_vectors(inputs):
            vectors = vectors_from_table(inputs.encoding.read(rows, ["vector"]))
            columns["vector"] = make_vector_table(rows, vectors, stored)["vector"]
        if inputs.neighbours is not None:
            columns |= neighbour_ids(inputs.neighbours.read(rows, COLUMNS), inputs.corpus)
        return pa.table(columns)


_GROUP = 10_000  # captions per row group


def render_card(inputs: ExportInputs, columns: pa.Schema, licence: str | None) -> str:
    """Return the card of a dataset folder: a YAML header that `datasets` reads, then text for people."""
    spec, title = inputs.source.spec, f"{inputs.dataset}: relevance of captions by {inputs.label}"
    splits = {SPLIT_NAMES.get(name, name): len(rows) for name, rows in inputs.splits.items()}
    first = next(iter(splits))
    # Escape tags and remove line breaks in the licence.
    terms = " ".join((licence or "").replace("<", "&lt;").split())
    identifier = next((name for text, name in _LICENCES.items() if terms.startswith(text)), None)
    other = {"license": "other", "license_name": "see-the-section-licence"}
    header = {
        "pretty_name": title,
        **({"license": identifier} if identifier else other),
        "task_categories": ["sentence-similarity"],
        "tags": ["relabel", "image-text-retrieval", "graded-relevance"],
        "size_categories": [next((name for name, limit in _SIZES if len(inputs.rows) < limit), "n>10M")],
        "configs": [
            {"config_name": "default", "data_files": [{"split": s, "path": f"data/{s}-*"} for s in splits]},
        ],
    }
    values = {"label": inputs.label, **inputs.params, "fingerprint": inputs.encoding.manifest.fingerprint}
    rows = tuple((field.name, f"`{field.type}`", _COLUMNS[field.name]) for field in columns)
    sections = [
        f"# {title}",
        f"Graded relevance between the captions of the dataset `{inputs.dataset}`, computed by the source "
        f"`{spec.name}` of relabel. "
        f"Relevance lies between {spec.bounds[0]:g} and {spec.bounds[1]:g}. "
        f"Captions: {', '.join(f'{name} {count:,}' for name, count in splits.items())}.",
        "## Loading",
        "`OWNER/NAME` is the name of this dataset on the Hugging Face Hub, or the path of the folder on disk.",
        f'```python\nfrom datasets import load_dataset\n\nlabels = load_dataset("OWNER/NAME", split="{first}")\n```',
        *_describe_lookups(inputs),
        markdown(Table("Columns", ("column", "type", "content"), rows)),
        *_describe_search(inputs.neighbours),
        "## Label",
        markdown(Table("Parameters", ("parameter", "value"), tuple((k, f"`{v}`") for k, v in values.items()))),
        *(f"## {name}\n\n{text}" for name, text in inputs.sections.items()),
        "## Licence of the captions",
        terms or "Not recorded. State the licence of the captions here before you share this folder.",
    ]
    return f"---\n{yaml.safe_dump(header, sort_keys=False, allow_unicode=True)}---\n\n" + "\n\n".join(sections) + "\n"


def _describe_lookups(inputs: ExportInputs) -> list[str]:
    """Return how to read the relevance of any images and captions with numpy only."""
    if not inputs.lookups:
        return []
    split = next(iter(inputs.lookups))
    return [
        "Relevance of any images and captions, as numpy arrays and without torch (`pip install 'relabel-itr[hub]'`):",
        "```python\nfrom relabel_train.lookup import open_lookup\n\n"
        f'lookup = open_lookup("hf://datasets/OWNER/NAME/lookup/{split}")\n'
        "block = lookup.block(lookup.rows[:40:5])  # (8, 8): rows are images, columns are captions\n```",
        f"Lookups: {', '.join(f'`{name}`' for name in inputs.lookups)}.",
    ]


def _describe_search(near: ArtefactRef | None) -> list[str]:
    """Describe the search for the neighbours in one sentence, if there are neighbours."""
    if near is None:
        return []
    index, candidates = near.manifest.config["index"], near.manifest.config["candidates"]
    search = "exact" if index is None else f"approximate, by the faiss index {index}"
    return [
        f"Neighbours are {search}, among the captions of `{candidates}`, {near.manifest.metadata['k']} per caption."
    ]
