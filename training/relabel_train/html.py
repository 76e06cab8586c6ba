"""The HTML tables by which objects show themselves in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def html_table(title: str, rows: Sequence[Sequence[str]], header: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
    """Return a table with a row of headings, if there are any, and notes below it. All texts are escaped."""

    def line(cells: Sequence[str], tag: str) -> str:
        marked = (f'<{tag} style="text-align: left; vertical-align: top">{escape(cell)}</{tag}>' for cell in cells)
        return f"<tr>{''.join(marked)}</tr>"

    head = f"<thead>{line(header, 'th')}</thead>" if header else ""
    body = "".join(line(cells, "td") for cells in rows)
    below = "".join(f"<div><small>{escape(note)}</small></div>" for note in notes)
    return f"<div><b>{escape(title)}</b><table>{head}<tbody>{body}</tbody></table>{below}</div>"
