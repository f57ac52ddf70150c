"""Tests of who may call: callers of a running gateway are recognised, kept apart, and refused."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import anyio
import pytest
from access_scenes import (
    ACCESS,
    ALICE,
    BOB,
    ROLES,
    ROOT,
    TOKENS,
    gateway,
    issuing,
    modern,
    opened,
    server,
    shown,
    status_of,
)
from http_caller import USUAL, Caller, fetch, requested
from isthmus.app.base.errors import StartError
from isthmus.app.config.access_settings import Access, TrustedProxy
from isthmus.app.config.settings import Core, Management, Settings
from isthmus.app.gateway import running
from isthmus.transports.http_server.shared import DENIALS_MAX, PATH_MAX_CHARS

pytestmark = pytest.mark.anyio


async def test_a_stranger_learns_nothing() -> None:
    async with gateway(server()) as found:
        for path, method in (("/mcp/a", "POST"), ("/mcp/zz", "POST"), ("/servers", "GET"), ("/nothing", "GET")):
            async with requested(found.base_url + path, method, USUAL, b"{}") as response:
                assert response.status == 401
                assert response.headers["www-authenticate"] == 'Bearer realm="isthmus"'
                assert b"/mcp/a" not in await response.body()
        status, health = await fetch(f"{found.base_url}/healthz")
        assert (status, health) == (200, {"status": "ok", "service": "isthmus"})
        assert "version" in (await fetch(f"{found.base_url}/healthz", headers=shown(BOB)))[1]


async def test_each_caller_has_a_process_of_a_shared_server() -> None:
    async with gateway(server(share="concurrent")) as found:
        callers = [await opened(found, text) for text in (ALICE, ALICE, BOB)]
        pids = [json.loads(await caller.call("environment"))["pid"] for caller in callers]
        assert pids[0] == pids[1] != pids[2]


async def test_tools_over_plain_http_have_a_session_for_each_caller() -> None:
    async with gateway(server()) as found:
        url = f"{found.base_url}/mcp/a/tools/call"
        pids = []
        for text in (ALICE, ALICE, BOB):
            body = json.dumps({"name": "environment", "arguments": {}}).encode()
            async with requested(url, "POST", USUAL | shown(text), body) as response:
                assert response.status == 200
                pids.append(json.loads((await response.json())["content"][0]["text"])["pid"])
        assert pids[0] == pids[1] != pids[2]
        assert await status_of(url) == 401


async def test_tools_over_plain_http_follow_the_rules_for_callers_without_a_name() -> None:
    async with gateway(server(access=Access(tools=ACCESS.tools)), tokens=ROLES, anonymous="allow") as found:
        for tool, status in (("environment", 502), ("die", 404)):
            body = json.dumps({"name": tool, "arguments": {}}).encode()
            assert await status_of(f"{found.base_url}/mcp/a/tools/call", body=body) == status


async def test_operators_are_in_the_group_admin() -> None:
    core = Core(port=0, management=Management(token="the old way"))
    async with gateway(server(), core=core, tokens=TOKENS) as found:
        for text, status in ((ALICE, 403), (ROOT, 200), ("the old way", 200), ("none", 401)):
            assert (await fetch(f"{found.base_url}/servers", headers=shown(text)))[0] == status


@pytest.mark.parametrize("links", ["enough", "authenticated"])
async def test_a_link_is_for_the_caller_that_got_it(links: str) -> None:
    """A caller that shows no token has the link alone, where that is enough; another caller's token does not fit it."""
    async with gateway(server(peer="filer.py", files="auto"), tokens=TOKENS, links=links) as found:
        alice = await opened(found, ALICE)

        async def link() -> str:
            answer = await alice.request("tools/call", {"name": "a_get_upload_url", "arguments": {}})
            url: str = answer["result"]["structuredContent"]["upload_url"]
            return url

        async def upload(url: str, text: str = "") -> int:
            headers = (shown(text) if text else {}) | {"content-type": "text/plain", "x-filename": "a.txt"}
            async with requested(url, "PUT", headers, b"hello") as response:
                body = await response.body()
                assert response.status != 200 or b"upload_handle" in body
                return response.status

        assert await upload(await link(), BOB) == 403
        assert await upload(await link(), "none") == 401
        assert await upload(await link(), ALICE) == 200
        assert await upload(await link()) == (200 if links == "enough" else 401)

        made = {"at": "made.txt", "text": "made", "say": "made.txt"}
        answer = await alice.request("tools/call", {"name": "write", "arguments": made})
        meta = answer["result"]["_meta"]["artifact"]
        bob = await opened(found, BOB)
        refused = await bob.request("resources/read", {"uri": meta["artifact_uri"]})
        assert "error" in refused, "an artifact of another caller is unknown"
        assert "result" in await alice.request("resources/read", {"uri": meta["artifact_uri"]})


