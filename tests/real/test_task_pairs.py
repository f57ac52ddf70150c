"""Clients that know tasks meet servers that have them, directly and through Isthmus, whatever their era.

One server, written on each library that has tasks (peers/README.md), is visited by one client, written on each of
them, that creates tasks, sees them through, answers what they ask, cancels one, leaves another one behind and does some
things wrong. What it sees depends on the era it speaks alone; the tables below say how. So a client of 2025-11-25 uses
tasks of the extension of 2026-07-28, and the other way round; one that knows no tasks gets the results of tools that
are nothing else.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from rig import (
    CLIENT_COMMANDS,
    EVERYTHING,
    PEERS,
    PYTHON_1,
    PYTHON_2,
    REAL,
    Process,
    new_tag,
    require,
    run_client,
    serve,
    start_server,
    stdio_wrap,
    until,
)

pytestmark = pytest.mark.real

WORKERS: Final = 2
"""Visits at once. More would have a server start so slowly on a busy machine that who waits 10 s for it gives up."""

# --- Who meets ------------------------------------------------------------------------------------------------------

LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"
"""The revision whose own tasks these are; and the one with the extension."""


class Peer(NamedTuple):
    """A client or a server.

    Attributes:
        era: the revision in which it has tasks.
        command: of a server: its program and arguments, behind which go a file for its marks, and a transport.
    """

    era: str
    command: Sequence[str | Path] = ()


CLIENTS: Final = {
    "typescript-1": Peer(LEGACY),
    "python-1": Peer(LEGACY),
    "fastmcp": Peer(MODERN),
    "raw": Peer(MODERN),
}
SERVERS: Final = {
    "typescript-1": Peer(LEGACY, ["node", PEERS / "tasks_typescript1.mjs", REAL / "node/node_modules"]),
    "python-1": Peer(LEGACY, [PYTHON_1, PEERS / "tasks_python1.py"]),
    "fastmcp": Peer(MODERN, [PYTHON_2, PEERS / "tasks_fastmcp.py"]),
}
WAYS: Final = ("direct-http", "direct-stdio", "http", "stdio")
"""The last two through Isthmus, with the same transport on both sides."""

Visit = tuple[str, str, str]
"""Way, client, server."""


MEETINGS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "stdio": (
        ("typescript-1", "fastmcp"),
        ("python-1", "python-1"),
    ),
    "direct-stdio": (("typescript-1", "typescript-1"),),
    "direct-http": (("raw", "fastmcp"),),
    "http": (
        ("typescript-1", "fastmcp"),
        ("python-1", "typescript-1"),
        ("fastmcp", "python-1"),
        ("raw", "fastmcp"),
        ("raw", "typescript-1"),
    ),
}
"""Who meets unless THOROUGH is set: each client, each server, and through Isthmus each two eras over HTTP. What starts
processes that start slowly begins first, when there is least to wait for."""


def visits() -> list[Visit]:
    """Those of `MEETINGS`, or, if THOROUGH is set, all that can meet.

    Of these, directly those of one era over HTTP, and over stdio those of one library that starts in no time. The raw
    client knows HTTP alone, and FastMCP's does not wait as long as a FastMCP server takes to start.
    """
    if not os.environ.get("THOROUGH"):
        return [(way, client, server) for way, pairs in MEETINGS.items() for client, server in pairs]
    found = []
    for way, client, server in itertools.product(WAYS, CLIENTS, SERVERS):
        is_wanted = {
            "direct-http": CLIENTS[client].era == SERVERS[server].era,
            "direct-stdio": client == server != "fastmcp",
            "stdio": client != "raw" and not client == server == "fastmcp",
        }.get(way, True)
        if is_wanted:
            found.append((way, client, server))
    return found


# --- What they see --------------------------------------------------------------------------------------------------

OFFERS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "typescript-1": {"plain": "forbidden", "quick": "optional"},
    "python-1": {"plain": None, "quick": "optional"},
}
"""What servers of 2025-11-25 say of their tools' tasks; all others are required."""
TOOLS: Final = ("plain", "quick", "must", "asks", "slow", "fails", "breaks")

