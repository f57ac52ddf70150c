"""Tests of the proxy as it is run: real children, real sockets on loopback, and nothing left of either afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import stat
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from http_caller import PATIENCE_S, USUAL, Caller, fetch, operator, requested
from isthmus.app.base.errors import StartError
from isthmus.app.base.version import VERSION
from isthmus.app.config.file_settings import UploadConsumerAdapter
from isthmus.app.config.settings import Core, Server, Settings, Storage, Upstream
from isthmus.app.disk.lock import holding
from isthmus.app.gateway import Gateway, running
from isthmus.app.runtime import port_holder
from isthmus.app.runtime.listeners import LOOPBACK_NAMES, surface_of
from isthmus.app.runtime.open_files import OPEN_FILES_MAX
from isthmus.core.state.records import StoredArtifact, StoredUpload
from isthmus.core.trace import Line, replay
from isthmus.storage.files import FileBlobs
from isthmus.storage.sqlite import SqliteRecords

TOOLBOX = str(Path(__file__).parents[1] / "peers" / "toolbox.py")


def child(id: str = "a", *, adapters: tuple[()] = ()) -> Server:
    return Server(id=id, upstream=Upstream(command=(sys.executable, TOOLBOX, id)), adapters=adapters, warm=0)


def configured(*servers: Server, root: Path | None = None, port: int = 0) -> Settings:
    core = Core(port=port, drain_seconds=5.0)
    return Settings(core=core, storage=Storage(root=str(root or "/nonexistent")), servers=servers)


@asynccontextmanager
async def proxy(
    *servers: Server, root: Path | None = None, port: int = 0, trace_path: Path | None = None
) -> AsyncIterator[Gateway]:
    """A gateway that listens on loopback. Its storage lasts if it has a `root`."""
    settings = configured(*(servers or (child(),)), root=root, port=port)
    trace = None if trace_path is None else str(trace_path)
    async with running(settings, listen=True, is_lasting=root is not None, trace_path=trace) as gateway:
        yield gateway


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return first_of(inner) if isinstance(inner, BaseExceptionGroup) else inner


async def start_error(settings: Settings, *, is_lasting: bool = False, trace_path: str | None = None) -> str:
    """The error by which `running` does not start."""
    with pytest.raises(StartError) as raised:
        async with running(settings, listen=True, is_lasting=is_lasting, trace_path=trace_path):
            raise AssertionError("it started")
    return str(raised.value)


# --- Over HTTP ------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_child_is_called_over_http() -> None:
    async with proxy() as gateway:
        for path in ("/mcp", "/mcp/", "/mcp/a"):
            caller = Caller(gateway.base_url + path)
            assert (await caller.initialize())["serverInfo"] == {"name": "a", "version": "1.2"}
            assert await caller.call("echo", text="héllo") == "a says héllo"


@pytest.mark.anyio
async def test_two_servers_have_paths_of_their_own() -> None:
    async with proxy(child("a"), child("b")) as gateway:
        for id in ("a", "b"):
            caller = Caller(f"{gateway.base_url}/mcp/{id}")
            assert (await caller.initialize())["serverInfo"]["name"] == id
            assert await caller.call("echo", text="here") == f"{id} says here"
            for other in (f"/{'b' if id == 'a' else 'a'}", ""):
                foreign = Caller(f"{gateway.base_url}/mcp{other}")
                foreign.session = caller.session
                async with foreign.post(id=1, method="ping") as response:
                    assert response.status == 404, "a session is its own server's"
        status, body = await fetch(f"{gateway.base_url}/mcp/c", "POST", USUAL)
        assert status == 404
        assert "expected /mcp or /mcp/ID with ID one of a, b, all" in body["error"]["message"]


@pytest.mark.anyio
async def test_a_clients_header_reaches_the_server_it_is_passed_to() -> None:
    """The header passes two proxies; the far one refuses requests without it."""
    async with proxy(msgspec.structs.replace(child(), required_headers=("X-Key",))) as far:
        upstream = Upstream(url=f"{far.base_url}/mcp", pass_headers={"X-Own-Key": "X-Key"})
        async with proxy(Server(id="near", upstream=upstream)) as near:
            caller = Caller(f"{near.base_url}/mcp", {"x-own-key": "4711"})
            assert (await caller.initialize())["serverInfo"]["name"] == "a"
            assert await caller.call("echo", text="x") == "a says x"
            without = Caller(f"{near.base_url}/mcp")
            with pytest.raises(AssertionError, match="got no X-Key header"):
                await without.initialize()


async def deny(stream: anyio.abc.SocketStream) -> None:
    """A server that refuses every request without a token."""
    async with stream:
        await stream.receive()
        head = b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer realm=far\r\nContent-Length: 0\r\n"
        await stream.send(head + b"Connection: close\r\n\r\n")


@pytest.mark.anyio
@pytest.mark.parametrize("pass_headers", [(), ("Authorization",)])
async def test_whoever_is_to_authenticate_gets_the_challenge(pass_headers: tuple[str, ...]) -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, deny)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        upstream = Upstream(url=f"http://127.0.0.1:{port}/mcp", pass_headers=pass_headers)
        async with proxy(Server(id="near", upstream=upstream)) as near:
            caller = Caller(f"{near.base_url}/mcp", {"authorization": "Bearer 4711"})
            async with caller.post(id=1, method="initialize", params={}) as response:
                assert response.status == (401 if pass_headers else 200)
                assert response.headers.get("www-authenticate") == ("Bearer realm=far" if pass_headers else None)
                failure = (await response.json())["error"]
            assert failure["data"] == {"httpStatus": 401}
            assert "near wants credentials" in failure["message"]
            status, body = await fetch(f"{near.base_url}/mcp/near/tools", headers=operator(near))
            assert status == 503
            assert ("pass no headers on: use an MCP client" in body["error"]) == bool(pass_headers)
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_the_pages_beside_it() -> None:
    async with proxy() as gateway:
        caller = Caller(f"{gateway.base_url}/mcp")
        await caller.initialize()
        healthy = {"status": "ok", "service": "isthmus", "version": VERSION, "sessions": 1}
        for page in ("/health", "/healthz", "/readyz"):
            assert await fetch(gateway.base_url + page) == (200, healthy)
        status, body = await fetch(f"{gateway.base_url}/nonsense")
        assert status == 404
        assert body == {"detail": "got path '/nonsense', expected /mcp", "code": "not_found"}


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/mcp", "/info"])
@pytest.mark.parametrize(
    "foreign", [{"host": "evil.example"}, {"origin": "http://evil.example"}, {"origin": "null"}], ids=str
)
async def test_foreign_pages_and_names_are_refused(path: str, foreign: dict[str, str]) -> None:
    """A browser that was led here by a rebound name, or by another site's page, gets nothing."""
    async with proxy() as gateway:
        method = "POST" if path == "/mcp" else "GET"
        async with requested(gateway.base_url + path, method, USUAL | foreign) as response:
            assert response.status == 403
            [seen] = foreign.values()
            assert seen.encode() in await response.body(), "the error names the value"
        origin = {"origin": gateway.base_url}
        assert (await fetch(f"{gateway.base_url}/healthz", headers=origin))[0] == 200, "a page of its own may"


