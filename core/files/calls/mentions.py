"""Handles that stand anywhere in a call's arguments: found in the text of any string, and replaced there by paths.

A handle may be a whole string, or stand in prose, in a list within one string, in SQL, in code, or in JSON that is
itself the text of a string. Strings are searched as they read, not as they are escaped. What is found is then located
in the bytes again, so that a replacement is one splice, escaped for every layer it lies in. Keys are never searched.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from ...base.errors import RemoteProtocolError
from ...base.lazy_regex import Pattern
from ...base.plan import UPLOAD_SCHEME, Deliver
from ...jsonrpc.append import readable_text
from ...jsonrpc.splice import Edit, Span, elements, members
from ..store.handles import ARTIFACT_SCHEME, NEW_FILE_PREFIX
from .arguments import ArgumentProblem, form

DEPTH_MAX: Final = 64
"""Levels of arrays and objects that are searched. Each costs a reading of what is below it. Real arguments have fewer
than ten. At it: the call is refused with an error result."""

LAYERS_MAX: Final = 4
"""Layers of JSON within the strings of JSON that are searched. One is common, two are seen. At it: handles further
within are left as they are."""

WORK_FACTOR: Final = 3
"""Times that the bytes of the arguments may be read in all, besides `WORK_SPARE_BYTES`. Large values lie few levels
deep."""
WORK_SPARE_BYTES: Final = 1024 * 1024
"""Bytes that may be read in any case: real arguments, at any depth. At it: the arguments count as unreadable. They
pass, or are refused if they seem to mention a handle."""

LABEL_MAX_CHARS: Final = 200
"""Longest label or key, as messages show them and schemas are asked for them; a longer one is cut."""

_ID: Final = "[0-9a-f]{32}"  # as `ids.mint` makes it
_SIZE_MIN: Final = len("sessions/") + 2 * 32  # of a value that can hold the handle of a stored file: most are shorter
_NEW_SIZE_MIN: Final = len(NEW_FILE_PREFIX)
_NAME: Final = r"[\w.~%+@-]*[\w~%+@-]"  # of a file in a URI; the full stop that ends a sentence is no part of it
_WORD: Final = "[0-9A-Za-z+.-]"  # a handle stands behind none of it, unless that is the escape of a line end
_PREFIX: Final = Pattern(rf"(?:(?<!{_WORD})|(?<=\\[nrt]))file:/{{0,3}}\Z")
_PREFIX_MAX_CHARS: Final = len("\\nfile:///")
_ENDS: Final = r"(?![\w.~%+@/*-])"  # so a slash before it leads nowhere
_NEW_FILE: Final = Pattern(
    rf"(?:(?<!{_WORD})|(?<=\\[nrt])){re.escape(NEW_FILE_PREFIX)}(?>{_NAME}(?:/{_NAME})*+(?:/{_ENDS})?+)"
)
_NEW_FILE_NAME: Final = Pattern(r"[^\s]+|[^\n\r\t]*\S\.[A-Za-z0-9]{1,8}")  # the whole of a string: it may have spaces

_SHORT_ESCAPES: Final = ("\\\\", '\\"', "\\/", "\\b", "\\f", "\\n", "\\r", "\\t")  # the first one first
_SURROGATES: Final = Pattern(r"\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}")
_UNICODE: Final = Pattern(r"\\u[\da-fA-F]{4}")
_BLOCK_CHARS: Final = 64 * 1024  # counted at once, to locate characters between escapes
_SPACE: Final = " \t\r\n"
_ESCAPED: Final = re.compile(rb"\\u00")  # found faster than with `in` where there are many backslashes

_SQL_BEGINNING: Final = Pattern(
    r"\s*+(?:select|insert|copy|create|attach|from|describe|summarize|pragma|explain|update|delete|with|values)\b",
    re.IGNORECASE,
)
_SELECT: Final = Pattern(r"\bselect\b", re.IGNORECASE)
_FROM: Final = Pattern(r"\bfrom\b", re.IGNORECASE)
_SQL_OUTSIDE: Final = Pattern(  # up to a string or comment that goes on
    r"(?:[^'\"-]++|'(?:[^']++|'')*+'|\"(?:[^\"]++|\"\")*+\"|--[^\n]*+\n|-(?!-))*+"
)

Quoting = Literal["json", "sql'", 'sql"', "code'", 'code"']
"""Kinds of escaping: in a JSON string; in SQL, where a quote is doubled; in code, where it has a backslash before
it."""


class Mention(NamedTuple):
    """A handle in the params.

    Attributes:
        start, stop: the handle is `params[start:stop]`, with the `file://` before it, escapes and all.
        label: the argument (`files[0].path`). Where it stands in JSON within a string, the label goes on into that.
        key: the name of the last member in the label.
        kind: the kind of file it stands for; "new": one that the tool is to write; "inline": content stands in its
            place (`inline_inputs`).
        sid, id: the session, and the upload or artifact. A new file has no session, and its URI for an id.
        text: the decoded handle, without what is before it.
        is_whole: the string holds nothing else.
        has_prefix: `file:` stands before it, so a file URI is wanted.
        quoting: how to escape what takes its place, inner layer first.
    """

    start: int
    stop: int
    label: str
    key: str
    kind: Literal["upload", "artifact", "new", "inline"]
    sid: str
    id: str
    text: str
    is_whole: bool
    has_prefix: bool
    quoting: tuple[Quoting, ...]

    @property
    def is_nested(self) -> bool:
        """True if the handle stands in JSON that is the text of a string."""
        return self.quoting.count("json") > 1


def find_mentions(params: bytes, *, schemes: Sequence[str] = (), limit: int) -> list[Mention]:
    """Returns every handle in the strings of `arguments`, in the params of a `tools/call`, in order.

    Text that only resembles a handle passes. A file name that follows a handle belongs to it as far as it is written as
    in a URI: without spaces, quotes, brackets and commas.

    Args:
        schemes: prefixes of upload handles; `UPLOAD_SCHEME` and `ARTIFACT_SCHEME` always count.

    Raises:
        ArgumentProblem: there are more than `limit`; or one lies where the arguments cannot be read: below a key that
            is there twice, more than `DEPTH_MAX` levels deep, or so deep for their size that it takes too long.
    """
    if not _may_mention(params):
        return []
    work_bytes = WORK_FACTOR * len(params) + WORK_SPARE_BYTES
    search = _Search(tuple(sorted({*schemes, UPLOAD_SCHEME, ARTIFACT_SCHEME})), limit, work_bytes)
    unread = params
    try:
        span = members(params).get("arguments")
        if span is None:
            return []
        unread = params[span.start : span.stop]
        return search.in_json(unread, "", "", span.start, LAYERS_MAX)
    except RemoteProtocolError as error:
        if search.is_mentioned(unread):
            raise ArgumentProblem(f"The arguments hold a file's handle and cannot be read: {error.message}.") from None
        return []


def replacements(placed: Sequence[tuple[Mention, str]], form_of: Callable[[Mention], Deliver]) -> list[Edit]:
    """Returns the edits that replace each mention by the text beside it, escaped for where it stands.

    The text is a path, and becomes a file URI where `form_of` or a `file:` before the handle asks for one. For any
    other delivery it is put as it is.
    """
    edits = []
    for mention, text in placed:
        if mention.has_prefix or form_of(mention) is Deliver.FILE_URI:
            text = form(Deliver.FILE_URI, text)
        for quoting in mention.quoting:
            text = _quoted(text, quoting)
        edits.append(Edit(mention.start, mention.stop, text.encode()))
    return edits


def _may_mention(data: bytes) -> bool:
    """True if this JSON can hold a handle: `sessions` occurs in it, or a letter of it may be escaped."""
    may_be_stored = len(data) > _SIZE_MIN and (b"sessions" in data or _ESCAPED.search(data) is not None)
    return may_be_stored or names_new_file(data)


def names_new_file(data: bytes) -> bool:
    """True if this JSON seems to hold the URI of a new file. Its slashes may be escaped, its letters are not."""
    return b"artifact:" in data and b"new" in data


class _Search:
    """The search for handles in the params of one call."""

    def __init__(self, schemes: tuple[str, ...], limit: int, work_bytes: int) -> None:
        self._pattern = _pattern_of(schemes)
        self._longest_first = sorted(schemes, key=len, reverse=True)
        self._work_bytes = work_bytes
        self._limit = limit
        self._left = limit

    def is_mentioned(self, data: bytes) -> bool:
        """True if a handle seems to stand in JSON that cannot be read."""
        text = data.decode(errors="replace").replace("\\", "")
        return NEW_FILE_PREFIX in text or self._pattern.search(text) is not None

    def in_json(self, data: bytes, label: str, key: str, offset: int, layers: int) -> list[Mention]:
        """Returns the mentions in the strings of `data`; `offset` is added to their positions.

        Raises:
            RemoteProtocolError: `data` is not JSON, has a key twice, or is nested too deeply.
        """
        found: list[Mention] = []
        for string in self._strings(data, label, key):
            raw = data[string.start : string.stop]
            found += self._in_string(raw, string.label, string.key, offset + string.start, layers)
        return found

    def _in_string(self, raw: bytes, label: str, key: str, offset: int, layers: int) -> list[Mention]:
        """Returns the mentions in the JSON string `raw`."""
        text = readable_text(raw)
        if text is None:
            raise RemoteProtocolError("got a string that cannot be read")
        inner = self._in_text(text, label, key, layers)
        marks = [mark for mention in inner for mark in (mention.start, mention.stop)]
        places = iter(_located(raw, marks))
        return [
            mention._replace(
                start=offset + next(places), stop=offset + next(places), quoting=(*mention.quoting, "json")
            )
            for mention in inner
        ]

    def _in_text(self, text: str, label: str, key: str, layers: int) -> list[Mention]:
        """Returns the mentions in `text`, read as JSON if it is that. Their `start` and `stop` count its characters."""
        stripped = text.strip(_SPACE)
        if layers and stripped.startswith(("{", "[", '"')):
            left = self._left
            data = text.encode()
            try:
                nested = self.in_json(data.strip(_SPACE.encode()), label, key, text.index(stripped[0]), layers - 1)
            except RemoteProtocolError:
                self._left = left  # it only begins like JSON: count its handles as prose
            else:
                return _counted(data, nested)
        return list(self._in_prose(text, label, key))

    def _in_prose(self, text: str, label: str, key: str) -> Iterator[Mention]:
        quotes, before = None, 0
        for begin, stop, kind, sid, id in self._handles(text):
            if begin < before:
                continue  # it lies within the file name of the handle before
            before = stop
            prefix = _PREFIX.search(text[max(0, begin - _PREFIX_MAX_CHARS) : begin])
            start = begin if prefix is None else begin - len(prefix[0])
            if not self._left:
                raise ArgumentProblem(
                    f"Argument {label}: got more than {self._limit} files' handles, expected at most {self._limit} in "
                    "one call."
                )
            self._left -= 1
            if quotes is None:
                quotes = _Quotes(text)
            quoting = quotes.around(start, stop)
            yield Mention(
                start,
                stop,
                label,
                key,
                kind,
                sid,
                id,
                text[begin:stop],
                (start, stop) == (0, len(text)),
                prefix is not None,
                () if quoting is None else (quoting,),
            )

    def _handles(self, text: str) -> Iterator[_Handle]:
        """Yields the handles in a text, in order. Some may overlap."""
        found = self._stored(text)
        if NEW_FILE_PREFIX not in text:
            return found
        name = text.removeprefix(NEW_FILE_PREFIX)
        if name != text and "://" not in name and _NEW_FILE_NAME.fullmatch(name):
            return iter([_Handle(0, len(text), "new", "", text)])
        new = [_Handle(*match.span(), "new", "", match[0]) for match in _NEW_FILE.finditer(text)]
        return iter(sorted([*found, *new]))

    def _stored(self, text: str) -> Iterator[_Handle]:
        for match in self._pattern.finditer(text):
            scheme = next(each for each in self._longest_first if text.endswith(each, 0, match.start()))
            kind: Literal["upload", "artifact"] = "artifact" if scheme == ARTIFACT_SCHEME else "upload"
            yield _Handle(match.start() - len(scheme), match.end(), kind, match["sid"], match["id"])

    def _strings(self, data: bytes, label: str, key: str) -> Iterator[_Value]:
        """Yields the strings among the values in `data` that may mention a handle, in order.

        Raises:
            RemoteProtocolError: `data` is not JSON, has a key twice, or is nested too deeply.
        """
        pending = [_Value(0, len(data), label, key, 0)]
        while pending:
            value = pending.pop()
            part = data[value.start : value.stop]
            if part.startswith(b'"'):
                yield value
            elif part.startswith((b"{", b"[")):
                if value.depth == DEPTH_MAX:
                    raise RemoteProtocolError(f"got more than {DEPTH_MAX} levels, expected at most so many")
                self._work_bytes -= len(part)
                if self._work_bytes < 0:
                    raise RemoteProtocolError("got large values many levels deep, expected them less deep")
                pending += reversed(list(_below(value, part)))


@functools.lru_cache(maxsize=64)
def _pattern_of(schemes: tuple[str, ...]) -> re.Pattern[str]:
    """Returns the pattern of what follows the scheme of a handle. It begins with letters, which are found faster than
    any other pattern."""
    begun = [re.escape(f"{scheme}sessions/") for scheme in schemes]
    behind = "|".join(rf"(?<={each})(?:(?<!{_WORD}{each})|(?<=\\[nrt]{each}))" for each in begun)
    return re.compile(rf"sessions/(?:{behind})(?P<sid>{_ID})/(?P<id>{_ID})(?![0-9A-Za-z-])(?>/{_NAME}|/{_ENDS})?+(?!/)")


class _Handle(NamedTuple):
    """A handle in a text: `text[start:stop]`. The rest is as in a `Mention`."""

    start: int
    stop: int
    kind: Literal["upload", "artifact", "new"]
    sid: str
    id: str


class _Value(NamedTuple):
    """A value: `data[start:stop]`, which lies `depth` levels deep."""

    start: int
    stop: int
    label: str
    key: str
    depth: int


def _below(value: _Value, part: bytes) -> Iterator[_Value]:
    """Yields those of the value's members or elements that may mention a handle."""
    spans: list[tuple[str | int, Span]]
    spans = [*members(part).items()] if part.startswith(b"{") else [*enumerate(elements(part))]
    for name, span in spans:
        if span.stop - span.start > _NEW_SIZE_MIN and _may_mention(part[span.start : span.stop]):
            if isinstance(name, int):
                label, key = f"{value.label}[{name}]", value.key
            else:
                key = name[:LABEL_MAX_CHARS]
                label = f"{value.label}.{key}" if value.label else key
            start, stop = value.start + span.start, value.start + span.stop
            yield _Value(start, stop, label[:LABEL_MAX_CHARS], key, value.depth + 1)


