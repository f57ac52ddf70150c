"""Tests of clients and servers with tasks, directly and through Isthmus, in each pair of eras.

One server, written on each library that has tasks (peers/README.md), is visited by one client, written on each of them,
which creates tasks, follows them, answers their questions, cancels one, abandons one and makes some mistakes. The
result depends on the client's era alone; the tables below say how. So a client of 2025-11-25 uses tasks of the
2026-07-28 extension, and the other way round. A client that knows no tasks gets results of tools that run only as
tasks.
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
"""The number of visits at once. With more, servers start so slowly on a busy machine that a client gives up after its
10 s."""

# --- Peers ----------------------------------------------------------------------------------------------------------

LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"
"""The revision with tasks of its own, and the one with the extension."""


class Peer(NamedTuple):
    """A client or a server.

    Attributes:
        era: the revision in which it has tasks.
        command: for a server, its program and arguments. The file for its marks and a transport follow.
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
WAYS: Final = ("direct-http", "direct-stdio", "http", "stdio", "profile")
"""The last three go through Isthmus, with the same transport on both sides: the last one over HTTP at a profile."""

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
        ("fastmcp", "python-1"),
        ("raw", "fastmcp"),
    ),
    "profile": (
        ("python-1", "typescript-1"),
        ("raw", "typescript-1"),
    ),
}
"""The visits without THOROUGH: each client, each server, and through Isthmus each pair of eras over HTTP, those with a
server of the handshake era at a profile. Visits with slow processes begin first, when there is least to wait for."""


def visits() -> list[Visit]:
    """Returns the visits of `MEETINGS`, or, with THOROUGH set, all that are possible.

    Direct ones are limited then: over HTTP to one era, over stdio to one library that starts fast. The raw client knows
    HTTP alone, and FastMCP's client does not wait as long as a FastMCP server takes to start.
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


# --- Expected results -----------------------------------------------------------------------------------------------

OFFERS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "typescript-1": {"plain": "forbidden", "quick": "optional"},
    "python-1": {"plain": None, "quick": "optional"},
}
"""The task support that servers of 2025-11-25 declare for their tools. All others require tasks."""
TOOLS: Final = ("plain", "quick", "must", "asks", "slow", "fails", "breaks")

BROKEN: Final = {
    "typescript-1": {"code": -32603},
    "python-1": "nothing",  # that library finishes it with neither result nor error
    "fastmcp": {"code": 4001},
}
"""The outcome of a task that failed without a result. Through Isthmus it is an error with any server."""

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
    """Returns the task support of each tool in the list that this client gets."""
    if client == "raw":
        return dict.fromkeys(TOOLS, False)
    if CLIENTS[client].era == MODERN:
        return dict.fromkeys(TOOLS, None)
    if SERVERS[server].era == MODERN:
        return dict.fromkeys(TOOLS, "optional")
    return dict.fromkeys(TOOLS, "required") | OFFERS[server]


def expected(way: str, client: str, server: str) -> dict[str, Any]:
    """Returns the expected result of a visit, apart from `breaks`."""
    era = CLIENTS[client].era
    seen = {**SEEN, **SEEN_BY[era if era == LEGACY else client]}
    seen["offers"] = offers(client, server)
    status = "failed" if era == LEGACY else "completed"
    seen["fails"] = [status, "error: it failed"]
    if way == "profile":
        seen["asked"] = [f"[{server}] Who?"]
    if way.startswith("direct"):
        if server == "python-1":  # that library knows neither tools that fail nor results of cancelled tasks
            seen["fails"] = ["completed", "error: it failed"]
            seen["cancelled"] = ["cancelled", "nothing"]
        if client == "raw":  # this client does not subscribe to tasks
            seen["listens"] = False
            del seen["heard"]
    return seen


# --- Visits ---------------------------------------------------------------------------------------------------------


class Book:
    """The results of everything that is done here. All of it is done at the same time, in the order of the tests.

    Attributes:
        marks: the file in which the servers note what their slow tools do, with the labels of the calls.
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
        """Waits until a server writes that line."""
        until(lambda: line in self.marks.read_text().splitlines(), line)

    def target(self, way: str, server: str) -> str | Sequence[str]:
        if way == "direct-stdio":
            return self.command(server)
        if way == "stdio":
            return between(*self.command(server))
        if way == "direct-http":
            return self._direct[server].result()
        return self._proxy.result()[profile_of(server) if way == "profile" else server]

    def _start(self, server: str, stack: contextlib.ExitStack) -> str:
        command = self.command(server, "http")
        require(Path(command[1]))
        process, url = start_server(command, "mcp", folder=self.folder)
        stack.callback(process.clean_up)
        return url

    def _stand_between(self, stack: contextlib.ExitStack) -> Mapping[str, str]:
        """Starts one Isthmus in front of all servers. Returns their URLs there."""
        servers = [
            {"id": name, "upstream": {"url": url.result()}, "tasks": {"offer": "auto"}}
            for name, url in self._direct.items()
        ]
        config = self.folder / "isthmus.json"
        profiles = [{"id": profile_of(name), "servers": [{"id": name, "alias": ""}]} for name in SERVERS]
        settings = {"core": {"port": 0}, "storage": {"root": "data"}, "servers": servers, "profiles": profiles}
        config.write_text(json.dumps(settings))
        proxy = stack.enter_context(serve(config, folder=self.folder))
        return {name: proxy.url_of(name) for name in (*SERVERS, *map(profile_of, SERVERS))}