@pytest.mark.parametrize(
    "core, host",
    [
        (Core(host="FE80::1"), "[fe80::1]"),
        (Core(host="Box.Example.com"), "box.example.com"),
        (Core(public_base_url="http://[::2]:9000"), "[::2]"),
        (Core(public_base_url="https://Gw.example.com:8443/under"), "gw.example.com"),
        (Core(allowed_hosts=("Gw.example.com:8080",)), "gw.example.com"),
        (Core(allowed_hosts=("::2",)), "[::2]"),
        (Core(allowed_hosts=("[::2]:8080",)), "[::2]"),
    ],
)
def test_a_host_is_known_however_it_is_written(core: Core, host: str) -> None:
    surface = surface_of(Settings(core=core, servers=(child(),)))
    assert surface.hosts == {*LOOPBACK_NAMES, host}


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        (None, ""),
        ("https://Gw.example.com:8443/under", "https://gw.example.com:8443"),
        ("https://gw.example.com:443", "https://gw.example.com"),
        ("http://[::2]:80/", "http://[::2]"),
    ],
)
def test_the_public_origin_is_written_as_browsers_do(url: str | None, origin: str) -> None:
    assert surface_of(Settings(core=Core(public_base_url=url), servers=(child(),))).public_origin == origin


@pytest.mark.anyio
async def test_a_child_that_dies_fails_its_call_and_is_started_anew() -> None:
    async with proxy() as gateway:
        caller = Caller(f"{gateway.base_url}/mcp")
        await caller.initialize()
        answer = await caller.request("tools/call", {"name": "die"})
        assert "exited with code 3" in answer["error"]["message"]
        assert "fell down the stairs" in answer["error"]["message"]
        assert await caller.call("echo", text="again") == "a says again"