BROKEN: Final = {
    "typescript-1": {"code": -32603},
    "python-1": "nothing",  # that library finishes it with no result and no error either
    "fastmcp": {"code": 4001},
}
"""What came of a task that failed without a result. Through Isthmus it is an error with any server."""

SEEN: Final[Mapping[str, Any]] = {
    "plain": "plain",
    "quick": ["working", "completed", "quick"],
    "must": ["working", "completed", "must"],
    "asks": "hello Ada",
    "asked": ["Who?"],
    "again": True,
    "working": "working",
}
SEEN_BY: Final[Mapping[str, Mapping[str, Any]]] = {
    LEGACY: {
        "related": True,
        "cancel": "cancelled",
        "cancelled": ["cancelled", {"code": -32603}],
        "late": {"code": -32602},
        "unknown": {"code": -32602},
        "listed": 6,
    },
    "fastmcp": {
        "related": False,
        "cancel": "cancelled",
        "cancelled": "cancelled",
        "unknown": {"code": -32602},
    },
    "raw": {
        "discover": True,
        "related": False,
        "listens": True,
        "heard": "cancelled",
        "cancel": ["resultType"],
        "cancelled": "cancelled",
        "late": None,
        "unknown": [-32602, -32602],
        "undeclared": [-32021, True],
        "misnamed": -32020,
        "gone": [-32601, -32601],
    },
}


def offers(client: str, server: str) -> Mapping[str, Any]:
    """What is said of each tool in the list that this client gets."""
    if client == "raw":
        return dict.fromkeys(TOOLS, False)
    if CLIENTS[client].era == MODERN:
        return dict.fromkeys(TOOLS, None)
    if SERVERS[server].era == MODERN:
        return dict.fromkeys(TOOLS, "optional")
    return dict.fromkeys(TOOLS, "required") | OFFERS[server]


def expected(way: str, client: str, server: str) -> dict[str, Any]:
    """What is seen on this visit, apart from `breaks`."""
    era = CLIENTS[client].era
    seen = {**SEEN, **SEEN_BY[era if era == LEGACY else client]}
    seen["offers"] = offers(client, server)
    status = "failed" if era == LEGACY else "completed"
    seen["fails"] = [status, "error: it failed"]
    if way.startswith("direct"):
        if server == "python-1":  # that library has not heard of tools that fail, or of results of what is cancelled
            seen["fails"] = ["completed", "error: it failed"]
            seen["cancelled"] = ["cancelled", "nothing"]
        if client == "raw":  # nor this one of listening to tasks
            seen["listens"] = False
            del seen["heard"]
    return seen


# --- Visits ---------------------------------------------------------------------------------------------------------


class Book:
    """What came of everything that is done here. It is all done at the same time, in the order of the tests.

    Attributes:
        marks: the file in which the servers say what their slow tools do, with the labels that they were given.
    """

    def __init__(
        self, pool: ThreadPoolExecutor, folder: Path, stack: contextlib.ExitStack, deeds: Sequence[Deed]
    ) -> None:
        self.folder = folder
        self.marks = folder / "marks"
        self.marks.touch()
        self._direct = {name: pool.submit(self._start, name, stack) for name in SERVERS}
        self._proxy = pool.submit(self._stand_between, stack)
        self._entries = {deed: pool.submit(deed[0], self, *deed[1:]) for deed in deeds}

    def entry(self, *deed: Any) -> Any:
        return self._entries[deed].result()

    def command(self, server: str, transport: str = "stdio") -> list[str]:
        return [str(part) for part in (*SERVERS[server].command, self.marks, transport)]

    def wait_mark(self, line: str) -> None:
        """Until a server says so."""
        until(lambda: line in self.marks.read_text().splitlines(), line)

    def target(self, way: str, server: str) -> str | Sequence[str]:
        if way == "direct-stdio":
            return self.command(server)
        if way == "stdio":
            return between(*self.command(server))
        return self._direct[server].result() if way == "direct-http" else self._proxy.result()[server]

    def _start(self, server: str, stack: contextlib.ExitStack) -> str:
        command = self.command(server, "http")
        require(Path(command[1]))
        process, url = start_server(command, "mcp", folder=self.folder)
        stack.callback(process.clean_up)
        return url

    def _stand_between(self, stack: contextlib.ExitStack) -> Mapping[str, str]:
        """One Isthmus in front of all: where each server is served."""
        servers = [
            {"id": name, "upstream": {"url": url.result()}, "tasks": {"offer": "auto"}}
            for name, url in self._direct.items()
        ]
        config = self.folder / "isthmus.json"
        config.write_text(json.dumps({"core": {"port": 0}, "storage": {"root": "data"}, "servers": servers}))
        proxy = stack.enter_context(serve(config, folder=self.folder))
        return {name: proxy.url_of(name) for name in SERVERS}


