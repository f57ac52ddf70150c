"""Paths in prose: what a tool's text may mean by a file, as spellings to be tried in order.

No spelling is checked for existence here. Text is written for people, so a path may be quoted, in a Markdown link,
followed by a full stop, or a `file://` URI. Each mention therefore yields the cleaned path first and doubtful readings
after it. A URL on the web is never a path, nor is any part of one.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import unquote

from ...base.lazy_regex import Pattern
from ...base.regex import compile_regex

CANDIDATES_MAX: Final = 64
"""Mentions that are tried for one text. Each costs a few looks at the disk. At it: further ones are not tried."""

TEXT_MAX_CHARS: Final = 128 * 1024
"""Characters of a text that are searched, half at either end: paths stand where a tool begins or sums up, and a
pattern's cost stays bounded. At it: the middle is not searched."""

TRIES_MAX: Final = 2048
"""Matches of one pattern that are looked at. A text with more is a listing, or made to be slow."""

PATH_MAX_CHARS: Final = 4096
"""The longest path that Linux accepts."""

# Scripts written without spaces: a letter of theirs before or behind a path is not part of it.
SPACELESS: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"

# Matching a URL as a whole, without a group `path`, keeps the search from starting again inside it.
URL: Final = r"(?<![\w+.-])[A-Za-z][A-Za-z0-9+.-]*+://[^\s<>\"'`]*+"
_SKIP_URL: Final = URL + "|"
_SUFFIX: Final = r"\.[A-Za-z0-9]{1,8}"
_NOT_INSIDE: Final = r"(?<![/.\\~<$%)}\]-])(?<![^\W" + SPACELESS + "])"

_DEFAULT_PATTERNS: Final = (
    # A Markdown link's target: [label](target), spaces and one level of brackets allowed.
    Pattern(r"\]\((?P<path>(?:[^()\n]|\([^()\n]*+\))++)\)"),
    # Quoted: a path by its beginning, or a name by its suffix; either may hold spaces.
    Pattern(r"[\"'`“](?P<path>(?:~?/|\.{1,2}/|[A-Za-z]:[\\/]|file:/)[^\"'`“”\n]++)[\"'`”]"),
    Pattern(r"[\"'`“](?P<path>[^\"'`“”\n:]{1,255}" + _SUFFIX + r")[\"'`”]"),
    Pattern(r"(?P<path>\bfile:/[^\s\"'`<>|]++)|" + URL),
    # Absolute POSIX, then Windows.
    Pattern(_SKIP_URL + _NOT_INSIDE + r"(?P<path>~?/(?!/)[^\s\"'`<>|]++)"),
    Pattern(r"(?<![A-Za-z0-9])(?P<path>[A-Za-z]:[\\/][^\s\"'`<>|]++)"),
    # Relative with a folder, then a bare name with a suffix.
    Pattern(_SKIP_URL + r"(?<![\w/.\\~:+@-])(?P<path>(?:[\w.+@-]++/)++[\w.+@-]++)"),
    Pattern(_SKIP_URL + r"(?<![\w/.\\~:+@-])(?P<path>[\w.+@-]+" + _SUFFIX + r")(?![\w/\\])"),
)

# Absolute with bare spaces, up to the last suffix on the line: its first characters, any suffix, and what no path goes
# beyond. One expression for all of it would look at the rest of the line from each slash.
_SPACED_START: Final = Pattern(_SKIP_URL + _NOT_INSIDE + r"(?P<path>~?/(?!/)[^\s\"'`<>|])")
_SPACED_SUFFIX: Final = Pattern(_SUFFIX + r"(?!\w)")
_SPACED_BREAK: Final = Pattern(r"[\n\"'`<>|]")
_SPACED_MAX_CHARS: Final = 255  # between the first characters and the suffix

_BEGINS_AS_PATH: Final = Pattern(r"~?/[^/\s]|\.{1,2}/|[A-Za-z]:[\\/]|file:/", re.IGNORECASE)
_ENDS_AS_PATH: Final = Pattern(r"[^\s./\\]" + _SUFFIX + r"\Z")
_WORDS_MAX: Final = 8  # more is a sentence

_SCHEME: Final = Pattern(r"[A-Za-z][A-Za-z0-9+.-]+:(?!\\)")
_FILE_URI: Final = Pattern(r"file:(?://(?:localhost|127\.0\.0\.1)?(?=/))?", re.IGNORECASE)
_LINK: Final = Pattern(r"!?\[[^\]\n]*\]\((.*)\)")
_TITLED: Final = Pattern(r"(\S(?:.*?\S)?)\s++(?:\"[^\"]*\"|'[^']*')")
_LINE_NUMBER: Final = Pattern(r":\d+(?::\d+)?$")
_QUOTES: Final = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»", "<": ">", "(": ")", "[": "]", "{": "}"}
_CLOSERS: Final = {")": "(", "]": "[", "}": "{", ">": "<"}
_PEELS_MAX: Final = 16  # deeper than paths are quoted or bracketed
_TRAILING: Final = ".,;:!?\"'`”’»…。，、；：！？）】」』》"
_RUN_ON: Final = Pattern(r"([^" + SPACELESS + r"]*" + _SUFFIX + r")[" + SPACELESS + r"]")


