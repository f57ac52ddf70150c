"""The cells of the era tests: a client, a server and a transport, directly or through one proxy that serves all, where
the client uses the server's own path or a profile of that server alone.

A cell carries out all scenarios once, with one client. Tests look at the result. Each scripted server speaks one
revision. Over HTTP one process serves all cells, over stdio each client has its own.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from abilities import ABILITIES, REVISIONS
from checked_engine import Blame
from isthmus.core.oracle.wires import Wire, read_trace
from raw_clients import Client, PipeClient, SocketClient, SseClient
from rig import Proxy, launched, serve
from scenarios import SCENARIOS, Conversation, Pair
from scripted_client import ReceivedFrame
from wires import SessionHttpClient, StatelessHttpClient, UnixClient

SERVER: Final = Path(__file__).resolve().parent / "scripted_server.py"
TRANSPORTS: Final = ("stdio", "http")
PAIRS: Final = [Pair(client, server) for client, server in itertools.product(REVISIONS, REVISIONS)]
"""Client and server."""

BRIDGED: Final = PAIRS
"""The pairs that are tested through the proxy."""


class Cell(NamedTuple):
    """A client, a server, and the way from one to the other: `direct`, `through`, or `profile`."""

    pair: Pair
    transport: str
    way: str

    def __str__(self) -> str:
        return f"{self.pair.client}-{self.pair.server}-{self.transport}-{self.way}"


DIRECT: Final = [
    Cell(Pair(revision, revision), transport, "direct") for revision in REVISIONS for transport in TRANSPORTS
]
IS_THOROUGH: Final = bool(os.environ.get("THOROUGH"))


def is_over(pair: Pair, transport: str) -> bool:
    """True if the pair meets over this transport. Each pair meets over one, each revision over both on either side."""
    is_pipe = (REVISIONS.index(pair.client) + 2 * REVISIONS.index(pair.server)) % len(REVISIONS) in (0, 1)
    return IS_THOROUGH or is_pipe == (transport == "stdio")


PROXIED: Final = [
    Cell(pair, transport, "through") for transport in TRANSPORTS for pair in BRIDGED if is_over(pair, transport)
]
IN_SHORT: Final = {
    (Pair("2026-07-28", "2026-07-28"), "stdio"),
    (Pair("2026-07-28", "2025-11-25"), "http"),
    (Pair("2025-11-25", "2026-07-28"), "stdio"),
    (Pair("2025-11-25", "2025-11-25"), "http"),
    (Pair("2024-11-05", "2025-06-18"), "http"),
}
"""The cells through a profile without THOROUGH, a tenth of all: each pair of eras, and HTTP+SSE."""

PROFILED: Final = [
    Cell(pair, transport, "profile")
    for transport in TRANSPORTS
    for pair in BRIDGED
    if IS_THOROUGH or (pair, transport) in IN_SHORT
]
CELLS: Final = [*DIRECT, *PROXIED, *PROFILED]


class Broken(NamedTuple):
    """A scenario that did not finish: the traceback as text."""

    trace: str


class Record(NamedTuple):
    """The result of a cell.

    Attributes:
        outcomes: the result of each scenario, or `Broken`.
        client: the frames that the client received.
        server: the frames that the server received.
    """

    outcomes: dict[str, object]
    client: list[ReceivedFrame]
    server: list[ReceivedFrame]


class Records:
    """All records, each made when it is first needed."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.trace = folder / "trace.jsonl"
        self._frames_folder = folder / "heard"
        self._frames_folder.mkdir()
        self._sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eras-")))
        self._urls: dict[str, str] = {}
        self._proxies: list[Proxy] = []
        self._made: dict[Cell, Record] = {}

    def get(self, cell: Cell) -> Record:
        if cell not in self._made:
            self._made[cell] = self._record(cell)
        return self._made[cell]

    def _record(self, cell: Cell) -> Record:
        before = self._sizes()
        outcomes: dict[str, object] = {}
        try:
            wire = self._wire(cell)
        except Exception:
            return Record(dict.fromkeys(SCENARIOS, Broken(traceback.format_exc())), [], [])
        talk = Conversation(cell.pair.client, wire)
        try:
            talk.greet()
            for name, scenario in SCENARIOS.items():
                try:
                    outcomes[name] = scenario.act(talk)
                except Exception:
                    outcomes[name] = Broken(traceback.format_exc())
        except Exception:
            outcomes = dict.fromkeys(SCENARIOS, Broken(traceback.format_exc()))
        finally:
            try:
                wire.close()
            except Exception:
                outcomes["rules_broken_towards_the_server"] = Broken(traceback.format_exc())
        return Record(outcomes, talk.received, list(self._received_by_server(cell, before)))

    # Frames that the servers noted

    def _sizes(self) -> dict[Path, int]:
        return {path: path.stat().st_size for path in self._frames_folder.iterdir()}

    def _received_by_server(self, cell: Cell, before: dict[Path, int]) -> Iterator[ReceivedFrame]:
        for path in sorted(self._frames_folder.glob(f"{cell.pair.server}-{cell.transport}-*.jsonl")):
            with path.open("rb") as file:
                file.seek(before.get(path, 0))
                for line in file:
                    noted: dict[str, Any] = json.loads(line)
                    yield ReceivedFrame(noted["frame"], noted["of"])

    # Processes

    def _wire(self, cell: Cell) -> Client:
        client, server = cell.pair
        if cell.transport == "stdio":
            if cell.way == "direct":
                return PipeClient(self._command(server, "stdio"), folder=self._folder)
            proxy = self._proxy()
            if cell.way == "through":
                return UnixClient(str(self._sockets / server))
            return SocketClient(f"{proxy.base_url.replace('http', 'ws', 1)}/ws/{_endpoint(cell)}")
        if cell.way == "direct":
            url = self._url(server).removeprefix("sse+")
        else:
            path = "sse" if "audio" not in ABILITIES[client] else "mcp"
            url = f"{self._proxy().base_url}/{path}/{_endpoint(cell)}"
        if "audio" not in ABILITIES[client]:
            return SseClient(url)
        return StatelessHttpClient(url) if client == REVISIONS[-1] else SessionHttpClient(url, client)

    def _command(self, revision: str, transport: str) -> list[str]:
        return [sys.executable, str(SERVER), revision, transport, str(self._frames_folder)]

    def _url(self, revision: str) -> str:
        if revision not in self._urls:
            command = self._command(revision, "http")
            server = self._stack.enter_context(launched(command, folder=self._folder, has_stdin=True, code=None))
            self._urls[revision] = server.wait_line(r"listening on (\S+)")[1]
        return self._urls[revision]

    def _proxy(self) -> Proxy:
        """The proxy for all cells. Its Unix sockets stand for stdio, and the WebSockets of its profiles."""
        if not self._proxies:
            path = self._folder / "eras.json"
            servers = [server for revision in REVISIONS for server in self._configured(revision)]
            profiles = [
                {"id": f"profile-{server['id']}", "servers": [{"id": server["id"], "alias": ""}]} for server in servers
            ]
            path.write_text(json.dumps({"core": {"port": 0}, "servers": servers, "profiles": profiles}))
            self._proxies.append(self._stack.enter_context(self._served(path)))
        return self._proxies[0]

    def _served(self, config: Path) -> contextlib.AbstractContextManager[Proxy]:
        return serve(config, folder=self._folder, options=("--trace", self.trace), cwd=self._folder)

    def _configured(self, revision: str) -> Iterator[dict[str, Any]]:
        yield {
            "id": _name(revision, "stdio"),
            "upstream": {"command": self._command(revision, "stdio")},
            "unix_socket": str(self._sockets / revision),
        }
        yield {"id": _name(revision, "http"), "upstream": {"url": self._url(revision)}}


def _name(revision: str, transport: str) -> str:
    return f"{transport}-{revision}"


def _endpoint(cell: Cell) -> str:
    name = _name(cell.pair.server, cell.transport)
    return f"profile-{name}" if cell.way == "profile" else name


@contextlib.contextmanager
def records(folder: Path) -> Iterator[Records]:
    """Yields the records, then stops everything and proves that the proxy has broken no rule towards any peer."""
    with contextlib.ExitStack() as stack:
        found = Records(folder, stack)
        yield found
    broken = broken_by_proxy(found.trace.read_bytes().splitlines()) if found.trace.exists() else []
    assert not broken, "\n".join(broken)


def broken_by_proxy(trace: Iterable[bytes]) -> list[str]:
    """Returns the oracle's findings about the proxy's side of all wires in a trace."""
    blame, wires = Blame(), dict[Wire, None]()
    broken: list[str] = []
    for wire, _, found in read_trace(trace):
        wires[wire] = None
        broken += [f"{wire.server}, as the {wire.proxy.value}: {each}" for each in blame.of_proxy(wire, found)]
    assert wires, "a trace of nothing"
    owed = [each for wire in wires for each in blame.of_proxy(wire, wire.oracle.finish())]
    return broken + [str(each) for each in owed]