Deed = tuple[Any, ...]
"""A function, called with the book and then with the others."""


def between(*command: str) -> list[str]:
    return stdio_wrap(*command, options=["--tasks", "auto"])


@pytest.fixture(scope="module")
def book(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Book]:
    here = [item for item in request.session.items if item.module is request.module]
    deeds = [item.callspec.params["deed"] for item in here]
    with contextlib.ExitStack() as stack:
        # The pool ends first: nobody is visited any more when the servers go.
        servers = stack.enter_context(contextlib.ExitStack())
        pool = stack.enter_context(ThreadPoolExecutor(WORKERS))
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        yield Book(pool, tmp_path_factory.mktemp("tasks"), servers, deeds)


def named(deed: Deed) -> str:
    return "--".join(deed[1:])


def visit(book: Book, way: str, client: str, server: str) -> dict[str, Any]:
    session = {"marks": str(book.marks), "label": f"{way}--{client}--{server}"}
    if way.startswith("direct") and server == "python-1":
        session |= {"task": {"ttl": 60_000}}  # that library leaves the ttl out where it is told none
    return run_client(f"tasks-{client}", book.target(way, server), [session], folder=book.folder)[0]


@pytest.mark.parametrize("deed", [(visit, *one) for one in visits()], ids=named)
def test_a_visitor_sees_all_tasks_through(book: Book, deed: Deed) -> None:
    """Whoever asks and whoever works, in whichever era: results, errors, questions and ends arrive as that era has it.

    The task that was cancelled is cancelled at the server, and so is the one whose client has left, if it was known to
    nobody else. (A client without a session may come back, and a server alone takes no notice.)
    """
    _, way, client, server = deed
    seen = dict(book.entry(*deed))
    status, broken = seen.pop("breaks")
    assert status == "failed"
    if way.startswith("direct") or server != "python-1":
        assert broken == BROKEN[server]
    else:
        assert broken == {"code": -32603}
    assert seen == expected(way, client, server)
    label = f"{way}--{client}--{server}"
    book.wait_mark(f"cancelled cancel {label}")
    if CLIENTS[client].era == LEGACY and not way.startswith("direct"):
        book.wait_mark(f"cancelled leave {label}")


def kill(book: Book, server: str) -> None:
    """Have a client begin a task and be gone, and wait until the server is told."""
    tag, label = new_tag(), f"killed {server}"
    plan = {
        "target": {"command": book.target("stdio", server), "env": {}},
        "sessions": [{"marks": str(book.marks), "label": label, "leave": True}],
        "node_modules": str(REAL / "node/node_modules"),
    }
    plan_file = book.folder / f"plan-{tag}.json"
    plan_file.write_text(json.dumps(plan))
    client = Process([*CLIENT_COMMANDS["tasks-typescript-1"], plan_file], folder=book.folder, tag=tag)
    try:
        book.wait_mark(f"started leave {label}")
        client.kill()
        book.wait_mark(f"cancelled leave {label}")
        client.assert_gone()
    finally:
        client.clean_up()


