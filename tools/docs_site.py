"""What mkdocs does beyond Markdown (`hooks` in mkdocs.yml): options of commands from the parser, formulas as MathML,
and links to files of the repository that are not part of the site."""

from __future__ import annotations

import posixpath
import re
from html import escape, unescape
from typing import Any

import typer

from aceglt.cli import app

_OPTIONS = re.compile(r"^<!-- options of (\w+) -->$", re.MULTILINE)
_OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(?:#[^)]*)?\)")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """mkdocs calls this with the text of each page."""
    markdown = _OPTIONS.sub(lambda found: options(found[1]), markdown)
    return outside(markdown, page.file.src_uri, config["repo_url"])


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """mkdocs calls this with the HTML of each page."""
    return formulas(html)


def options(name: str) -> str:
    """The arguments and options of a command, in a table for each group, as its help has them."""
    group: Any = typer.main.get_command(app)
    command = group.commands[name]
    context = type(command).context_class(command, info_name=name)
    panels: dict[str, list[str]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            cells = (f"`{record[0].strip()}`", escape(record[1], quote=False))
            line = "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
            panels.setdefault(getattr(parameter, "rich_help_panel", None) or kind, []).append(line)
    tables = [f"| {panel} | |\n| --- | --- |\n" + "\n".join(lines) for panel, lines in panels.items()]
    return "\n\n".join(tables)


def outside(markdown: str, place: str, repository: str | None) -> str:
    """A link from the page `place` to a file outside docs/ leads to the repository, or is its path where no address of
    one is known."""

    def link(found: re.Match[str]) -> str:
        text, target = found[1], posixpath.normpath(posixpath.join("docs", posixpath.dirname(place), found[2]))
        if target.startswith("docs/"):
            return found[0]
        if repository:
            return f"[{text}]({repository.rstrip('/')}/blob/main/{target})"
        return text if target in text else f"{text} (`{target}`)"

    return _OUTSIDE.sub(link, markdown)


def formulas(html: str) -> str:
    """TeX becomes MathML, which browsers typeset without a script."""
    from latex2mathml.converter import convert

    def typeset(found: re.Match[str]) -> str:
        return str(convert(unescape(found[3]).strip(), display="inline" if found[2] == "(" else "block"))

    return _FORMULA.sub(typeset, html)
