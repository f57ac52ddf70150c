"""The paths that a tool call names: the files that its result says it wrote, and those that its arguments may name.

No claim is checked here: whether a file exists and may be read is for the code that touches the disk.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from ...base.errors import RemoteProtocolError
from ...base.lazy_regex import Pattern
from ...base.plan import UPLOAD_SCHEME, AutoFiles, LocatorMode, OutputLocator
from ...base.storage import InlineSource
from ...jsonrpc.append import readable_elements, readable_members, readable_text
from ...jsonrpc.bounds import has_few_values
from ...jsonrpc.paths import walk
from ...jsonrpc.splice import take
from ..store.filenames import safe_filename, suffix_of
from ..store.handles import ARTIFACT_SCHEME
from .paths_in_text import PATH_MAX_CHARS, mentions, reads_as_path, spellings

_STRING_OR_KEY: Final = re.compile(rb'(?P<string>"(?:[^"\\]++|\\.)*+")(?P<colon>[ \t\r\n]*+:)?', re.DOTALL)
_NUMBERED: Final = Pattern(r"%(?:0\d)?d[^/%]*\Z")  # a name for many files, such as frame_%03d.png: its folder has them
STRINGS_MAX: Final = 1024
"""Strings of one JSON value that are looked at. Results that list files have hundreds. At it: further strings are not
looked at."""
GUESSED_MAX_BYTES: Final = 16 * 1024 * 1024
"""Largest result that is searched for paths without an adapter. At it: only files that appear in the session's folders
and those that the arguments name are found."""


class ClaimedPaths(msgspec.Struct, frozen=True):
    """The files that a call may have written.

    Attributes:
        named: spellings of one file each, likeliest first; in order: the allocated path, structured values, arguments,
            links and text.
        inline: content that the result holds.
        links: URIs of the server's own resources.
        wants_areas: files that changed in the session's folders count as well.
        is_guess: for each of `named`: built-in rules found it, so nothing is reported if it is not there.
        if_changed: for each of `named`: it counts only if the call wrote it.
    """

    named: tuple[tuple[str, ...], ...] = ()
    inline: tuple[InlineSource, ...] = ()
    links: tuple[str, ...] = ()
    wants_areas: bool = False
    is_guess: tuple[bool, ...] = ()
    if_changed: tuple[bool, ...] = ()


class _Named(msgspec.Struct):
    spellings: tuple[str, ...]
    is_guess: bool
    if_changed: bool


def claims_of(
    result: bytes,
    rules: OutputLocator | AutoFiles,
    *,
    arguments: bytes | None,
    allocated: str | None,
    new_files: Iterable[str] = (),
    limit: int,
) -> ClaimedPaths:
    """Returns what a finished call claims. A result that says `isError` claims nothing: its paths are those it
    complains of.

    Args:
        result: the JSON of the result, of any shape.
        rules: where to look; `AutoFiles`: in text, structured content, arguments and the session's folders.
        arguments: the JSON of the arguments as the server got them, if known.
        allocated: the path that was put into the output argument.
        new_files: paths of further files that the tool was told to write.
        limit: at most so many from each of structured content, arguments, links, text, and embedded content.

    Raises:
        RegexError: a configured pattern cannot be used, which reading the configuration should have refused.
    """
    spans = readable_members(result)
    if take(result, spans.get("isError")) == b"true":
        return ClaimedPaths()
    if isinstance(rules, AutoFiles) and len(result) > GUESSED_MAX_BYTES:
        spans = {}
    blocks = readable_elements(take(result, spans.get("content")))
    structured = take(result, spans.get("structuredContent"))
    texts = [text for block in blocks if is_text_block(block) and (text := member_text(block, "text")) is not None]
    named: list[_Named] = [] if allocated is None else [_Named((allocated,), False, False)]
    named += [_Named((path,), False, True) for path in new_files]
    if isinstance(rules, AutoFiles):
        named += [_Named(found, True, True) for found in _structured_guesses(structured)[:limit]]
        named += [_Named(found, True, True) for found in argument_paths(arguments, (), limit)]
        named += [_Named(found, False, True) for found in _file_uris(blocks)[:limit]]
        named += [_Named(found, True, True) for found in mentions("\n".join(texts), ())[:limit]]
        return _claims(named, wants_areas=True)
    modes = rules.modes
    if LocatorMode.STRUCTURED in modes and rules.output_path_key is not None:
        named += [_Named(found, False, False) for found in _structured(result, rules.output_path_key)[:limit]]
    if LocatorMode.ARGUMENT in modes:
        is_guess = not rules.path_arguments
        named += [_Named(found, is_guess, True) for found in argument_paths(arguments, rules.path_arguments, limit)]
    if LocatorMode.REGEX in modes or LocatorMode.RESOURCE_LINK in modes:
        named += [_Named(found, False, False) for found in _file_uris(blocks)[:limit]]
    if LocatorMode.REGEX in modes:
        patterns = rules.output_path_regexes
        named += [_Named(found, not patterns, False) for found in mentions("\n".join(texts), patterns)[:limit]]
    return _claims(
        named,
        inline=tuple(embedded(blocks)[:limit]) if LocatorMode.EMBEDDED in modes else (),
        links=tuple(_links(blocks)[:limit]) if LocatorMode.RESOURCE_LINK in modes else (),
        wants_areas=LocatorMode.CHANGED in modes,
    )


def argument_paths(arguments: bytes | None, names: Sequence[str], limit: int) -> list[tuple[str, ...]]:
    """Returns spellings of what the arguments may name as files, at most `limit`.

    Args:
        arguments: the JSON of the arguments. What cannot be read names nothing.
        names: dotted paths of the arguments that count; none: every string, at any depth, those that read as paths
            first, then what short strings mention, such as commands.
    """
    if arguments is None:
        return []
    if names:
        values = [value for name in names for value in _values_at(arguments, name)]
    else:
        strings = strings_of(arguments)
        prose = [value for value in strings if "/" in value and len(value) <= PATH_MAX_CHARS and _may_be_prose(value)]
        mentioned = [paths[0] for paths in mentions("\n".join(prose), ())] if prose else []
        values = [*filter(reads_as_path, strings), *mentioned, *itertools.filterfalse(reads_as_path, strings)]
    found: dict[tuple[str, ...], None] = {}
    values += [posixpath.dirname(value) or "." for value in values if _NUMBERED.search(value)]
    for value in values:
        if "\n" not in value and not value.startswith((UPLOAD_SCHEME, ARTIFACT_SCHEME)) and (read := spellings(value)):
            found[tuple(read)] = None
            if len(found) == limit:
                break
    return list(found)


def strings_of(data: bytes) -> list[str]:
    """Returns the string values in a JSON value, at any depth, in order, at most `STRINGS_MAX`; none if it is not
    JSON. Of JSON with too many values, the beginning is searched for strings."""
    if not has_few_values(data):
        return list(_first_strings(data))
    try:
        return list(_strings(json.loads(data)))
    except (ValueError, RecursionError):
        return []


def _first_strings(data: bytes) -> Iterator[str]:
    values = 0
    for match in itertools.islice(_STRING_OR_KEY.finditer(data), 2 * STRINGS_MAX):
        text = None if match["colon"] or values == STRINGS_MAX else readable_text(match["string"])
        if text is not None:
            values += 1
            yield text


def _strings(value: object) -> Iterator[str]:
    waiting: list[object] = [value]
    count = 0
    while waiting and count < STRINGS_MAX:
        value = waiting.pop()
        if isinstance(value, str):
            count += 1
            # Halves of surrogate pairs, which `json.loads` lets through, become U+FFFD.
            is_plain = value.isascii()
            yield value if is_plain else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        elif isinstance(value, dict):
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))


def _claims(
    named: Sequence[_Named],
    *,
    inline: tuple[InlineSource, ...] = (),
    links: tuple[str, ...] = (),
    wants_areas: bool = False,
) -> ClaimedPaths:
    """Returns each name once, with the strictest of its flags."""
    merged: dict[tuple[str, ...], _Named] = {}
    for one in named:
        if not one.spellings:
            continue
        first = merged.setdefault(one.spellings, one)
        first.is_guess = first.is_guess and one.is_guess
        first.if_changed = first.if_changed and one.if_changed
    return ClaimedPaths(
        tuple(merged),
        inline,
        links,
        wants_areas,
        tuple(one.is_guess for one in merged.values()),
        tuple(one.if_changed for one in merged.values()),
    )


# --- Structured content ---------------------------------------------------------------------------------------------


def _structured(result: bytes, key: str) -> list[tuple[str, ...]]:
    return [tuple(spellings(value)) for value in _values_at(result, f"structuredContent.{key}")]


def _values_at(data: bytes, path: str) -> list[str]:
    """Returns the strings at a dotted path, a list standing for its items."""
    try:
        places = walk(data, path)
    except RemoteProtocolError:
        return []
    found: list[str | None] = []
    for place in places:
        raw = data[place.start : place.stop]
        if place.fits:
            found += [readable_text(item) for item in (readable_elements(raw) if raw.startswith(b"[") else [raw])]
    return [value for value in found if value is not None]


def _structured_guesses(structured: bytes | None) -> list[tuple[str, ...]]:
    """Returns the strings that read as a path as a whole, then what the other strings mention."""
    values = [] if structured is None else strings_of(structured)
    whole = [tuple(spellings(value)) for value in values if reads_as_path(value)]
    prose = "\n".join(value for value in values if _may_be_prose(value))
    return whole + mentions(prose, ())


def _may_be_prose(value: str) -> bool:
    """True if the value is no path, or may be a sentence that ends with one."""
    return not reads_as_path(value) or (" " in value and not value.startswith(("~", "/", ".")))


# --- Content blocks -------------------------------------------------------------------------------------------------


def _resource_uris(blocks: Sequence[bytes]) -> Iterator[tuple[str, bool]]:
    """Yields the URI of each resource that is embedded or linked, and whether it is linked."""
    for block in blocks:
        kind = member_text(block, "type")
        held = take(block, readable_members(block).get("resource")) if kind == "resource" else block
        if kind in ("resource", "resource_link") and (uri := member_text(held, "uri")) is not None:
            yield uri, kind == "resource_link"


def _file_uris(blocks: Sequence[bytes]) -> list[tuple[str, ...]]:
    return [tuple(spellings(uri)) for uri, _ in _resource_uris(blocks) if uri.lower().startswith("file:")]


def _links(blocks: Sequence[bytes]) -> list[str]:
    ours = ("file:", ARTIFACT_SCHEME)
    return list(
        dict.fromkeys(
            uri
            for uri, is_link in _resource_uris(blocks)
            if is_link and len(uri) <= PATH_MAX_CHARS and not uri.lower().startswith(ours)
        )
    )


def embedded(blocks: Sequence[bytes]) -> list[InlineSource]:
    """Returns the content of each image, audio or resource block that can be decoded."""
    found: list[InlineSource] = []
    counts: dict[str, int] = {}
    for block in blocks:
        kind = member_text(block, "type")
        if kind not in ("image", "audio", "resource"):
            continue
        held = take(block, readable_members(block).get("resource")) if kind == "resource" else block
        data = _held(held, kind)
        if data is None:
            continue
        counts[kind] = counts.get(kind, 0) + 1
        mime = member_text(held, "mimeType")
        is_prose = kind == "resource" and member_text(held, "text") is not None
        ending = suffix_of(mime or "") or ("txt" if is_prose else "bin")
        fallback = f"{kind}-{counts[kind]}.{ending}"
        uri = member_text(held, "uri") if kind == "resource" else None
        found.append(InlineSource(data, safe_filename(_last_segment(uri or ""), fallback), mime))
    return found


def contents_of(result: bytes) -> list[InlineSource]:
    """Returns the contents in the result of a `resources/read`, as far as they can be decoded."""
    items = readable_elements(take(result, readable_members(result).get("contents")))
    return embedded([b'{"type":"resource","resource":%b}' % item for item in items])


def _held(held: bytes | None, kind: str) -> bytes | None:
    """Returns the content of an image, audio or resource; None if there is none or its base64 is bad."""
    if kind == "resource" and (text := member_text(held, "text")) is not None:
        return text.encode()
    encoded = member_text(held, "blob" if kind == "resource" else "data")
    if encoded is None:
        return None
    try:
        return base64.b64decode("".join(encoded.split()), validate=True)  # some encoders break lines
    except (binascii.Error, ValueError):
        return None


def _last_segment(uri: str) -> str:
    try:
        return unquote(posixpath.basename(urlsplit(uri).path))
    except ValueError:  # such as an unclosed [ in the host
        return ""


def is_text_block(block: bytes) -> bool:
    """True if a content block is of type `text`."""
    return member_text(block, "type") == "text"


def member_text(data: bytes | None, key: str) -> str | None:
    """Returns the text of an object's string member; None if there is none."""
    return None if data is None else readable_text(take(data, readable_members(data).get(key)))
