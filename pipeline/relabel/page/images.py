"""URLs of the images on a page. The browser loads them from these URLs; images are not copied."""

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

    `template`: URL with the field `{image_id}` for `str.format`; None for images in a folder.
    `files`: URLs of the files of a folder by each form of id that matches the file (see `_names`).
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
                hint = "For example: 'https://example.org/{image_id}.jpg', or {image_id:0>12} for leading zeros."
                raise UsageError(f"not a URL template: {error}", where=location, hint=hint) from error
            return cls(location, {})
        if not Path(location).is_dir():
            hint = "Give a folder of images, or a URL with {image_id}."
            raise MissingError("no such folder of images", where=location, hint=hint)
        addresses, count = dict[str, str](), Counter[str]()
        for folder, _, files in os.walk(location, followlinks=True):
            for file in (Path(folder, name) for name in files if Path(name).suffix.lower() in _ENDINGS):
                address = quote(Path(os.path.relpath(file, page)).as_posix())
                names = _names(file.relative_to(location).as_posix())
                count.update(names)
                addresses |= dict.fromkeys(names, address)
        # Drop ambiguous names; the page could show the wrong image.
        return cls(None, {name: address for name, address in addresses.items() if count[name] == 1})

    def address(self, image_id: str) -> str:
        """Return the URL of an image, or "" if it has none. `image_id`: without the prefix of the dataset."""
        if self.template is None:
            names = (image_id, PurePosixPath(image_id).name, f"#{image_id}")
            return next((self.files[name] for name in names if name in self.files), "")
        # If the id is a URL itself, it is used unchanged.
        return self.template.format(image_id=image_id if self.template.startswith(_FIELD) else quote(image_id))

    @property
    def origin(self) -> str:
        """Origin of the images for the content security policy of the page."""
        if self.template is None:
            return "'self' file:"
        url = urlsplit(self.template)
        return f"{url.scheme}://{url.netloc}" if re.fullmatch(r"[\w.:-]+", url.netloc) else "https: http:"

    @property
    def config(self) -> Any:
        """Value for the configuration of a page: the template, or a digest of all URLs."""
        return self.template or hashlib.sha256(repr(sorted(self.files.items())).encode()).hexdigest()


def _names(path: str) -> set[str]:
    """Return the ids that match a file: path or name, with or without suffix; `#7` for `..._000007.jpg`."""
    name = PurePosixPath(path)
    number = re.search(r"\d+$", name.stem)
    return {path, str(name.with_suffix("")), name.name, name.stem, *([f"#{int(number[0])}"] if number else [])}
