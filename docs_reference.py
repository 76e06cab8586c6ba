"""Write docs/reference.md (commands and parameters), docs/api.md (Python) and docs/llms.txt (all pages): `make docs`.

The files are committed, so that they can be read in the repository; a test compares them with today's code and pages.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
import typer
import yaml
from pydantic import BaseModel

from relabel.config import DEFAULT_SOURCES, Config
from relabel.sources import SOURCES, source_class
from relabel_cli.options import SHARED
from relabel_cli.root import VERBS, app

ROOT = Path(__file__).parent
PYTHON: dict[str, tuple[str, ...]] = {
    "relabel": (),
    "relabel_train.lookup": (),
    "relabel_train.lookup.rows": (),
    "relabel_train.lookup.device": (),
    "relabel_train.webdataset": ("join", "Join", "BlockCollate", "open_sidecar", "SideCar", "SampleLabels"),
    "relabel_train.samplers": (),
    "relabel_train.precomputed": ("open_batches", "PrecomputedBatches", "PlanSampler", "Batch"),
    "relabel_train.losses": (),
    "relabel_train.metrics": (),
    "relabel.sources.base": (),
    "relabel.sources.relevance": ("Relevance",),
}
"""Modules of docs/api.md with the names shown; by default, the module's `__all__` or all that it defines."""
INDEX = "llms.txt"
"""Index of the site for assistants, in the form of https://llmstxt.org."""
MARK = "<!-- Written by `make docs`: change the code. -->"
_TABLES = ("parameters", "other parameters", "attributes", "raises", "returns", "yields")


def main() -> None:
    """Write both pages, and then the index of all pages."""
    for name, lines in pages().items():
        (ROOT / "docs" / name).write_text(lines, encoding="utf-8")
    (ROOT / "docs" / INDEX).write_text(index(), encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the text of each page: what stands above the mark in the file, then what the code says."""
    written = {
        "reference.md": [*_verbs(), "", "## params.yaml", *_sections(Config), *_sources()],
        "api.md": [*_python()],
    }
    texts = {name: "\n".join([_introduction(name), MARK, *lines, ""]) for name, lines in written.items()}
    return {name: re.sub(r"\n{3,}", "\n\n", text) for name, text in texts.items()}


def _introduction(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8").partition(MARK)[0]


def index() -> str:
    """Return the pages of the site by section, each with its address and first sentence."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    home, *sections = site["nav"]
    address = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Documentation"]
    lines = [f"# {site['site_name']}", "", f"> {_summary(home['Home'])}"]
    for name, entries in ((name, entries) for section in sections for name, entries in section.items()):
        lines += ["", f"## {name}", ""]
        for title, page in (item for entry in entries for item in entry.items()):
            place = re.sub(r"(index)?\.md$", "", page).removesuffix("/")
            lines.append(f"- [{title}]({address}{place}/): {_summary(page)}")
    return "\n".join([*lines, ""])


def _summary(page: str) -> str:
    """Return the first sentence of a page, without links."""
    body = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = re.sub(r"```.*?```|<!--.*?-->", "", body, flags=re.DOTALL).split("\n\n")
    prose = next(block.strip() for block in blocks if re.match(r"\s*[\w`*\[]", block))
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(prose.split()))
    return re.split(r"(?<=\.)\s", plain)[0].rstrip(":")


# ----------------------------------------------------------------------------------------------------------------------
# Python


def _python() -> Iterator[str]:
    options: Any = {"warnings": False}  # the types stand in the signatures
    paths = [ROOT / "pipeline", ROOT / "training"]
    loader = griffe.GriffeLoader(search_paths=paths, docstring_parser="numpy", docstring_options=options)
    modules = [loader.load(name) for name in ("relabel", "relabel_train")]
    loader.resolve_aliases()
    collection = {module.path: module for module in modules}
    for path, shown in PYTHON.items():
        package, _, rest = path.partition(".")
        module: Any = collection[package][rest] if rest else collection[package]
        names = shown or tuple(module.exports or (n for n, m in module.members.items() if not m.is_alias))
        yield from ["", f"## {path}", "", *_docstring(module)]
        for name in names:
            if _is_public(module[name]):
                yield from _object(module[name], f"{path}.{name}", "###")


def _is_public(member: Any) -> bool:
    described = member.kind in (griffe.Kind.CLASS, griffe.Kind.FUNCTION) or "property" in member.labels
    return described and not member.name.startswith("_") and member.docstring is not None


def _object(member: Any, path: str, heading: str) -> Iterator[str]:
    """Yield the heading, signature and docstring of a class or function, and of the methods of a class."""
    target = member.final_target if member.is_alias else member
    source = target.filepath.relative_to(ROOT)
    name = ".".join(path.split(".")[-2:]) if heading == "####" else member.name
    yield from ["", f'{heading} <a id="{path}"></a>`{name}`', "", *_signature(target), ""]
    yield from _docstring(target)
    if heading == "###":
        yield from ["", f"Source: [{source}](../{source})"]
    if target.kind is griffe.Kind.CLASS:
        for each in target.members.values():
            if not each.is_alias and _is_public(each):
                yield from _object(each, f"{path}.{each.name}", "####")


