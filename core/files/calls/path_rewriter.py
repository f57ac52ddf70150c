"""Replacement of the paths of known files in a result by the URIs that clients have for them.

A path is found by its last component: where that occurs, the text before it is compared with the ways to spell the
folder. So a long text costs one search for each name, and nothing for spellings that do not occur. There are three
passes. Absolute paths become URIs. What is left of the session's own folders becomes relative to the working directory,
because it means nothing to a client elsewhere. Then relative paths become URIs. In a text that was rewritten, no pass
finds anything more.
"""

from __future__ import annotations

import bisect
import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from ...base.lazy_regex import Pattern
from ...jsonrpc.append import readable_elements, readable_members
from ...jsonrpc.bounds import has_few_values
from ...jsonrpc.splice import Edit, Span, elements, splice, take
from .claims import is_text_block, member_text
from .paths_in_text import SPACELESS
from .schema_strings import Path, StringRules

WORK_MAX: Final = 1 << 26
"""Characters searched for one result, times the names searched for: some hundred milliseconds. At it: the rest of the
text stays as it is, but for the paths of the session's folders."""

_HIT_WORK: Final = 8000  # the work of an occurrence beside the search, measured
_STRING_WORK: Final = 256  # the work of a string, however short

_NO_WORD: Final = rf"(?<![^\W{SPACELESS}])"
_OPENS_ABSOLUTE: Final = Pattern(rf"(?<![/.\\~$%)}}\]-]){_NO_WORD}|(?<=\\[nrt])")  # `\n` in JSON within the text
_OPENS_RELATIVE: Final = Pattern(r"(?<![\w/.\\~:+@#%$&?)}\]-])")
_FILE_SCHEME: Final = Pattern(r"(?<![\w+.-])file:(?://(?:localhost)?)?\Z", re.IGNORECASE)
_FILE_SCHEME_MAX: Final = len("file://localhost")
# No character may follow that makes the path a longer one; a full stop, a colon or a fragment may.
_CLOSES: Final = Pattern(
    rf"(?![^\W{SPACELESS}]|[~/]|\\/|%[0-9A-Fa-f]{{2}}|[$@+=][\w.]|-{{1,3}}[\w.]|\.{{1,3}}(?:[\w/]|\\/))"
)
_SLASHES: Final = Pattern(r"(?:\\?/)+")
_GOES_ON: Final = Pattern(r"[^\s\"'`”’<>|)\]},;:]")
_STANDS_APART: Final = Pattern(r"(?<![^\s\"'`“‘(\[={<>])")
_URL: Final = Pattern(r"(?<![\w+.-])(?!(?i:file):)[A-Za-z][A-Za-z0-9+.-]*+://[^\s<>\"'`]*+")
_SUFFIXED: Final = Pattern(r"[^.].*\.(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{1,9}\Z", re.DOTALL)
_PLAIN: Final = Pattern(r"[A-Za-z0-9_.~/-]*+")
_QUOTED: Final = frozenset(('""', "''", "``", "“”", "‘’", "<>"))
_TARGET_MAX_CHARS: Final = 256  # how far back the beginning of a Markdown link's target is looked for

_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


NO_NAMES: Final[Mapping[str, str]] = {}


class KnownPath(NamedTuple):
    """A file and the URI that replaces its paths.

    Attributes:
        paths: its absolute paths.
        has_name: its bare name stands for it, too. A text that is about other things may use the same name for another
            file, such as a page that a browser shows, or a document that is read aloud.
    """

    paths: tuple[str, ...]
    uri: str
    has_name: bool = True


class _Spelling(NamedTuple):
    """A way to write what comes before a file's name."""

    folder: str
    uri: str


class _Hit(NamedTuple):
    """A place in a text, and what replaces it."""

    start: int
    negative_stop: int
    """The end, negated: of hits that start together, the longest sorts first."""
    text: str