def mentions(text: str, patterns: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the spellings of every match, at most `CANDIDATES_MAX` matches.

    The order is that of the patterns (built-in ones if there are none), then of the text. The path in a match is its
    group `path`, else its first group, else the whole match. A match whose spellings were all met before is left out.

    Args:
        patterns: regular expressions, as `compile_regex` takes them.

    Raises:
        RegexError: a pattern cannot be used.
    """
    if len(text) > TEXT_MAX_CHARS:
        half = TEXT_MAX_CHARS // 2
        text = text[:half] + "\n" + text[-half:]
    found: list[tuple[str, ...]] = []
    seen: set[str] = set()
    searches = [compile_regex(pattern).paths(text) for pattern in patterns] or default_searches(text)
    for search in searches:
        for path in itertools.islice(search, TRIES_MAX):
            readings = spellings(path)
            if seen.issuperset(readings):
                continue
            seen.update(readings)
            found.append(tuple(readings))
            if len(found) == CANDIDATES_MAX:
                return found
    return found


def default_searches(text: str) -> Iterator[Iterator[str]]:
    """Yields a search for each of the built-in patterns. Each takes a time linear in the text."""
    for pattern in _DEFAULT_PATTERNS:
        yield (match["path"] or match[0] for match in pattern.finditer(text))
    yield _spaced_paths(text)


def _spaced_paths(text: str) -> Iterator[str]:
    suffixes = [match.span() for match in _SPACED_SUFFIX.finditer(text)]
    at, stop = 0, -1
    while (match := _SPACED_START.search(text, at)) is not None:
        at = match.end()
        if match["path"] is None:
            continue  # a URL
        if stop < at:
            found = _SPACED_BREAK.search(text, at)
            stop = len(text) if found is None else found.start()
        last = bisect.bisect_left(suffixes, (min(at + _SPACED_MAX_CHARS + 1, stop), 0)) - 1
        if last >= 0 and suffixes[last][0] >= at:
            at = suffixes[last][1]
            yield text[match.start() : at]
        else:
            at = match.start() + 1


def reads_as_path(text: str) -> bool:
    """True if a whole string is most likely a path: by how it begins, or by a suffix, with no more than a few words."""
    if len(text) > PATH_MAX_CHARS or any(c in text for c in "\0\n\r"):
        return False
    return _BEGINS_AS_PATH.match(text) is not None or (
        len(text.split()) <= _WORDS_MAX and _ENDS_AS_PATH.search(text) is not None and not _SCHEME.match(text)
    )


def spellings(text: str) -> list[str]:
    """Returns what a piece of text may mean as a path, likeliest first; nothing if it is a URL on the web."""
    text = text.strip()
    if len(text) > PATH_MAX_CHARS or any(c in text for c in "\0\n\r"):
        return []
    return list(dict.fromkeys(reading for reading in _readings(text) if reading and "\0" not in reading))


def _readings(text: str) -> Iterator[str]:
    link = _LINK.fullmatch(_peel(text)) or _LINK.fullmatch(text)
    if link is not None:
        text = link[1].strip()
    titled = _TITLED.fullmatch(text)
    bare = titled[1] if titled else text
    for path in (_peel(bare), bare) if titled is None else (_peel(bare), bare, text):
        if path.lower().startswith("file:"):
            yield from _of_uri(path)
        elif not _SCHEME.match(path):
            yield path
            yield path.partition("#")[0]
            yield _LINE_NUMBER.sub("", path)
            if (run_on := _RUN_ON.match(path)) is not None:
                yield run_on[1]
            if "%" in path:
                yield unquote(path)
            if "\\" in path:
                yield path.replace("\\", "/")


def _of_uri(uri: str) -> Iterator[str]:
    """Yields the path of a `file:` URI. A raw `#` or `?` in it, which should be escaped, is read both ways."""
    path = _FILE_URI.sub("", uri, count=1)
    for form in (re.split(r"[?#]", path, maxsplit=1)[0], path):
        decoded = unquote(form)
        yield decoded[1:] if re.match(r"/[A-Za-z]:[\\/]", decoded) else decoded


def _peel(text: str) -> str:
    """Returns `text` without the quotes and brackets around it and the punctuation behind it."""
    for _ in range(_PEELS_MAX):
        if len(text) < 2:
            break
        first, last = text[0], text[-1]
        if _QUOTES.get(first) == last:
            text = text[1:-1].strip()
        elif last in _TRAILING or (last in _CLOSERS and text.count(_CLOSERS[last]) < text.count(last)):
            text = text[:-1].rstrip()
        elif first in "\"'`“‘«<" or (first in "([{" and _QUOTES[first] not in text):
            text = text[1:].lstrip()
        else:
            break
    return text
