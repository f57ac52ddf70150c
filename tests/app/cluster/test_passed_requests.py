"""Tests of two gateways on one store: a session lives at `a`, and its requests come to `b`."""

from __future__ import annotations

import http.client
import json
import socket
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
import pytest
from file_world import PATIENCE_S, PUPPET, Reply, World
from isthmus.app.config.cluster_settings import Cluster
from isthmus.app.config.settings import Server, Settings, Upstream
from record_servers import RecordServer
from s3_server import S3Server
from shared_gateways import ADMIN, ALICE, SharedStores, alice, replica

pytestmark = pytest.mark.real

PEERS: Final = Path(PUPPET).parent
BELL: Final = Server(id="bell", upstream=Upstream(command=(sys.executable, str(PEERS / "bell.py"))), warm=0)
OF_ALICE: Final = {"authorization": f"Bearer {ALICE}"}
JSON: Final = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2025-11-25",
    **OF_ALICE,
}
EVENTS: Final = {"accept": "text/event-stream", "mcp-protocol-version": "2025-11-25", **OF_ALICE}
LARGE_BYTES: Final = 50 << 20
HELD_MAX_BYTES: Final = 24 << 20
"""The most that two gateways may hold of an upload that crosses both: parts of 8 MiB that go to the bucket at its end,
and some reads."""


class Two(NamedTuple):
    a: World
    b: World


@pytest.fixture
def stores(redis_server: RecordServer, s3_server: S3Server) -> SharedStores:
    return SharedStores(redis_server, s3_server)


@contextmanager
def two(stores: SharedStores, root: Path, *servers: Server) -> Iterator[Two]:
    def settings(tag: str) -> Settings:
        cluster = Cluster(replica=tag, socket=str(root / f"{tag}.sock"))
        return msgspec.structs.replace(stores.settings(root / tag, *servers), cluster=cluster)

    with replica(settings("a")) as a, replica(settings("b")) as b:
        yield Two(a, b)


def hotel(seen: Path) -> Server:
    command = (sys.executable, str(PEERS / "hotel.py"))
    return Server(id="hotel", upstream=Upstream(command=command, env={"SEEN": str(seen)}), warm=0)


class Events:
    """An event stream that is being read."""

    def __init__(self, world: World, path: str, *, body: bytes | None = None, headers: dict[str, str]) -> None:
        parts = urlsplit(world.url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
        self._connection.request("GET" if body is None else "POST", path, body, headers)
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self.last_id = ""

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()
        self._connection.close()

    def next(self) -> str | None:
        """Returns the data of the next event that has some; None at the end of the stream."""
        data: list[str] = []
        give_up_at = time.monotonic() + PATIENCE_S
        while line := self._response.readline().decode():
            assert time.monotonic() < give_up_at, "nothing came but comments"
            name, _, value = line.rstrip("\n").partition(": ")
            if name == "id":
                self.last_id = value
            elif name == "data":
                data.append(value)
            elif not name and any(data):
                return "\n".join(data)
        return None

    def message(self) -> Any:
        data = self.next()
        assert data is not None, "the stream has ended"
        return json.loads(data)


def request(method: str, params: dict[str, Any] | None = None, id: int | None = 1) -> bytes:
    members = {} if id is None else {"id": id}
    return json.dumps({"jsonrpc": "2.0", **members, "method": method, "params": params or {}}).encode()


def initialize(world: World, path: str, **capabilities: Any) -> dict[str, str]:
    """Opens a session. Returns the headers of its requests."""
    info = {"name": "client", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
    reply = world.fetch(path, method="POST", headers=JSON, body=request("initialize", params))
    assert reply.status == 200
    assert reply.headers["mcp-session-id"].startswith("a.")
    of_session = {"mcp-session-id": reply.headers["mcp-session-id"]}
    body = request("notifications/initialized", id=None)
    assert world.fetch(path, method="POST", headers=JSON | of_session, body=body).status == 202
    return of_session


def call(tool: str, id: int = 5, **arguments: object) -> bytes:
    return request("tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": id}}, id)


def test_a_session_is_used_through_another_replica(stores: SharedStores, tmp_path: Path) -> None:
    """Calls, the stream of the session, its resumption, and the end."""
    with two(stores, tmp_path, BELL) as w:
        own = initialize(w.a, "/mcp/bell")
        ring = call("ring")
        with Events(w.b, "/mcp/bell", headers=EVENTS | own) as stream:
            assert stream.status == 200
            reply = w.b.fetch("/mcp/bell", method="POST", headers=JSON | own, body=ring)
            assert (reply.status, reply.json["result"]["content"][0]["text"]) == (200, "ding")
            assert stream.message()["method"] == "notifications/tools/list_changed"
            seen = stream.last_id
        assert w.b.fetch("/mcp/bell", method="POST", headers=JSON | own, body=ring).status == 200
        with Events(w.b, "/mcp/bell", headers=EVENTS | own | {"last-event-id": seen}) as stream:
            assert stream.message()["method"] == "notifications/tools/list_changed"
            assert stream.last_id != seen
        assert w.b.fetch("/mcp/bell", method="DELETE", headers=JSON | own).status in (200, 204)
        for world in w:
            assert world.fetch("/mcp/bell", method="POST", headers=JSON | own, body=ring).status == 404
        assert w.a.gateway.hub.engine.session_count == w.b.gateway.hub.engine.session_count == 0


