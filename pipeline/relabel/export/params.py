"""Parameters of the exports."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from relabel.core.parameters import Parameters, Seed
from relabel.core.runtime import parse_size
from relabel.core.types import Of, Pooling


def _check_size(value: str) -> str:
    parse_size(value)
    return value


Size = Annotated[str, AfterValidator(_check_size)]
"""Number of bytes as text, such as 4GiB (see `parse_size`)."""
SamplerName = Literal["random", "neighbour", "graded"]


class ExportLookupParams(Parameters):
    """Parameters of a lookup."""

    dtype: Literal["float32", "float16"] = Field(
        "float32",
        description="Type of the vectors in a lookup. float16 halves the file and changes a cosine by about 1e-5, at "
        "most 1e-3: too much for losses that compare labels with 1 or with a threshold.",
    )


class ExportWdsParams(Parameters):
    """Parameters of a side-car of webdataset shards."""

    shards: str | None = Field(
        None,
        description="Image shards that the side-car follows: a folder, or a path with braces as in "
        "'images/{00000..00099}.tar'. Without them, keys are the ids of captions.",
    )
    keys: Literal["image", "caption", "shard"] | None = Field(
        None,
        description="Meaning of a sample's key: id of an image, id of a caption, or id of an image after the name of "
        "its shard; by default as the captions were ingested.",
    )
    image_id_column: str | None = Field(
        None, description="Key of each sample's JSON that holds its id; by default the key of the sample is the id."
    )
    layout: Literal["arrays", "samples"] = Field(
        "arrays",
        description="arrays: a few arrays per shard, which relabel_train.webdataset.join reads. samples: one sample "
        "(.json, .npy) per key, for other tools.",
    )
    dtype: Literal["float16", "float32"] = Field("float16", description="Type of the vectors.")
    k: int = Field(
        10,
        ge=0,
        le=1_000_000,
        description="Neighbours per caption, if the lookup has any; 0 for none.",
        json_schema_extra={"flags": ["-k"]},
    )
    captions_per_shard: int = Field(10_000, ge=1, le=10_000_000, description="Captions per shard without image shards.")
    allow_missing: bool = Field(
        False, description="Write keys without a label as such, and count them. By default they are an error."
    )


class ExportPlanParams(Parameters):
    """Parameters of a batch plan."""

    batch_size: int | None = Field(
        None, ge=1, le=1_000_000, description="Captions per batch; by default 128, for neighbour 50."
    )
    epochs: int = Field(1, ge=1, le=1_000_000, description="Epochs in the plan.")
    seed: Seed = Field(0, description="Seed of the sampler.")
    batches: int | None = Field(
        None, ge=1, le=1_000_000_000, description="Largest number of batches per epoch; the first ones are kept."
    )
    drop_last: bool = Field(True, description="Leave out the last batch of an epoch if it is short.")
    sampler: SamplerName = Field(
        "random",
        description="random: every caption once per epoch; neighbour: an anchor, its nearest captions and random ones; "
        "graded: every caption once per epoch, together with captions of every level.",
    )
    pooling: Pooling | None = Field(None, description="Pooling of references; by default the label's own.")
    one_caption_an_image: bool = Field(False, description="random: every image once per epoch, with one caption.")
    neighbours: str | None = Field(
        None,
        description="neighbour, graded: label whose neighbours decide which captions share a batch; by default the "
        "planned label.",
    )
    k: int = Field(
        5, ge=0, le=1_000_000, description="neighbour: nearest captions per batch.", json_schema_extra={"flags": ["-k"]}
    )
    siblings: bool = Field(False, description="neighbour, graded: allow captions of one image to be grouped.")
    anchors: int | None = Field(
        None, ge=1, le=1_000_000_000, description="neighbour: batches per epoch; by default as many as random has."
    )
    depth: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="neighbour, graded: neighbours considered per caption; by default up to k + 15 for neighbour and "
        "100 for graded.",
    )
    levels: tuple[Annotated[float, Field(ge=-1000, le=1000)], ...] = Field(
        (), description="graded: thresholds of relevance in falling order. Repeatable."
    )
    quantiles: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        (0.1, 0.5, 0.9),
        description="graded without levels: shares of all neighbours that reach each threshold.",
    )
    group: int = Field(16, ge=2, le=1_000_000, description="graded: largest number of captions per group.")
    max_bytes: Size = Field("100GiB", description="Largest size of a plan.")

    @property
    def size(self) -> int:
        """Captions per batch."""
        return self.batch_size or (50 if self.sampler == "neighbour" else 128)

    @property
    def most_bytes(self) -> int:
        """`max_bytes` as a number."""
        return parse_size(self.max_bytes)

    @property
    def semantic(self) -> dict[str, Any]:
        """Parameters that can change the batches; those that the sampler does not read are left out."""
        # A parameter that only another sampler reads must not change the fingerprint.
        specific = {
            "random": {"one_caption_an_image"},
            "neighbour": {"k", "siblings", "anchors", "depth"},
            "graded": {"siblings", "depth", "levels", "group"} | (set() if self.levels else {"quantiles"}),
        }[self.sampler]
        shared = {"epochs", "seed", "batches", "drop_last", "sampler"}
        return self.model_dump(mode="json", include=shared | specific) | {"batch_size": self.size}


class ExportHfParams(Parameters):
    """Parameters of a dataset folder for Hugging Face's datasets."""

    vectors: Literal["none", "float16", "float32"] = Field(
        "float32", description="Type of the label's vectors in the files; none leaves them out."
    )
    rows_per_shard: int = Field(100_000, ge=1, le=10_000_000, description="Captions per Parquet file.")
    licence: str | None = Field(None, description="Licence of the captions, for the card; by default that recorded.")


