"""The lock: the file with the definitions of servers that a person has approved.

It is TOML. Each definition is a table of its own, with its SHA-256 and the texts that the SHA-256 is of. The order
depends on the names alone, and nothing in it depends on when or where it was written, so version control merges two
changes of different definitions. A file with a conflict, a definition twice, or a text that does not fit its SHA-256 is
refused as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from ..base.errors import RemoteProtocolError
from ..base.governance import Pinned
from .canonical import KEYS, PINNED, TEXTS, canonical, digest

VERSION: Final = 1
HEAD: Final = """\
# What servers were approved to list. Written by `isthmus pin`.
# `isthmus pin --diff` shows what differs from it, and `isthmus pin --approve` accepts that.
version = 1
"""

RECORD_KEY: Final = "pins/lock"
"""The key of the lock in the records that replicas share, where it is no file."""

Lock = Mapping[str, tuple[Pinned, ...]]
"""The approved definitions of each server, by its id."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_KINDS: Final = {kind: place for place, kind in enumerate(KEYS)}


class LockError(Exception):
    """A lock that cannot be used. Its text says what was seen."""


def format_lock(lock: Lock) -> str:
    """Returns the text of a lock."""
    return "".join([HEAD, *(part for id in sorted(lock) for part in _server(id, lock[id]))])


def in_order(definitions: Iterable[Pinned]) -> tuple[Pinned, ...]:
    """Returns definitions in the order that they have in a lock."""
    return tuple(sorted(definitions, key=lambda one: (_KINDS[one.kind], one.name)))


def format_definition(definition: Pinned) -> list[str]:
    """Returns the lines of a definition, without its SHA-256."""
    return [line for name, value in definition.members for line in _member(name, value).split("\n")]


def parse_lock(text: str) -> dict[str, tuple[Pinned, ...]]:
    """Returns the lock of a text.

    Raises:
        LockError: it cannot be used.
    """
    import tomllib  # late: most proxies have no lock

    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise LockError(f"got text that is no TOML: {error}") from None
    version = document.pop("version", None)
    if version != VERSION or isinstance(version, bool):
        raise LockError(f"got the version {version!r}, expected {VERSION}")
    servers = document.pop("servers", {})
    if document or not isinstance(servers, dict):
        raise LockError(f"got {', '.join(document) or 'servers that are no table'}, expected version and servers")
    return {id: in_order(_read_server(id, table)) for id, table in servers.items()}


# --- Write ------------------------------------------------------------------------------------------------------------


def _server(id: str, definitions: Iterable[Pinned]) -> Iterable[str]:
    ordered = in_order(definitions)
    if not ordered:
        yield f"\n[servers.{_key(id)}]\n"
    for one in ordered:
        lines = [f'sha256 = "{digest(one)}"', *format_definition(one)]
        yield f"\n[servers.{_key(id)}.{one.kind}.{_key(one.name)}]\n" + "\n".join(lines) + "\n"


def _member(name: str, value: str) -> str:
    loaded = json.loads(value)
    if name in TEXTS:
        return f"{name} = {_text(loaded)}"
    pretty = json.dumps(loaded, sort_keys=True, indent=1)
    # An apostrophe stands in strings only, where JSON may escape it.
    pretty = pretty.replace("'''", r"''\u0027")
    return f"{name} = '''\n{pretty}'''"


def _text(text: str) -> str:
    if "\n" not in text:
        return f'"{_escaped(text)}"'
    lines = [_escaped(line) for line in text.split("\n")]
    # An editor that strips the ends of lines must not change the text.
    lines = [re.sub(r"[ \t]$", lambda end: rf"\u{ord(end[0]):04x}", line) for line in lines]
    return '"""\n' + "\n".join(lines) + '"""'


def _escaped(text: str) -> str:
    """Returns the text with escapes for quotation marks and all that is not seen, so that who reviews it sees it."""
    return "".join(
        f"\\{char}"
        if char in '"\\'
        else char
        if char.isprintable()
        else rf"\u{ord(char):04x}"
        if ord(char) < 0x10000
        else rf"\U{ord(char):08x}"
        for char in text
    )


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else f'"{_escaped(name)}"'


# --- Read -------------------------------------------------------------------------------------------------------------


def _read_server(id: str, table: object) -> Iterable[Pinned]:
    for kind, named in _table(table, f"servers.{id}").items():
        if kind not in KEYS:
            raise LockError(f"got servers.{id}.{kind}, expected {', '.join(KEYS)}")
        for name, one in _table(named, f"servers.{id}.{kind}").items():
            yield _read(f"servers.{id}.{kind}.{name}", kind, name, one)


def _read(path: str, kind: str, name: str, table: object) -> Pinned:
    given = dict(_table(table, path))
    recorded = given.pop("sha256", None)
    if unknown := given.keys() - set(PINNED[kind]):
        raise LockError(f"got {path}.{min(unknown)}, expected sha256, {', '.join(PINNED[kind])}")
    found: list[tuple[str, str]] = []
    for member in PINNED[kind]:
        if member not in given:
            continue
        value = given[member]
        if not isinstance(value, str):
            raise LockError(f"got a {path}.{member} that is no text")
        try:
            found.append((member, canonical(json.dumps(value).encode() if member in TEXTS else value.encode())))
        except RemoteProtocolError as error:
            raise LockError(f"{path}.{member}: {error.message}") from None
    definition = Pinned(kind, name, tuple(found))
    if recorded != digest(definition):
        raise LockError(f"got {path} with a sha256 that is not of its texts, expected {digest(definition)}")
    return definition


def _table(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise LockError(f"got a {path} that is no table")
    return value
