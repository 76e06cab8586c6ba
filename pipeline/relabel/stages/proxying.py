"""proxy-features: a stand-in for images, and the project of the captions that are left."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from relabel.proxy.params import ProxyFeaturesParams
from relabel.proxy.units import CAPTIONS, ProxyUnits
from relabel.stages.job import Job, make_units
from relabel.stages.project import Project
from relabel.store.manifest import Draft
from relabel.store.work import Work

if TYPE_CHECKING:
    from relabel.proxy.token_vectors import TokenEncoder


def proxy_features(project: Project, params: ProxyFeaturesParams | None = None) -> Job:
    """Prepare to write the token vectors of one caption of each of some images, and to hold these captions out.

    Raises
    ------
    UsageError
        If a split has too few images.
    MissingError
        If the corpus or the model is not there.
    """
    from relabel.proxy.choice import choose
    from relabel.sources.model_files import find_model

    params = params or project.config.proxy_features
    corpus, runtime = project.corpus, project.runtime
    files = find_model(params.model, params.revision, runtime.progress)
    choice = choose(corpus, params.counts, params.seed)

    def load() -> TokenEncoder:
        from relabel.proxy.token_vectors import TokenEncoder

        return TokenEncoder(files.folder, "", None, "float32", runtime)

    semantic = {
        "version": 1,
        "images": params.counts,
        "model": files.sha256(),
        **params.model_dump(include={"vectors", "seed", "images_per_shard"}),
    }
    draft = Draft("proxy_features", project.config.ingest.dataset, semantic, {"corpus": corpus.digest})
    units = partial(ProxyUnits, corpus, choice, params, load)

    def fill(work: Work) -> None:
        make_units(project, units(), draft, work, proxy_features, params)

    return Job(project.layout.proxy, draft, fill, runtime.progress, units)


def left_project(project: Project) -> Project:
    """Return the project of the captions that are left: a dataset of its own, `coco_proxy`, with all of its stages.

    A label of an image is then pooled over its other captions, and neither text, neighbours nor document frequencies
    know the one that is held out: it is in no file of that dataset. Models are the whole dataset's.
    """
    ingest = project.config.ingest
    left = ingest.model_copy(
        update={
            "dataset": f"{ingest.dataset}_proxy",
            "namespace": ingest.prefix,
            "format": "parquet",
            "path": project.layout.proxy / CAPTIONS,
            "splits": None,
            "captions_per_image": None,
            "in_split": None,
            "caption_id_column": "caption_id",
            "image_id_column": "image_id",
            "text_column": "text",
            "split_column": "split",
            "expected": {},
        }
    )
    return replace(project, config=project.config.model_copy(update={"ingest": left}), whole=project)