@pytest.mark.parametrize("deed", [(kill, "typescript-1")], ids=named)
def test_a_task_of_a_client_that_is_killed_is_cancelled(book: Book, deed: Deed) -> None:
    """Nobody can ask for it any more, and so nobody works on it any more."""
    book.entry(*deed)


# --- Clients without tasks ------------------------------------------------------------------------------------------

TASKLESS: Final[Mapping[str, Mapping[str, Any]]] = {
    "typescript-1": {},
    "python-2": {"mode": "legacy"},
    "python-2-modern": {"mode": MODERN},
}
CALLS: Final = ("must", "quick", "asks", "fails", "breaks")


def call(book: Book, client: str, server: str) -> list[dict[str, Any]]:
    steps = [{"op": "call", "name": name} for name in CALLS]
    session = {"capabilities": "all", "steps": steps, **TASKLESS[client]}
    return run_client(client.removesuffix("-modern"), book.target("http", server), [session], folder=book.folder)


CALLERS: Final = (
    ("typescript-1", "python-1"),
    ("python-2", "fastmcp"),
    ("python-2-modern", "typescript-1"),
)
"""Likewise: who calls whom unless THOROUGH is set."""


def callers() -> list[Deed]:
    pairs = itertools.product(TASKLESS, SERVERS) if os.environ.get("THOROUGH") else CALLERS
    return [(call, *pair) for pair in pairs]


@pytest.mark.parametrize("deed", callers(), ids=named)
def test_a_client_that_knows_no_tasks_gets_what_comes_of_them(book: Book, deed: Deed) -> None:
    """It is told of no task; a question in one is a question of its call."""
    said = book.entry(*deed)
    assert [line["params"]["message"] for line in said if line["kind"] == "asked"] == ["Who?"]
    *steps, breaks = (line for line in said if line["kind"] == "step")
    results = [step["result"] for step in steps]
    assert [result["content"][0]["text"] for result in results] == ["must", "quick", "hello canned", "it failed"]
    assert [result.get("isError", False) for result in results] == [False, False, False, True]
    assert {result.get("resultType", "complete") for result in results} == {"complete"}
    assert isinstance(breaks["error"]["code"], int)


# --- A server that is on its own ------------------------------------------------------------------------------------

RESEARCH: Final = {"name": "simulate-research-query", "arguments": {"topic": "python", "ambiguous": True}}


def research(book: Book, way: str, op: str) -> list[dict[str, Any]]:
    """By a client that makes a task of it, or, with another `op` and an SDK that has no tasks, without."""
    command = [str(require(EVERYTHING)), "stdio"]
    target = command if way == "direct" else between(*command)
    session = {"capabilities": "all", "mode": MODERN, "steps": [{"op": op, **RESEARCH}]}
    return run_client("typescript-1" if op == "task" else "python-2", target, [session], folder=book.folder)


@pytest.mark.parametrize("deed", [(research, "direct", "task"), (research, "through", "task")], ids=named)
def test_research_asks_what_is_meant_and_reports(book: Book, deed: Deed) -> None:
    """The task of the everything server, which takes four seconds, asks in the middle and says where it is."""
    said = book.entry(*deed)
    (step,) = (line for line in said if line["kind"] == "step")
    seen = dict(step["result"])
    assert "python (programming)" in seen.pop("result")["content"][0]["text"]
    assert seen == {"neededInput": True, "created": "working", "final": "completed", "isListed": True}
    assert [line["method"] for line in said if line["kind"] == "asked"].count("elicitation/create") == 1


@pytest.mark.parametrize("deed", [(research, "through", "call")], ids=named)
def test_research_is_done_for_a_client_that_knows_no_tasks(book: Book, deed: Deed) -> None:
    """It gets the report, and the question on the way."""
    (step,) = (line for line in book.entry(*deed) if line["kind"] == "step")
    assert "python (programming)" in step["result"]["content"][0]["text"]
