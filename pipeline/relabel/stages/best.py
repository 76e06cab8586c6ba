"""tune best: builds all models of the recommended label. tune fuse: the last step of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from relabel.core.errors import UsageError
from relabel.stages.corpus import open_corpus
from relabel.stages.encode import build_encoding, encoding, open_label
from relabel.stages.ingest import fetch_and_ingest
from relabel.stages.job import Job
from relabel.stages.session import Session
from relabel.stages.tune import check_human_scores, model_folder, model_job, sbert_model
from relabel.store.artefact import check_place
from relabel.store.manifest import Manifest, Spec


def fuse_model(session: Session, out: Path | None = None) -> Job:
    """Prepare to fit a fuse of the labels in `tune.fuse.parts`. Missing encodings of val are built first."""
    from relabel.sources.fuse.model import KIND
    from relabel.sources.fuse.tune import SPLIT, FuseInput, find_out_of_fold, tune_fuse

    config, params, out = session.config, session.config.tune.fuse, out or model_folder(session, "fuse")
    check_human_scores(session)
    # Check this first, because encoding the parts may take hours.
    check_place(out, Spec(KIND, "fuse", {}, {}))
    for label in params.parts:
        for part, one in config.with_parts(label).items():
            if (model := one.model_folder()) and model.absolute() == out.absolute():
                message = f"label {label} uses the model that would be fitted: {part} reads {out}"
                raise UsageError(message, hint="Remove it from --parts, or set another --out.")
    parts = {}
    for label in params.parts:
        source, opened = config.source(label), partial(open_label, session, label, SPLIT)
        # A model that was tuned on val contributes its out-of-fold predictions instead of its encoding of val.
        if (tuned := find_out_of_fold(source)) is not None:
            spec = encoding(session, label, SPLIT).spec()
            parts[label] = FuseInput(source, spec.config, spec.fingerprint, opened, tuned)
        else:
            manifest = build_encoding(session, label, SPLIT)
            parts[label] = FuseInput(source, manifest.config, encoding(session, label, SPLIT), opened)
    return model_job(session, "fuse", tune_fuse(params, parts, open_corpus(session), session.runtime), out)


_BEST_ENCODER: dict[str, Any] = {"folds": 3, "epochs": 2, "sis": 0.3, "extra_datasets": ("stsb", "sick")}
"""Parameters of the recommended sentence encoder that differ from the defaults."""
_BEST_FUSE: dict[str, Any] = {
    "parts": ("tuned", "word2vec", "cider"),
    "free_parts": ("word2vec", "cider"),
    "altered_pairs": 1500,
}
"""Parameters of the recommended fuse that differ from the defaults."""


def tune_best(session: Session) -> dict[str, Manifest]:
    """Build the models of the recommended label: a sentence encoder, `tuned`, and a `fuse` of it with other labels.

    The steps are fetch, ingest, `tune sbert`, the word vectors and encodings of the parts, and `tune fuse`. Finished
    steps, and finished folds of the encoder, are not repeated. The parameters of both models come from the preset and
    override the parameter file, except `base` of the encoder.

    Returns dict of str to Manifest: the manifest of the model of each label.
    """
    # Check this first, because the download takes much longer.
    check_human_scores(session)
    tune = session.config.tune
    preset = {"sbert": tune.sbert.model_copy(update=_BEST_ENCODER), "fuse": tune.fuse.model_copy(update=_BEST_FUSE)}
    config = session.config.model_copy(update={"tune": tune.model_copy(update=preset)})
    session = replace(session, config=config)
    fetch_and_ingest(session)
    # The fuse reads the encoding of `tuned`, so tune the sentence encoder first.
    return {"tuned": sbert_model(session).run()[0], "fuse": fuse_model(session).run()[0]}
