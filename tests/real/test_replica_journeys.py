"""Tests of three replicas as processes: files whose requests each go to another replica, and networks that are cut
between a replica and the store, and between two replicas."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import psycopg
import pytest
from command import until
from file_world import PUPPET, artifacts
from record_servers import NotInstalled, PostgresServer, running
from replica_processes import PATIENCE_S, Client, Lost, Replicas, Reply, replicas
from s3_server import MOTO, S3Server, running_server
from shared_gateways import ALICE, SharedStores

pytestmark = pytest.mark.real

BELL: Final = Path(PUPPET).parent / "bell.py"
RACES: Final = 10
PART: Final = b"0123456789" * 1000
PARTS: Final = 6
TUS: Final = {"tus-resumable": "1.0.0"}
Json = dict[str, Any]


class Wire:
    """A TCP relay that can be cut: it then holds what comes, as a network without packets does, or breaks each
    connection."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._passes = threading.Event()
        self._passes.set()
        self._breaks = False
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        self._passes.clear()

    def break_all(self) -> None:
        self._breaks = True
        self._drop()

    def mend(self) -> None:
        self._breaks = False
        self._passes.set()

    def close(self) -> None:
        self.mend()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._drop()

    def _drop(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._breaks:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                client.close()
                continue
            self._sockets += [client, server]
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._passes.wait()
                target.sendall(data)
        self._passes.wait()
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class Wires(NamedTuple):
    to_store: Wire
    to_replica: Wire


class WiredReplicas(Replicas):
    """Replicas each of which reaches the store, and is reached by the others, through a wire of its own."""

    def __init__(self, folder: Path, stores: SharedStores, blobs: S3Server, count: int) -> None:
        super().__init__(folder, stores, blobs, count)
        store = urlsplit(stores.records).port
        assert store is not None
        self.wires = {tag: Wires(Wire(store), Wire(self.internal_ports[tag])) for tag in self.tags}

    def settings(self, tag: str, root: Path) -> Json:
        settings = super().settings(tag, root)
        to_store, to_replica = self.wires[tag]
        store = urlsplit(self.stores.records)
        settings["storage"]["records"] = self.stores.records.replace(f":{store.port}/", f":{to_store.port}/")
        settings["cluster"]["advertise"] = f"http://127.0.0.1:{to_replica.port}"
        settings["servers"].append({"id": "bell", "upstream": {"command": [sys.executable, str(BELL)]}})
        return settings

    def close(self) -> None:
        for wires in self.wires.values():
            for wire in wires:
                wire.close()


class World(NamedTuple):
    replicas: WiredReplicas
    records: PostgresServer

    def client(self, *only: str, seed: int = 0) -> Client:
        client = Client(self.replicas, seed)
        client.only = list(only) or None
        return client


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if not MOTO.exists():
        pytest.skip("needs moto")
    try:
        with running("postgres") as records, running_server(tmp_path_factory.mktemp("moto")) as blobs:
            assert isinstance(records, PostgresServer)
            stores, folder = SharedStores(records, blobs), tmp_path_factory.mktemp("replicas")
            with replicas(folder, stores, blobs, 3, WiredReplicas) as made:
                assert isinstance(made, WiredReplicas)
                try:
                    yield World(made, records)
                finally:
                    made.close()
    except NotInstalled as missing:
        pytest.skip(str(missing))


def target_of(url: str) -> str:
    return urlsplit(url)._replace(scheme="", netloc="").geturl()


def upload_link(client: Client) -> str:
    return target_of(client.call("auto_get_upload_url")["structuredContent"]["upload_url"])


def headers_of(client: Client, accept: str = "application/json, text/event-stream") -> dict[str, str]:
    assert client.session is not None
    return {
        "accept": accept,
        "content-type": "application/json",
        "authorization": f"Bearer {ALICE}",
        "mcp-protocol-version": "2025-11-25",
        "mcp-session-id": client.session,
    }


def read(client: Client, handle: str) -> str:
    return client.text("act", steps=[["read", handle]], text="{0}")


# --- Files ----------------------------------------------------------------------------------------------------------


def test_a_link_that_is_used_at_two_replicas_at_the_same_moment_counts_once(world: World) -> None:
    client = world.client("a")
    start = threading.Barrier(2)

    def put(tag: str, link: str) -> Reply:
        start.wait(PATIENCE_S)
        return client.fetch_at(tag, "PUT", link, f"from {tag}".encode(), {"x-filename": "raced.txt"})

    with ThreadPoolExecutor(2) as pool:
        for _ in range(RACES):
            link = upload_link(client)
            replies = {tag: pool.submit(put, tag, link) for tag in ("b", "c")}
            by_status = {reply.result().status: (tag, reply.result()) for tag, reply in replies.items()}
            assert set(by_status) == {200, 403}, by_status
            tag, won = by_status[200]
            assert read(client, won.json["upload_handle"]) == f"from {tag}"
            assert client.fetch_at("a", "PUT", link, b"late", {"x-filename": "raced.txt"}).status == 403


def test_a_file_goes_from_replica_to_replica(world: World) -> None:
    """A link of one is used at another, the file is an argument at a third. What the tool makes of it is downloaded and
    read at all, and is an argument again."""
    a, b, c = (world.client(tag) for tag in "abc")
    put = a.fetch_at("b", "PUT", upload_link(a), b"of a", {"x-filename": "notes.txt"})
    assert put.status == 200
    handle = put.json["upload_handle"]
    assert [read(client, handle) for client in (c, b, a)] == ["of a"] * 3
    made = c.call("save", path="saved.txt")
    (link,) = [block for block in made["content"] if block["type"] == "resource_link"]
    (artifact,) = artifacts(made)
    for client in (a, b, c):
        contents = client.request("resources/read", {"uri": link["uri"]})["result"]["contents"]
        assert contents[0]["text"] == "saved"
        assert read(client, link["uri"]) == "saved"
    for tag in "abc":
        assert a.fetch_at(tag, "GET", target_of(artifact["download_url"])).body == b"saved"


def test_the_parts_of_an_upload_go_to_any_replica(world: World) -> None:
    client = world.client("a")
    begin = {"upload-length": str(len(PART) * PARTS), "upload-metadata": "filename YS50eHQ="}
    created = client.fetch_at("a", "POST", upload_link(client), b"", TUS | begin)
    assert created.status == 201, created
    path = target_of(created.headers["location"])
    for number, tag in enumerate("bcabca"):
        at = {"upload-offset": str(number * len(PART)), "content-type": "application/offset+octet-stream"}
        answer = client.fetch_at(tag, "PATCH", path, PART, TUS | at)
        assert (answer.status, answer.headers["upload-offset"]) == (204, str((number + 1) * len(PART))), answer
    assert client.fetch_at("b", "HEAD", path, headers=TUS).headers["upload-offset"] == str(len(PART) * PARTS)


def test_a_record_of_another_release_is_no_file_and_is_kept(world: World) -> None:
    """Releases that write records in different ways may run behind one balancer."""
    handle = world.client("a").upload("notes.txt", b"of one release")
    stored = _Stored(world)
    before = stored.all()
    assert before
    world.replicas.stop("c")
    stored.set(dict.fromkeys(before, b"\x00of another release"))
    world.replicas.start("c")
    world.replicas.wait_ready("c")
    new = world.client("c")
    assert new.call("act", steps=[["read", handle]], text="{0}")["isError"]
    assert set(before) <= set(stored.all())
    stored.set(before)
    assert read(new, handle) == "of one release"


class _Stored:
    """The records of files, in the database."""

    def __init__(self, world: World) -> None:
        self._dsn = world.replicas.stores.records

    def all(self) -> dict[str, bytes]:
        with psycopg.connect(self._dsn, autocommit=True) as db:
            tables = db.execute("select tablename from pg_tables where schemaname = 'public'").fetchall()
            (self._table,) = [name for (name,) in tables]
            rows = db.execute(f"select key, value from {self._table} where key like 'upload/%'".encode()).fetchall()
        return {key: bytes(value) for key, value in rows}

    def set(self, values: dict[str, bytes]) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as db:
            for key, value in values.items():
                db.execute(f"update {self._table} set value = %s where key = %s".encode(), (value, key))


# --- Networks that are cut ------------------------------------------------------------------------------------------


def test_a_replica_that_cannot_be_reached_by_another_is_not_taken_for_gone(world: World) -> None:
    """Clients with sessions of it are asked to try again, and never told that their session has ended."""
    client = world.client("a")
    client.begin()
    call = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/list"}).encode()
    own = headers_of(client)
    assert client.fetch_at("b", "POST", "/mcp/auto", call, own).status == 200
    wire = world.replicas.wires["a"].to_replica
    wire.break_all()
    try:
        for method, body in (("POST", call), ("GET", b""), ("DELETE", b"")):
            for tag in ("b", "c"):
                headers = headers_of(client, "text/event-stream") if method == "GET" else own
                refused = client.fetch_at(tag, method, "/mcp/auto", body, headers)
                later = (refused.status, refused.headers.get("retry-after"))
                # A POST on a connection that broke may have arrived, so its client is not asked to send it again.
                assert later == (503, "1") or (later == (502, None) and method == "POST"), (method, tag, refused)
        assert client.fetch_at("a", "POST", "/mcp/auto", call, own).status == 200
    finally:
        wire.mend()
    for tag in "abc":
        assert client.fetch_at(tag, "POST", "/mcp/auto", call, own).status == 200


def test_a_replica_that_is_cut_off_from_the_store_ends_once_others_took_its_lease(world: World) -> None:
    """Sessions at others go on, also while its own are refused there."""
    cut, other = world.client("a"), world.client("b")
    cut.begin()
    other.begin()
    session = other.session
    handle = other.upload("kept.txt", b"kept")
    run = world.replicas.runs["a"]
    world.replicas.wires["a"].to_store.hold()
    try:
        for tag in "bc":  # each counts for itself
            until(lambda tag=tag: _status(world, tag, cut) == 404, f"{tag} learns that the lease is taken")
        assert read(other, handle) == "kept"
    finally:
        world.replicas.wires["a"].to_store.mend()
    assert run.wait_exit() != 0
    assert "the lease of replica a was lost" in run.stderr
    world.replicas.runs.pop("a").__exit__()
    other.only = ["b", "c"]
    assert read(other, handle) == "kept"
    assert other.session == session
    world.replicas.start("a")
    world.replicas.wait_ready("a")
    assert read(world.client("a"), handle) == "kept"


def _status(world: World, tag: str, client: Client) -> int:
    call = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/list"}).encode()
    return client.fetch_at(tag, "POST", "/mcp/auto", call, headers_of(client)).status


# --- Names of an earlier run ----------------------------------------------------------------------------------------


def test_a_stream_of_a_run_that_was_killed_is_not_resumed_at_the_next_with_its_tag(world: World) -> None:
    client = world.client("a")
    client.begin()
    seen = _event_id(world, client)
    run = world.replicas.runs.pop("a")
    run.signal(signal.SIGKILL)
    run.wait_exit()
    run.__exit__()
    world.replicas.start("a")
    world.replicas.wait_ready("a")
    headers = headers_of(client, "text/event-stream") | {"last-event-id": seen}
    assert client.fetch_at("a", "GET", "/mcp/bell", headers=headers).status == 404
    for tag in "bc":  # which may ask to try again while they know the run that is over
        client.only, client.statuses = [tag], []
        assert client.fetch("GET", "/mcp/bell", headers=headers).status == 404
        assert set(client.statuses) <= {404, 503}
    client.only = None
    with pytest.raises(Lost):
        client.text("act", steps=[], text="x")


def _event_id(world: World, client: Client) -> str:
    """Returns the id of an event of the session's own stream, which is read at another replica."""
    info = {"name": "client", "version": "0"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    body = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).encode()
    anew = {name: value for name, value in headers_of(client).items() if name != "mcp-session-id"}
    opened = client.fetch_at("a", "POST", "/mcp/bell", body, anew)
    client.session = opened.headers["mcp-session-id"]
    body = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
    assert client.fetch_at("a", "POST", "/mcp/bell", body, headers_of(client)).status == 202
    connection = http.client.HTTPConnection("127.0.0.1", world.replicas.ports["b"], timeout=PATIENCE_S)
    try:
        connection.request("GET", "/mcp/bell", None, headers_of(client, "text/event-stream"))
        stream = connection.getresponse()
        assert stream.status == 200
        ring = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "ring", "arguments": {}}}
        assert client.fetch_at("c", "POST", "/mcp/bell", json.dumps(ring).encode(), headers_of(client)).status == 200
        while line := stream.readline():
            if line.startswith(b"id:") and line[3:].strip():
                return line[3:].strip().decode()
    finally:
        connection.close()
    raise AssertionError("no event has an id")