@pytest.mark.anyio
async def test_children_see_little_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    async with proxy() as gateway:
        caller = Caller(f"{gateway.base_url}/mcp")
        await caller.initialize()
        names = json.loads(await caller.call("environment"))["names"]
        assert "PATH" in names
        assert "SECRET_TOKEN" not in names


# --- Behind another proxy -------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_isthmus_behind_isthmus() -> None:
    """Stdio to HTTP to HTTP: calls, server requests, progress and the end of a session cross both."""
    async with proxy() as behind:
        before = Server(id="front", upstream=Upstream(url=f"{behind.base_url}/mcp"))
        async with proxy(before) as gateway:
            caller = Caller(f"{gateway.base_url}/mcp")
            assert (await caller.initialize(sampling={}))["serverInfo"]["name"] == "a"
            assert await caller.call("echo", text="far") == "a says far"

            async with caller.post(id=70, method="tools/call", params={"name": "ask"}) as response:
                messages = response.messages()
                question = await anext(messages)
                assert question["method"] == "sampling/createMessage"
                content = {"type": "text", "text": "the client's words"}
                await caller.send(id=question["id"], result={"role": "assistant", "content": content, "model": "m"})
                answer = await anext(messages)
                assert answer["id"] == 70
                assert answer["result"]["content"][0]["text"] == "the client's words"

            params = {"name": "progress", "_meta": {"progressToken": "mine"}}
            async with caller.post(id=71, method="tools/call", params=params) as response:
                got = [message async for message in response.messages()]
            assert [message.get("params") for message in got] == [
                {"progressToken": "mine", "progress": 1},
                {"progressToken": "mine", "progress": 2},
                None,
            ]

            assert (behind.hub.engine.session_count, len(behind.hub.child_pids)) == (1, 1)
            assert caller.session is not None
            async with requested(caller.url, "DELETE", {"mcp-session-id": caller.session}) as response:
                assert response.status == 204
            with anyio.fail_after(PATIENCE_S):
                while behind.hub.engine.session_count:
                    await behind.hub._wait_change()


@pytest.mark.anyio
async def test_a_missing_upstream_is_reported() -> None:
    async with proxy() as gone:
        url = f"{gone.base_url}/mcp"
    async with proxy(Server(id="front", upstream=Upstream(url=url))) as gateway:
        with pytest.raises(AssertionError, match=r"connection refused by 127\.0\.0\.1.*is the server running"):
            await Caller(f"{gateway.base_url}/mcp").initialize()


