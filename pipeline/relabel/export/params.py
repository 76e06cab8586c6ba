"""Parameters of the exports, explained in docs/formats.md, webdataset.md and lookups-and-batches.md."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from relabel.core.parameters import SET_ONLY, Parameters, Seed
from relabel.core.types import Queries
from relabel.datasets.cxc import Task

Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Number = Annotated[int, Field(ge=1, le=1_000_000)]
ShardRows = Annotated[int, Field(ge=1, le=10_000_000)]
Levels = tuple[Annotated[float, Field(ge=-1000, le=1000)], ...]
Type = Literal["float16", "float32"]
SamplerName = Literal["random", "neighbour", "graded"]
_K: Any = {"flags": ["-k"]}  # short option for a number of neighbours


class ExportLookupParams(Parameters):
    """Parameters of a lookup."""

    dtype: Type = Field(
        "float32", description="dtype of the vectors. float16 halves the file and changes a cosine by at most 1e-3."
    )


class ExportWdsParams(Parameters):
    """Parameters of a side-car of webdataset shards."""

    shards: str | None = Field(
        None,
        description="Image shards to match: a folder, or 'images/{00000..00099}.tar'; by default none, with caption "
        "ids as keys.",
    )
    keys: Literal["image", "caption", "shard"] | None = Field(
        None,
        description="Meaning of keys: image ids, caption ids, or image ids within a shard; by default as ingested.",
    )
    join: str | None = Field(
        None,
        description="Location of the id: `key` for the sample's key, or a field of its JSON, such as img2dataset's "
        "url or sha256; by default as ingested.",
    )
    layout: Literal["arrays", "samples"] = Field(
        "arrays", description="arrays: for relabel_train.webdataset.join; samples: .json and .npy per key."
    )
    dtype: Type = Field("float16", description="dtype of the vectors.")
    k: int = Field(10, ge=0, le=1_000_000, description="Neighbours per caption; 0 for none.", json_schema_extra=_K)
    captions_per_shard: ShardRows = Field(10_000, description="Captions per shard if there are no image shards.")
    allow_missing: bool = Field(
        False, description="Mark and count keys that have no label. By default they are an error."
    )


class ExportBatchesParams(Parameters):
    """Parameters of precomputed batches."""

    items: Queries = Field(
        "captions", description="Items of a batch: captions, or images and their relevance to each other."
    )
    batch_size: Number | None = Field(
        None, description="Items per batch; by default 128, or 50 for the neighbour sampler."
    )
    epochs: Number = Field(1, description="Number of epochs to precompute.")
    seed: Seed = Field(0, description="Seed of the sampler.")
    batches_per_epoch: Count | None = Field(
        None, description="Maximum number of batches per epoch; the first ones are kept."
    )
    drop_last: bool = Field(
        True, description="Drop the last batch of an epoch if it is incomplete.", json_schema_extra=SET_ONLY
    )
    sampler: SamplerName = Field(
        "random",
        description="random: every item once per epoch; neighbour: an anchor, its nearest items and random ones; "
        "graded: every item once per epoch, together with items of every level.",
    )
    one_caption_an_image: bool = Field(
        False, description="random: every image once per epoch, with one caption.", json_schema_extra=SET_ONLY
    )
    neighbours: str | None = Field(
        None, description="neighbour, graded: label that defines the neighbours; by default the exported label."
    )
    k: int = Field(
        5, ge=0, le=1_000_000, description="neighbour: number of nearest items per batch.", json_schema_extra=_K
    )
    nearest: Number | None = Field(
        None,
        description="neighbour: draw the k items from this number of nearest items; by default k.",
        json_schema_extra=SET_ONLY,
    )

    @property
    def size(self) -> int:
        """Items per batch."""
        return self.batch_size or (50 if self.sampler == "neighbour" else 128)

    @property
    def config(self) -> dict[str, Any]:
        """Parameters that can change the batches, without those that the sampler does not read."""
        # A parameter of another sampler must not change the fingerprint.
        specific = {
            "random": {"one_caption_an_image"},
            "neighbour": {"k", "nearest"},
            "graded": set[str](),
        }[self.sampler]
        shared = {"items", "epochs", "seed", "batches_per_epoch", "drop_last", "sampler"}
        return self.model_dump(mode="json", include=shared | specific) | {"batch_size": self.size}


class ExportHfParams(Parameters):
    """Parameters of a dataset folder for Hugging Face's datasets."""

    vectors: Literal["none", "float16", "float32"] = Field(
        "float32", description="dtype of the vectors; none: do not write them."
    )
    licence: str | None = Field(
        None, description="Licence of the captions, for the card; by default the recorded licence."
    )


