"""Any message of a server or a client: names and URIs in it are mapped there and back, and nothing else changes.

The first byte says which message the rest is: a list, another result, a message of a server, or a request of a client.
Accepted outcomes: `RemoteProtocolError`, for lists and requests; the very same bytes; or JSON of the same shape, to an
independent reader, in which only strings differ. Of a server's message each of those is read back as what it was, with
its server; of a client's request there is one, and it is what its server has. A list has its entries in order, some
left out, each with the id of the server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.jsonrpc.envelope import number_of
from isthmus.core.profiles.aliases import Aliases
from isthmus.core.profiles.names import Names, Route, Shortened
from isthmus.core.profiles.rewriting import (
    CHAIN,
    CHAIN_MAX,
    LISTINGS,
    MESSAGES,
    NAMING,
    RESULTS,
    SERVER,
    Rewriter,
    Snapshot,
)
from isthmus.core.profiles.uris import Uris

ALIASES = Aliases({"alpha": "a", "files": ""})
NAMES = Names(ALIASES, {("alpha", "tools"): {"old": "new"}}, own=("search_tools",), longest=32)
URIS = Uris(ALIASES)
REWRITER = Rewriter(NAMES, URIS)


class Twice(dict[str, Any]):
    """An object that has a member twice."""


class Number(str):
    """A number as it was written."""


def parse(data: bytes) -> Any:
    def whole(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return (dict if len({key for key, _ in pairs}) == len(pairs) else Twice)(pairs)

    return json.loads(
        data.decode(), object_pairs_hook=whole, parse_int=Number, parse_float=Number, parse_constant=Number
    )


def changes(before: Any, after: Any) -> Iterator[tuple[str, str]]:
    """Yields the strings that differ between two values of the same shape."""
    assert type(before) is type(after)
    if isinstance(before, dict):
        assert list(before) == list(after)
        before, after = list(before.values()), list(after.values())
    if isinstance(before, list):
        assert len(before) == len(after)
        for one, other in zip(before, after, strict=True):
            yield from changes(one, other)
    elif type(before) is str and before != after:
        yield before, after
    else:
        assert before == after


def check_back(server: str, method: str, raw: str, exposed: str) -> None:
    """Checks that what clients see is read as what the server said."""
    kind = {"tools/list": "tools", "prompts/list": "prompts"}.get(method)
    if URIS.route(exposed) == Route(server, raw):
        return
    assert kind == "tools" or kind == "prompts"
    found = NAMES.route(kind, exposed)
    if isinstance(found, Shortened):
        assert NAMES.catalogue(server, kind, [raw]) == {exposed: raw}
    else:
        assert found == Route(server, raw)


def exposed(server: str, method: str, raw: str) -> str:
    match method:
        case "tools/list":
            return NAMES.expose(server, "tools", raw)
        case "prompts/list":
            return NAMES.expose(server, "prompts", raw)
        case "resources/list":
            return URIS.expose(server, raw)
    return URIS.expose_template(server, raw)


def check_list(server: str, method: str, data: bytes) -> None:
    after = REWRITER.result(server, method, data)
    if after is data:
        return
    array, key = LISTINGS[method].array, LISTINGS[method].name.path[0]
    old, new = parse(data), parse(after)
    entries, seen = iter(old.pop(array)), set()
    for entry in new.pop(array):
        assert entry[key] not in seen
        seen.add(entry[key])
        source = next(one for one in entries if shown_as(server, method, one, key) == entry[key])
        assert entry["_meta"].pop(SERVER) == server
        if source.get("_meta") is None:
            assert entry.pop("_meta") == {}
            source.pop("_meta", None)
        elif SERVER in source["_meta"]:
            assert entry["_meta"].pop(CHAIN) == str(passed(source["_meta"]))
            source["_meta"].pop(CHAIN, None)
            source["_meta"].pop(SERVER)
        for raw, shown in changes(source, entry):
            check_back(server, method, raw, shown)
    assert list(changes(old, new)) == []


def passed(meta: dict[str, Any]) -> int:
    """Returns how many profiles an entry has come through, with this one."""
    given = meta.get(CHAIN)
    return 1 + ((number_of(given.encode()) if type(given) is Number else None) or 0)


def shown_as(server: str, method: str, entry: Any, key: str) -> str | None:
    """Returns what an entry is called; None if it can be left out."""
    name = entry.get(key) if type(entry) is dict else None
    if type(name) is not str or re.search("[\ud800-\udfff]", name):
        return None
    meta = entry.get("_meta")
    if type(meta) is dict and SERVER in meta and passed(meta) > CHAIN_MAX:
        return None
    is_ambiguous = any(one not in (key, "_meta") and one.casefold() in (key.casefold(), "_meta") for one in entry)
    return (
        None
        if is_ambiguous or type(entry.get("_meta", {})) not in (dict, type(None))
        else exposed(server, method, name)
    )


def check_result(server: str, method: str, data: bytes) -> None:
    check_same(server, method, data, REWRITER.result(server, method, data))


def check_message(server: str, method: str, data: bytes) -> None:
    check_same(server, method, data, REWRITER.message(server, method, data))


def check_same(server: str, method: str, before: bytes, after: bytes) -> None:
    if after is not before:
        for raw, shown in changes(parse(before), parse(after)):
            check_back(server, method, raw, shown)


def check_request(server: str, method: str, data: bytes) -> None:
    names = NAMES.catalogue(server, "tools", ("x" * 99, "read file"))
    found = REWRITER.address(method, data, {server: Snapshot(names, {}, {"memo:x"})})
    if found is not None:
        assert [new for _, new in changes(parse(data), parse(found.params))] in ([], [found.raw])


CHECKS = (
    *((check_list, method) for method in LISTINGS),
    *((check_result, method) for method in RESULTS),
    *((check_message, method) for method in MESSAGES),
    *((check_request, method) for method in sorted(NAMING)),
)


def test_one_input(data: bytes) -> None:
    check, method = CHECKS[(data[0] if data else 0) % len(CHECKS)]
    server = ("alpha", "files")[len(data) % 2]
    try:
        check(server, method, data[1:].decode(errors="replace").encode())
    except RemoteProtocolError as error:
        assert check in (check_list, check_request)
        assert error.message
