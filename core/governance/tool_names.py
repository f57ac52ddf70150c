"""Other names and texts for tools: maps the names that clients see to those that the server knows, and back.

The maps depend on the plan alone. A name that is given to another tool hides the server's own tool of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from ..base.governance import Override, Shown
from ..jsonrpc.append import readable_text
from ..jsonrpc.splice import Edit, Span, members, set_member, splice
from .clean import cut_text

NAME: Final = r"[A-Za-z0-9_.-]{1,128}"
"""Source: 2026-07-28 server/tools, "Tool Names"."""
_SENTENCE: Final = re.compile(r"[.!?。！？](?=\s|$)|\n\s*\n")
_ABBREVIATIONS: Final = ("e.g.", "i.e.", "etc.", "vs.", "cf.", "approx.")


class ToolNames:
    """The names of a server's tools, as clients see them.

    Args:
        overrides: those of the plan; each tool once, and each new name once.
    """

    def __init__(self, overrides: Iterable[Override]) -> None:
        self._shown = {one.tool: one.rename for one in overrides if one.rename}
        self._raw = {shown: raw for raw, shown in self._shown.items()}
        self._hidden = self._shown.keys() | self._raw.keys()

    def __bool__(self) -> bool:
        """True if any tool has another name."""
        return bool(self._shown)

    def shown(self, raw: str) -> str | None:
        """Returns the name that clients see of the server's tool `raw`; None if its name is given to another tool."""
        return self._shown.get(raw) or (None if raw in self._raw else raw)

    def raw(self, shown: str) -> str | None:
        """Returns the server's name of the tool that clients know as `shown`; None if no tool has that name."""
        return self._raw.get(shown) or (None if shown in self._hidden else shown)


def override(entry: bytes, texts: Override | None, shown: Shown, name: str | None = None) -> bytes:
    """Returns a tool with its other texts. What is not changed keeps its bytes.

    Args:
        texts: those for this tool; a description among them is not shortened.
        name: its other name; None: it keeps its own.

    Raises:
        RemoteProtocolError: it cannot be read.
    """
    spans = members(entry)
    edits: list[Edit] = []
    if name is not None:
        edits.append(_edit(spans["name"], name))
    title = None if texts is None else texts.title
    description = None if texts is None else texts.description
    if description is None and (span := spans.get("description")) is not None:
        own = readable_text(entry[span.start : span.stop])
        if own is not None and (short := shorten(own, shown)) != own:
            edits.append(_edit(span, short))
    added: dict[str, str] = {}
    for member, text in (("title", title), ("description", description)):
        if text is not None and member in spans:
            edits.append(_edit(spans[member], text))
        elif text is not None:
            added[member] = text
    made = splice(entry, edits) if edits else entry
    for member, text in added.items():
        made = set_member(made, member, msgspec.json.encode(text))
    if title is not None and (notes := spans.get("annotations")) is not None and entry.startswith(b"{", notes.start):
        # The title of annotations is another one for the same use.
        old = entry[notes.start : notes.stop]
        if "title" in members(old):
            made = set_member(made, "annotations", set_member(old, "title", msgspec.json.encode(title)))
    return made


def shorten(description: str, shown: Shown) -> str:
    """Returns a description as it is shown: its first sentence, or its beginning."""
    if shown.first_sentence:
        description = first_sentence(description)
    most = shown.description_max_chars
    return description if most is None else cut_text(description, most)


def first_sentence(text: str) -> str:
    """Returns the first sentence of a text, or its first paragraph if that ends sooner."""
    text = text.strip()
    for end in _SENTENCE.finditer(text):
        sentence = text[: end.start()] if "\n" in end[0] else text[: end.end()]
        if not sentence.lower().endswith(_ABBREVIATIONS):
            return sentence
    return text


def _edit(span: Span, text: str) -> Edit:
    return Edit(span.start, span.stop, msgspec.json.encode(text))
