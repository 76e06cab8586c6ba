"""export wds: writes side-car shards for webdataset, with the labels of every sample by its key."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from relabel.core.errors import UsageError
from relabel.stages.corpus import open_corpus
from relabel.stages.export import lookup_export
from relabel.stages.job import Job, Values, export_job, make_steps
from relabel.stages.session import Session
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import MANIFEST, read_manifest
from relabel.store.workdir import Steps, Work
from relabel_train.sidecar import Keys

if TYPE_CHECKING:
    from relabel.export.wds.keys import KeyShard

_HASHES_AND_URLS = ("url", "sha256")
"""Columns of img2dataset's metadata that are also in the JSON of its shards."""


def wds_export(session: Session, label: str, split: str) -> Job:
    """Prepare to write the side-car of a label from its lookup, with the shards and keys in `export.wds`."""
    from relabel.export.wds.build import SideCarWork
    from relabel.export.wds.keys import caption_shards, digest_keys, image_shards
    from relabel_train.lookup import open_lookup

    corpus, params = open_corpus(session), session.config.export.wds
    out = session.folder("exports", split, "lookup", label)
    # The neighbours in a lookup may come from another split.
    near = read_manifest(out, "lookup").metadata["neighbours"] if (out / MANIFEST).exists() else None
    lookup = lookup_export(session, label, split, near and near["candidates"])
    keys, join = _keys(session)
    params = params.model_copy(update={"join": join})

    @cache
    def shards() -> Sequence[KeyShard]:
        if params.shards is not None:
            return image_shards(params, keys, corpus.namespace, session.runtime.progress)
        rows = range(*lookup.open().metadata["rows"])
        return caption_shards(corpus, rows, params.captions_per_shard)

    def config() -> Values:
        if (lookup.open().config.get("dtype"), params.dtype) == ("float16", "float32"):
            hint = "Pass --dtype float16, or export the lookup as float32."
            raise UsageError("the vectors of this lookup are float16", where=str(out), hint=hint)
        values = {"keys": keys, "layout": params.layout, "k": params.k}
        return values | {"dtype": params.dtype, "allow_missing": params.allow_missing}

    def steps(work: Work) -> Steps:
        opened, progress = partial(open_lookup, out), session.runtime.progress
        return SideCarWork(corpus, opened, shards(), keys, params, recipe.spec(), progress).steps(work)

    inputs: Inputs = {"corpus": corpus.digest, "lookup": lookup, "keys": lambda: digest_keys(shards())}
    recipe = Recipe("wds", label, config, inputs, lambda work: make_steps(job, work, wds_export, label, split))
    job = export_job(session, label, split, recipe, steps)
    return job


def _keys(session: Session) -> tuple[Keys, str]:
    """Return the kind of keys, and the field with the ids: from the parameters, or as the captions were read."""
    params = session.config.export.wds
    if params.shards is None:
        if params.keys not in (None, "caption") or params.join is not None:
            raise UsageError("without --shards, the keys are the ids of captions", hint="Pass the shards of images.")
        return "caption", "key"
    keys: Keys = params.keys or "image"
    ingested = read_manifest(session.folder("corpus"), "corpus").config
    column = ingested.get("chosen", {}).get("image_id")
    if ingested["format"] != "webdataset":
        # Image ids from such a column are not the keys of shards.
        return keys, params.join or (column if column in _HASHES_AND_URLS else "key")
    if params.keys is None and ingested.get("ids") == "shard":
        keys = "shard"
    return keys, params.join or column or "key"
