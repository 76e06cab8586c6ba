"""Exports on the Hugging Face Hub: from `hf://` to a folder in the hub's cache."""

from __future__ import annotations

from pathlib import Path

SCHEME = "hf://"


def fetch_folder(url: str, name: str) -> Path:
    """Return the folder that holds a file in the hub's cache, after a download of what is not there yet.

    `url`: ``hf://datasets/OWNER/NAME[@REVISION][/PATH]``; without a revision, the main branch. `name`: of the file. It
    may also be in a folder below PATH, if it is in only one.
    """
    try:
        from huggingface_hub import parse_hf_uri, snapshot_download
        from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
    except ModuleNotFoundError as error:
        error.add_note("Run `pip install 'relabel-itr[hub]'`.")
        raise
    form = f"{url}: expected hf://datasets/OWNER/NAME[@REVISION][/PATH]"
    try:
        place = parse_hf_uri(url)
    except ValueError as error:
        raise ValueError(form) from error
    if place.type != "dataset" or ".." in place.path_in_repo.split("/"):
        raise ValueError(form)

    def download(revision: str | None, *patterns: str) -> Path:
        try:
            root = snapshot_download(place.id, repo_type=place.type, revision=revision, allow_patterns=[*patterns])
        except (RepositoryNotFoundError, RevisionNotFoundError) as error:
            hint = "Check the name and the revision. If the dataset is private, run `hf auth login`."
            raise FileNotFoundError(f"{url}: not found on the hub. {hint}") from error
        except OSError as error:
            hint = "Open it once while the hub can be reached; after that the cache has it."
            raise FileNotFoundError(f"{url}: not in the cache, and the download failed: {error}. {hint}") from error
        return Path(root)

    parts = [place.path_in_repo.strip("/")] if place.path_in_repo else []
    root = download(place.revision, "/".join([*parts, name]), "/".join([*parts, "*", name]))
    folder = root.joinpath(*parts)
    if not (folder / name).exists():
        found = sorted(path.parent for path in folder.rglob(name))
        if len(found) != 1:
            paths = ", ".join(path.relative_to(root).as_posix() for path in found) or "there is none"
            raise FileNotFoundError(f"{url}: name one folder that holds {name}: {paths}")
        folder = found[0]
    # A snapshot has the name of its commit: the branch may have moved since.
    download(root.name, (folder.relative_to(root) / "*").as_posix())
    return folder
