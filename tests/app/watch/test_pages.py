"""Tests of the live page over real sockets: who may see it, and that it shows what crosses."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from http_caller import PATIENCE_S, Caller, requested
from isthmus.app.base.errors import StartError
from isthmus.app.config.access_settings import Auth, Token
from isthmus.app.config.file_settings import Files
from isthmus.app.config.settings import Core, Server, Settings, Upstream
from isthmus.app.config.ui_settings import Ui
from isthmus.app.gateway import Gateway, running
from isthmus.app.watch import pages as pages_module
from isthmus.app.watch.static_files import CSP
from isthmus.core.access.static_tokens import digest_of

Json = dict[str, Any]
TOOLBOX = Path(__file__).parents[1] / "peers" / "toolbox.py"
CALL: Json = {"name": "echo", "arguments": {"text": "hello", "password": "hunter2"}}

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def watched(auth: Auth | None = None, ids: str = "a", files: bool = False, **ui: Any) -> AsyncIterator[Gateway]:
    upstream = Upstream(command=(sys.executable, str(TOOLBOX)))
    servers = tuple(Server(id=id, upstream=upstream, warm=0, files=Files() if files else None) for id in ids)
    settings = Settings(core=Core(port=0), auth=auth or Auth(), ui=Ui(listen="127.0.0.1:0", **ui), servers=servers)
    with anyio.fail_after(4 * PATIENCE_S):
        async with running(settings, listen=True, is_lasting=False) as gateway:
            yield gateway


async def asked(
    gateway: Gateway, path: str, method: str = "GET", body: bytes = b"", token: str = "", **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    base, _, own = gateway.page_url.partition("/ui")
    fields = {"authorization": f"Bearer {token or own.partition('=')[2]}"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    async with requested(
        base + path, method, {name: value for name, value in fields.items() if value}, body
    ) as response:
        return response.status, await response.body(), dict(response.headers)


async def events(gateway: Gateway, after: int = 0, wait: int = 10) -> Json:
    status, body, _ = await asked(gateway, f"/ui/api/events?after={after}&wait={wait}")
    assert status == 200, body
    found: Json = json.loads(body)
    return found


async def call(gateway: Gateway) -> None:
    client = Caller(gateway.base_url + "/mcp")
    await client.initialize()
    await client.request("tools/call", CALL)


async def request_of(gateway: Gateway, count: int = 4) -> tuple[Json, list[Json]]:
    """Waits for the end of the call. Returns its record, and those of its `count` messages."""
    found: dict[int, Json] = {}
    after = 0
    while True:
        news = await events(gateway, after)
        found |= {one["n"]: one for one in news["events"]}
        after = max(found, default=0)
        for one in found.values():
            if one["type"] == "request" and one["method"] == "tools/call" and one["state"] == "over":
                own = [
                    each for each in found.values() if each["type"] == "message" and each["request"] == one["request"]
                ]
                if len(own) == count:
                    return one, own


async def test_a_call_is_shown_as_received_and_as_sent() -> None:
    async with watched() as gateway:
        assert (await events(gateway, wait=0))["events"] == []
        await call(gateway)
        request, messages = await request_of(gateway)
        assert (request["target"], request["outcome"], request["server"]) == ("echo", "result", "a")
        assert [(one["leg"], one["way"]) for one in messages] == [
            ("client", "in"),
            ("server", "out"),
            ("server", "in"),
            ("client", "out"),
        ]
        for one in messages[:2]:
            status, body, headers = await asked(gateway, f"/ui/api/messages/{one['n']}/body")
            assert status == 200 and json.loads(body)["params"]["arguments"] == {
                **CALL["arguments"],
                "password": "[redacted]",
            }
            assert headers["x-full-size"] == str(one["bytes"]) and headers["cache-control"] == "no-store"
        shown = json.loads((await asked(gateway, f"/ui/api/messages/{messages[0]['n']}"))[1])
        assert shown["redacted"] == ["password"]
        assert "mcp-session-id" in [name.lower() for name, _ in shown["headers"]]
        sessions = json.loads((await asked(gateway, "/ui/api/sessions"))[1])["sessions"]
        assert [one["server"] for one in sessions] == ["a"]
        everything = json.dumps([await events(gateway, wait=0), sessions, shown])
        assert "hunter2" not in everything


async def test_what_servers_are_asked_for_a_profile_belongs_to_the_request_of_its_client() -> None:
    async with watched(ids="ab", keep=True) as gateway:
        client = Caller(gateway.base_url + "/mcp")
        await client.initialize()
        await client.request("tools/list")
        await client.request("tools/call", {"name": "b__echo", "arguments": {"text": "x"}})
        await request_of(gateway)
        found = (await events(gateway))["events"]
        (listing,) = (one for one in found if one["type"] == "request" and one["method"] == "tools/list")
        assert sorted(one["server"] for one in listing["attempts"]) == ["a", "b"]
        own = [one for one in found if one["type"] == "message" and one["request"] == listing["request"]]
        assert sorted((one["leg"], one["way"]) for one in own).count(("server", "in")) == 2


async def test_a_call_can_be_repeated() -> None:
    async with watched(actions=True, redact=("nothing",)) as gateway:
        await events(gateway, wait=0)
        client = Caller(gateway.base_url + "/mcp")
        await client.initialize()
        await client.request("tools/call", {"name": "echo", "arguments": {"text": "again"}})
        _, messages = await request_of(gateway)
        order = json.dumps({"message": messages[0]["n"]}).encode()
        posted = {"content_type": "application/json"}
        status, body, _ = await asked(gateway, "/ui/api/replay", "POST", order, **posted)
        shown = json.loads(body)
        assert status == 200 and shown["result"]["content"] == shown["recorded"]["content"]
        order = json.dumps({"message": messages[1]["n"]}).encode()
        status, body, _ = await asked(gateway, "/ui/api/replay", "POST", order, **posted)
        assert (status, b"no request of a client" in body) == (409, True)


async def test_two_pages_with_one_command_get_one_success() -> None:
    async with watched(actions=True) as gateway:
        found: list[int] = []

        async def start() -> None:
            status, _, _ = await asked(gateway, "/servers/a/start", "POST", x_requested_with="page")
            found.append(status)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            tasks.start_soon(start)
        assert sorted(found) == [200, 409]


async def test_a_second_page_on_stdio_takes_a_free_port() -> None:
    """Two windows of a client start the same command; neither is to be without its server."""
    async with watched() as first:
        where = first.page_url.removeprefix("http://").partition("/")[0]
        settings = msgspec.structs.replace(first.settings, ui=Ui(listen=where))
        async with running(settings, listen=False, is_lasting=False) as second:
            assert second.page_url and where not in second.page_url
        with pytest.raises(StartError, match="cannot listen on"):
            async with running(settings, listen=True, is_lasting=False):
                pass


async def test_a_page_of_an_earlier_run_is_answered_at_once() -> None:
    async with watched() as gateway:
        assert (await events(gateway, after=10**9, wait=25))["events"] == []


async def test_a_call_whose_file_is_gone_says_so_when_it_is_repeated() -> None:
    async with watched(actions=True, keep=True, files=True) as gateway:
        client = Caller(gateway.base_url + "/mcp")
        await client.initialize()
        gone = "upload://sessions/0123456789abcdef0123456789abcdef/0123456789abcdef0123456789abcdef"
        await client.request("tools/call", {"name": "echo", "arguments": {"text": gone}})
        _, messages = await request_of(gateway, count=2)
        order = json.dumps({"message": messages[0]["n"]}).encode()
        status, body, _ = await asked(gateway, "/ui/api/replay", "POST", order, content_type="application/json")
        assert status == 200 and gone in json.dumps(json.loads(body)), body


async def test_who_may_see_what() -> None:
    token = Token(name="x", sha256=digest_of("t" * 20).hex(), groups=("admin",))
    nobody = Token(name="y", sha256=digest_of("n" * 20).hex())
    paths = ["/ui/api/overview", "/ui/api/events", "/ui/api/sessions", "/ui/api/messages/1", "/ui/api/messages/1/body"]
    paths += ["/servers", "/files", "/tasks"]
    async with watched() as local, watched(Auth(tokens=(token, nobody))) as known:
        assert known.page_url.endswith("/ui"), "its token is the operator's"
        for gateway, right, others in ((local, "", "x"), (known, "t" * 20, "x")):
            for path in paths:
                wanted = 404 if "messages" in path else 200
                assert (await asked(gateway, path, token=right))[0] == wanted, path
                assert (await asked(gateway, path, token=others))[0] == 401, path
                assert (await asked(gateway, f"{path}?token={right}", authorization=""))[0] == 401, path
                assert (await asked(gateway, path, token=right, host="evil.example"))[0] in (403, 421), path
                assert (await asked(gateway, path, token=right, origin="http://evil.example"))[0] == 403, path
                assert (await asked(gateway, path, token=right, sec_fetch_site="cross-site"))[0] in (200, 403), path
            for path in ("/mcp", "/mcp/a", "/sse", "/ws", "/upload/a", "/mcp/a/tools", "/metrics"):
                assert (await asked(gateway, path, token=right))[0] in (404, 403), path
            status, body, _ = await asked(gateway, "/servers/a/stop", "POST", token=right, x_requested_with="page")
            assert (status, b"ui.actions" in body) == (403, True)
            assert (await asked(gateway, "/ui/api/events?after=x", token=right))[0] == 400
            assert (await asked(gateway, "/ui/api/events?wait=26", token=right))[0] == 400
        assert (await asked(known, "/ui/api/overview", token="n" * 20))[0] == 403
        for path in paths[:5]:
            url = local.base_url + path
            async with requested(url, "GET", {"authorization": f"Bearer {local.local_token}"}, b"") as response:
                assert response.status == 404, "clients do not reach the page"


async def test_the_files_of_the_page_need_no_token_and_guard_themselves() -> None:
    async with watched() as gateway:
        for path, kind in (("/ui", "text/html"), ("/ui/app.js", "text/javascript"), ("/ui/app.css", "text/css")):
            status, _, headers = await asked(gateway, path, authorization="")
            assert status == 200 and headers["content-type"].startswith(kind)
            assert headers["content-security-policy"] == CSP and headers["x-content-type-options"] == "nosniff"
        for path in ("/ui/../gateway.py", "/ui/%2e%2e/gateway.py", "/ui/none.js", "/ui/app.js/x"):
            assert (await asked(gateway, path))[0] in (400, 404)


async def test_records_come_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages_module, "EVENTS_MAX", 3)
    async with watched(keep=True, bodies=False) as gateway:
        await call(gateway)
        _, messages = await request_of(gateway)
        first = await events(gateway)
        assert len(first["events"]) == 3 and first["last"] > first["events"][-1]["n"]
        assert (await asked(gateway, f"/ui/api/messages/{messages[0]['n']}"))[0] == 404, "bodies are not kept"