def reword_text(
    text: str, shown: Sequence[KnownPath], cwd: str, folders: Sequence[str] = (), called: Mapping[str, str] = NO_NAMES
) -> str:
    """Returns the text with every spelling of a known file replaced by its URI.

    Spellings are absolute, `file:` URIs, relative to `cwd`, percent-encoded, or escaped for JSON. What follows a path
    (`#L1`, `:12`) stays. A path that is part of a longer path, word or URL is left alone, and so is a bare name without
    a suffix, unless it is quoted or linked.

    Args:
        cwd: the absolute directory that relative paths start from; "" if unknown.
        folders: absolute paths of folders that mean nothing to the reader. Paths below them are made relative to `cwd`,
            or, if far from it, begin with the folder's name.
        called: further such folders, and what paths below them begin with.
    """
    return Reworder(shown, cwd, folders, called).reword(text)


def reword_result(
    result: bytes,
    known: Sequence[KnownPath],
    cwd: str,
    folders: Sequence[str],
    output_schema: bytes | None,
    called: Mapping[str, str] = NO_NAMES,
) -> bytes:
    """Returns the result of a `tools/call` with its texts reworded as by `reword_text`.

    These are text blocks, the text and `file:` URIs of resources, and every string in structured content that may
    change under `output_schema` (JSON; None if there is none). Without a schema, absolute paths in its keys are
    reworded as well, unless two keys would become the same. A text that is the JSON of the structured content stays
    that.

    Strings that are not reworded keep their bytes, and so does everything else. A result that cannot be read is
    returned unchanged.
    """
    reworder = Reworder(known, cwd, folders, called)
    if not reworder.may_find(result):
        return result
    spans = readable_members(result)
    edits: list[Edit] = []
    structured = _Structured(take(result, spans.get("structuredContent")), reworder, output_schema)
    if (span := spans.get("structuredContent")) is not None:
        edits += [_shifted(edit, span.start) for edit in structured.edits()]
    if (span := spans.get("content")) is not None:
        for start, block in _blocks(result, span):
            edits += [_shifted(edit, start) for edit in _in_block(block, reworder, structured)]
    return splice(result, edits)


# --- Text -----------------------------------------------------------------------------------------------------------