# --- Starting -------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_taken_port_is_reported() -> None:
    async with proxy() as gateway:
        port = int(gateway.base_url.rpartition(":")[2])
        error = await start_error(configured(child(), port=port))
        cure = "choose another one with --port N, or --port 0 for a free one"
        assert error == f"port {port} on 127.0.0.1 is taken by another isthmus ({VERSION}): {cure}"


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", None])
async def test_a_port_taken_by_another_program_is_reported(
    answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that never answers is one, too."""
    monkeypatch.setattr(port_holder, "LIMIT_S", 0.1)
    async with anyio.create_task_group() as tasks:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

        async def serve(stream: anyio.abc.SocketStream) -> None:
            async with stream:
                await (anyio.sleep_forever() if answer is None else stream.send(answer))

        tasks.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        error = await start_error(configured(child(), port=port))
        assert error.startswith(f"port {port} on 127.0.0.1 is taken by another program: choose another one with --port")
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_storage_in_use_is_reported(tmp_path: Path) -> None:
    """The storage is free again afterwards."""
    root = tmp_path / "data"
    async with proxy(root=root):
        error = await start_error(configured(child(), root=root), is_lasting=True)
        assert error == (f"another process uses {root}/workspaces: stop it, or give this one a storage root of its own")
    async with proxy(root=root):
        pass


@pytest.mark.anyio
async def test_nothing_is_made_or_read_in_a_storage_that_is_in_use(tmp_path: Path) -> None:
    """One of two concurrent first starts must not make the key that signs the other's links."""
    with holding(str(tmp_path / "workspaces")):
        error = await start_error(configured(child(), root=tmp_path), is_lasting=True)
    assert "another process uses" in error
    assert [path.name for path in tmp_path.iterdir()] == ["workspaces"]


@pytest.mark.anyio
@pytest.mark.parametrize("value", [b"", b"no JSON", b"{}", b'{"blob":7}', b'{"blob":"../../x"}', b'{"blob":"b1"}'])
async def test_uploads_of_an_earlier_run_that_nobody_can_read_are_left_alone(value: bytes, tmp_path: Path) -> None:
    """Another version may read them. Their files stay as long as they do, where the record says which file it is."""
    async with proxy(root=tmp_path):
        pass
    records = SqliteRecords(str(tmp_path / "state" / "records.sqlite"))
    await records.save("upload/s/1", value)
    await records.aclose()
    async with FileBlobs(str(tmp_path / "blobs")).create("b1", size_max_bytes=1) as writer:
        await writer.commit()
    async with proxy(root=tmp_path) as gateway:
        assert gateway.hub.files() == ()
    records = SqliteRecords(str(tmp_path / "state" / "records.sqlite"))
    is_lost = value == b'{"blob":"../../x"}'
    assert [key async for key, _ in records.scan("")] == ([] if is_lost else ["upload/s/1"]), "its file is not there"
    await records.aclose()
    async with proxy(root=tmp_path):
        is_named = value == b'{"blob":"b1"}'
        assert [path.name.partition("~")[0] for path in (tmp_path / "blobs").iterdir()] == ["b1"] * is_named


@pytest.mark.anyio
async def test_uploads_of_an_earlier_run_are_there_until_their_time_is_over(tmp_path: Path) -> None:
    """An upload without an expiry date gets one, `upload_ttl_s` after the start. The upload of a session that had
    closed keeps its own."""
    async with proxy(root=tmp_path):
        pass
    upload = StoredUpload(
        server="a",
        sid="0" * 32,
        uid="1" * 32,
        principal="",
        blob="2" * 32,
        filename="report.txt",
        mime_type="text/plain",
        size_bytes=5,
        sha256="0" * 64,
    )
    known = msgspec.structs.replace(upload, uid="3" * 32, blob="4" * 32, expires_at_unix=time.time() + 300)
    late = msgspec.structs.replace(upload, uid="5" * 32, blob="6" * 32, expires_at_unix=time.time() - 1)
    records, blobs = SqliteRecords(str(tmp_path / "state" / "records.sqlite")), FileBlobs(str(tmp_path / "blobs"))
    for one in (upload, known, late):
        await records.save(one.key, msgspec.json.encode(one), expires_at_unix=one.expires_at_unix or None)
        async with blobs.create(one.blob, size_max_bytes=5) as writer:
            await writer.write(b"12345")
            await writer.commit()
    await records.aclose()
    for _ in range(2):
        before = time.time()
        async with proxy(root=tmp_path) as gateway:
            listed = {file.id: file for file in gateway.hub.files()}
            assert set(listed) == {upload.uid, known.uid}
            assert listed[known.uid].expires_at_unix == pytest.approx(known.expires_at_unix, abs=1e-3)
            ttl_s = gateway.limits.upload_ttl_s
            assert before + ttl_s - 1e-3 <= listed[upload.uid].expires_at_unix <= time.time() + ttl_s
            assert not any(file.is_live for file in listed.values())
            assert len(list((tmp_path / "blobs").iterdir())) == 2


@pytest.mark.anyio
async def test_storage_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = await start_error(configured(child(), root=tmp_path / "file"), is_lasting=True)
    assert error == f"storage.root {tmp_path}/file cannot be used: Not a directory"
    (tmp_path / "data" / "state").mkdir(parents=True)
    (tmp_path / "data" / "state" / "records.sqlite").write_bytes(b"this is no database at all" * 100)
    error = await start_error(configured(child(), root=tmp_path / "data"), is_lasting=True)
    assert error == f"storage.root {tmp_path}/data cannot be used: the records cannot be opened: file is not a database"


@pytest.mark.anyio
async def test_a_trace_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    error = await start_error(configured(child()), trace_path=str(tmp_path / "no" / "trace"))
    assert error == f"the trace {tmp_path}/no/trace cannot be written: No such file or directory"


@pytest.mark.anyio
async def test_as_many_files_may_be_open_as_the_system_allows() -> None:
    before = _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    try:
        for first in (min(256, wanted), wanted, hard):
            resource.setrlimit(resource.RLIMIT_NOFILE, (first, hard))
            async with proxy():
                pass
            now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            assert now == (hard if first == hard else wanted), "raised, and never lowered"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# --- What a run leaves behind ---------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_nothing_of_a_temporary_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No child, file or listener stays, though a session is open and the context is left by an error."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pids: list[int] = []
    with pytest.raises(ExceptionGroup) as raised:
        async with proxy() as gateway:
            caller = Caller(f"{gateway.base_url}/mcp")
            await caller.initialize()
            pids = gateway.hub.child_pids
            assert list(map(is_alive, pids)) == [True]
            assert any(tmp_path.iterdir())
            raise ZeroDivisionError
    assert isinstance(first_of(raised.value), ZeroDivisionError)
    assert not any(map(is_alive, pids))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError):
        await fetch(f"{gateway.base_url}/healthz")


