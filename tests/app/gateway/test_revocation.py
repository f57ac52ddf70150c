"""Tests of revocation at a running gateway: what a caller had is refused at once, its streams end, and what it owns
stays for its next token."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import h11
import pytest
from access_scenes import ALICE, BOB, ROOT, TOKENS, gateway, issuing, modern, opened, server, shown, status_of, token
from http_caller import MARK, PATIENCE_S, USUAL, Caller, Json, fetch, requested
from isthmus.app.base.errors import StartError
from isthmus.app.config.access_settings import Auth, Token
from isthmus.app.config.settings import Core, Server, Settings, Storage, Upstream
from isthmus.app.gateway import Gateway, running

pytestmark = pytest.mark.anyio

CORE = Core(port=0, drain_seconds=5.0)
"""The usual interval at which streams are looked at is 15 s: what ends sooner has ended at once."""


@asynccontextmanager
async def lasting(folder: Path, tokens: tuple[Token, ...] = TOKENS) -> AsyncIterator[Gateway]:
    """A gateway that keeps its storage in a folder."""
    settings = Settings(core=CORE, auth=Auth(tokens=tokens), storage=Storage(root=str(folder)), servers=(server(),))
    with anyio.fail_after(6 * PATIENCE_S):
        async with running(settings, listen=True, is_lasting=True) as found:
            yield found


async def revoke(found: Gateway, name: str, by: str = ROOT) -> tuple[int, Json]:
    return await fetch(f"{found.base_url}/auth/revoke?{urlencode({'name': name})}", "POST", MARK | shown(by))


def audit(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "isthmus.audit"]


async def refusal(url: str, text: str) -> str:
    """The message with which a token is refused."""
    async with requested(url, "POST", USUAL | shown(text), b"{}") as response:
        assert response.status == 401
        assert 'error="invalid_token"' in response.headers["www-authenticate"]
        message: str = (await response.json())["error"]["message"]
        return message


async def test_a_revoked_token_is_refused_over_restarts_until_its_entry_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with lasting(tmp_path) as found:
        alice = await opened(found, ALICE)
        assert (await revoke(found, "token:alice"))[0] == 200
        assert "it was revoked at 20" in await refusal(alice.url, ALICE)
        assert await status_of(f"{found.base_url}/healthz", "GET", body=b"") == 200
        await opened(found, BOB)
    assert any(line.startswith("revoked: what token:alice had until 20") for line in audit(caplog))
    assert any(line.endswith(", by token:root") for line in audit(caplog))
    async with lasting(tmp_path) as found:
        assert "it was revoked at 20" in await refusal(f"{found.base_url}/mcp/a", ALICE)
    async with lasting(tmp_path, (token("alice", "her next token"), *TOKENS[1:])) as found:
        await opened(found, "her next token")
        assert "it has the form of no token" in await refusal(f"{found.base_url}/mcp/a", ALICE)


async def test_revoking_is_for_operators_and_for_callers_that_there_are(tmp_path: Path) -> None:
    async with lasting(tmp_path) as found:
        assert (await revoke(found, "token:alice", BOB))[0] == 403
        assert (await revoke(found, "token:alice", "none"))[0] == 401
        assert await status_of(f"{found.base_url}/auth/revoke?name=token:alice", "GET", shown(ROOT), b"") == 405
        for name in ("token:nobody", "alice", ""):
            status, body = await revoke(found, name)
            assert status == 404
            assert "expected one of token:alice, token:bob, token:root" in body["error"]
        url = f"{found.base_url}/auth/revoke?name=token:alice&name2=x"
        assert (await fetch(url, "POST", MARK | shown(ROOT)))[0] == 400
        await opened(found, ALICE)


async def test_a_revocation_that_cannot_be_read_lets_nobody_in(tmp_path: Path) -> None:
    async with lasting(tmp_path) as found:
        await revoke(found, "token:alice")
    from isthmus.storage.sqlite import SqliteRecords

    records = SqliteRecords(str(tmp_path / "state" / "records.sqlite"))
    keys = [key async for key, _ in records.scan("revoked/")]
    assert len(keys) == 1
    await records.save(keys[0], b'{"at_unix":1}')
    await records.aclose()
    with pytest.raises(StartError, match=r"the revocation .* cannot be read"):
        async with lasting(tmp_path):
            pass


async def test_a_revocation_ends_every_stream_at_once_and_leaves_what_its_caller_owns() -> None:
    """The session goes on with a later token. Another caller's streams go on all the time."""
    async with issuing(server(), core=CORE, groups="groups") as (issuer, found):
        audience = f"{found.base_url}/mcp/a"
        old = int(time.time()) - 5

        def text(sub: str, at: int = old, **claims: Any) -> str:
            return issuer.token(audience, sub, iat=at, **claims)

        async with contextlib.AsyncExitStack() as stack:

            async def begun(caller: Caller) -> list[Any]:
                """The open streams of a caller: of its session, of a subscription, and of HTTP+SSE."""
                own = {"accept": "text/event-stream", "mcp-session-id": str(caller.session)}
                headers, body = modern("subscriptions/listen", notifications={"toolsListChanged": True})
                sse = caller.url.replace("/mcp/", "/sse/")
                found = [
                    await stack.enter_async_context(requested(caller.url, "GET", caller.headers | own)),
                    await stack.enter_async_context(requested(caller.url, "POST", caller.headers | headers, body)),
                    await stack.enter_async_context(requested(sse, "GET", caller.headers | own)),
                ]
                assert [each.status for each in found] == [200, 200, 200]
                return found

            alice, bob = await opened(found, text("alice")), await opened(found, text("bob"))
            streams, others = await begun(alice), await begun(bob)
            pid = json.loads(await alice.call("environment"))["pid"]
            by = issuer.token(found.base_url, "carol", groups=["admin"])
            assert (await revoke(found, f"jwt:{issuer.url}|alice", by))[0] == 200
            with anyio.fail_after(PATIENCE_S / 2):
                for each in streams:
                    await each.body()  # until it ends
            assert "it was revoked at 20" in await refusal(alice.url, alice.headers["authorization"].split()[1])
            assert "it was revoked at 20" in await refusal(alice.url, issuer.token(audience, "alice"))
            alice.headers |= shown(text("alice", int(time.time()) + 2))
            assert json.loads(await alice.call("environment"))["pid"] == pid
            for each in others:
                with anyio.move_on_after(0.2):
                    await each.body()
                    raise AssertionError("another caller's stream has ended")
            assert "toolbox" in await bob.call("echo", text="x")