def _located(raw: bytes, marks: Sequence[int]) -> list[int]:
    """Returns the offsets in the JSON string `raw` of the characters of its text that are numbered `marks`, in
    ascending order."""
    if not marks:
        return []
    source = raw.decode()
    padded = source  # with a NUL for each character by which an escape is longer than what it stands for
    if "\\" in source:
        for escape in _SHORT_ESCAPES:
            padded = padded.replace(escape, "_\0")
        padded = _UNICODE.sub("_" + 5 * "\0", _SURROGATES.sub("_" + 11 * "\0", padded))
    begin, count = 1, 0  # the block that is looked at, behind the opening quote, and the characters before it
    places = []
    for mark in marks:
        while (more := _BLOCK_CHARS - padded.count("\0", begin, begin + _BLOCK_CHARS)) + count <= mark:
            if begin + _BLOCK_CHARS >= len(padded):
                break
            begin, count = begin + _BLOCK_CHARS, count + more
        places.append(_place_in(padded, begin, mark - count))
    return places if len(source) == len(raw) else _sizes(source, places)


def _place_in(padded: str, begin: int, number: int) -> int:
    """Returns the place of the character `number`, from `begin` on, in a text padded with NULs."""
    low, high = begin + number, min(begin + _BLOCK_CHARS, len(padded))
    while low < high:
        middle = (low + high) // 2
        if middle + 1 - begin - padded.count("\0", begin, middle + 1) > number:
            high = middle
        else:
            low = middle + 1
    return low