@pytest.mark.anyio
async def test_the_folders_of_a_session_do_not_outlive_the_proxy(tmp_path: Path) -> None:
    """The proxy waits for a server that takes its time to end, as it may still be writing there."""
    lingering = ("sh", "-c", '"$0" "$1" a; sleep 0.5; echo late > "$PWD/late"', sys.executable, TOOLBOX)
    adapter = UploadConsumerAdapter(tools=("echo",), file_path_argument="text")
    server = Server(id="a", upstream=Upstream(command=lingering), adapters=(adapter,), warm=0)
    async with proxy(server, root=tmp_path) as gateway:
        await Caller(f"{gateway.base_url}/mcp").initialize()
        [workspace] = [path for path in (tmp_path / "workspaces").iterdir() if path.is_dir()]
        upload = workspace / "in" / "1" / "private.txt"
        upload.parent.mkdir()
        upload.touch()
    assert not workspace.exists()


@pytest.mark.anyio
async def test_artifacts_of_an_earlier_run_count_and_those_nobody_can_read_are_left_alone(tmp_path: Path) -> None:
    """Another version may read them, so their files stay as well."""
    async with proxy(root=tmp_path):
        pass
    record = StoredArtifact(
        server="a",
        sid="0" * 32,
        aid="1" * 32,
        principal="",
        blob="2" * 32,
        filename="report.txt",
        mime_type="text/plain",
        size_bytes=5,
        sha256="0" * 64,
        tool="make",
        is_exposed=True,
        expires_at_unix=time.time() + 3600,
    )
    records, blobs = SqliteRecords(str(tmp_path / "state" / "records.sqlite")), FileBlobs(str(tmp_path / "blobs"))
    for key, value in ((record.key, msgspec.json.encode(record)), ("artifact/of/tomorrow", b'{"blob":"b3"}')):
        await records.save(key, value, expires_at_unix=record.expires_at_unix)
    for blob in (record.blob, "b3"):
        async with blobs.create(blob, size_max_bytes=5) as writer:
            await writer.write(b"12345")
            await writer.commit()
    trace_path = tmp_path / "trace"
    async with proxy(root=tmp_path, trace_path=trace_path):
        pass
    began = msgspec.json.decode(trace_path.read_bytes().splitlines()[0], type=Line)
    assert began.stored == (record,)
    assert {key async for key, _ in records.scan("")} == {record.key, "artifact/of/tomorrow"}
    await records.aclose()
    assert len(list((tmp_path / "blobs").iterdir())) == 2


