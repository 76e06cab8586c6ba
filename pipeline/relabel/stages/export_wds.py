"""export wds: side-car shards of webdataset, with the labels of every sample by its key."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from relabel.config import Config
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.stages.export import export_lookup
from relabel.stages.job import Job, Values, check_current, label_values, run_tasks, variant
from relabel.stages.project import Project
from relabel.store.manifest import ArtefactSpec, Manifest, read_manifest, refuse_replaced
from relabel.store.workdir import Work
from relabel_train.sidecar import FORMAT, Keys

if TYPE_CHECKING:
    from relabel.export.wds.build import SideCarTasks


@dataclass(frozen=True)
class SideCarEstimate:
    """Counts of a side-car that is not written, and its size.

    `shards`, `keys`, `captions`, `missing`: `missing` keys have no label.
    `bytes`: estimated from the first shard.
    """

    shards: int
    keys: int
    captions: int
    missing: int
    bytes: int

    def describe(self) -> str:
        """Return the estimate as text."""
        absent = f" ({self.missing:,} without a label)" if self.missing else ""
        size = f"about {self.bytes / 1e6:,.1f} MB"
        return f"{self.shards:,} shards, {self.keys:,} keys{absent}, {self.captions:,} captions, {size}"


def export_wds(project: Project, label: str, split: str) -> Job:
    """Prepare to write the side-car of a label from its lookup. Its shards and keys are those of `export.wds`.

    `label`, `split`: the lookup.
    """
    lookup, artefact, tasks = _prepare(project, label, split)
    folder = project.layout.lookup(split, label)

    def fill(work: Work) -> None:
        project.note_single_captions(label)
        run_tasks(project, tasks(), artefact, work, export_wds, label, split)
        # The shards must be of one lookup.
        refuse_replaced(folder, lookup)

    def values(config: Config) -> Values:
        block = config.export.wds.model_dump(mode="json")
        return label_values(config, label) | {f"export.wds.{name}": value for name, value in block.items()}

    out = project.layout.export(split, "wds", label)
    return Job(out, artefact, fill, project.runtime.progress, tasks, variant(project, values))


def estimate_wds(project: Project, label: str, split: str) -> SideCarEstimate:
    """Count the keys of a side-car and estimate its size without writing it.

    Keys without a label are counted, also where `export_wds` refuses them. Other errors are those of `export_wds`.
    """
    config = project.config
    wds = config.export.wds.model_copy(update={"allow_missing": True})
    allowed = config.model_copy(update={"export": config.export.model_copy(update={"wds": wds})})
    project = Project(allowed, project.runtime, project.labels, parent=project.parent)
    tasks = _prepare(project, label, split)[2]()
    keys, captions, missing = tasks.count_keys()
    first = next(iter(tasks.shards.values()))
    return SideCarEstimate(len(tasks.shards), keys, captions, missing, tasks.shard_bytes(first) * keys // first.count)


def _prepare(project: Project, label: str, split: str) -> tuple[Manifest, ArtefactSpec, partial[SideCarTasks]]:
    """Return the manifest of the lookup, the side-car to build, and its tasks."""
    from relabel.export.wds.build import SideCarTasks
    from relabel.export.wds.keys import caption_shards, image_shards
    from relabel_train.lookup import open_lookup

    # Called for its error: a label that the parameters lack is refused before any file is read.
    project.config.params(label)
    corpus, params = project.corpus, project.config.export.wds
    folder, again = project.layout.lookup(split, label), project.command("export lookup", label=label, split=split)
    try:
        lookup = read_manifest(folder, "lookup")
    except MissingError as error:
        message = f"no lookup of {label}, which a side-car is made from"
        raise MissingError(message, where=str(folder), todo=f"Make it with {again}.") from error
    near = lookup.facts["neighbours"]
    today = partial(export_lookup, project, label, split, near and near["within"])
    check_current(project, lookup, folder, today, f"Run {again} again.", own=("dtype",))
    if (lookup.semantic.get("dtype"), params.dtype) == ("float16", "float32"):
        todo = "Give --dtype float16, or export the lookup as float32."
        raise UsageError("the vectors of this lookup are float16", where=str(folder), todo=todo)
    keys, column = _keys(project)
    params = params.model_copy(update={"image_id_column": column})
    if params.shards is None:
        shards = caption_shards(corpus, range(*lookup.facts["rows"]), project.namespace, params.captions_per_shard)
    else:
        shards = image_shards(params, keys, project.namespace, project.runtime.progress)
    digest = hashlib.sha256(json.dumps([(shard.name, shard.digest()) for shard in shards]).encode()).hexdigest()
    semantic: dict[str, Any] = {"format": FORMAT, "keys": keys, "layout": params.layout, "k": params.k}
    semantic |= {"dtype": params.dtype, "allow_missing": params.allow_missing}
    inputs = {"corpus": corpus.digest, "lookup": lookup.identity, "keys": digest}
    artefact = ArtefactSpec("wds", label, semantic, inputs)
    tasks = partial(
        SideCarTasks, corpus, partial(open_lookup, folder), shards, keys, params, artefact, project.runtime.progress
    )
    return lookup, artefact, tasks


def _keys(project: Project) -> tuple[Keys, str | None]:
    """Return the meaning of keys, and the key of the JSON that holds ids: as given, else as the captions were read."""
    params = project.config.export.wds
    if params.shards is None:
        if params.keys not in (None, "caption") or params.image_id_column is not None:
            raise UsageError("without --shards, the keys are the ids of captions", todo="Name the shards of images.")
        return "caption", None
    ingested: dict[str, Any] = {}
    with suppress(MissingError, CheckError):
        ingested = read_manifest(project.layout.corpus, "corpus").semantic
    if ingested.get("format") != "webdataset":
        return params.keys or "image", params.image_id_column
    keys: Keys = "shard" if ingested.get("ids") == "shard" else "image"
    return params.keys or keys, params.image_id_column or ingested["chosen"]["image_id"]
