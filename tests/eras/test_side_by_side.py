"""Tests of clients of both eras at once over one WebSocket, one pipe, and one HTTP endpoint."""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from abilities import REVISIONS
from era_cells import SERVER, broken_by_proxy
from raw_clients import Client, SocketClient
from rig import Proxy, serve
from scenarios import Conversation
from scripted_client import encoded
from wires import SessionHttpClient, StatelessHttpClient, UnixClient

HANDSHAKE, STATELESS = REVISIONS[-2:]
FAR: Final = 100_000
"""The first id of one client. The other one's are below."""


class Half(Client):
    """One of two clients that share a wire. It gets only its own messages."""

    def __init__(self, wire: Client, lock: threading.Lock, *, is_legacy: bool) -> None:
        super().__init__()
        self._wire, self._lock, self._is_legacy = wire, lock, is_legacy
        self._ids: set[str] = set()
        self._at = 0

    def send(self, message: bytes) -> None:
        frame = json.loads(message)
        self._ids.add(repr(frame.get("id")))
        with self._lock:
            self._wire.send(message)

    def confirm(self, message: bytes) -> None:
        self.send(message)

    def close(self) -> None:
        self._wire.close()

    def wait_until(self, condition: Callable[[], object], timeout_s: float = 10.0) -> bool:
        def has_come() -> object:
            self._sort()
            return condition()

        return self._wire.wait_until(has_come, timeout_s)

    def _sort(self) -> None:
        while self._at < len(self._wire.received):
            received = self._wire.received[self._at]
            self._at += 1
            if self._is_mine(json.loads(received.message)):
                self.received.append(received)

    def _is_mine(self, frame: dict[str, Any]) -> bool:
        if "method" not in frame:
            return repr(frame.get("id")) in self._ids
        if "id" in frame:
            return self._is_legacy
        return self._is_legacy != ("io.modelcontextprotocol/subscriptionId" in json.dumps(frame))


class Place(NamedTuple):
    proxy: Proxy
    sockets: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("side")
    frames = folder / "heard"
    frames.mkdir()
    with tempfile.TemporaryDirectory(prefix="side-") as sockets:
        servers = []
        for revision in (HANDSHAKE, STATELESS):
            command = [sys.executable, str(SERVER), revision, "stdio", str(frames)]
            path = str(Path(sockets) / revision)
            servers.append({"id": revision, "upstream": {"command": command}, "unix_socket": path})
        config = folder / "side.json"
        config.write_text(json.dumps({"core": {"port": 0}, "servers": servers}))
        trace = folder / "trace.jsonl"
        with serve(config, folder=folder, options=("--trace", trace), cwd=folder) as proxy:
            yield Place(proxy, Path(sockets))
        assert not broken_by_proxy(trace.read_bytes().splitlines())


def both(place: Place, how: str, server: str) -> tuple[Conversation, Conversation, list[Client]]:
    """Returns a client of each era, before either has begun."""
    base = place.proxy.base_url
    if how == "http":
        url = f"{base}/mcp/{server}"
        wires: list[Client] = [SessionHttpClient(url, HANDSHAKE), StatelessHttpClient(url)]
    else:
        url = base.replace("http://", "ws://") + f"/ws/{server}"
        wire: Client = SocketClient(url) if how == "websocket" else UnixClient(str(place.sockets / server))
        lock = threading.Lock()
        wires = [Half(wire, lock, is_legacy=True), Half(wire, lock, is_legacy=False)]
    clients = [Conversation(revision, wire) for revision, wire in zip((HANDSHAKE, STATELESS), wires, strict=True)]
    clients[1]._numbers = itertools.count(FAR)
    return clients[0], clients[1], wires


@pytest.mark.parametrize("server", [HANDSHAKE, STATELESS])
@pytest.mark.parametrize("how", ["http", "websocket", "pipe"])
def test_both_eras_share_one_endpoint(place: Place, how: str, server: str) -> None:
    """Each client has its own conversation, questions included, whichever sends first and however they take turns."""
    legacy, modern, wires = both(place, how, server)
    try:
        modern.greet()
        first = modern.start("tools/call", {"name": "ask_form", "arguments": {}})
        legacy.greet()
        assert legacy.greeting.result["protocolVersion"] == HANDSHAKE
        assert modern.greeting.result["supportedVersions"] == [STATELESS]
        asked = modern._wait_answer(first, "tools/call")["result"]
        assert asked["resultType"] == "input_required"
        in_between = legacy.call("ask_three")
        done = modern.request("tools/call", {"name": "ask_form", "arguments": {}, **modern._input(asked)})
        assert done.result["resultType"] == "complete"
        assert legacy.call("ask_form").text == done.text
        assert modern.call("ask_three").text == in_between.text
        assert {question["method"] for question in legacy.asked} == {question["method"] for question in modern.asked}
        assert legacy.call("echo", text="é").text == modern.call("echo", text="é").text
    finally:
        for wire in wires[: 2 if how == "http" else 1]:
            wire.close()


def test_cancelling_a_request_of_one_era_leaves_the_others_open(place: Place) -> None:
    """Ids of both eras on one pipe name separate requests: the cancellation of one leaves the other open."""
    legacy, modern, wires = both(place, "pipe", HANDSHAKE)
    try:
        legacy.greet()
        modern.greet()
        ours = modern.start("tools/call", {"name": "slow", "arguments": {}})
        theirs = legacy.start("tools/call", {"name": "slow", "arguments": {}})
        modern.notify("notifications/cancelled", {"requestId": ours})
        assert modern.call("echo", text="still here").text
        assert legacy.call("echo", text="still here").text
        assert legacy.answer_to(theirs) is None
        legacy.cancel(theirs)
        assert legacy.call("echo", text="and again").text
    finally:
        wires[0].close()


def test_a_pipe_without_sessions_carries_only_messages_of_its_requests(place: Place) -> None:
    """A pipe with requests of the stateless era alone carries no server request, and no notification that belongs to
    none of those requests."""
    wire = UnixClient(str(place.sockets / HANDSHAKE))
    try:
        client = Conversation(STATELESS, wire)
        client.greet()
        client.call("change_tools")
        client.call("ask_form")
        frames = [json.loads(received.message) for received in wire.received]
        assert not [frame for frame in frames if "method" in frame]
        wire.send(encoded({"jsonrpc": "2.0", "id": "x", "method": "ping"}))
        assert wire.wait_until(lambda: any(b'"x"' in received.message for received in wire.received))
    finally:
        wire.close()