class Reworder:
    """Rewords the texts of one result, and counts the work that may still be done for it."""

    def __init__(
        self, known: Sequence[KnownPath], cwd: str, folders: Sequence[str], called: Mapping[str, str] = NO_NAMES
    ) -> None:
        assert all(path.startswith("/") for one in known for path in one.paths), "paths are absolute"
        assert not cwd or cwd.startswith("/")
        self._absolute: dict[str, list[_Spelling]] = {}
        self._relative: dict[str, list[_Spelling]] = {}
        for one in known:
            for path in map(posixpath.normpath, one.paths):
                self._add(self._absolute, path, one.uri)
                if cwd:
                    relative = posixpath.relpath(path, cwd)
                    if one.has_name or "/" in relative:
                        self._add(self._relative, relative, one.uri)
                    if not relative.startswith("../"):
                        self._add(self._relative, "./" + relative, one.uri)
        for spellings in (*self._absolute.values(), *self._relative.values()):
            spellings.sort(key=lambda spelling: -len(spelling.folder))
        plain = {posixpath.normpath(folder) for folder in folders} - {"/"}
        self._folders = {form: _shown_folder(folder, cwd) for folder in plain for form in variants(folder)}
        self._folders |= {form: name for folder, name in called.items() for form in variants(folder)}
        self._work = WORK_MAX

    @staticmethod
    def _add(table: dict[str, list[_Spelling]], path: str, uri: str) -> None:
        for form in variants(path):
            cut = form.rfind("/") + 1
            spelling = _Spelling(form[:cut], uri)
            if form[cut:] and all(spelling.folder != other.folder for other in table.setdefault(form[cut:], [])):
                table[form[cut:]].append(spelling)

    def may_find(self, data: bytes) -> bool:
        """True if any name or folder may occur in JSON text. A cheap check: text with Unicode escapes always counts. So
        does text too large for the check to be cheap."""
        names = (*self._absolute, *self._folders)
        if b"\\u" in data or len(data) * len(names) > WORK_MAX:
            return True
        return any(name.encode(errors="replace") in data for name in names)

    def uri_of(self, uri: str) -> str | None:
        """Returns what replaces a whole `file:` URI; None if it is of no known file."""
        if not uri.lower().startswith("file:"):
            return None
        reworded = self._replaced(uri, self._found(uri, self._absolute, is_absolute=True))
        return reworded if reworded != uri else None

    @property
    def is_spent(self) -> bool:
        return self._work <= 0

    def reword(self, text: str) -> str:
        text = self._replaced(text, self._found(text, self._absolute, is_absolute=True))
        text = self._replaced(text, self._found_folders(text))
        return self._replaced(text, self._found(text, self._relative, is_absolute=False))

    def reword_key(self, text: str) -> str:
        """Rewords a member's key, or a value that is no text. Only an absolute path is surely a path there."""
        if "/" not in text:
            return text
        text = self._replaced(text, self._found(text, self._absolute, is_absolute=True))
        return self._replaced(text, self._found_folders(text))

    def reword_name(self, text: str) -> str:
        """Rewords the name of something, which stays a name where it can."""
        text = self._replaced(text, self._found_folders(text))
        return self._replaced(text, self._found(text, self._absolute, is_absolute=True))

    def _may_search(self, text: str, names: int) -> bool:
        self._work -= (len(text) + _STRING_WORK) * names
        return self._work > 0

    def _occurrences(self, text: str, name: str) -> Iterator[int]:
        at = text.find(name)
        while at >= 0 and self._work > 0:
            self._work -= _HIT_WORK
            yield at
            at = text.find(name, at + 1)

    def _found(self, text: str, table: dict[str, list[_Spelling]], *, is_absolute: bool) -> list[_Hit]:
        hits: list[_Hit] = []
        if not self._may_search(text, len(table)):
            return hits
        for name, spellings in table.items():
            if name not in text:
                continue
            for at in self._occurrences(text, name):
                stop = at + len(name)
                if _CLOSES.match(text, stop) is None:
                    continue
                for spelling in spellings:
                    if not text.endswith(spelling.folder, 0, at):
                        continue
                    start = at - len(spelling.folder)
                    if is_absolute:
                        start = _with_scheme(text, start)
                        stands = _OPENS_ABSOLUTE.match(text, start) is not None
                    else:
                        stands = _stands_alone(text, start, stop, is_bare=not spelling.folder)
                    if stands:
                        hits.append(_Hit(start, -stop, spelling.uri))
                        break  # spellings are sorted by length: the longest counts
        return hits

    def _found_folders(self, text: str) -> list[_Hit]:
        hits: list[_Hit] = []
        if not self._may_search(text, len(self._folders)):
            return hits
        for form, shown in self._folders.items():
            for at in self._occurrences(text, form):
                stop = at + len(form)
                start = _with_scheme(text, at)
                slashes = _SLASHES.match(text, stop)
                if (slashes or _CLOSES.match(text, stop)) is None or _OPENS_ABSOLUTE.match(text, start) is None:
                    continue
                if slashes is None:
                    hits.append(_Hit(start, -stop, shown or "."))
                elif shown or _GOES_ON.match(text, slashes.end()) is None or _STANDS_APART.match(text, start) is None:
                    hits.append(_Hit(start, -slashes.end(), (shown or ".") + "/"))
                else:
                    hits.append(_Hit(start, -slashes.end(), ""))
        return hits

    def _replaced(self, text: str, hits: list[_Hit]) -> str:
        """Returns the text with all hits replaced, the longest first where they overlap. Nothing inside a URL is
        replaced."""
        if not hits:
            return text
        urls = [match.span() for match in _URL.finditer(text)]
        pieces: list[str] = []
        at = 0
        for start, negative_stop, uri in sorted(hits):
            before = bisect.bisect_right(urls, (start, len(text))) - 1
            if start < at or (before >= 0 and start < urls[before][1]):
                continue
            pieces += (text[at:start], uri)
            at = -negative_stop
        pieces.append(text[at:])
        return "".join(pieces)