class ExportSamplesParams(Parameters):
    """Parameters shared by sampled pairs, tuples and groups."""

    count: Count = Field(100_000, description="Number of rows to write for each split.")
    margin: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="Exclude captions of other images that score at most this margin below the positive.",
    )


class ExportTuplesParams(ExportSamplesParams):
    """Parameters of tuples of an anchor, a positive and negatives."""

    negatives: int = Field(4, ge=1, le=100_000, description="Negatives per anchor.")


class ExportGroupsParams(ExportSamplesParams):
    """Parameters of queries with lists of positives and negatives."""

    scale: float = Field(1.0, gt=0, le=1000, description="Factor of the scores for a trainer's softmax.")


class ExportTrecParams(Parameters):
    """Parameters of qrels and runs."""

    queries: Queries = Field("captions", description="Queries: captions or images.")
    levels: Levels = Field(
        (),
        description="Cut points of relevance in ascending order. By default, for images, the probabilities 0.5 and 0.8 "
        "of the label's calibration; otherwise quantiles 0.5, 0.9 and 0.99 of scores above the minimum. Repeatable.",
    )


class ExportFaissParams(Parameters):
    """Parameters of faiss indexes."""

    index: str = Field(
        "Flat", description="faiss index factory string, with search parameters: 'IVF1024,Flat;nprobe=32'."
    )


class ExportScanParams(Parameters):
    """Parameters of SCAN's files."""

    captions_per_image: int = Field(
        5, ge=0, le=1000, description="Number of captions of each image to write, the first ones; 0 for all."
    )
    block: bool = Field(True, description="Write the relevance of all images and captions of a split as one array.")


class ExportCandidatesParams(Parameters):
    """Parameters of pairs for a judge to score. Each image is always paired with its own captions."""

    k: int = Field(
        10, ge=0, le=1_000_000, description="Number of nearest captions of each image.", json_schema_extra=_K
    )
    cxc: tuple[Task, ...] = Field(
        (), description="Add the judged pairs of these CxC tasks: sits, sts, sis. Comma-separated or repeated."
    )


class ExportParams(Parameters):
    """Parameters of the exports, one block per format."""

    labels: tuple[str, ...] = Field(
        ("sbert", "cider"), description="Labels for which `relabel run` writes neighbours, lookups and faiss indexes."
    )
    lookup: ExportLookupParams = ExportLookupParams()
    wds: ExportWdsParams = ExportWdsParams()
    batches: ExportBatchesParams = ExportBatchesParams()
    hf: ExportHfParams = ExportHfParams()
    pairs: ExportSamplesParams = ExportSamplesParams()
    tuples: ExportTuplesParams = ExportTuplesParams()
    distillation: ExportGroupsParams = Field(ExportGroupsParams(), description="For flagembedding and tevatron.")
    trec: ExportTrecParams = ExportTrecParams()
    faiss: ExportFaissParams = ExportFaissParams()
    scan: ExportScanParams = ExportScanParams()
    candidates: ExportCandidatesParams = ExportCandidatesParams()


def block_of(kind: str) -> str:
    """Return the name of the parameter block of a format of `relabel.export.EXPORTS`."""
    return "distillation" if kind in ("flagembedding", "tevatron") else kind