def test_a_session_that_is_ended_at_the_wrong_replica_ends_its_call(stores: SharedStores, tmp_path: Path) -> None:
    """The call streams at its owner meanwhile."""
    with two(stores, tmp_path, hotel(tmp_path / "seen")) as w:
        own = initialize(w.a, "/mcp/hotel", elicitation={})
        headers = JSON | own | {"accept": "text/event-stream"}
        with Events(w.a, "/mcp/hotel", body=call("ask"), headers=headers) as asking:
            assert asking.message()["method"] == "elicitation/create"
            assert w.b.fetch("/mcp/hotel", method="DELETE", headers=JSON | own).status in (200, 204)
            last = asking.next()
            assert last is None or "error" in json.loads(last)
            assert asking.next() is None
        assert w.b.fetch("/mcp/hotel", method="DELETE", headers=JSON | own).status == 404


def test_an_answer_to_a_question_may_come_to_another_replica(stores: SharedStores, tmp_path: Path) -> None:
    with two(stores, tmp_path, hotel(tmp_path / "seen")) as w:
        own = initialize(w.a, "/mcp/hotel", elicitation={})
        headers = JSON | own | {"accept": "text/event-stream"}
        for asked, answered in ((w.a, w.b), (w.b, w.a), (w.b, w.b)):
            with Events(asked, "/mcp/hotel", body=call("ask"), headers=headers) as asking:
                question = asking.message()
                assert question["method"] == "elicitation/create"
                answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
                body = json.dumps(answer).encode()
                assert answered.fetch("/mcp/hotel", method="POST", headers=JSON | own, body=body).status == 202
                assert asking.message()["result"]["content"][0]["text"] == '{"action": "decline"}'


def test_a_message_of_the_older_transport_may_come_to_another_replica(stores: SharedStores, tmp_path: Path) -> None:
    with two(stores, tmp_path, BELL) as w, Events(w.a, "/sse/bell", headers=EVENTS) as stream:
        endpoint = stream.next()
        assert endpoint is not None and "sessionId=a." in endpoint
        info = {"name": "client", "version": "1"}
        params = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": info}
        assert w.b.fetch(endpoint, method="POST", headers=JSON, body=request("initialize", params)).status == 202
        assert stream.message()["id"] == 1
        for body in (request("notifications/initialized", id=None), call("ring")):
            assert w.b.fetch(endpoint, method="POST", headers=JSON, body=body).status == 202
        assert stream.message()["method"] == "notifications/tools/list_changed"
        assert stream.message()["result"]["content"][0]["text"] == "ding"


def test_a_resumable_upload_goes_on_through_another_replica(stores: SharedStores, tmp_path: Path) -> None:
    """A large body crosses in little memory."""
    with two(stores, tmp_path) as w:
        agent = alice(w.a)
        tus = {"tus-resumable": "1.0.0"}
        begin = {"upload-length": str(LARGE_BYTES), "upload-metadata": "filename YS5iaW4="}
        created = w.a.fetch(agent.link(), method="POST", headers=tus | begin, body=b"")
        assert created.status == 201
        path = urlsplit(created.headers["location"])._replace(scheme="", netloc="").geturl()
        assert "/tus/a." in path
        body = bytes(range(256)) * (LARGE_BYTES // 512)
        tracemalloc.start()
        try:
            for at in (0, len(body)):
                more = {"upload-offset": str(at), "content-type": "application/offset+octet-stream"}
                answer = w.b.fetch(path, method="PATCH", headers=tus | more, body=body)
                assert (answer.status, answer.headers["upload-offset"]) == (204, str(at + len(body))), answer
            assert tracemalloc.get_traced_memory()[1] < HELD_MAX_BYTES
        finally:
            tracemalloc.stop()
        looked = w.b.fetch(path, method="HEAD", headers=tus)
        assert (looked.status, looked.headers["upload-offset"]) == (200, str(LARGE_BYTES))


def test_a_session_of_another_caller_is_not_found_through_another_replica(stores: SharedStores, tmp_path: Path) -> None:
    """A caller has no more rights at a replica that passes its request on."""
    with two(stores, tmp_path, BELL) as w:
        own = initialize(w.a, "/mcp/bell")
        stranger = JSON | own | {"authorization": f"Bearer {ADMIN}"}
        nobody = {name: value for name, value in (JSON | own).items() if name != "authorization"}
        for world in w:
            assert world.fetch("/mcp/bell", method="POST", headers=stranger, body=call("ring")).status == 404
            assert world.fetch("/mcp/bell", method="DELETE", headers=stranger).status == 404
            assert world.fetch("/mcp/bell", method="POST", headers=nobody, body=call("ring")).status == 401
        assert w.b.fetch("/mcp/bell", method="POST", headers=JSON | own, body=call("ring")).status == 200


def test_a_session_of_a_replica_that_has_stopped_is_gone(stores: SharedStores, tmp_path: Path) -> None:
    with two(stores, tmp_path, BELL) as w:
        own = {"mcp-session-id": f"c.{'0' * 32}"}
        assert w.b.fetch("/mcp/bell", method="POST", headers=JSON | own, body=call("ring")).status == 404
        assert w.b.fetch("/mcp/bell", headers=EVENTS | own).status == 404
        assert w.b.fetch("/mcp/bell", method="DELETE", headers=EVENTS | own).status == 404


def test_the_internal_listener_answers_health_and_no_client(stores: SharedStores, tmp_path: Path) -> None:
    with two(stores, tmp_path, BELL):
        for target, status in (("/healthz", 200), ("/readyz", 200), ("/mcp/bell", 403), ("/servers", 403)):
            assert _inside(tmp_path / "a.sock", target).status == status


def _inside(path: Path, target: str) -> Reply:
    connection = http.client.HTTPConnection("localhost", timeout=PATIENCE_S)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.connect(str(path))
        connection.request("GET", target, headers=EVENTS)
        with connection.getresponse() as response:
            return Reply(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()