def _sizes(text: str, places: Sequence[int]) -> list[int]:
    """Returns how many bytes of UTF-8 lie before each of these characters, in ascending order."""
    sizes, size, at = [], 0, 0
    for place in places:
        size += len(text[at:place].encode())
        at = place
        sizes.append(size)
    return sizes


def _counted(data: bytes, mentions: Sequence[Mention]) -> list[Mention]:
    """Returns the mentions with `start` and `stop` in characters of `data`, not bytes."""
    counted, count, at = [], 0, 0
    for mention in mentions:
        count += len(data[at : mention.start].decode())
        size = len(data[mention.start : mention.stop].decode())
        counted.append(mention._replace(start=count, stop=count + size))
        count, at = count + size, mention.stop
    return counted


# --- Escaping -------------------------------------------------------------------------------------------------------


class _Quotes:
    """The quotes in a text that is not JSON, searched from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._is_sql = _SQL_BEGINNING.match(text) is not None or bool(_SELECT.search(text) and _FROM.search(text))
        self._at = 0  # no string and no comment goes on here

    def around(self, start: int, stop: int) -> Quoting | None:
        """Returns how to escape what stands there. To be called in ascending order."""
        beside = self._text[start - 1 : start], self._text[stop : stop + 1]
        quote = next((mark for mark in beside if mark in ("'", '"')), None)
        if quote is None and self._is_sql:
            outside = _SQL_OUTSIDE.match(self._text, self._at, start)
            assert outside is not None
            self._at = outside.end()
            quote = self._text[self._at] if self._at < start else None
        if quote == "'":
            return "sql'" if self._is_sql else "code'"
        if quote == '"':
            return 'sql"' if self._is_sql else 'code"'
        return None


def _quoted(text: str, quoting: Quoting) -> str:
    if quoting == "json":
        return msgspec.json.encode(text).decode()[1:-1]
    mark = quoting[-1]
    if quoting.startswith("sql"):
        return text.replace(mark, 2 * mark)
    return text.replace("\\", "\\\\").replace(mark, "\\" + mark)
