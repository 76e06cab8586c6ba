"""Proxy features: token vectors of one caption represent an image, and this caption is held out of everything else."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.params import Experiments
from experiments.proxy_features.held_out import hold_out
from experiments.proxy_features.tasks import CAPTIONS, ProxyTasks
from relabel.sources.models.files import find_model
from relabel.stages import Job, Project
from relabel.stages.job import run_tasks
from relabel.store.manifest import ArtefactSpec
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from experiments.proxy_features.token_vectors import TokenEncoder


def proxy_folder(project: Project) -> Path:
    """Return the folder of a dataset's proxy features."""
    return project.layout.root / "proxy"


def proxy_features(project: Project, experiments: Experiments) -> Job:
    """Prepare to write proxy features of some images, and the captions of these images that are not held out.

    Raises
    ------
    UsageError
        If a split has too few images.
    MissingError
        If the corpus or the model is missing.
    """
    params, corpus, runtime = experiments.proxy_features, project.corpus, project.runtime
    files = find_model(params.model, params.revision, runtime.progress)
    held_out = hold_out(corpus, params.counts, params.seed)

    # Loaded on first use: a finished folder is recognized without torch.
    def load() -> TokenEncoder:
        from experiments.proxy_features.token_vectors import TokenEncoder

        return TokenEncoder(files.folder, "", None, "float32", runtime)

    semantic = {
        "version": 1,
        "images": params.counts,
        "model": files.sha256(),
        **params.model_dump(include={"vectors", "seed", "images_per_shard"}),
    }
    artefact = ArtefactSpec("proxy_features", project.config.ingest.dataset, semantic, {"corpus": corpus.digest})
    tasks = partial(ProxyTasks, corpus, held_out, params, load)

    def fill(work: Work) -> None:
        run_tasks(project, tasks(), artefact, work, proxy_features, experiments)

    variant = experiments.variant(project, lambda e: e.proxy_features)
    return Job(proxy_folder(project), artefact, fill, runtime.progress, tasks, variant)


def remaining_project(project: Project) -> Project:
    """Return the project of the captions that are not held out: a separate dataset, such as `coco_proxy`.

    Its labels pool the references of an image over the remaining captions. Text, neighbours and document frequencies
    exclude the held-out captions, which are in no file of that dataset. Trained models are those of the parent dataset.
    """
    ingest = project.config.ingest
    remaining = ingest.model_copy(
        update={
            "dataset": f"{ingest.dataset}_proxy",
            "namespace": project.namespace,
            "format": "parquet",
            "path": proxy_folder(project) / CAPTIONS,
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
    return replace(project, config=project.config.model_copy(update={"ingest": remaining}), parent=project)
