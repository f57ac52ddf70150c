"""Cleaning of what servers list: drops invisible characters from texts, and cuts texts that are too long.

A text is a title or a description: of the definition, of an argument of a prompt, of annotations, or the keyword of
that name in a schema. Names, property names, enums, defaults, patterns and other values are never changed, and nothing
is normalized.

What is invisible:

- control characters (Cc), but not tab, line feed and carriage return;
- format characters (Cf), with two exceptions that languages need. The signs that Arabic, Syriac, Kaithi and Egyptian
  write around numbers and other characters are seen. U+200C, U+200D and U+180E are kept directly after a character
  outside ASCII that is seen, or after its variation selector: Persian, the scripts of India and Mongolian need them
  there, and emoji are joined by them. Controls of the direction of text (U+200E, U+202E and so on) are always dropped;
- tags and all else from U+E0000 to U+E0FFF;
- a variation selector that is not directly after a character that is seen: others say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from ..base.errors import INVALID_REQUEST, RemoteProtocolError
from ..bridge.output_schema import DATA_KEYS, DEPTH_MAX, MAP_KEYS
from ..jsonrpc.append import readable_text
from ..jsonrpc.bounds import replace_lone_surrogates
from ..jsonrpc.splice import Edit, Span, elements, members, splice

TITLE_MAX_CHARS: Final = 256
"""The longest title: real ones have some 30."""
DESCRIPTION_MAX_CHARS: Final = 2_000
"""The longest description: nearly all real ones are shorter, and what is hidden in one is often far down."""
PARAMETER_MAX_CHARS: Final = 1_000
"""The longest text in a schema, or of an argument of a prompt."""
CUT: Final = "…"

JOINERS: Final = "\u180e\u200c\u200d"
_CONTROLS: Final = "\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
_FORMATS: Final = (
    "\xad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
)
_TAGS: Final = "\U000e0000-\U000e0fff"
_SELECTORS: Final = "\ufe00-\ufe0f"
_RUN: Final = re.compile(f"[{_CONTROLS}{_FORMATS}{_TAGS}{_SELECTORS}{JOINERS}]+")
"""Characters in a row that are dropped, or kept only in the first place after the character before them."""
_KEPT: Final = re.compile(f"[{_SELECTORS}]?[{JOINERS}]?")
_KEPT_IN_ASCII: Final = re.compile(f"[{_SELECTORS}]?")

_MAYBE: Final = re.compile(rb"\\[ubf]|[\x7f-\xff]")
"""The bytes of JSON of which there is one if any of its strings has an invisible character."""


class Cleaned(NamedTuple):
    """The result of cleaning.

    Attributes:
        data: the definition.
        dropped: the characters that were dropped, each as often as it was.
        cut: the number of texts that were cut.
    """

    data: bytes
    dropped: str
    cut: int


def has_invisible(entry: bytes) -> bool:
    """True if any string of a definition, names and values included, has an invisible character."""
    if _MAYBE.search(entry) is None:
        return False
    return any(map(_dropped, _strings(entry)))


def without_invisible(text: str) -> str:
    """Returns a text without its invisible characters."""
    return _RUN.sub(_kept, text)


def cut_text(text: str, max_chars: int) -> str:
    """Returns a text of at most `max_chars` characters; one that is cut ends with an ellipsis."""
    return text if len(text) <= max_chars else text[: max_chars - 1].rstrip() + CUT


def clean(kind: str, entry: bytes) -> Cleaned:
    """Returns a definition, cleaned. What is not changed keeps its bytes.

    Args:
        kind: `tools`, `prompts`, `resources` or `templates`.

    Raises:
        RemoteProtocolError: it cannot be read, or a schema has more levels than are read.
    """
    if _MAYBE.search(entry) is None and len(entry) <= TITLE_MAX_CHARS:
        return Cleaned(entry, "", 0)
    cleaner = _Cleaner(entry)
    cleaner.definition(kind)
    return Cleaned(splice(entry, cleaner.edits) if cleaner.edits else entry, cleaner.dropped, cleaner.cut)


class _Cleaner:
    """The edits of one definition. Spans are those in the whole definition."""

    def __init__(self, entry: bytes) -> None:
        self._entry = entry
        self.edits: list[Edit] = []
        self.dropped = ""
        self.cut = 0

    def definition(self, kind: str) -> None:
        for name, span in self._members(Span(0, len(self._entry))):
            if name == "title":
                self._text(span, TITLE_MAX_CHARS)
            elif name == "description":
                self._text(span, DESCRIPTION_MAX_CHARS)
            elif name == "annotations":
                self._texts(span)
            elif kind == "prompts" and name == "arguments":
                for argument in self._elements(span):
                    self._texts(argument)
            elif kind == "tools" and name in ("inputSchema", "outputSchema"):
                if span.stop - span.start > PARAMETER_MAX_CHARS or _MAYBE.search(self._at(span)) is not None:
                    self._schema(span, 0)

    def _texts(self, span: Span) -> None:
        for name, value in self._members(span):
            if name in ("title", "description"):
                self._text(value, TITLE_MAX_CHARS if name == "title" else PARAMETER_MAX_CHARS)

    def _schema(self, span: Span, depth: int) -> None:
        if depth > DEPTH_MAX:
            text = f"got a schema of more than {DEPTH_MAX} levels, expected fewer"
            raise RemoteProtocolError(text, rpc_code=INVALID_REQUEST)
        for item in self._elements(span):
            self._schema(item, depth + 1)
        for name, value in self._members(span):
            if name in ("title", "description"):
                self._text(value, TITLE_MAX_CHARS if name == "title" else PARAMETER_MAX_CHARS)
            elif name in MAP_KEYS:
                for _, part in self._members(value):
                    self._schema(part, depth + 2)
            elif name not in DATA_KEYS:
                self._schema(value, depth + 1)

    def _text(self, span: Span, max_chars: int) -> None:
        raw = self._at(span)
        if len(raw) <= max_chars and _MAYBE.search(raw) is None:
            return
        text = readable_text(raw)
        if text is None:
            return
        seen = without_invisible(text)
        shown = cut_text(seen, max_chars)
        if shown == text:
            return
        self.dropped += _dropped(text)
        self.cut += shown != seen
        self.edits.append(Edit(span.start, span.stop, msgspec.json.encode(shown)))

    def _at(self, span: Span) -> bytes:
        return self._entry[span.start : span.stop]

    def _members(self, span: Span) -> Iterator[tuple[str, Span]]:
        if self._entry.startswith(b"{", span.start):
            for name, (start, stop) in members(self._at(span)).items():
                yield name, Span(span.start + start, span.start + stop)

    def _elements(self, span: Span) -> Iterator[Span]:
        if self._entry.startswith(b"[", span.start):
            for start, stop in elements(self._at(span)):
                yield Span(span.start + start, span.start + stop)


def _kept(run: re.Match[str]) -> str:
    """Returns what is kept of a run: one variation selector, and one joiner after a character outside ASCII."""
    before = run.string[run.start() - 1 : run.start()]
    if not before or before.isspace():
        return ""
    found = (_KEPT_IN_ASCII if before.isascii() else _KEPT).match(run[0])
    assert found is not None
    return found[0]


def _dropped(text: str) -> str:
    """Returns the characters that are dropped from a text."""
    return "".join(run[0][len(_kept(run)) :] for run in _RUN.finditer(text))


def _strings(entry: bytes) -> Iterator[str]:
    """Yields all strings of a definition, names of members included."""
    waiting: list[object] = [msgspec.json.decode(replace_lone_surrogates(entry))]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += [*value, *value.values()]
