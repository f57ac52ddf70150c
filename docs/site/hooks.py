"""Fits the pages, which are written for GitHub, to the site."""

from __future__ import annotations

import re
from typing import Any, Final

FENCE: Final = re.compile(r"^( *)```(\w+)(?: ([^\n]+))?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
OUTSIDE: Final = re.compile(r"\[([^\]]+)\]\((\.\./[^)]+|changes\.d)\)")
"""A link to a file that is no page. The site has no copies of the sources."""
CODE: Final = re.compile(r"`[^`\n]+`")
"""Code in a table of GitHub has its bars escaped. The reader of the site knows that they separate nothing."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Names the file of a block above it, leaves out diagrams that only GitHub draws, and links no sources."""
    parts: list[str] = []
    end = 0
    for fence in FENCE.finditer(markdown):
        parts += [_without_sources(markdown[end : fence.start()]), _fenced(*fence.groups())]
        end = fence.end()
    return "".join([*parts, _without_sources(markdown[end:])])


def _fenced(indent: str, language: str, name: str | None, text: str) -> str:
    if language == "mermaid":
        return ""
    title = f' title="{name}"' if name and "." in name else ""
    return f"{indent}```{language}{title}\n{text}{indent}```"


def _without_sources(text: str) -> str:
    text = CODE.sub(lambda code: code[0].replace("\\|", "|"), text)
    return OUTSIDE.sub(lambda link: f'<span title="{link[2].removeprefix("../")}">{_html(link[1])}</span>', text)


def _html(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