def variants(path: str) -> dict[str, None]:
    """Returns the path as it is in text, within URIs (as libraries and as browsers write them), and within JSON."""
    if _PLAIN.fullmatch(path):
        return dict.fromkeys((path, path.replace("/", "\\/")))
    forms = (path, quote(path, errors="replace"), quote(path, safe="/!'()*;,:@&=+$", errors="replace"))
    escaped = tuple(json.dumps(path, ensure_ascii=is_ascii)[1:-1] for is_ascii in (False, True))
    return dict.fromkeys((*forms, *escaped, *(form.replace("/", "\\/") for form in escaped)))


def _shown_folder(folder: str, cwd: str) -> str:
    """Returns a folder as seen from the working directory ("" for itself); only its name, if the way there would reveal
    folders further up."""
    if cwd and posixpath.commonpath((folder, cwd)) in (posixpath.normpath(cwd), posixpath.dirname(cwd.rstrip("/"))):
        relative = posixpath.relpath(folder, cwd)
        return "" if relative == "." else relative
    return posixpath.basename(folder)


def _with_scheme(text: str, start: int) -> int:
    """Returns where a path begins, including a `file:` in front of it."""
    scheme = _FILE_SCHEME.search(text[max(0, start - _FILE_SCHEME_MAX - 1) : start])
    return start if scheme is None else start - len(scheme[0])


def _stands_alone(text: str, start: int, stop: int, *, is_bare: bool) -> bool:
    """True if `text[start:stop]` is a relative path, and not part of a longer one."""
    if _OPENS_RELATIVE.match(text, start) is None:
        return False
    line = text[max(0, start - _TARGET_MAX_CHARS) : start]
    target = line.rfind("](")
    if target >= 0 and target + 2 != len(line.removesuffix("<")) and not re.search(r"[)\n]", line[target + 2 :]):
        return False  # it is inside a link's target, which extends to its bracket, spaces and all
    if not is_bare:
        return True
    round_it = text[start - 1 : start] + text[stop : stop + 1]
    if _SUFFIXED.match(text[start:stop]) is None:
        return round_it in _QUOTED or (round_it == "()" and text[start - 2 : start] == "](")
    return not (round_it == "[]" and text.startswith("](", stop))  # a link's label


# --- Results --------------------------------------------------------------------------------------------------------


class _Structured:
    """The structured content of a result, and the strings in it that are replaced."""

    def __init__(self, raw: bytes | None, reworder: Reworder, schema: bytes | None) -> None:
        self._raw = raw or b""
        self._reworder = reworder
        self._made: dict[str, str] = {}
        self._value = _loaded(self._raw)
        rules = StringRules(schema, self._value, self._renew)
        self._changes: dict[Path, str] = {}
        keys: dict[Path, str] = {}
        for path, old, is_key in _walk(self._value):
            if reworder.is_spent:
                break
            if is_key:
                if (new := reworder.reword_key(old)) != old and rules.allow_key(path, new):
                    keys[path] = new
            elif (new := self._renew(old)) != old and rules.allow(path, old):
                self._changes[path] = new
        self._keys = self._apart(keys)

    def _apart(self, keys: dict[Path, str]) -> dict[Path, str]:
        """Returns those of the new keys that no other member has, nor will have."""
        if not keys:
            return keys
        taken = {path for path, _, is_key in _walk(self._value) if is_key}
        kept: dict[Path, str] = {}
        for path, new in keys.items():
            place = (*path[:-1], new)
            if place not in taken:
                taken.add(place)
                kept[path] = new
        return kept

    def _renew(self, text: str) -> str:
        if text not in self._made:
            self._made[text] = self._reworder.reword(text)
        return self._made[text]

    def edits(self) -> list[Edit]:
        return self._edits_in(self._raw, self._value)

    def reworded_copy(self, text: str) -> str | None:
        """Returns the text with the same strings reworded, if it is JSON of the same value; else None."""
        if self._value is None or not text.lstrip().startswith(("{", "[")):
            return None
        try:
            raw = text.encode()
            value = _loaded(raw)
            if value is None or value != self._value:
                return None
        except (UnicodeEncodeError, RecursionError):
            return None
        return splice(raw, self._edits_in(raw, value)).decode()

    def _edits_in(self, raw: bytes, value: object) -> list[Edit]:
        if not (self._changes or self._keys):
            return []
        places = (match.span() for match in _STRING.finditer(raw))
        edits: list[Edit] = []
        for (path, _, is_key), (start, stop) in zip(_walk(value), places, strict=True):
            new = (self._keys if is_key else self._changes).get(path)
            if new is not None:
                edits.append(Edit(start, stop, encoded_string(new)))
        return edits


