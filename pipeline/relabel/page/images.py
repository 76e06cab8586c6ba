"""Addresses of the images that a page shows. The browser loads them from there: no image is copied."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

from relabel.core.errors import MissingError, UsageError

_FIELD = "{image_id"
_ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".avif", ".bmp"}


@dataclass(frozen=True)
class Images:
    """Images in a folder, or on a server.

    `template`: URL with the field `{image_id}`, as `str.format` fills it; None for images in a folder.
    `files`: addresses of the files of a folder by every name that an id may give them (see `_names`).
    """

    template: str | None
    files: dict[str, str]

    @classmethod
    def at(cls, location: str, page: Path) -> Images:
        """Find the images at a location: a folder, or a URL with `{image_id}`. `page`: folder of the page."""
        if _FIELD in location:
            try:
                location.format(image_id="1")
            except (LookupError, ValueError, AttributeError) as error:
                todo = "Write it as in 'https://example.org/{image_id}.jpg', or {image_id:0>12} for leading zeros."
                raise UsageError(f"not a template of URLs: {error}", where=location, todo=todo) from error
            return cls(location, {})
        if not Path(location).is_dir():
            todo = "Name a folder of images, or a URL with {image_id}."
            raise MissingError("no such folder of images", where=location, todo=todo)
        found, count = dict[str, str](), Counter[str]()
        for folder, _, files in os.walk(location, followlinks=True):
            for file in (Path(folder, name) for name in files if Path(name).suffix.lower() in _ENDINGS):
                address = quote(Path(os.path.relpath(file, page)).as_posix())
                names = _names(file.relative_to(location).as_posix())
                count.update(names)
                found |= dict.fromkeys(names, address)
        # A name of several files is none: the page would show the wrong image.
        return cls(None, {name: address for name, address in found.items() if count[name] == 1})

    def address(self, image_id: str) -> str:
        """Return the address of an image, or "" if there is none. `image_id`: without the prefix of the dataset."""
        if self.template is None:
            names = (image_id, PurePosixPath(image_id).name, f"#{image_id}")
            return next((self.files[name] for name in names if name in self.files), "")
        # An id that is a URL itself is used unchanged.
        return self.template.format(image_id=image_id if self.template.startswith(_FIELD) else quote(image_id))

    @property
    def origin(self) -> str:
        """Source of the images, as the content security policy of a page names it."""
        if self.template is None:
            return "'self' file:"
        url = urlsplit(self.template)
        return f"{url.scheme}://{url.netloc}" if re.fullmatch(r"[\w.:-]+", url.netloc) else "https: http:"

    @property
    def config(self) -> Any:
        """Part of the configuration of a page: the template, or a digest of all addresses."""
        return self.template or hashlib.sha256(repr(sorted(self.files.items())).encode()).hexdigest()


def _names(path: str) -> set[str]:
    """Return what image ids call a file: its path and name, with and without the ending; `#7` for `..._000007.jpg`."""
    name = PurePosixPath(path)
    number = re.search(r"\d+$", name.stem)
    return {path, str(name.with_suffix("")), name.name, name.stem, *([f"#{int(number[0])}"] if number else [])}
