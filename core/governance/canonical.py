"""Canonical definitions: what is pinned of an entry of a list, in a form that does not depend on how it is written.

The order of members, spaces and escapes do not count. A definition that two readers may read differently has no
canonical form: one with a member twice, or with two members whose names differ in case only.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Final

from ..base.errors import INVALID_REQUEST, RemoteProtocolError
from ..base.governance import Pinned
from ..jsonrpc.bounds import has_few_values, replace_lone_surrogates, too_deep
from ..jsonrpc.splice import members

TEXTS: Final = frozenset({"name", "title", "description", "mimeType", "uri", "uriTemplate"})
"""Members whose values are texts."""
KEYS: Final = {"tools": "name", "prompts": "name", "resources": "uri", "templates": "uriTemplate"}
"""The member by which a definition is known, by its kind."""
PINNED: Final = {
    "tools": ("title", "description", "inputSchema", "outputSchema", "annotations"),
    "prompts": ("title", "description", "arguments"),
    "resources": ("name", "title", "description", "mimeType"),
    "templates": ("name", "title", "description", "mimeType"),
}
"""The other members that are pinned, by kind: those that a model or a person reads, or that a client acts on.
Annotations of resources are left out, since they say when the content was changed last."""


def pinned(kind: str, entry: bytes) -> Pinned:
    """Returns the canonical definition of an entry of a list. A member that is null counts as absent.

    Raises:
        RemoteProtocolError: it has no key, or can be read in two ways.
    """
    spans = members(entry)
    key, names = KEYS[kind], PINNED[kind]
    folded = [name.casefold() for name in spans]
    for name in (key, *names):
        if folded.count(name.casefold()) > (name in spans):
            raise _unclear(f"the member {name} in two spellings")
    if key not in spans:
        raise _unclear(f"no {key}")
    found: list[tuple[str, str]] = []
    known = ""
    for name in (key, *(name for name in names if name in spans)):
        start, stop = spans[name]
        text = canonical(entry[start:stop])
        if name in TEXTS and not text.startswith('"') and (text != "null" or name == key):
            raise _unclear(f"a {name} that is no text")
        if name == key:
            known = json.loads(text)
        elif text != "null":
            found.append((name, text))
    return Pinned(kind, known, tuple(found))


def canonical(data: bytes) -> str:
    """Returns the canonical text of JSON: in ASCII, without spaces, members in the order of their names, each lone
    surrogate replaced by U+FFFD.

    Raises:
        RemoteProtocolError: it is no JSON, has a member twice, or is too large or too deep to be read.
    """
    if not has_few_values(data):
        raise _unclear("more values than are read")
    try:
        text = replace_lone_surrogates(data).decode()
        loaded = json.loads(text, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse)
        return json.dumps(loaded, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        raise too_deep() from None
    except ValueError as error:
        raise _unclear(f"JSON that cannot be read: {error}") from None


def digest(definition: Pinned) -> str:
    """Returns the SHA-256 of a canonical definition, in hexadecimal."""
    values = {**dict(definition.members), KEYS[definition.kind]: json.dumps(definition.name)}
    text = ",".join(f"{json.dumps(name)}:{value}" for name, value in sorted(values.items()))
    return hashlib.sha256(f"{{{text}}}".encode()).hexdigest()


def changed_members(before: Pinned, now: Pinned, ignore: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Returns the names of the members that differ, in the order of `PINNED`."""
    old: Mapping[str, str] = dict(before.members)
    new: Mapping[str, str] = dict(now.members)
    return tuple(name for name in PINNED[now.kind] if name not in ignore and old.get(name) != new.get(name))


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a member is there twice")
    return made


def _finite(lexeme: str) -> float:
    number = float(lexeme)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


def _unclear(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"got a definition with {what}", rpc_code=INVALID_REQUEST)