async def test_a_revocation_ends_forwarded_event_streams_and_finishes_forwarded_calls() -> None:
    """Isthmus knows nothing of what is forwarded to a transparent server, but that an event stream is a GET."""
    may_answer = anyio.Event()

    async def serve(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            head = await stream.receive()
            if head.startswith(b"GET "):
                kind = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked"
                await stream.send(b"HTTP/1.1 200 OK\r\n" + kind + b"\r\n\r\n4\r\n: a\n\r\n")
                with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    await stream.receive()  # until it is left
            else:
                await may_answer.wait()
                await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    far = Server(id="far", upstream=Upstream(url=f"http://127.0.0.1:{port}/mcp"), inspect=False)
    async with listener, anyio.create_task_group() as tasks, gateway(far, core=CORE, tokens=TOKENS) as found:
        tasks.start_soon(listener.serve, serve)
        url, answers = f"{found.base_url}/mcp/far", []

        async def call() -> None:
            async with requested(url, "POST", USUAL | shown(ALICE), b"{}") as response:
                answers.append(await response.body())

        async with requested(url, "GET", shown(ALICE)) as stream, anyio.create_task_group() as calling:
            assert stream.status == 200
            calling.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            assert (await revoke(found, "token:alice"))[0] == 200
            with pytest.raises(h11.RemoteProtocolError), anyio.fail_after(PATIENCE_S / 2):
                await stream.body()  # it is cut off, as nothing may be added to it
            may_answer.set()
        assert answers == [b"done"]
        tasks.cancel_scope.cancel()


async def test_a_revocation_closes_websockets_with_1008_at_once() -> None:
    async with issuing(server(), core=CORE, groups="groups") as (issuer, found):
        host = found.base_url.removeprefix("http://")
        text = issuer.token(f"{found.base_url}/ws/a", iat=int(time.time()) - 5)
        async with await anyio.connect_tcp("127.0.0.1", int(host.rpartition(":")[2])) as stream:
            await stream.send(
                f"GET /ws/a HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                f"Authorization: Bearer {text}\r\n\r\n".encode()
            )
            data = await stream.receive()
            assert data.startswith(b"HTTP/1.1 101 ")
            by = issuer.token(found.base_url, "carol", groups=["admin"])
            assert (await revoke(found, f"jwt:{issuer.url}|alice", by))[0] == 200
            with anyio.fail_after(PATIENCE_S / 2):
                while b"was revoked" not in data:
                    data += await stream.receive()
            assert (1008).to_bytes(2, "big") in data


async def test_a_kept_connection_asks_again_after_a_revocation() -> None:
    """Requests whose heads repeat are not routed again, but their caller is still asked about."""
    async with issuing(server(), core=CORE, groups="groups") as (issuer, found):
        audience = f"{found.base_url}/mcp/a"
        text = issuer.token(audience, iat=int(time.time()) - 5)
        alice = await opened(found, text)
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        head = (
            f"POST /mcp/a HTTP/1.1\r\nHost: {found.base_url.removeprefix('http://')}\r\n"
            f"Authorization: Bearer {text}\r\n"
            f"Mcp-Session-Id: {alice.session}\r\nAccept: application/json, text/event-stream\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        async with await anyio.connect_tcp("127.0.0.1", int(found.base_url.rpartition(":")[2])) as stream:
            for status in (200, 200, 401):
                if status == 401:
                    by = issuer.token(found.base_url, "carol", groups=["admin"])
                    await revoke(found, f"jwt:{issuer.url}|alice", by)
                await stream.send(head.encode() + body)
                data = await stream.receive()
                assert int(data[9:12]) == status


async def test_what_is_not_stored_is_refused_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator is told that the revocation ends with the process."""
    from isthmus.storage.interface import StorageError
    from isthmus.storage.sqlite import SqliteRecords

    async def full(*_: object, **__: object) -> int:
        raise StorageError("the disk is full")

    async with lasting(tmp_path) as found:
        alice = await opened(found, ALICE)
        monkeypatch.setattr(SqliteRecords, "save", full)
        status, body = await revoke(found, "token:alice")
        monkeypatch.undo()
        assert status == 500
        assert "until isthmus ends" in body["error"]
        assert "it was revoked" in await refusal(alice.url, ALICE)