def _loaded(raw: bytes) -> object:
    """Returns an object or array; None if the JSON is of anything else, holds a key twice, or has too many values."""
    if not raw.lstrip().startswith((b"{", b"[")) or not has_few_values(raw):
        return None
    try:
        value: object = json.loads(raw, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return None
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key twice")
    return members


def _walk(value: object) -> Iterator[tuple[Path, str, bool]]:
    """Yields every string with its path, in the order of the text, and whether it is the key of the member there."""
    waiting: list[tuple[Path, object, bool]] = [((), value, False)]
    while waiting:
        path, value, is_key = waiting.pop()
        if isinstance(value, str):
            yield path, value, is_key
        elif isinstance(value, dict):
            for key, below in reversed(value.items()):
                waiting += (((*path, key), below, False), ((*path, key), key, True))
        elif isinstance(value, list):
            last = len(value) - 1
            waiting.extend(((*path, last - index), below, False) for index, below in enumerate(reversed(value)))


def _blocks(result: bytes, span: Span) -> list[tuple[int, bytes]]:
    """Returns the offset of each content block, and its JSON."""
    raw = result[span.start : span.stop]
    if not readable_elements(raw):
        return []
    return [(span.start + start, raw[start:stop]) for start, stop in elements(raw)]


def _in_block(block: bytes, reworder: Reworder, structured: _Structured) -> Iterator[Edit]:
    spans = readable_members(block)
    if is_text_block(block):
        if (span := spans.get("text")) is not None:
            yield from _in_string(block, span, lambda text: structured.reworded_copy(text) or reworder.reword(text))
        return
    kind = member_text(block, "type")
    offset = 0
    if kind == "resource" and (span := spans.get("resource")) is not None:
        offset, block = span.start, block[span.start : span.stop]
        spans = readable_members(block)
    elif kind != "resource_link":
        return
    for key, renew in (("text", reworder.reword), ("uri", lambda uri: reworder.uri_of(uri) or uri)):
        is_held = key == "uri" or kind == "resource"
        if is_held and (span := spans.get(key)) is not None:
            yield from (_shifted(edit, offset) for edit in _in_string(block, span, renew))


def _in_string(data: bytes, span: Span, renew: Callable[[str], str]) -> Iterator[Edit]:
    raw = data[span.start : span.stop]
    if raw.startswith(b'"'):
        old = msgspec.json.decode(raw) if b"\\" not in raw else json.loads(raw)
        if (new := renew(old)) != old:
            yield Edit(span.start, span.stop, encoded_string(new))


def _shifted(edit: Edit, offset: int) -> Edit:
    return Edit(edit.start + offset, edit.stop + offset, edit.text)


def encoded_string(text: str) -> bytes:
    """Returns a JSON string; halves of surrogate pairs stay, escaped."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return json.dumps(text).encode()
