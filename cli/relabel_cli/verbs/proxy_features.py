"""`relabel proxy-features`."""

from __future__ import annotations

from typing import Annotated, Any

from relabel.proxy.params import ProxyFeaturesParams
from relabel_cli.bridge import Overrides, verb
from relabel_cli.common import Common


def proxy_features(
    options: Annotated[dict[str, Any], Overrides(ProxyFeaturesParams, "proxy_features")], common: Common
) -> None:
    """Stand in for images where there are none: token vectors of one caption each, which is held out."""
    from relabel import stages

    project = common.project(options)
    job = stages.proxy_features(project)
    manifest, built = job.run()
    facts = manifest.facts
    counts = ", ".join(f"{n:,} images of {split}" for split, n in facts["images"].items())
    left = stages.left_project(project).config.ingest
    lines = [
        stages.status(built, manifest, job.out),
        f"{counts}; {facts['vectors']} vectors of {facts['width']} numbers each.",
        facts["stand_in"],
        f"The captions that are left are a dataset of their own, {left.dataset}: {left.path}.",
    ]
    common.show(facts, "\n".join(lines))


app = verb(proxy_features)