def profile_of(server: str) -> str:
    """Returns the id of a profile with that server alone, whose tools have their own names there."""
    return f"only-{server}"


Deed = tuple[Any, ...]
"""A function and the arguments that follow the book."""


def between(*command: str) -> list[str]:
    return stdio_wrap(*command, options=["--tasks", "auto"])


@pytest.fixture(scope="module")
def book(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Book]:
    here = [item for item in request.session.items if item.module is request.module]
    deeds = [item.callspec.params["deed"] for item in here]
    with contextlib.ExitStack() as stack:
        # The pool ends first, so that no visit is under way when the servers go.
        servers = stack.enter_context(contextlib.ExitStack())
        pool = stack.enter_context(ThreadPoolExecutor(WORKERS))
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        yield Book(pool, tmp_path_factory.mktemp("tasks"), servers, deeds)


def named(deed: Deed) -> str:
    return "--".join(deed[1:])


def visit(book: Book, way: str, client: str, server: str) -> dict[str, Any]:
    session = {"marks": str(book.marks), "label": f"{way}--{client}--{server}"}
    if way.startswith("direct") and server == "python-1":
        session |= {"task": {"ttl": 60_000}}  # that library omits the ttl if it is given none
    return run_client(f"tasks-{client}", book.target(way, server), [session], folder=book.folder)[0]


@pytest.mark.parametrize("deed", [(visit, *one) for one in visits()], ids=named)
def test_a_client_follows_all_tasks_to_their_end(book: Book, deed: Deed) -> None:
    """Results, errors, questions and ends of tasks arrive in the form of the client's era, with any client and server.

    The cancelled task is cancelled at the server. So is the task of the client that has left, unless another client may
    know it. (A client without a session may come back, and a server alone takes no notice.)
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
    """Lets a client begin a task and end, and waits until the server is notified."""
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
    """No other client can ask for the task, so the server stops its work."""
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
"""The calls without THOROUGH."""


def callers() -> list[Deed]:
    pairs = itertools.product(TASKLESS, SERVERS) if os.environ.get("THOROUGH") else CALLERS
    return [(call, *pair) for pair in pairs]


@pytest.mark.parametrize("deed", callers(), ids=named)
def test_a_client_without_tasks_gets_their_results(book: Book, deed: Deed) -> None:
    """The client sees no task. A question of the task is a question of its call."""
    lines = book.entry(*deed)
    assert [line["params"]["message"] for line in lines if line["kind"] == "asked"] == ["Who?"]
    *steps, breaks = (line for line in lines if line["kind"] == "step")
    results = [step["result"] for step in steps]
    assert [result["content"][0]["text"] for result in results] == ["must", "quick", "hello canned", "it failed"]
    assert [result.get("isError", False) for result in results] == [False, False, False, True]
    assert {result.get("resultType", "complete") for result in results} == {"complete"}
    assert isinstance(breaks["error"]["code"], int)


# --- The everything server ------------------------------------------------------------------------------------------

RESEARCH: Final = {"name": "simulate-research-query", "arguments": {"topic": "python", "ambiguous": True}}


def research(book: Book, way: str, op: str) -> list[dict[str, Any]]:
    """Runs the research tool as a task, or, with another `op` and an SDK that has no tasks, without one."""
    command = [str(require(EVERYTHING)), "stdio"]
    target = command if way == "direct" else between(*command)
    session = {"capabilities": "all", "mode": MODERN, "steps": [{"op": op, **RESEARCH}]}
    return run_client("typescript-1" if op == "task" else "python-2", target, [session], folder=book.folder)


@pytest.mark.parametrize("deed", [(research, "direct", "task"), (research, "through", "task")], ids=named)
def test_research_asks_a_question_and_reports(book: Book, deed: Deed) -> None:
    """The task of the everything server takes four seconds, asks in the middle and reports its stage."""
    lines = book.entry(*deed)
    (step,) = (line for line in lines if line["kind"] == "step")
    seen = dict(step["result"])
    assert "python (programming)" in seen.pop("result")["content"][0]["text"]
    assert seen == {"neededInput": True, "created": "working", "final": "completed", "isListed": True}
    assert [line["method"] for line in lines if line["kind"] == "asked"].count("elicitation/create") == 1


@pytest.mark.parametrize("deed", [(research, "through", "call")], ids=named)
def test_research_is_done_for_a_client_that_knows_no_tasks(book: Book, deed: Deed) -> None:
    """The client gets the report, and the question before it."""
    (step,) = (line for line in book.entry(*deed) if line["kind"] == "step")
    assert "python (programming)" in step["result"]["content"][0]["text"]
