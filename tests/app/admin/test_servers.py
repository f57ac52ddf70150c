"""Tests of the HTTP interface that manages and uses servers, with real child processes and real sockets."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from http_caller import PATIENCE_S, Caller, operator, requested
from isthmus.app import gateway as gateway_module
from isthmus.app.base.version import DESCRIPTION, VERSION
from isthmus.app.config.access import has_local_token
from isthmus.app.config.access_settings import Auth
from isthmus.app.config.plan import to_limits
from isthmus.app.config.settings import Core, Management, Server, Sessions, Settings, Storage, ToolFilter, Upstream
from isthmus.app.gateway import Gateway, running

Json = dict[str, Any]

PEERS = Path(__file__).parents[1] / "peers"
POSTED = {"content-type": "application/json"}

pytestmark = pytest.mark.anyio


def child(id: str = "a", *arguments: str, peer: str = "toolbox", **options: Any) -> Server:
    command = (sys.executable, str(PEERS / f"{peer}.py"), *arguments)
    return Server(id=id, upstream=Upstream(command=command), **{"warm": 0, **options})


def command(*words: str, id: str = "a") -> Server:
    return Server(id=id, upstream=Upstream(command=words), warm=0)


def remote(url: str, id: str = "far") -> Server:
    return Server(id=id, upstream=Upstream(url=url))


@asynccontextmanager
async def proxy(*servers: Server, token: str | None = None, **sections: Any) -> AsyncIterator[Gateway]:
    core = Core(port=0, drain_seconds=5.0, management=Management(token=token))
    settings = Settings(core=core, servers=servers or (child(),), **sections)
    with anyio.fail_after(4 * PATIENCE_S):
        async with running(settings, listen=True, is_lasting=False) as gateway:
            yield gateway


async def fetch(
    gateway: Gateway, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Json]:
    """Status and JSON body. The posted body is sent as JSON, unless it is bytes."""
    fields = {**operator(gateway), **(POSTED if method == "POST" else {}), **(headers or {})}
    sent = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    async with requested(gateway.base_url + path, method, fields, sent) as response:
        return response.status, await response.json()


async def get(gateway: Gateway, path: str) -> Json:
    status, body = await fetch(gateway, "GET", path)
    assert status == 200, body
    return body


async def order(gateway: Gateway, action: str, id: str = "a") -> int:
    status, body = await fetch(gateway, "POST", f"/servers/{id}/{action}")
    if status == 200:
        assert (body["name"], body["action"], body["status"]) == (id, action, "success")
    else:
        assert body["code"] == status and body["error"]
    return status


async def status_of(gateway: Gateway, id: str = "a") -> str:
    status: str = (await get(gateway, f"/servers/{id}/status"))["status"]
    return status


async def call(gateway: Gateway, tool: str, id: str = "a", query: str = "", **arguments: object) -> tuple[int, Json]:
    return await fetch(gateway, "POST", f"/mcp/{id}/tools/call{query}", {"name": tool, "arguments": arguments})


async def together(*works: Callable[[], Awaitable[Any]]) -> list[Any]:
    """The results of all calls, made at once, in their order."""
    results: list[Any] = [None] * len(works)

    async def work(i: int) -> None:
        results[i] = await works[i]()

    async with anyio.create_task_group() as tasks:
        for i in range(len(works)):
            tasks.start_soon(work, i)
    return results


async def appears(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110
        await anyio.sleep(0.005)


# --- Health and lists -----------------------------------------------------------------------------------------------


async def test_health_does_not_depend_on_servers() -> None:
    """A process that runs is healthy, whatever its servers are."""
    async with proxy(command("/nonexistent")) as gateway:
        assert await order(gateway, "start") == 500
        for path in ("/health", "/healthz"):
            expected = {"status": "ok", "service": "isthmus", "version": VERSION, "sessions": 0}
            assert await get(gateway, path) == expected
            for name in ("10.0.0.7:8932", "isthmus.default.svc"):
                probed = await fetch(gateway, "GET", path, headers={"host": name})
                assert probed == (200, {"status": "ok", "service": "isthmus"})


async def test_readiness_names_the_servers_that_cannot_be_used() -> None:
    async with proxy(child("a"), child("b"), command("/nonexistent", id="c")) as gateway:
        assert (await get(gateway, "/readyz"))["status"] == "ok", "what waits to be asked is ready"
        await order(gateway, "start", "c")
        await order(gateway, "stop", "b")
        status, body = await fetch(gateway, "GET", "/readyz")
        assert (status, body["status"]) == (503, "not ready")
        assert body["servers"] == [{"name": "b", "state": "stopped"}, {"name": "c", "state": "failed"}]
        probed = await fetch(gateway, "GET", "/readyz", headers={"host": "10.0.0.7"})
        assert probed == (503, {"status": "not ready", "service": "isthmus"})
        await order(gateway, "start", "b")
        assert [one["name"] for one in (await fetch(gateway, "GET", "/readyz"))[1]["servers"]] == ["c"]


async def test_info_says_what_this_is() -> None:
    async with proxy() as gateway:
        expected = {"name": "isthmus", "version": VERSION, "description": DESCRIPTION}
        assert await get(gateway, "/info") == expected
        assert all(expected.values())


async def test_the_list_shows_both_kinds_in_the_order_of_the_configuration() -> None:
    """Servers are stopped before their first use, and start on demand; the path is the name."""
    async with proxy(child("z"), remote("http://127.0.0.1:9/mcp")) as gateway:
        listed = (await get(gateway, "/servers"))["servers"]
        assert [(one["name"], one["path"], one["type"], one["status"]) for one in listed] == [
            ("z", "z", "local", "stopped"),
            ("far", "far", "remote", "stopped"),
        ]
        for one in listed:
            assert one["on_demand"] is True
            assert (one["state"], one["pids"], one["starts"], one["uptime_s"]) == ("idle", [], 0, None)
            assert await get(gateway, f"/servers/{one['name']}") == one
            assert await get(gateway, f"/servers/{one['name']}/status") == one


async def test_a_server_in_use_shows_its_state() -> None:
    async with proxy() as gateway:
        caller = Caller(f"{gateway.base_url}/mcp/a")
        await caller.initialize()
        await get(gateway, "/mcp/a/tools")
        shown = await get(gateway, "/servers/a")
        assert (shown["status"], shown["state"], shown["kind"]) == ("running", "running", "pipe")
        assert (shown["sessions"], shown["processes"], shown["starts"], shown["in_flight"]) == (2, 2, 2, 0)
        assert shown["pids"] == gateway.hub.child_pids and len(shown["pids"]) == 2
        assert (shown["eras"], shown["era"]) == ({"handshake": "2025-11-25"}, "handshake")
        assert (shown["protocol_version"], shown["capabilities"], shown["tools"]) == ("2025-11-25", ["tools"], 6)
        assert shown["uptime_s"] >= 0
        assert (shown["failures"], shown["last_error"], shown["on_demand"]) == (0, "", False)


@pytest.mark.parametrize(
    "method, path",
    [
        ("GET", "/servers/none"),
        ("GET", "/servers/none/status"),
        ("POST", "/servers/none/start"),
        ("POST", "/servers/none/stop"),
        ("POST", "/servers/none/restart"),
        ("GET", "/mcp/none/tools"),
        ("POST", "/mcp/none/tools/call"),
    ],
)
async def test_an_unknown_server_is_not_found(method: str, path: str) -> None:
    async with proxy() as gateway:
        status, body = await fetch(gateway, method, path, {"name": "echo"} if method == "POST" else None)
        assert (status, body["code"]) == (404, 404)
        assert "none" in body["error"] and "a" in body["error"]


async def test_a_transparent_server_is_listed_and_left_alone() -> None:
    """The state of a transparent server is not known here, and its tools are listed by the server itself, if at all."""
    async with proxy() as far:
        passing = Server(id="far", upstream=Upstream(url=f"{far.base_url}/mcp/a"), inspect=False)
        async with proxy(child("b"), passing) as gateway:
            one, other = (await get(gateway, "/servers"))["servers"]
            assert (one["name"], one["state"]) == ("b", "idle")
            assert (other["name"], other["type"], other["state"]) == ("far", "remote", "transparent")
            assert await order(gateway, "stop", "far") == 409
            assert (await get(gateway, "/readyz"))["status"] == "ok"
            status, body = await fetch(gateway, "GET", "/mcp/far/tools")
            assert (status, far.base_url in body["error"]) == (401, True), "it has passed through, without the token"


# --- Starting and stopping ------------------------------------------------------------------------------------------


async def cycle(gateway: Gateway, id: str) -> None:
    """Starts and stops a server once, and checks its status at each step."""
    assert await status_of(gateway, id) == "stopped"
    assert await order(gateway, "start", id) == 200
    assert await status_of(gateway, id) == "running"
    assert await order(gateway, "start", id) == 409
    assert await status_of(gateway, id) == "running", "the refused start has harmed nothing"
    assert await order(gateway, "stop", id) == 200
    shown = await get(gateway, f"/servers/{id}")
    assert (shown["status"], shown["on_demand"], shown["pids"]) == ("stopped", False, [])
    assert await order(gateway, "stop", id) == 503
    assert await order(gateway, "start", id) == 200, "and it can be started again"
    assert await status_of(gateway, id) == "running"


async def test_a_process_is_started_and_stopped() -> None:
    async with proxy() as gateway:
        await cycle(gateway, "a")
        assert len(gateway.hub.child_pids) == 1


@pytest.mark.parametrize("path", ["/mcp/a", "/sse/a"])
async def test_a_remote_server_is_started_and_stopped(path: str) -> None:
    async with proxy() as far, proxy(remote(far.base_url + path)) as gateway:
        await cycle(gateway, "far")
        caller = Caller(f"{gateway.base_url}/mcp/far")
        await caller.initialize()
        assert await caller.call("echo", text="x") == "toolbox says x", "its own endpoint is there as well"


@pytest.mark.parametrize("share", ["concurrent", "serial"])
async def test_a_shared_process_is_started_and_stopped(share: Any) -> None:
    async with proxy(child(share=share)) as gateway:
        await cycle(gateway, "a")
        caller = Caller(f"{gateway.base_url}/mcp/a")
        await caller.initialize()
        assert (await call(gateway, "echo", text="x"))[1]["content"][0]["text"] == "toolbox says x"
        assert len(gateway.hub.child_pids) == 1


async def test_two_servers_are_looked_after_side_by_side() -> None:
    async with proxy(child("a"), child("b")) as gateway:
        assert await together(lambda: order(gateway, "start", "a"), lambda: order(gateway, "start", "b")) == [200, 200]
        assert await order(gateway, "stop", "a") == 200
        assert [one["status"] for one in (await get(gateway, "/servers"))["servers"]] == ["stopped", "running"]


async def test_nothing_runs_before_it_is_needed() -> None:
    async with proxy() as gateway:
        await get(gateway, "/servers")
        assert gateway.hub.child_pids == []


@pytest.mark.parametrize("words", [("sh", "-c", "exit 3"), ("sh", "-c", "read greeting; exit 3"), ("true",)])
async def test_a_process_that_exits_at_once_has_failed(words: tuple[str, ...]) -> None:
    async with proxy(command(*words)) as gateway:
        status, body = await fetch(gateway, "POST", "/servers/a/start")
        assert (status, body["code"]) == (502, 502)
        assert "exited with code" in body["error"]
        shown = await get(gateway, "/servers/a")
        assert (shown["status"], shown["failures"], shown["pids"]) == ("failed", 1, [])
        assert shown["last_error"] in body["error"]


async def test_a_process_that_speaks_no_mcp_has_failed() -> None:
    """The proxy waits as long as the configuration says."""
    async with proxy(Server(id="a", upstream=Upstream(command=("sleep", "60")), start_timeout_seconds=0.2)) as gateway:
        status, body = await fetch(gateway, "POST", "/servers/a/start")
        assert status == 502 and "did not answer within 0.2 s" in body["error"]
        assert (await get(gateway, "/servers/a"))["state"] == "failed"


async def test_a_process_that_does_not_exist_is_a_failure_of_another_kind() -> None:
    async with proxy(command("/nonexistent/server")) as gateway:
        status, body = await fetch(gateway, "POST", "/servers/a/start")
        assert (status, body["code"]) == (500, 500)
        assert "'/nonexistent/server' does not exist" in body["error"]
        assert await status_of(gateway) == "failed"


async def test_a_server_that_refuses_to_greet_has_failed() -> None:
    async with proxy(child("a", "no entry", peer="curious")) as gateway:
        status, body = await fetch(gateway, "POST", "/servers/a/start")
        assert (status, body["error"]) == (502, "no entry")
        assert await status_of(gateway) == "failed"


async def test_a_host_that_speaks_no_mcp_has_failed() -> None:
    async with proxy() as other, proxy(remote(f"{other.base_url}/healthz")) as gateway:
        status, body = await fetch(gateway, "POST", "/servers/far/start")
        assert (status, body["code"]) == (502, 502)
        assert "405" in body["error"]
        shown = await get(gateway, "/servers/far")
        assert (shown["status"], shown["failures"], shown["starts"] > 0) == ("failed", 1, True)


async def test_a_failed_server_can_be_stopped_and_restarted() -> None:
    async with proxy(command("/nonexistent")) as gateway:
        assert await order(gateway, "start") == 500
        assert await order(gateway, "restart") == 500
        assert await status_of(gateway) == "failed"
        assert await order(gateway, "stop") == 200
        assert await status_of(gateway) == "stopped"


async def test_a_restart_helps_in_every_state() -> None:
    async with proxy() as gateway:
        assert await order(gateway, "restart") == 200, "though it had not run"
        [first] = gateway.hub.child_pids
        assert await order(gateway, "restart") == 200
        [second] = gateway.hub.child_pids
        assert first != second
        assert await order(gateway, "stop") == 200
        assert await order(gateway, "restart") == 200, "though it was stopped"
        assert await status_of(gateway) == "running"


async def test_an_idle_server_that_was_stopped_is_not_started_by_clients() -> None:
    async with proxy() as gateway:
        assert await order(gateway, "stop") == 200
        with pytest.raises(AssertionError, match="it is stopped; start it first"):
            await Caller(f"{gateway.base_url}/mcp/a").initialize()
        assert gateway.hub.child_pids == []
        assert await order(gateway, "start") == 200
        await Caller(f"{gateway.base_url}/mcp/a").initialize()


async def processes_of(gateway: Gateway, *, count: int, starts: int) -> set[int]:
    """The ids of the processes once there are `count`, after so many starts."""
    while True:
        shown = await get(gateway, "/servers/a/status")
        if (len(shown["pids"]), shown["starts"]) == (count, starts):
            return set(shown["pids"])
        await anyio.sleep(0.01)


async def test_the_next_session_finds_a_process_running() -> None:
    """One is kept ready by default once the server was used."""
    async with proxy(child(warm="auto")) as gateway:
        await Caller(f"{gateway.base_url}/mcp/a").initialize()
        before = await processes_of(gateway, count=2, starts=2)
        await Caller(f"{gateway.base_url}/mcp/a").initialize()
        assert before < await processes_of(gateway, count=3, starts=3)


async def test_a_server_that_runs_once_is_not_disturbed_by_a_process_kept_ready(tmp_path: Path) -> None:
    words = ("flock", "--nonblock", str(tmp_path / "lock"), sys.executable, str(PEERS / "toolbox.py"))
    async with proxy(Server(id="a", upstream=Upstream(command=words))) as gateway:
        client = Caller(f"{gateway.base_url}/mcp/a")
        await client.initialize()
        first = await processes_of(gateway, count=1, starts=2)
        async with requested(client.url, "DELETE", {"mcp-session-id": client.session or ""}) as response:
            assert response.status == 204
        await Caller(client.url).initialize()
        while first & set((await get(gateway, "/servers/a/status"))["pids"]):  # noqa: ASYNC110
            await anyio.sleep(0.01)
        assert (await get(gateway, "/servers/a/status"))["spares"] == 0


async def test_of_two_starts_at_once_one_succeeds_and_neither_does_harm() -> None:
    async with proxy() as gateway:
        for _ in range(3):
            starts = [lambda: order(gateway, "start")] * 4
            assert sorted(await together(*starts)) == [200, 409, 409, 409]
            assert await status_of(gateway) == "running"
            assert len(gateway.hub.child_pids) == 1
            assert await order(gateway, "stop") == 200


async def test_concurrent_starts_and_stops_leave_a_consistent_state() -> None:
    """The last order decides, and no process is left over."""
    async with proxy() as gateway:
        for _ in range(3):
            statuses = await together(
                lambda: order(gateway, "start"),
                lambda: order(gateway, "stop"),
                lambda: order(gateway, "restart"),
                lambda: order(gateway, "stop"),
                lambda: order(gateway, "start"),
            )
            assert set(statuses) <= {200, 409, 502, 503}
            shown = await get(gateway, "/servers/a")
            assert shown["status"] in ("running", "stopped")
            assert (shown["status"] == "running") == bool(shown["pids"])
            await order(gateway, "stop")
            assert gateway.hub.child_pids == []


async def test_a_start_that_hangs_can_be_stopped() -> None:
    async with proxy(command("sleep", "60")) as gateway:

        async def stop() -> int:
            await gateway.hub.wait_until(lambda: gateway.hub.engine.report()[0].state == "starting")
            return await order(gateway, "stop")

        assert await together(lambda: order(gateway, "start"), stop) == [502, 200]
        assert await status_of(gateway) == "stopped"


async def test_a_process_that_was_killed_does_not_run() -> None:
    async with proxy() as gateway:
        await order(gateway, "start")
        [pid] = gateway.hub.child_pids
        os.kill(pid, signal.SIGKILL)
        await gateway.hub.wait_until(lambda: not gateway.hub.child_pids)
        shown = await get(gateway, "/servers/a")
        assert (shown["status"], shown["on_demand"], shown["pids"]) == ("stopped", True, [])
        assert "killed by signal 9" in shown["last_error"]
        assert await order(gateway, "start") == 200
        assert await status_of(gateway) == "running"


# --- Tools ----------------------------------------------------------------------------------------------------------


async def test_tools_are_listed_whole_and_from_every_page() -> None:
    async with proxy(child("c", peer="curious")) as gateway:
        body = await get(gateway, "/mcp/c/tools")
        assert (body["server"], body["filter_active"], "truncated" in body) == ("c", False, False)
        mirror, fall, err, odd = body["tools"]
        assert mirror == {
            "name": "mirror",
            "title": "Mirror",
            "description": "Says what it hears.",
            "inputSchema": mirror["input_schema"],
            "input_schema": {
                "type": "object",
                "properties": {"deep": {"type": "object", "properties": {"n": {"type": "integer"}}}},
            },
            "outputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": True},
            "icons": [{"src": "data:,"}],
            "_meta": {"vendor/x": 1},
        }
        assert [one["inputSchema"] for one in (fall, err, odd)] == [True, None, ["odd"]], "as the server has them"
        assert (await get(gateway, "/servers/c"))["tools"] == 4


async def test_a_filter_hides_tools_here_too() -> None:
    filtered = child("c", peer="curious", tools=ToolFilter(include=("m*", "err"), exclude=("err",)))
    async with proxy(filtered) as gateway:
        body = await get(gateway, "/mcp/c/tools")
        assert ([tool["name"] for tool in body["tools"]], body["filter_active"]) == (["mirror"], True)
        assert (await get(gateway, "/servers/c"))["tools"] == 1
        assert (await call(gateway, "mirror", "c"))[0] == 200
        for hidden in ("err", "fall"):
            assert (await call(gateway, hidden, "c"))[0] == 404


async def test_headers_that_a_server_wants_are_wanted_here_too() -> None:
    async with proxy(child(required_headers=("X-Key",))) as gateway:
        for headers, status in (({}, 400), ({"x-key": "1"}, 200)):
            assert (await fetch(gateway, "GET", "/mcp/a/tools", headers=headers))[0] == status
            assert (await fetch(gateway, "POST", "/mcp/a/tools/call", {"name": "echo"}, headers))[0] == status


async def test_a_result_comes_back_as_the_server_gave_it() -> None:
    """Numbers keep every digit in both directions."""
    async with proxy(child("c", peer="curious")) as gateway:
        sent = b'{"name":"mirror","arguments":{"big":98765432109876543210,"dot":1.50,"text":"\\u00e9"}}'
        posted = POSTED | operator(gateway)
        async with requested(f"{gateway.base_url}/mcp/c/tools/call", "POST", posted, sent) as response:
            assert response.status == 200
            body = await response.body()
        assert b'"structuredContent":{"big":98765432109876543210,"dot":1.50,"text":"\\u00e9"}' in body
        assert b'"_meta":{"big":123456789012345678901234567890}' in body
        assert b'"_meta":{"k":1.50}' in body
        result = json.loads(body)
        assert (result["isError"], result["is_error"]) == (False, False)
        assert result["content"][0]["type"] == "resource_link"


async def test_a_tool_s_own_error_is_a_result() -> None:
    async with proxy(child("c", peer="curious"), child("a")) as gateway:
        status, body = await call(gateway, "err", "c")
        assert (status, body["isError"], body["is_error"]) == (200, True, True)
        status, body = await call(gateway, "echo", text="x")
        assert (status, body) == (200, {"content": [{"type": "text", "text": "toolbox says x"}]}), (
            "no more than it said"
        )


async def test_a_server_s_error_is_returned_with_its_code() -> None:
    async with proxy(child("c", peer="curious")) as gateway:
        status, body = await call(gateway, "fall", "c")
        assert (status, body["code"], body["error"]) == (502, 502, "it fell")
        assert body["rpc"] == {"code": -32042, "message": "it fell", "data": {"height_m": 3}}


async def test_a_server_request_without_a_client_gets_an_error() -> None:
    async with proxy(child("c", peer="curious")) as gateway:
        assert (await call(gateway, "ask", "c"))[1]["structuredContent"]["error"] < 0


async def test_a_server_that_dies_in_a_call_is_started_for_the_next() -> None:
    async with proxy() as gateway:
        status, body = await call(gateway, "die")
        assert status == 502 and "exited with code 3" in body["error"]
        assert body["rpc"]["data"] == {"outcome": "unknown"}
        assert (await call(gateway, "echo", text="x"))[0] == 200


@pytest.mark.parametrize(
    "body, named",
    [
        (b"", "truncated"),
        (b"{}", "`name`"),
        (b"[]", "`object`"),
        (b'{"name":7}', "$.name"),
        (b'{"name":"echo","arguments":[]}', "$.arguments"),
        (b'{"name":"echo","argumens":{}}', "argumens"),
        (b'{"name":"echo"', "truncated"),
        (b'{"name":"\xff"}', ""),
        (b"[" * 100_000, ""),
    ],
    ids=lambda value: repr(value[:30]),
)
async def test_what_is_no_call_is_refused_by_name(body: bytes, named: str) -> None:
    async with proxy() as gateway:
        status, refusal = await fetch(gateway, "POST", "/mcp/a/tools/call", body)
        assert (status, refusal["code"]) == (400, 400)
        assert named in refusal["error"] and "expected name and arguments" in refusal["error"]
        assert gateway.hub.child_pids == []


async def test_an_unknown_tool_is_not_found_and_not_called() -> None:
    async with proxy() as gateway:
        status, body = await call(gateway, "fly")
        assert (status, body["error"]) == (404, "a has no tool 'fly'; GET /mcp/a/tools lists its tools")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon", ""])
async def test_an_invalid_time_limit_is_refused(seconds: str) -> None:
    async with proxy() as gateway:
        for method, path in (("GET", "/mcp/a/tools"), ("POST", "/mcp/a/tools/call")):
            body = {"name": "echo"} if method == "POST" else None
            status, refusal = await fetch(gateway, method, f"{path}?timeout_s={seconds}", body)
            assert status == 400 and "timeout_s" in refusal["error"]


async def test_a_stopped_server_lists_and_calls_nothing() -> None:
    async with proxy() as gateway:
        assert (await call(gateway, "echo", text="x"))[0] == 200
        await order(gateway, "stop")
        for status, body in ((await fetch(gateway, "GET", "/mcp/a/tools")), (await call(gateway, "echo", text="x"))):
            assert status == 503
            assert "it is stopped; start it first" in body["error"]
        assert gateway.hub.child_pids == []


async def test_a_server_that_cannot_be_started_is_unavailable() -> None:
    async with proxy(command("/nonexistent")) as gateway:
        status, body = await fetch(gateway, "GET", "/mcp/a/tools")
        assert status == 503 and "/nonexistent" in body["error"]


async def test_ten_lists_at_once_share_one_session() -> None:
    async with proxy() as gateway:
        answers = await together(*[lambda: fetch(gateway, "GET", "/mcp/a/tools")] * 10)
        assert [status for status, _ in answers] == [200] * 10
        assert len({json.dumps(body) for _, body in answers}) == 1
        assert (gateway.hub.engine.session_count, len(gateway.hub.child_pids)) == (1, 1)


async def test_calls_at_once_get_each_its_own_answer() -> None:
    async with proxy() as gateway:
        works = [lambda n=n: call(gateway, "echo", text=n) for n in range(20)]
        texts = [body["content"][0]["text"] for _, body in await together(*works)]
        assert texts == [f"toolbox says {n}" for n in range(20)]


async def test_a_call_that_takes_too_long_frees_its_place(tmp_path: Path) -> None:
    """The server is notified, too. The effects of the call are unknown."""
    started, until = tmp_path / "started", tmp_path / "until"
    async with proxy(sessions=Sessions(max_in_flight_per_session=1)) as gateway:
        await call(gateway, "echo", text="x")
        status, body = await call(gateway, "wait", query="?timeout_s=0.1", started=str(started), until=str(until))
        assert (status, body["code"]) == (504, 504)
        assert "no answer within 0.1 s" in body["error"]
        assert (gateway.hub.engine.exchange_count, (await get(gateway, "/servers/a"))["in_flight"]) == (0, 0)
        until.touch()
        assert (await call(gateway, "echo", text="again"))[0] == 200


async def test_no_call_may_take_longer_than_the_server_s_own_limit(tmp_path: Path) -> None:
    async with proxy(child(call_timeout_seconds=0.2)) as gateway:
        await call(gateway, "echo", text="x")
        arguments = {"started": str(tmp_path / "started"), "until": str(tmp_path / "until")}
        status, body = await call(gateway, "wait", query="?timeout_s=1e9", **arguments)
        assert status == 504 and "0.2 s" in body["error"]
        (tmp_path / "until").touch()


async def test_one_call_too_many_is_refused_with_503(tmp_path: Path) -> None:
    started, until = tmp_path / "started", tmp_path / "until"
    async with proxy(sessions=Sessions(max_in_flight_per_session=1)) as gateway:
        await call(gateway, "echo", text="x")

        async def one_more() -> tuple[int, Json]:
            await appears(started)
            try:
                return await call(gateway, "echo", text="y")
            finally:
                until.touch()

        (first, _), (second, refused) = await together(
            lambda: call(gateway, "wait", started=str(started), until=str(until)), one_more
        )
        assert (first, second) == (200, 503)
        assert "the most a session may have" in refused["error"]


async def test_who_hangs_up_withdraws_the_call(tmp_path: Path) -> None:
    started, until = tmp_path / "started", tmp_path / "until"
    async with proxy() as gateway:

        async def wait() -> None:
            await call(gateway, "wait", started=str(started), until=str(until))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await appears(started)
            assert gateway.hub.engine.exchange_count == 1
            tasks.cancel_scope.cancel()
        await gateway.hub.wait_idle()
        until.touch()
        assert (await call(gateway, "echo", text="x"))[0] == 200


async def test_a_session_nobody_uses_ends_and_the_next_call_begins_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(settings: Settings) -> Any:
        return msgspec.structs.replace(to_limits(settings), page_session_idle_ttl_s=0.05)

    monkeypatch.setattr(gateway_module, "to_limits", impatient)
    async with proxy() as gateway:
        pids = set()
        for _ in range(2):
            assert (await call(gateway, "echo", text="x"))[0] == 200
            pids |= set(gateway.hub.child_pids)
            await gateway.hub.wait_until(lambda: not gateway.hub.engine.session_count and not gateway.hub.child_pids)
        assert len(pids) == 2
        await order(gateway, "start")
        assert (await call(gateway, "echo", text="x"))[0] == 200
        [pid] = gateway.hub.child_pids
        await anyio.wait_all_tasks_blocked()
        assert await status_of(gateway) == "running", "what was started stays"
        assert gateway.hub.child_pids == [pid]


async def test_calls_under_way_are_answered_before_the_end(tmp_path: Path) -> None:
    started, until = tmp_path / "started", tmp_path / "until"
    answers: list[tuple[int, Json]] = []

    async def wait(gateway: Gateway) -> None:
        answers.append(await call(gateway, "wait", started=str(started), until=str(until)))

    async def let_finish() -> None:
        await appears(started)
        until.touch()

    async with anyio.create_task_group() as tasks:
        async with proxy() as gateway:
            tasks.start_soon(wait, gateway)
            await appears(started)
            tasks.start_soon(let_finish)
    [(status, body)] = answers
    assert (status, body["content"][0]["text"]) == (200, "waited")


# --- Authorization --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/servers", "/servers/a", "/servers/a/start"])
async def test_a_configured_token_is_required(path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    method = "POST" if path.endswith("start") else "GET"
    async with proxy(token="s3cret-t0ken") as gateway:
        for headers in ({}, {"authorization": "Bearer other"}, {"authorization": "Basic s3cret-t0ken"}):
            fields = headers | (POSTED if method == "POST" else {})
            async with requested(gateway.base_url + path, method, fields) as response:
                assert response.status == 401
                assert response.headers["www-authenticate"].startswith("Bearer")
                assert b"s3cret" not in await response.body()
        assert gateway.hub.child_pids == []
        status, _ = await fetch(gateway, method, path, headers={"authorization": "Bearer s3cret-t0ken"})
        assert status == 200
        assert (await fetch(gateway, "GET", "/healthz"))[0] == 200, "it is for servers, not for health"
        assert (await call(gateway, "echo", text="x"))[0] == 401, "a call of a tool is one of its owner"
        assert (await fetch(gateway, "GET", "/mcp/a/tools"))[0] == 401
    assert "s3cret-t0ken" not in caplog.text


@pytest.mark.parametrize(
    "core",
    [
        Core(port=0, management=Management(enabled=False)),
        Core(port=0, host="0.0.0.0"),
        Core(port=0, public_base_url="https://gate.example"),
    ],
    ids=["switched off", "open to other machines", "behind another"],
)
async def test_without_a_token_the_pages_do_not_exist_for_remote_clients(core: Core) -> None:
    settings = Settings(core=core, auth=Auth(anonymous="allow"), servers=(child(),))
    async with running(settings, listen=True, is_lasting=False) as gateway:
        for method, path in (("GET", "/servers"), ("POST", "/servers/a/start"), ("GET", "/servers/a/start")):
            status, body = await fetch(gateway, method, path)
            assert (status, body) == (404, {**(await fetch(gateway, "GET", "/nothing"))[1], "detail": body["detail"]})
        assert gateway.hub.child_pids == []


async def test_a_socket_of_this_machine_wants_the_local_token(tmp_path: Path) -> None:
    """A Unix socket has one, whatever address is configured beside it."""
    core = Core(port=None, host="0.0.0.0", unix_socket=str(tmp_path / "socket"))
    async with running(Settings(core=core, servers=(child(),)), listen=True, is_lasting=False) as gateway:
        for token, status in (("x", 401), (gateway.local_token, 200)):
            async with await anyio.connect_unix(str(tmp_path / "socket")) as stream:
                shown = f"Host: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
                await stream.send(f"GET /servers HTTP/1.1\r\n{shown}".encode())
                assert (await stream.receive()).startswith(b"HTTP/1.1 %d " % status)


async def test_the_local_token_outlasts_a_restart_and_is_told_to_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = []
    for root in ("one", "one", "other"):
        settings = Settings(core=Core(port=0), storage=Storage(root=str(tmp_path / root)), servers=(child(),))
        async with running(settings, listen=True, is_lasting=True) as gateway:
            assert gateway.local_token is not None
            tokens.append(gateway.local_token)
            status, body = await fetch(gateway, "GET", "/servers", headers={"authorization": "Bearer other"})
            assert status == 401
            assert body["error"].endswith(f"isthmus token show {gateway.base_url}")
    assert tokens[0] == tokens[1] != tokens[2]
    assert not any(token in caplog.text for token in tokens)
    key = tmp_path / "one" / "state" / "local_token.key"
    assert key.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("core", "auth", "has_token"),
    [
        (Core(port=0), Auth(), True),
        (Core(port=0), Auth(anonymous="allow"), True),
        (Core(port=0), Auth(anonymous="deny"), False),
        (Core(port=0), Auth(unix_peers=True), False),
        (Core(port=0, management=Management(token="x")), Auth(), False),
        (Core(port=0, management=Management(enabled=False)), Auth(), False),
        (Core(port=0, host="0.0.0.0"), Auth(anonymous="allow"), False),
        (Core(port=0, public_base_url="https://gate.example"), Auth(anonymous="allow"), False),
    ],
)
def test_the_settings_that_need_a_local_token(core: Core, auth: Auth, has_token: bool) -> None:
    assert has_local_token(Settings(core=core, auth=auth, servers=(child(),))) is has_token


async def test_a_page_elsewhere_starts_nothing() -> None:
    async with proxy() as gateway:
        for headers, status in (
            ({"content-type": "text/plain"}, 415),
            ({"content-type": "application/x-www-form-urlencoded"}, 415),
            ({"origin": "http://evil.example"}, 403),
            ({"origin": "http://localhost:3000"}, 403),
            ({"host": "evil.example"}, 403),
        ):
            for path in ("/servers/a/start", "/mcp/a/tools/call"):
                body = {"name": "echo"} if path.endswith("call") else None
                assert (await fetch(gateway, "POST", path, body, headers))[0] == status
        assert (await fetch(gateway, "GET", "/mcp/a/tools", headers={"sec-fetch-site": "cross-site"}))[0] == 403
        assert gateway.hub.child_pids == []