@pytest.mark.anyio
async def test_the_key_of_links_outlives_a_restart_and_is_private(tmp_path: Path) -> None:
    key = tmp_path / "state" / "link.key"
    async with proxy(root=tmp_path) as first:
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
        assert key.read_bytes() == first.plan.link_key
        assert len(first.plan.link_key) == 32
    async with proxy(root=tmp_path) as second:
        assert second.plan.link_key == first.plan.link_key
    key.write_bytes(b"cut short")
    async with proxy(root=tmp_path) as third:
        assert key.read_bytes() == third.plan.link_key != first.plan.link_key


@pytest.mark.anyio
async def test_the_key_of_request_states_outlives_a_restart_and_is_private(tmp_path: Path) -> None:
    """A state that an earlier run signed is recognized, and not taken for a forgery."""
    key = tmp_path / "state" / "state.key"
    async with proxy(root=tmp_path) as first:
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert first.plan.state_keys == (key.read_bytes(),)
        assert first.plan.link_key not in first.plan.state_keys
    async with proxy(root=tmp_path) as second:
        assert second.plan.state_keys == first.plan.state_keys
    async with proxy() as temporary:
        assert temporary.plan.state_keys != first.plan.state_keys


@pytest.mark.anyio
async def test_a_trace_is_private_and_replays_without_a_difference(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with proxy(trace_path=path) as gateway:
        caller = Caller(f"{gateway.base_url}/mcp")
        await caller.initialize()
        assert await caller.call("echo", text="for the record") == "a says for the record"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = path.read_bytes().splitlines()
    decoded = [msgspec.json.decode(line, type=Line) for line in lines]
    assert any(b"for the record" in (line.message or b"") for line in decoded)
    assert decoded[-1].input == "receive_close", "the trace reaches to the child's end"
    assert list(replay(lines)) == []


@pytest.mark.anyio
async def test_a_trace_takes_over_no_permissions(tmp_path: Path) -> None:
    """The property holds for a trace behind a link, too, such as the one to the latest trace."""
    path, link = tmp_path / "run.jsonl", tmp_path / "link"
    path.write_bytes(b"something longer than a trace of nothing" * 1000)
    path.chmod(0o644)
    link.symlink_to(path)
    async with proxy(trace_path=link):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(replay(path.read_bytes().splitlines())) == []


@pytest.mark.anyio
async def test_a_trace_that_is_being_written_is_not_another_ones(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with proxy(root=tmp_path / "data", trace_path=path) as gateway:
        await Caller(f"{gateway.base_url}/mcp").initialize()
        error = await start_error(configured(child()), trace_path=str(path))
        assert error == f"the trace {path} cannot be written: another run is writing it"
        error = await start_error(configured(child(), root=tmp_path / "data"), is_lasting=True, trace_path=str(path))
        assert "another process uses" in error
    lines = path.read_bytes().splitlines()
    assert len(lines) > 5
    assert list(replay(lines)) == []


@pytest.mark.anyio
async def test_a_trace_to_a_pipe_that_nobody_reads_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    error = await start_error(configured(child()), trace_path=str(tmp_path / "pipe"))
    assert error == f"the trace {tmp_path}/pipe cannot be written: nobody reads that pipe"


@pytest.mark.anyio
@pytest.mark.parametrize("size_bytes", [10, 100_000])
async def test_a_trace_that_cannot_go_on_ends_alone(size_bytes: int, caplog: pytest.LogCaptureFixture) -> None:
    """The disk may be found to be full within a call, or at the very end."""
    mode = os.stat("/dev/full").st_mode
    async with proxy(trace_path=Path("/dev/full")) as gateway:
        caller = Caller(f"{gateway.base_url}/mcp")
        await caller.initialize()
        for _ in range(2):
            assert await caller.call("echo", text="x" * size_bytes) == "a says " + "x" * size_bytes
    logged = [record.getMessage() for record in caplog.records if "trace" in record.getMessage()]
    assert logged == ["the trace /dev/full ends here: No space left on device"]
    assert os.stat("/dev/full").st_mode == mode


@pytest.mark.anyio
async def test_leaving_lets_a_call_finish(tmp_path: Path) -> None:
    started, until = tmp_path / "started", tmp_path / "until"
    answers: list[str] = []
    left = anyio.Event()

    async def call(url: str, ready: anyio.Event) -> None:
        caller = Caller(url)
        await caller.initialize()
        ready.set()
        answers.append(await caller.call("wait", started=str(started), until=str(until)))

    async with anyio.create_task_group() as tasks:
        ready = anyio.Event()
        async with proxy() as gateway:
            tasks.start_soon(call, f"{gateway.base_url}/mcp", ready)
            with anyio.fail_after(PATIENCE_S):
                await ready.wait()
                while not started.exists():  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            tasks.start_soon(_touch_once_refused, gateway.base_url, until)
        left.set()
    assert answers == ["waited"]


async def _touch_once_refused(base_url: str, until: Path) -> None:
    """Lets the call finish when the listener is closed, which shows that the proxy is draining."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                await fetch(f"{base_url}/healthz")
            except (OSError, anyio.BrokenResourceError, anyio.EndOfStream):
                break
            await anyio.sleep(0.01)
    until.touch()


@pytest.mark.anyio
async def test_an_open_event_stream_ends_with_the_proxy() -> None:
    ended = anyio.Event()

    async def listen(url: str, session: str, opened: anyio.Event) -> None:
        headers = {"accept": "text/event-stream", "mcp-session-id": session}
        async with requested(url, "GET", headers) as response:
            assert response.status == 200
            opened.set()
            await response.body()
        ended.set()

    async with anyio.create_task_group() as tasks:
        async with proxy() as gateway:
            caller = Caller(f"{gateway.base_url}/mcp")
            await caller.initialize()
            assert caller.session is not None
            opened = anyio.Event()
            tasks.start_soon(listen, caller.url, caller.session, opened)
            await opened.wait()
            assert os.getpid() not in gateway.hub.child_pids
    assert ended.is_set()


@pytest.mark.anyio
async def test_a_client_of_lines_that_closed_its_sending_side_is_answered(tmp_path: Path) -> None:
    """Input that is piped into a socket ends before its answers are there, as on stdio."""
    messages: list[dict[str, object]] = [
        {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}}},
        {"method": "notifications/initialized"},
        {"id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "last"}}},
    ]
    async with proxy(msgspec.structs.replace(child(), unix_socket=str(tmp_path / "lines"))):
        async with await anyio.connect_unix(tmp_path / "lines") as stream:
            await stream.send(
                b"".join(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n" for message in messages)
            )
            await stream.send_eof()
            received = b""
            with contextlib.suppress(anyio.EndOfStream), anyio.fail_after(30):
                while True:
                    received += await stream.receive()
    assert [msgspec.json.decode(line)["id"] for line in received.splitlines()] == [0, 1]
    assert b"says last" in received


@pytest.mark.anyio
async def test_unix_sockets_on_all_sides(tmp_path: Path) -> None:
    """The chain is a server's own socket, another proxy that joins it, and HTTP on a socket of that."""
    inner = msgspec.structs.replace(child(), unix_socket=str(tmp_path / "lines"))
    async with proxy(inner):
        server = Server(id="near", upstream=Upstream(url=f"unix://{tmp_path}/lines", transport="unix"))
        settings = configured(server)
        core = msgspec.structs.replace(settings.core, port=None, unix_socket=str(tmp_path / "http"))
        settings = msgspec.structs.replace(settings, core=core)
        async with running(settings, listen=True, is_lasting=False):
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
            head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
            head += f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
            async with await anyio.connect_unix(tmp_path / "http") as stream:
                await stream.send(head.encode() + body)
                answer = b""
                with contextlib.suppress(anyio.EndOfStream), anyio.fail_after(30):
                    while True:
                        answer += await stream.receive()
            assert answer.startswith(b"HTTP/1.1 200")
            assert b'"name": "a"' in answer
        assert not (tmp_path / "http").exists()
    assert not (tmp_path / "lines").exists()
