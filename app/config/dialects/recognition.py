"""Recognizes whose file a document is: where servers stand in it, and which client writes such keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from .clients import CLIENTS, Client
from .keys import Meaning, key_of, plain

_WEIGHTS: Final = {"top": 4, "file": 3, "server": 2, "text": 2}
_WAYS: Final = (Meaning.COMMAND, Meaning.URL, Meaning.STREAMABLE_URL)
_TYPES: Final = ("type", "enabled", "disabled")
_OF_GOOSE: Final = ("stdio", "sse", "streamablehttp", "builtin", "platform", "frontend", "inlinepython")


class Place(NamedTuple):
    """A part of a document in which servers stand.

    Attributes:
        key: its dotted key; "" is the document itself.
        kind: the place as the table of clients names it.
        servers: name and dotted key of each, and what is written there.
    """

    key: str
    kind: str
    servers: tuple[tuple[str, str, object], ...]


class Recognized(NamedTuple):
    """The dialect of a document, the places of its servers, and the folder that its relative paths start from."""

    client: Client
    places: tuple[Place, ...]
    workspace: str


def recognize(document: object, path: str, own_keys: Mapping[str, object]) -> Recognized | None:
    """Returns the dialect of `document`; None if no client's servers stand in it.

    Args:
        path: the absolute path of the file.
        own_keys: the keys of our own form, which may stand beside those of a client.
    """
    if not isinstance(document, dict):
        return None
    places = tuple(_places(document)) or tuple(_flat(document, own_keys))
    if not places:
        return None
    kinds = {place.kind for place in places}
    fitting = [client for client in CLIENTS if kinds.intersection(client.places)]
    best = max(fitting, key=lambda client: _score(client, document, places, path))
    return Recognized(best, places, _workspace(path))


def has_servers_of_projects(document: object) -> bool:
    """Returns whether servers of single projects stand in a document, where Claude Code keeps them."""
    projects = document.get("projects") if isinstance(document, dict) else None
    return isinstance(projects, dict) and any(
        isinstance(project, dict) and bool(project.get("mcpServers")) for project in projects.values()
    )


def _places(document: Mapping[object, object]) -> Iterator[Place]:
    for name, value in document.items():
        if not isinstance(name, str):
            continue
        kind = plain(name)
        if kind.rpartition(".")[2] == "mcpservers":  # "amp.mcpServers" is one key
            yield _place(name, "mcp_servers" if name == "mcp_servers" else "mcpServers", value)
        elif kind == "contextservers":
            yield _place(name, "context_servers", value)
        elif kind == "servers" and (_is_map_of_servers(value) or _is_catalog(value)):
            yield _place(name, "servers", value)
        elif kind == "registry" and isinstance(value, dict):
            yield _place(name, "registry", value)
        elif kind == "extensions" and isinstance(value, dict) and any(map(_is_extension, value.values())):
            yield _place(name, "extensions", value)
        elif kind == "mcp" and isinstance(value, dict):
            inner = next((one for one in ("servers", "mcpServers") if isinstance(value.get(one), dict)), None)
            if inner is not None:
                yield _place(f"{name}.{inner}", "mcp.servers" if inner == "servers" else inner, value[inner])
            elif value and any(map(_is_server, value.values())):
                yield _place(name, "mcp", {key: one for key, one in value.items() if isinstance(one, dict)})


def _place(key: str, kind: str, value: object) -> Place:
    """Returns the place at `key`. A value of another type is one server without a name, whose reading says so."""
    if isinstance(value, dict):
        servers = tuple((str(name), f"{key}.{name}" if key else str(name), one) for name, one in value.items())
        return Place(key, kind, servers)
    if isinstance(value, list):
        named = ((one.get("name", one.get("id")) if isinstance(one, dict) else None) for one in value)
        names = (name if isinstance(name, str) else f"server-{i + 1}" for i, name in enumerate(named))
        return Place(
            key,
            f"{kind}[]",
            tuple((name, f"{key}[{i}]", one) for i, (name, one) in enumerate(zip(names, value, strict=True))),
        )
    return Place(key, kind, (("", key, value),))


def _flat(document: Mapping[object, object], own_keys: Mapping[str, object]) -> Iterator[Place]:
    """Yields the document itself, if each of its values is a server."""
    rest = {name: value for name, value in document.items() if name not in own_keys}
    if rest and all(isinstance(value, dict) and _has_way(value) for value in rest.values()):
        yield _place("", "", rest)


def _is_server(value: object) -> bool:
    return isinstance(value, dict) and (_has_way(value) or not value.keys().isdisjoint(_TYPES))


def _is_extension(value: object) -> bool:
    """True for an extension of Goose, which has a type."""
    return isinstance(value, dict) and isinstance(value.get("type"), str) and plain(value["type"]) in _OF_GOOSE


def _has_way(value: Mapping[object, object]) -> bool:
    rows = (key_of(name) for name in value if isinstance(name, str))
    return any(row is not None and row.meaning in _WAYS for row in rows)


def _is_map_of_servers(value: object) -> bool:
    """True for servers by name. Those of our own form have `upstream`, and stand in a list."""
    if not isinstance(value, dict):
        return False
    return not any(isinstance(one, dict) and "upstream" in one for one in value.values())


def _is_catalog(value: object) -> bool:
    """True for a Docker catalog that is a list. The entries of ours have `upstream`."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(one, dict) and "upstream" not in one and not one.keys().isdisjoint(("image", "remote"))
            for one in value
        )
    )


def _score(client: Client, document: Mapping[object, object], places: tuple[Place, ...], path: str) -> int:
    servers = [value for place in places for _, _, value in place.servers if isinstance(value, dict)]
    top = {plain(name) for name in document if isinstance(name, str)}
    names = {plain(name) for server in servers for name in server if isinstance(name, str)}
    score = _WEIGHTS["top"] * sum(plain(name) in top for name in client.top_keys)
    score += _WEIGHTS["server"] * sum(plain(name) in names for name in client.server_keys)
    if client.texts and any(re.search(client.texts, text) for server in servers for text in _texts(server)):
        score += _WEIGHTS["text"]
    if any(_ends_with(path, end) for end in client.files):
        score += _WEIGHTS["file"]
    return score


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)) and depth < 4:  # a document may hold itself
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item, depth + 1)


def _ends_with(path: str, end: str) -> bool:
    parts, ends = PurePosixPath(path).parts, PurePosixPath(end).parts
    tail = parts[-len(ends) :]
    return len(tail) == len(ends) and all(map(fnmatchcase, tail, ends))


def _workspace(path: str) -> str:
    """Returns the folder that relative paths of the file start from.

    That is the folder with `.vscode` for a file in that folder, and likewise for those of other clients.
    """
    for client in CLIENTS:
        for end in client.files:
            folders = len(PurePosixPath(end).parts)
            if end.startswith(".") and folders > 1 and _ends_with(path, f"{PurePosixPath(end).parent}/*"):
                return str(PurePosixPath(*PurePosixPath(path).parts[:-folders]))
    return str(PurePosixPath(path).parent)
