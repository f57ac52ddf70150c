"""Removal of the paths of a session's folders from messages to its client, wherever they stand.

`path_rewriter` rewords what can be read as a path in the places that hold texts. Here is what is left: names, metadata,
URIs, parts of URLs, and whatever is too long to be read. A session's folders have names that occur nowhere else, so
each occurrence is one of their paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from ...jsonrpc.append import readable_members
from ...jsonrpc.splice import Edit, splice
from .path_rewriter import Reworder, encoded_string, variants

ROOT: Final = "/session"
"""Stands for the folder of a session's folders where a path has to stay one, as in a URI."""

_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"(?P<colon>[ \t\r\n]*+:)?', re.DOTALL)
_BEFORE_PATHS: Final = frozenset(" \t\r\n\"'`<>()[]{}|,;=:")
_NAMES: Final = frozenset(("name", "title"))


class SessionPaths:
    """The folders of one session, and how they are shown.

    Args:
        shown: the absolute path of each folder, and what stands for it.
        reworder: rewords paths in texts.
        outside: paths elsewhere of files that the client has URIs for.
    """

    def __init__(self, shown: Mapping[str, str], reworder: Reworder, outside: tuple[str, ...] = ()) -> None:
        self._reworder = reworder
        self._forms = {
            form: _written_as(form, path, shown[path])
            for path in sorted(shown, key=len, reverse=True)
            for form in dict.fromkeys((*variants(path), quote(path, safe=""), quote(path, safe="").lower()))
        }
        names = {path.rpartition("/")[2]: instead for path, instead in shown.items()}
        self._names = dict(sorted(names.items(), key=lambda pair: -len(pair[0])))
        self._marks = [name.encode() for name in (*self._names, *outside)]

    def occur_in(self, data: bytes) -> bool:
        """True if any path may occur in JSON."""
        return any(mark in data for mark in self._marks)

    def removed(self, data: bytes, *, has_schema: bool = False) -> bytes:
        """Returns JSON without the paths. Everything else keeps its bytes.

        Args:
            has_schema: structured content may hold only what a schema admits. It stays as it is, and so do texts that
                may be a copy of it.
        """
        if not self.occur_in(data):
            return data
        span = readable_members(data).get("structuredContent")
        structured = range(0) if span is None else range(span.start, span.stop)
        is_kept = has_schema and self.occur_in(data[structured.start : structured.stop])
        edits: list[Edit] = []
        key = ""
        for match in _STRING.finditer(data):
            is_key, stop = match["colon"] is not None, match.end() if match["colon"] is None else match.start("colon")
            raw = data[match.start() : stop]
            if is_key:
                key = raw[1:-1].decode(errors="replace")
            if not self.occur_in(raw):
                continue
            is_inside = match.start() in structured
            text: str = json.loads(raw)
            looks_like_json = text.lstrip().startswith(("{", "["))
            if is_kept and (is_inside or looks_like_json):
                continue
            new = self._plain(text) if is_key or is_inside or looks_like_json else self._reworded(text, key)
            if new != text:
                edits.append(Edit(match.start(), stop, encoded_string(new)))
        return splice(data, edits)

    def _reworded(self, text: str, key: str) -> str:
        if key == "uri":
            return self._reworder.uri_of(text) or self._plain(text)
        return self._plain(self._reworder.reword_name(text) if key in _NAMES else self._reworder.reword_key(text))

    def _plain(self, text: str) -> str:
        for form, instead in self._forms.items():
            text = text.replace(form, instead)
        for name, instead in self._names.items():
            if name in text:
                text = _without_name(text, name, instead)
        return text


def _without_name(text: str, name: str, instead: str) -> str:
    """Returns the text with each path to a folder of that name, however it is spelled, replaced."""
    pieces: list[str] = []
    done = 0
    while (at := text.find(name, done)) >= 0:
        start = at
        while start > done and text[start - 1] not in _BEFORE_PATHS:
            start -= 1
        pieces += (text[done:start], instead)
        done = at + len(name)
    return "".join((*pieces, text[done:]))


def _written_as(form: str, path: str, instead: str) -> str:
    """Returns what stands for a path in the way that a form of it is written."""
    if "/" not in form:
        return quote(instead, safe="") if "%2F" in form else quote(instead, safe="").lower()
    return instead.replace("/", "\\/") if "\\/" in form else instead