class ExportSamplesParams(Parameters):
    """Parameters that drawn pairs and drawn tuples share."""

    count: int = Field(100_000, ge=1, le=1_000_000_000, description="Rows to write for each split.")
    candidates: int = Field(8, ge=1, le=10_000, description="Candidates that are scored for each row.")
    seed: Seed = Field(0, description="Seed of the draws.")
    rows_per_shard: int = Field(100_000, ge=1, le=10_000_000, description="Rows per Parquet file.")


class ExportPairsParams(ExportSamplesParams):
    """Parameters of scored pairs of captions."""

    bins: int = Field(10, ge=1, le=10_000, description="Bins of equal width from which equally many pairs are drawn.")


class ExportTuplesParams(ExportSamplesParams):
    """Parameters of tuples of an anchor, a positive and negatives."""

    negatives: int = Field(4, ge=1, le=100_000, description="Negatives per anchor.")


class ExportTrecParams(Parameters):
    """Parameters of qrels and runs."""

    of: Of = Field("captions", description="Queries: captions or images.")
    levels: tuple[Annotated[float, Field(ge=-1000, le=1000)], ...] = Field(
        (),
        description="Cut points of relevance in rising order; a score has the grade of the last one it reaches. "
        "Repeatable.",
    )
    quantiles: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        (0.5, 0.9, 0.99), description="Without levels: cut points as quantiles of the scores of all neighbours."
    )


class ExportSafetensorsParams(Parameters):
    """Parameters of files of safetensors."""

    dtype: Literal["float16", "float32"] = Field("float32", description="Type of the vectors.")
    rows_per_shard: int = Field(500_000, ge=1, le=10_000_000, description="Captions per file.")


class ExportFaissParams(Parameters):
    """Parameters of indexes of faiss."""

    index: str = Field(
        "Flat",
        description="Index factory string of faiss, with parameters of the search after a semicolon: Flat, HNSW32, "
        "'IVF1024,Flat;nprobe=32', 'IVF1024,PQ48'.",
    )
    training: int = Field(
        500_000,
        ge=1,
        le=10_000_000,
        description="Captions that an index is trained on at most, evenly spaced.",
    )
    rows_per_shard: int = Field(250_000, ge=1, le=10_000_000, description="Captions per index.")


class ExportScanParams(Parameters):
    """Parameters of SCAN's files."""

    captions_per_image: int = Field(
        5, ge=0, le=1000, description="First captions of each image to write; 0 writes all, with one id per caption."
    )
    block: bool = Field(True, description="Write the relevance of all images and captions of a split as one array.")
    dtype: Literal["float16", "float32"] = Field("float32", description="Type of the block.")
    max_bytes: Size = Field("4GiB", description="Largest size of a block.")


class ExportParams(Parameters):
    """Parameters of the exports, one block each."""

    labels: tuple[str, ...] = Field(
        ("sbert", "cider"),
        description="Labels whose neighbours `relabel run` finds, and whose lookups and indexes of faiss it writes.",
    )

    lookup: ExportLookupParams = ExportLookupParams()
    wds: ExportWdsParams = ExportWdsParams()
    plan: ExportPlanParams = ExportPlanParams()
    hf: ExportHfParams = ExportHfParams()
    pairs: ExportPairsParams = ExportPairsParams()
    tuples: ExportTuplesParams = ExportTuplesParams()
    trec: ExportTrecParams = ExportTrecParams()
    safetensors: ExportSafetensorsParams = ExportSafetensorsParams()
    faiss: ExportFaissParams = ExportFaissParams()
    scan: ExportScanParams = ExportScanParams()


def format_params(kind: str) -> type[Parameters]:
    """Return the model of the parameters of one of `relabel.export.EXPORTS`."""
    params: Parameters = getattr(ExportParams(), kind)
    return type(params)