async def test_a_peer_of_a_unix_socket_is_its_user(tmp_path: Path) -> None:
    """One that speaks as on stdio is a user, too. Without the setting, its process is turned away."""
    for peers, is_let_in in ((True, True), (False, False)):
        lines = tmp_path / f"lines-{peers}"
        core = Core(port=None, unix_socket=str(tmp_path / f"http-{peers}"))
        auth = {"tokens": TOKENS, "unix_peers": peers}
        async with gateway(server(unix_socket=str(lines)), core=core, **auth):
            async with await anyio.connect_unix(str(core.unix_socket)) as stream:
                await stream.send(b"GET /mcp/a/tools HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert (await stream.receive()).startswith(b"HTTP/1.1 200 " if is_let_in else b"HTTP/1.1 401 ")
            async with await anyio.connect_unix(str(lines)) as stream:
                await stream.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
                gone = (anyio.EndOfStream, anyio.BrokenResourceError)
                with contextlib.nullcontext() if is_let_in else pytest.raises(gone):
                    assert b'"id":1' in await stream.receive()


async def test_a_proxy_in_front_names_the_caller() -> None:
    proxy = TrustedProxy(peers=("127.0.0.1",), user="X-User", groups="X-Groups")
    async with gateway(server(), proxy=proxy) as found:
        url = f"{found.base_url}/servers"
        for headers, status in (
            ({}, 401),
            ({"x-user": "alice"}, 403),
            ({"x-user": "alice", "x-groups": "robots, admin"}, 200),
            ({"x-groups": "admin"}, 400),
        ):
            assert (await fetch(url, headers=headers))[0] == status
        alice = Caller(f"{found.base_url}/mcp/a", {"x-user": "alice"})
        await alice.initialize()
        assert alice.session is not None
        assert await status_of(alice.url, "DELETE", {"x-user": "bob", "mcp-session-id": alice.session}, b"") == 404


@pytest.mark.parametrize("core", [Core(port=0, host="0.0.0.0"), Core(port=0, public_base_url="https://gate.example")])
async def test_nothing_is_open_to_other_machines_before_it_is_said_who_may_call(core: Core) -> None:
    settings = Settings(core=core, servers=(server(),))
    with pytest.raises(StartError, match=r"open to other machines, and nothing says who may call: set auth\.tokens"):
        async with running(settings, listen=True, is_lasting=False):
            pass


async def test_denials_are_in_the_audit_log_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    long = f"/mcp/{'a' * PATH_MAX_CHARS}"
    async with gateway(server()) as found:
        assert await status_of(f"{found.base_url}/mcp/a?access_token=s3cret", headers=shown("s3cret too")) == 401
        assert await status_of(f"{found.base_url}/mcp/a") == 401
        assert await status_of(found.base_url + long) == 401
    lines = [record.getMessage() for record in caplog.records if record.name == "isthmus.audit"]
    assert lines == [
        "denied: POST /mcp/a from 127.0.0.1: it has the form of no token that is known here",
        "denied: POST /mcp/a from 127.0.0.1: no credentials",
        f"denied: POST {long[:PATH_MAX_CHARS]} from 127.0.0.1: no credentials",
    ]
    assert "s3cret" not in caplog.text


async def test_denials_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with gateway(server()) as found:
        async with await anyio.connect_tcp("127.0.0.1", int(found.base_url.rpartition(":")[2])) as stream:
            heads = b"GET /mcp/a HTTP/1.1\r\nHost: localhost\r\n\r\n"
            for _ in range(300):
                await stream.send(heads)
                data = b""
                while b"expected the header Authorization" not in data:
                    data += await stream.receive()
    lines = [record.getMessage() for record in caplog.records if record.name == "isthmus.audit"]
    assert len(lines) < 300
    said = sum(1 for line in lines if line.endswith("no credentials"))
    assert said <= DENIALS_MAX * (1 + len({record.created // 1 for record in caplog.records}))


# --- Issuers --------------------------------------------------------------------------------------------------------


async def test_a_rotation_of_keys_costs_nobody_a_refusal() -> None:
    async with issuing(server()) as (issuer, found):
        audience = f"{found.base_url}/mcp/a"
        alice = await opened(found, issuer.token(audience))
        issuer.published = ["k1", "k2"]
        alice.headers |= shown(issuer.token(audience, kid="k2"))
        assert await alice.call("echo", text="x") == "toolbox says x"
        assert issuer.asked.count("/keys") == 2
        issuer.published = ["k2"]
        assert await alice.call("echo", text="y") == "toolbox says y"


async def test_open_streams_end_with_the_last_token_of_their_caller() -> None:
    """A token that was seen later keeps a stream open. An ended stream names the event by which it is resumed."""
    core = Core(port=0, drain_seconds=5.0, keep_alive_seconds=0.2)
    async with issuing(server(), core=core) as (issuer, found):
        audience = f"{found.base_url}/mcp/a"

        def text(lasts_s: float, sub: str) -> str:
            return issuer.token(audience, sub, lasts_s=lasts_s - 30)  # the leeway is added

        short = await opened(found, issuer.token(audience, "alice"))
        events = short.headers | {"accept": "text/event-stream", "mcp-session-id": str(short.session)}
        async with requested(short.url, "GET", events | shown(text(2, "alice"))) as alice:
            assert alice.status == 200, "she has shown a token that holds for longer"
            bob = await opened(found, text(3, "bob"))
            events = bob.headers | {"accept": "text/event-stream", "mcp-session-id": str(bob.session)}
            async with requested(bob.url, "GET", events) as stream:
                assert stream.status == 200
                await stream.body()  # until it ends
                assert await status_of(bob.url, "GET", events, b"") == 401
            assert await short.call("echo", text="x") == "toolbox says x"
            with anyio.move_on_after(1):
                await alice.body()
                raise AssertionError("her stream has ended")


async def test_a_websocket_ends_with_the_last_token_of_its_caller() -> None:
    """The code is 1008, for a violation of policy."""
    core = Core(port=0, drain_seconds=5.0, keep_alive_seconds=0.2)
    async with issuing(server(), core=core) as (issuer, found):
        text = issuer.token(f"{found.base_url}/ws/a", lasts_s=2 - 30)
        host = found.base_url.removeprefix("http://")
        async with await anyio.connect_tcp("127.0.0.1", int(host.rpartition(":")[2])) as stream:
            await stream.send(
                f"GET /ws/a HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                f"Authorization: Bearer {text}\r\n\r\n".encode()
            )
            data = await stream.receive()
            assert data.startswith(b"HTTP/1.1 101 ")
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while b"the token or certificate of the client has expired" not in data:
                    data += await stream.receive()
                    await stream.send(b"\x8a\x80\0\0\0\0")  # a pong, for a ping that may have come
            assert (1008).to_bytes(2, "big") + b"the token or certificate of the client has expired" in data


# --- Roles ----------------------------------------------------------------------------------------------------------


async def test_what_can_be_asked_for_is_shown_and_what_cannot_is_hidden() -> None:
    """The lists are the same in a session and without one."""
    async with gateway(server(access=ACCESS), tokens=ROLES) as found:
        for text, hidden in (("reader", {"die"}), ("writer", {"die"}), ("chief", set())):
            caller = await opened(found, text)
            answer = await caller.request("tools/list")
            names = {tool["name"] for tool in answer["result"]["tools"]}
            assert {"echo", "environment"} <= names
            assert {"die"} - names == hidden
            headers, body = modern("tools/list")
            async with requested(caller.url, "POST", caller.headers | headers, body) as response:
                [message] = [each async for each in response.messages()]
            assert {tool["name"] for tool in message["result"]["tools"]} == names
            assert message["result"].get("cacheScope", "private") == "private"


async def test_the_scopes_and_groups_of_a_server_hold_at_every_way_to_it() -> None:
    a = server(access=Access(scope=("write",)))
    b = server("b", access=Access(groups=("chiefs",)))
    async with gateway(a, b, tokens=ROLES) as found:
        for path, method in (("/mcp/a", "POST"), ("/mcp/a/tools", "GET"), ("/sse/a", "GET"), ("/messages/a", "POST")):
            url = found.base_url + path
            async with requested(url, method, USUAL | shown("reader"), b"{}" if method == "POST" else b"") as response:
                assert response.status == 403
                assert 'scope="write"' in response.headers["www-authenticate"]
        for path, method in (("/mcp/b", "POST"), ("/mcp/b/tools", "GET"), ("/sse/b", "GET"), ("/mcp/c", "POST")):
            url = found.base_url + path
            async with requested(url, method, USUAL | shown("reader"), b"{}" if method == "POST" else b"") as response:
                assert response.status == 404
                assert b"/mcp/b" not in (await response.body()).replace(path.encode(), b"")
        await opened(found, "chief", "b")


async def test_tools_over_plain_http_have_the_same_rules() -> None:
    async with gateway(server(access=ACCESS), tokens=ROLES) as found:
        url = f"{found.base_url}/mcp/a/tools"
        for text, sees, calls in (("reader", False, False), ("chief", True, False), ("writer", False, True)):
            _, listed = await fetch(url, headers=shown(text))
            assert ("die" in {tool["name"] for tool in listed["tools"]}) is sees
            body = json.dumps({"name": "environment", "arguments": {}}).encode()
            async with requested(f"{url}/call", "POST", USUAL | shown(text), body) as response:
                assert (response.status == 200) is calls
