"""The language of the filter of `isthmus tail` and of the live page: words apart by spaces, all of which must hold.

    server:files   method:tools/*   outcome:error,cancelled   ms:>100   "some text"   -client:cursor

A word has a name, a colon and patterns apart by commas, of which one must hold. `*` stands for any text. A word without
a name is looked for in all fields. `-` before a word means that it must not hold.

`app/watch/static/filter.js` is the same for the page. Both are tested with `tests/app/watch/filters.json`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from ...core.base.nearest import hint

Row = Mapping[str, object]
"""A request, a message or a line of a server, by the names of its fields."""
Test = Callable[[Row], bool]

KEY_MAX_CHARS: Final = 40
"""Characters of a name. Those that are known are shorter. At it: the word is looked for as a text."""


class FilterError(ValueError):
    """The filter is none. The message has the place, what is seen there, and what is right."""


class _Word(NamedTuple):
    """A word.

    Attributes:
        key: its name; "" if it has none.
        at: its first character, counted from 1.
    """

    is_negated: bool
    key: str
    value: str
    is_quoted: bool
    at: int


class _Key(NamedTuple):
    """A name.

    Attributes:
        kind: the kind of its values: a whole text, the first words of one, a number or an outcome.
        about: the fields, for people.
        fields: one of them has to fit.
    """

    kind: str
    about: str
    fields: tuple[str, ...] = ()


KEYS: Final[Mapping[str, _Key]] = {
    "server": _Key("text", "the server, or one that a profile asked", ("server", "servers")),
    "client": _Key("words", "name and version of the client", ("client",)),
    "method": _Key("words", "the JSON-RPC method", ("method",)),
    "target": _Key("text", "the tool, prompt or resource", ("target",)),
    "outcome": _Key("outcome", "result, error, cancelled, unknown or open"),
    "ms": _Key("number", "milliseconds until the answer", ("ms",)),
    "bytes": _Key("number", "bytes of the answer", ("response_bytes",)),
    "session": _Key("text", "the session", ("session",)),
    "principal": _Key("text", "the caller who was authenticated", ("principal",)),
    "id": _Key("text", "the JSON-RPC id", ("id",)),
    "code": _Key("text", "the code of an error", ("code",)),
    "kind": _Key("text", "request, notification or response", ("kind",)),
    "transport": _Key("text", "how the client is connected: http or pipe", ("transport",)),
    "revision": _Key("text", "the protocol revision of the client", ("revision",)),
}

OUTCOMES: Final[Mapping[str, tuple[str, ...]]] = {
    "result": ("result",),
    "error": ("error", "tool error"),
    "tool-error": ("tool error",),
    "protocol-error": ("error",),
    "cancelled": ("cancelled",),
    "unknown": ("unknown", "unread"),
    "open": ("open",),
}
"""The outcomes that a word chooses. `error` is all that failed."""

_SEARCHED: Final = ("method", "target", "server", "servers", "client", "session", "id", "principal", "text")
_NAMED: Final = re.compile(r"([A-Za-z_]+):")
_NUMBER: Final = re.compile(r"(>=|<=|>|<|=)?([0-9]+(?:\.[0-9]+)?)(k|M)?")
_FACTORS: Final = {"": 1, "k": 1000, "M": 1_000_000}
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": lambda seen, limit: seen > limit,
    ">=": lambda seen, limit: seen >= limit,
    "<": lambda seen, limit: seen < limit,
    "<=": lambda seen, limit: seen <= limit,
    "=": lambda seen, limit: math.floor(seen + 0.5) == limit,
}


def compiled(source: str) -> Test:
    """Returns the test that a row has to pass to be shown.

    Raises:
        FilterError: a word is unknown, or has no value that can be read.
    """
    tests = [_test_of(word) for word in _words(source)]
    return lambda row: all(test(row) for test in tests)


def _words(source: str) -> Iterator[_Word]:
    """Splits at spaces outside quotes."""
    at = 0
    while at < len(source):
        if source[at].isspace():
            at += 1
            continue
        start = at
        is_negated = source[at] == "-" and at + 1 < len(source) and not source[at + 1].isspace()
        at += is_negated
        named = _NAMED.match(source, at, at + KEY_MAX_CHARS)
        key = "" if named is None else named[1].lower()
        at = at if named is None else named.end()
        value, is_quoted = "", False
        while at < len(source) and not source[at].isspace():
            if source[at] != '"':
                value += source[at]
                at += 1
                continue
            end = source.find('"', at + 1)
            if end < 0:
                raise FilterError(f'character {at + 1}: got a quote without an end, expected another "')
            is_quoted = True
            value += source[at + 1 : end]
            at = end + 1
        yield _Word(is_negated, key, value, is_quoted, start + 1)


def _test_of(word: _Word) -> Test:
    test = _named_test(word) if word.key else _text_test(word.value)
    return (lambda row: not test(row)) if word.is_negated else test


def _text_test(value: str) -> Test:
    sought = value.lower()
    return lambda row: any(sought in str(row.get(field) or "").lower() for field in _SEARCHED)


def _named_test(word: _Word) -> Test:
    key = KEYS.get(word.key)
    if key is None:
        known = hint(word.key, KEYS) or f", expected one of {', '.join(KEYS)}"
        raise FilterError(f'character {word.at}: got "{word.key}:"{known}')
    if not word.value:
        raise FilterError(f'character {word.at}: got "{word.key}:" without a value, expected {key.about}')
    values = [word.value] if word.is_quoted else [value for value in word.value.split(",") if value]
    tests = [_value_test(word, key, value) for value in values]
    return lambda row: any(test(row) for test in tests)


def _value_test(word: _Word, key: _Key, value: str) -> Test:
    match key.kind:
        case "outcome":
            return _outcome_test(word, value)
        case "number":
            return _number_test(word, key.fields[0], value)
    pattern = _pattern(value, r"\Z" if key.kind == "text" else "(?![A-Za-z0-9])")
    return lambda row: any(pattern.match(each) for name in key.fields for each in _texts(row, name))


def _texts(row: Row, field: str) -> list[str]:
    """Returns the texts of a field: of `servers`, each name."""
    value = row.get(field)
    return [] if value is None else str(value).split(", ") if field == "servers" else [str(value)]


def _outcome_test(word: _Word, value: str) -> Test:
    chosen = OUTCOMES.get(value.lower())
    if chosen is None:
        known = hint(value, OUTCOMES) or f", expected one of {', '.join(OUTCOMES)}"
        raise FilterError(f'character {word.at}: got the outcome "{value}"{known}')
    return lambda row: ("open" if row.get("state") == "open" else row.get("outcome")) in chosen


def _number_test(word: _Word, field: str, value: str) -> Test:
    found = _NUMBER.fullmatch(value)
    if found is None:
        example = f"{word.key}:>100 or {word.key}:<=2k"
        raise FilterError(f'character {word.at}: got "{word.key}:{value}", expected a number, such as {example}')
    holds, limit = _COMPARISONS[found[1] or "="], float(found[2]) * _FACTORS[found[3] or ""]

    def test(row: Row) -> bool:
        seen = row.get(field)
        return isinstance(seen, int | float) and holds(seen, limit)

    return test


def _pattern(value: str, end: str) -> re.Pattern[str]:
    """Returns what finds the whole field, or, of a client or a method, its first words: `cursor` in "cursor 1.4"."""
    if "*" not in value:
        return re.compile(re.escape(value) + end, re.IGNORECASE)
    parts = ".*".join(re.escape(part) for part in re.split(r"\*+", value))
    return re.compile(parts + r"\Z", re.IGNORECASE | re.DOTALL)
