"""MkDocs hook: links from a page to files of the repository outside docs/ become plain text on the site.

In the repository such links lead to the file. The site holds the pages of docs/ only.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)[^)]*\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Replace links that lead out of the folder of pages by their text."""
    docs = Path(config["docs_dir"]).resolve()
    folder = Path(page.file.abs_src_path).parent

    def text_of(link: re.Match[str]) -> str:
        if "://" in link[2] or (folder / link[2]).resolve().is_relative_to(docs):
            return link[0]
        return link[1]

    return _LINK.sub(text_of, markdown)