def _signature(target: Any) -> Iterator[str]:
    """Yield the signature as code: one line, or one line per parameter."""
    if "property" in target.labels:
        return
    given = [p for p in target.parameters if p.name not in ("self", "cls") and not p.name.startswith("_")]
    parts, marked = list[str](), False
    for parameter in given:
        if parameter.kind is griffe.ParameterKind.keyword_only and not marked:
            parts += [] if any(p.startswith("*") for p in parts) else ["*"]
            marked = True
        star = {"variadic positional": "*", "variadic keyword": "**"}.get(parameter.kind.value, "")
        default = "" if parameter.default is None or star else f" = {parameter.default}"
        kind = "" if parameter.annotation is None else f": {parameter.annotation}"
        parts.append(f"{star}{parameter.name}{kind}{default}")
    result = "" if target.kind is griffe.Kind.CLASS or target.returns is None else f" -> {target.returns}"
    line = f"{target.name}({', '.join(parts)}){result}"
    if len(line) > 100:
        line = "\n".join([f"{target.name}(", *(f"    {part}," for part in parts), f"){result}"])
    yield from ["```python", line, "```"]


def _docstring(target: Any) -> Iterator[str]:
    """Yield a docstring as Markdown: prose, tables of parameters and results, examples as code."""
    for section in target.docstring.parsed if target.docstring else ():
        kind = section.kind.value
        if kind == "text":
            yield from [section.value, ""]
        elif kind == "examples":
            for each, text in section.value:
                code = each is griffe.DocstringSectionKind.examples
                yield from ["```pycon", text, "```", ""] if code else [text, ""]
        elif kind == "admonition":
            yield from [f"**{section.title}.** {section.value.description}", ""]
        elif kind in _TABLES:
            yield from [f"| {kind.capitalize()} | |", "|---|---|", *map(_described, section.value), ""]


def _described(item: Any) -> str:
    """Return the row of a parameter, a result or an error."""
    name, kind = getattr(item, "name", ""), "" if item.annotation is None else str(item.annotation)
    cells = [f"`{name}`" if name else "", kind if kind != name else ""]
    return _row(" ".join(filter(None, cells)), " ".join(inspect.cleandoc(item.description).split()))


# ----------------------------------------------------------------------------------------------------------------------
# Commands and parameters


def _verbs() -> Iterator[str]:
    root: Any = typer.main.get_command(app)
    context = typer.Context(root)
    # encode has all of them; its own options follow below.
    yield from ["", f"## {SHARED}", *_table("option", _options(root.get_command(context, "encode"), SHARED))]
    yield from ["", "## Verbs"]
    for verb, line in VERBS.items():
        command = root.get_command(context, verb)
        yield from ["", f"### `relabel {verb}`", "", line]
        yield from _table("option", _options(command))
        for name, one in getattr(command, "commands", {}).items():
            yield from ["", f"#### `relabel {verb} {name}`", "", one.help]
            yield from _table("option", _options(one))


def _options(command: Any, panel: str | None = None) -> list[tuple[str, str]]:
    """Return the flags and the help of the options of one section, as `--help` shows them."""
    context = typer.Context(command)
    chosen = [parameter for parameter in command.params if getattr(parameter, "rich_help_panel", None) == panel]
    records = (parameter.get_help_record(context) for parameter in chosen)
    return [(flags.replace("|", ", "), text) for flags, text in filter(None, records)]


def _sections(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the parameters of the sections that a model has as fields, and of the sections in these."""
    for name, info in model.model_fields.items():
        section = info.get_default(call_default_factory=True)
        if isinstance(section, BaseModel):
            if rows := _parameters(type(section)):
                yield from ["", f"### `{prefix}{name}`", *_table("parameter", rows)]
            yield from _sections(type(section), f"{prefix}{name}.")


def _sources() -> Iterator[str]:
    yield from ["", "### `sources`", "", "Label name to the parameters of its source. Default labels:", ""]
    yield from (f"- `{label}`: `{params}`" for label, params in DEFAULT_SOURCES.items())
    for name in SOURCES:
        spec = source_class(name).spec
        low, high = spec.bounds
        symmetric = "symmetric" if spec.symmetric else "not symmetric"
        yield from ["", f"#### `source: {name}`", "", f"Kind {spec.kind}, relevance {low:g} to {high:g}, {symmetric}."]
        yield from (f"No pooling `{pooling}`: {reason}." for pooling, reason in spec.refused_poolings.items())
        yield from _table("parameter", _parameters(spec.params))


def _parameters(model: type[BaseModel]) -> list[tuple[str, str]]:
    """Return the name and default, and the description, of every parameter that is no section itself."""
    defaults = {name: info.get_default(call_default_factory=True) for name, info in model.model_fields.items()}
    return [
        (f"{name}: {json.dumps(default, default=str)}", model.model_fields[name].description or "")
        for name, default in defaults.items()
        if not isinstance(default, BaseModel)
    ]


def _table(name: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    if rows:
        yield from ["", f"| {name} | |", "|---|---|", *(_row(f"`{key}`", text) for key, text in rows)]


def _row(*cells: str) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    main()
