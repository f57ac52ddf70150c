"""Tests of official SDKs as clients and as servers, directly and through Isthmus.

One server, written on each SDK (peers/README.md), is visited by one client, written on each SDK, which uses every
feature in one run and prints what it saw. The result is the same for all pairs, except for the revision that they agree
on and the code of a resource that does not exist. The tables below hold those differences.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from rig import PEERS, PYTHON_1, PYTHON_2, REAL, run_client, start_server, stdio_wrap, wrap

pytestmark = pytest.mark.real

WORKERS: Final = 2
"""The number of visits at once. With more, servers start so slowly on a busy machine that a client gives up after its
10 s."""

# --- Peers ----------------------------------------------------------------------------------------------------------

HANDSHAKE: Final = "2025-11-25"
STATELESS: Final = "2026-07-28"
"""The newest revision of each era, on which all peers of the era agree."""


class Visitor(NamedTuple):
    """A client.

    Attributes:
        revisions: the revisions that it speaks, best first.
        session: the session in its plan.
        miss: the code of a missing resource that its user sees, if its SDK replaces the server's.
    """

    script: str
    revisions: Sequence[str]
    session: Mapping[str, Any]
    miss: int | None = None


class Workshop(NamedTuple):
    """A server.

    Attributes:
        command: its program and arguments. A transport follows, and then `arguments`.
        revisions: the revisions that it speaks.
        miss: its code of a missing resource in handshake revisions.
    """

    command: Sequence[str | Path]
    revisions: Sequence[str]
    miss: int
    arguments: Sequence[str] = ()


BY_URI: Final = -32002
"""The code of a missing resource in handshake revisions."""
BY_PARAMS: Final = -32602
"""The code of a missing resource in 2026-07-28: a parameter is wrong."""

VISITORS: Final = {
    "python-1": Visitor("visit-python-1", [HANDSHAKE], {}),
    "python-2-legacy": Visitor("visit-python-2", [HANDSHAKE], {"mode": "legacy"}),
    "python-2": Visitor("visit-python-2", [STATELESS, HANDSHAKE], {"mode": "auto"}),
    "typescript-1": Visitor("visit-typescript-1", [HANDSHAKE], {}),
    "typescript-2-legacy": Visitor("visit-typescript-2", [HANDSHAKE], {"mode": "legacy"}, miss=BY_PARAMS),
    "typescript-2": Visitor("visit-typescript-2", [STATELESS, HANDSHAKE], {"mode": "auto"}, miss=BY_PARAMS),
}

_TYPESCRIPT_2: Final = ("node", PEERS / "workshop_typescript2.mjs", REAL / "node2/node_modules")
WORKSHOPS: Final = {
    "python-1": Workshop([PYTHON_1, PEERS / "workshop_python1.py"], [HANDSHAKE], BY_URI),
    "python-2": Workshop([PYTHON_2, PEERS / "workshop_python2.py"], [STATELESS, HANDSHAKE], BY_PARAMS),
    "typescript-1": Workshop(
        ["node", PEERS / "workshop_typescript1.mjs", REAL / "node/node_modules"], [HANDSHAKE], BY_URI
    ),
    "typescript-2-legacy": Workshop(_TYPESCRIPT_2, [HANDSHAKE], BY_PARAMS, ["legacy"]),
    "typescript-2-modern": Workshop(_TYPESCRIPT_2, [STATELESS], BY_PARAMS, ["modern"]),
    "typescript-2-dual": Workshop(_TYPESCRIPT_2, [STATELESS, HANDSHAKE], BY_PARAMS, ["dual"]),
}

# --- Revisions of the proxy -----------------------------------------------------------------------------------------

TO_CLIENTS: Final = (STATELESS, HANDSHAKE)
TO_SERVERS: Final = (STATELESS, HANDSHAKE)
"""The revisions that Isthmus speaks on either side. A client and a server that have none of them in common with it
cannot meet through it. That is expected to fail, and a success is an error."""

# --- Expected results -----------------------------------------------------------------------------------------------

SEEN: Final[Mapping[str, Any]] = {
    "server": "workshop",
    "tools": ["echo", "form", "sample", "where", "count", "log", "change"],
    "echo": "snow \u2603",
    "form": "accept blue",
    "sample": "the model said canned",
    "where": "file:///tmp/somewhere",
    "count": "counted to 2",
    "log": "logged",
    "read": "the first note",
    "prompt": "Hello, Ada!",
    "complete": ["Ada", "Alan"],
    "change": "changed",
    "asked": ["Which colour?", "well?", "roots"],
    "progress": [[1, 2], [2, 2]],
    "logs": ["noted"],
    "changes": ["note://one", "tools"],
}
"""The expected result, apart from `revision` and `missing`."""


def common(best_first: Sequence[str], others: Sequence[str]) -> str | None:
    """Returns the revision that a client and a server agree on."""
    return next((revision for revision in best_first if revision in others), None)


def misses(visitor: Visitor, workshop: Workshop, is_proxied: bool) -> set[int]:
    """Returns the codes by which the client may learn that a resource is missing.

    A proxy may talk to a server of both eras in either one, whatever the client speaks.
    """
    if visitor.miss is not None:
        return {visitor.miss}
    if not is_proxied:
        agreed = common(visitor.revisions, workshop.revisions)
        return {workshop.miss if agreed == HANDSHAKE else BY_PARAMS}
    if common(visitor.revisions, TO_CLIENTS) == STATELESS:
        return {BY_PARAMS}  # -32002 must not be emitted in this revision
    codes = {HANDSHAKE: workshop.miss, STATELESS: BY_URI}  # the bridge translates the code of a server in 2026-07-28
    return {codes[revision] for revision in workshop.revisions if revision in TO_SERVERS}


# --- Visits ---------------------------------------------------------------------------------------------------------

WAYS: Final = ("direct-http", "direct-stdio", "http", "stdio")
"""The last two go through Isthmus, with the same transport on both sides."""

Visit = tuple[str, str, str]
"""Way, client, server."""


def can_meet(way: str, client: str, server: str) -> bool:
    visitor, workshop = VISITORS[client], WORKSHOPS[server]
    if way.startswith("direct"):
        return common(visitor.revisions, workshop.revisions) is not None
    return None not in (common(visitor.revisions, TO_CLIENTS), common(TO_SERVERS, workshop.revisions))


MEETINGS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "direct-http": (("typescript-2", "typescript-2-dual"),),
    "direct-stdio": (("typescript-1", "typescript-1"),),
    "http": (
        ("python-1", "typescript-2-modern"),
        ("python-2-legacy", "typescript-1"),
        ("python-2", "typescript-2-legacy"),
        ("typescript-1", "python-2"),
        ("typescript-2-legacy", "python-1"),
        ("typescript-2", "typescript-2-dual"),
    ),
    "stdio": (
        ("python-1", "python-2"),
        ("typescript-1", "python-1"),
        ("typescript-2", "typescript-2-legacy"),
        ("typescript-2", "typescript-2-modern"),
    ),
}
"""The visits without THOROUGH, with which they take minutes. The last test states what these must cover. A client that
probes for the revision meets no slow server over stdio, as it waits 10 s at most for a process to start."""


def visits() -> list[Visit]:
    """Returns the visits of `MEETINGS`, or, with THOROUGH set, all.

    Direct ones are limited then: over HTTP to peers of one language, over stdio to peers of one SDK.
    """
    if not os.environ.get("THOROUGH"):
        return [(way, client, server) for way, pairs in MEETINGS.items() for client, server in pairs]
    found = []
    for way, client, server in itertools.product(WAYS, VISITORS, WORKSHOPS):
        is_wanted = can_meet(way, client, server)
        depth = {"direct-http": 1, "direct-stdio": 2}.get(way, 0)
        if is_wanted and client.split("-")[:depth] == server.split("-")[:depth]:
            found.append((way, client, server))
    return found


class Book:
    """The results of all visits. The visits are made at the same time, in order. A server is up once a visit needs
    it."""

    def __init__(self, pool: ThreadPoolExecutor, folder: Path, stack: contextlib.ExitStack) -> None:
        self._folder = folder
        urls = {server: pool.submit(self._start, server, stack) for server in WORKSHOPS}
        self._visits = {visit: pool.submit(self._visit, visit, urls[visit[2]]) for visit in visits()}

    def entry(self, visit: Visit) -> dict[str, Any]:
        return self._visits[visit].result()

    def _start(self, server: str, stack: contextlib.ExitStack) -> Mapping[str, str]:
        """Starts the server over HTTP, and Isthmus in front of it. Returns their URLs."""
        workshop = WORKSHOPS[server]
        process, url = start_server([*workshop.command, "http", *workshop.arguments], "mcp", folder=self._folder)
        stack.callback(process.clean_up)
        proxy = stack.enter_context(wrap(url, folder=self._folder))
        return {"direct-http": url, "http": proxy.url}

    def _visit(self, visit: Visit, urls: Future[Mapping[str, str]]) -> dict[str, Any]:
        way, client, server = visit
        workshop = WORKSHOPS[server]
        command = [str(part) for part in (*workshop.command, "stdio", *workshop.arguments)]
        target = {"direct-stdio": command, "stdio": stdio_wrap(*command)}.get(way) or urls.result()[way]
        visitor = VISITORS[client]
        return run_client(visitor.script, target, [visitor.session], folder=self._folder)[0]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Book]:
    with contextlib.ExitStack() as stack:
        # The pool ends first, so that no visit is under way when the servers go.
        servers = stack.enter_context(contextlib.ExitStack())
        pool = stack.enter_context(ThreadPoolExecutor(WORKERS))
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        yield Book(pool, tmp_path_factory.mktemp("pairs"), servers)


@pytest.mark.parametrize("visit", visits(), ids="--".join)
def test_a_client_sees_all_features_of_the_workshop(book: Book, visit: Visit) -> None:
    """Every feature arrives, once and in order, with any client and server and in any revision."""
    way, client, server = visit
    is_proxied = not way.startswith("direct")
    visitor, workshop = VISITORS[client], WORKSHOPS[server]
    seen = dict(book.entry(visit))
    assert seen.pop("revision") == common(visitor.revisions, TO_CLIENTS if is_proxied else workshop.revisions)
    assert seen.pop("missing")["code"] in misses(visitor, workshop, is_proxied)
    assert seen == SEEN


def test_the_tables_cover_every_peer() -> None:
    """Each client meets a server, and each server a client, through Isthmus, and so does each pair of eras. Each way is
    used.

    The eras of a client are the one it wants. Those of a server are the one, the other, and both.
    """
    assert {way for way, *_ in visits()} == set(WAYS)
    through = [(client, server) for way, client, server in visits() if not way.startswith("direct")]
    assert {client for client, _ in through} == set(VISITORS)
    assert {server for _, server in through} == set(WORKSHOPS)
    eras = {(VISITORS[client].revisions[0], tuple(WORKSHOPS[server].revisions)) for client, server in through}
    assert len(eras) == 6
