"""Which client meets which server, and over what: directly, or through one proxy that serves them all.

A cell carries out all scenarios once, with one client; tests look at what came of it. The scripted servers speak one
revision each. Over HTTP a process serves all cells, over stdio a client has its own.
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
from isthmus.core.oracle.wires import Wire, read_trace
from overheard import Blame
from raw_clients import Client, PipeClient, SseClient
from rig import Proxy, launched, serve
from scenarios import SCENARIOS, Conversation, Pair
from scripted_client import Heard
from wires import SessionHttpClient, StatelessHttpClient, UnixClient

SERVER: Final = Path(__file__).resolve().parent / "scripted_server.py"
TRANSPORTS: Final = ("stdio", "http")
PAIRS: Final = [Pair(client, server) for client, server in itertools.product(REVISIONS, REVISIONS)]
"""Client and server."""

BRIDGED: Final = PAIRS
"""The pairs that are tested through the proxy: all that it can join."""


class Cell(NamedTuple):
    pair: Pair
    transport: str
    is_proxied: bool

    def __str__(self) -> str:
        how = "through" if self.is_proxied else "direct"
        return f"{self.pair.client}-{self.pair.server}-{self.transport}-{how}"


DIRECT: Final = [Cell(Pair(revision, revision), transport, False) for revision in REVISIONS for transport in TRANSPORTS]
IS_THOROUGH: Final = bool(os.environ.get("THOROUGH"))


def is_over(pair: Pair, transport: str) -> bool:
    """Whether it is over this transport that they meet: each pair over one, each revision over both on either side."""
    is_pipe = (REVISIONS.index(pair.client) + 2 * REVISIONS.index(pair.server)) % len(REVISIONS) in (0, 1)
    return IS_THOROUGH or is_pipe == (transport == "stdio")


PROXIED: Final = [
    Cell(pair, transport, True) for transport in TRANSPORTS for pair in BRIDGED if is_over(pair, transport)
]
CELLS: Final = [*DIRECT, *PROXIED]


class Broken(NamedTuple):
    """A scenario that came to no end: why and where, as text."""

    trace: str


class Record(NamedTuple):
    """What came of a cell.

    Attributes:
        outcomes: by scenario; `Broken` where it was.
        client: what the client heard.
        server: what the server heard.
    """

    outcomes: dict[str, object]
    client: list[Heard]
    server: list[Heard]


class Records:
    """Made when they are first needed, each once."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.trace = folder / "trace.jsonl"
        self._heard = folder / "heard"
        self._heard.mkdir()
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
        return Record(outcomes, talk.heard, list(self._heard_by_server(cell, before)))

    # What the servers wrote down

    def _sizes(self) -> dict[Path, int]:
        return {path: path.stat().st_size for path in self._heard.iterdir()}

    def _heard_by_server(self, cell: Cell, before: dict[Path, int]) -> Iterator[Heard]:
        for path in sorted(self._heard.glob(f"{cell.pair.server}-{cell.transport}-*.jsonl")):
            with path.open("rb") as file:
                file.seek(before.get(path, 0))
                for line in file:
                    noted: dict[str, Any] = json.loads(line)
                    yield Heard(noted["frame"], noted["of"])

    # Processes

    def _wire(self, cell: Cell) -> Client:
        client, server = cell.pair
        if cell.transport == "stdio":
            if not cell.is_proxied:
                return PipeClient(self._command(server, "stdio"), folder=self._folder)
            self._proxy()
            return UnixClient(str(self._sockets / server))
        if cell.is_proxied:
            path = "sse" if "audio" not in ABILITIES[client] else "mcp"
            url = f"{self._proxy().base_url}/{path}/{_name(server, 'http')}"
        else:
            url = self._url(server).removeprefix("sse+")
        if "audio" not in ABILITIES[client]:
            return SseClient(url)
        return StatelessHttpClient(url) if client == REVISIONS[-1] else SessionHttpClient(url, client)

    def _command(self, revision: str, transport: str) -> list[str]:
        return [sys.executable, str(SERVER), revision, transport, str(self._heard)]

    def _url(self, revision: str) -> str:
        if revision not in self._urls:
            command = self._command(revision, "http")
            server = self._stack.enter_context(launched(command, folder=self._folder, has_stdin=True, code=None))
            self._urls[revision] = server.wait_line(r"listening on (\S+)")[1]
        return self._urls[revision]

    def _proxy(self) -> Proxy:
        """One for all cells; its Unix sockets stand for stdio."""
        if not self._proxies:
            path = self._folder / "eras.json"
            servers = [server for pair in BRIDGED for server in self._configured(pair.server)]
            unique = {server["id"]: server for server in servers}
            path.write_text(json.dumps({"core": {"port": 0}, "servers": list(unique.values())}))
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


@contextlib.contextmanager
def records(folder: Path) -> Iterator[Records]:
    """Leaving the context stops everything, and proves that the proxy has broken no rule towards anybody."""
    with contextlib.ExitStack() as stack:
        found = Records(folder, stack)
        yield found
    broken = broken_by_proxy(found.trace.read_bytes().splitlines()) if found.trace.exists() else []
    assert not broken, "\n".join(broken)


def broken_by_proxy(trace: Iterable[bytes]) -> list[str]:
    """What the oracle says of the proxy's side of all wires in a trace, from their beginning on."""
    blame, wires = Blame(), dict[Wire, None]()
    broken: list[str] = []
    for wire, _, found in read_trace(trace):
        wires[wire] = None
        broken += [f"{wire.server}, as the {wire.proxy.value}: {each}" for each in blame.of_proxy(wire, found)]
    assert wires, "a trace of nothing"
    owed = [each for wire in wires for each in blame.of_proxy(wire, wire.oracle.finish())]
    return broken + [str(each) for each in owed]
