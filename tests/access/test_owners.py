"""The corner cases of what belongs to a caller: sessions, streams, tasks, files and the state of calls.

How the list is divided among the files is said in `test_tokens.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from access_scenes import ALICE, BOB, FakeIssuer, gateway, issuing, modern, opened, server, shown, status_of
from http_caller import PATIENCE_S, USUAL, Caller, Json, requested
from isthmus.app.config.settings import Core, ServerTasks
from isthmus.app.gateway import Gateway

pytestmark = pytest.mark.anyio

LEEWAY_S = 30.0
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


async def answered(url: str, method: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, bytes]:
    async with requested(url, method, headers, body) as response:
        return response.status, await response.body()


async def test_case_7_a_session_of_another_caller_is_answered_as_one_that_does_not_exist() -> None:
    """2025-11-25 security_best_practices, "Session Hijacking": a session id is no authentication, and belongs to the
    user that got it. The session goes on."""
    async with gateway(server()) as found:
        alice = await opened(found, ALICE)
        assert alice.session is not None
        taken = USUAL | shown(BOB) | {"mcp-session-id": alice.session}
        made_up = taken | {"mcp-session-id": "0" * len(alice.session)}
        for method, body in (("POST", PING), ("GET", b""), ("DELETE", b"")):
            status, said = await answered(alice.url, method, taken, body)
            assert status == 404
            assert (status, said) == await answered(alice.url, method, made_up, body)
        assert await alice.call("echo", text="y") == "toolbox says y", "nothing was ended"


async def test_case_8_a_call_that_has_begun_is_answered_though_its_token_expires(tmp_path: Path) -> None:
    """2026-07-28 basic/authorization, "Token Requirements": a token belongs to its request, and was judged with it."""
    started, until = tmp_path / "started", tmp_path / "until"
    core = Core(port=0, drain_seconds=5.0, keep_alive_seconds=0.2)
    async with issuing(server(), core=core) as (issuer, found):
        alice = await opened(found, issuer.token(f"{found.base_url}/mcp/a", lasts_s=4 - LEEWAY_S))
        said = []

        async def call() -> None:
            said.append(await alice.call("wait", started=str(started), until=str(until)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            with anyio.fail_after(PATIENCE_S):
                while not started.exists():  # noqa: ASYNC110 - a process makes it
                    await anyio.sleep(0.02)
                session = {"mcp-session-id": str(alice.session)}
                while await status_of(alice.url, "POST", alice.headers | session, PING) != 401:  # noqa: ASYNC110
                    await anyio.sleep(0.1)
            until.touch()
        assert said == ["waited"]


async def test_case_8_a_stream_whose_token_expires_ends_with_an_id_from_which_a_new_token_resumes() -> None:
    """2025-11-25 basic/transports, "Resumability and Redelivery": `Last-Event-ID` resumes a stream. Each request has a
    token, so the one that resumes needs a new one."""
    core = Core(port=0, drain_seconds=5.0, keep_alive_seconds=0.2)
    async with issuing(server(peer="bell.py"), core=core) as (issuer, found):
        audience = f"{found.base_url}/mcp/a"
        alice = await opened(found, issuer.token(audience, lasts_s=4 - LEEWAY_S))
        assert await alice.call("ring") == "ding"
        events = alice.headers | {"accept": "text/event-stream", "mcp-session-id": str(alice.session)}
        async with requested(alice.url, "GET", events) as stream:
            seen = [message["method"] async for message in stream.messages()]  # until it ends
            last = stream.last_event_id
        assert seen == ["notifications/tools/list_changed"]
        assert last is not None
        assert await status_of(alice.url, "GET", events | {"last-event-id": last}, b"") == 401
        alice.headers |= shown(issuer.token(audience))
        assert await alice.call("ring") == "ding"
        resumed = events | alice.headers | {"accept": "text/event-stream", "last-event-id": last}
        async with requested(alice.url, "GET", resumed) as stream:
            assert stream.status == 200
            assert (await anext(stream.messages()))["method"] == "notifications/tools/list_changed"
            assert stream.last_event_id != last


# --- Tasks, files and state -------------------------------------------------------------------------------------------


async def with_tasks(found: Gateway, token: str) -> Caller:
    """Opens a session of the revision that has tasks."""
    caller = Caller(f"{found.base_url}/mcp/a", shown(token))
    info = {"name": "caller", "version": "0"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    assert "result" in await caller.request("initialize", params)
    caller.headers["mcp-protocol-version"] = "2025-11-25"
    await caller.send(method="notifications/initialized")
    return caller


async def begun(caller: Caller, tool: str, **arguments: str) -> str:
    """Begins a call as a task, and returns the id of the task."""
    answer = await caller.request("tools/call", {"name": tool, "arguments": arguments, "task": {}})
    id: str = answer["result"]["task"]["taskId"]
    return id


def refreshed(issuer: FakeIssuer, found: Gateway) -> str:
    """Returns a later token of the same person, which allows more."""
    return issuer.token(f"{found.base_url}/mcp/a", lasts_s=90, scope="read write", jti="another")


async def test_case_17_a_new_token_of_a_caller_has_its_session_its_tasks_and_its_files() -> None:
    """2025-11-25 basic/utilities/tasks, "Task Isolation and Access Control": what is kept belongs to the caller. A
    token proves for a while who that is, and is no part of it."""
    rules = ServerTasks(offer="auto")
    async with issuing(server(peer="filer.py", files="auto", tasks=rules)) as (issuer, found):
        alice = await with_tasks(found, issuer.token(f"{found.base_url}/mcp/a"))
        made = {"at": "made.txt", "text": "made", "say": "made.txt"}
        answer = await alice.request("tools/call", {"name": "write", "arguments": made})
        uri = answer["result"]["_meta"]["artifact"]["artifact_uri"]
        answer = await alice.request("tools/call", {"name": "a_get_upload_url", "arguments": {}})
        link = answer["result"]["structuredContent"]["upload_url"]
        task = await begun(alice, "say", say="said")

        alice.headers |= shown(refreshed(issuer, found))
        answer = await alice.request("tasks/result", {"taskId": task})
        assert answer["result"]["content"][0]["text"] == "said"
        assert "result" in await alice.request("resources/read", {"uri": uri})
        upload = shown(refreshed(issuer, found)) | {"content-type": "text/plain", "x-filename": "a.txt"}
        assert (await answered(link, "PUT", upload, b"hello"))[0] == 200

        again = await with_tasks(found, refreshed(issuer, found))
        assert task in json.dumps(await again.request("tasks/list")), "in another session of hers, too"


async def test_case_18_a_task_of_another_caller_is_answered_as_one_that_does_not_exist() -> None:
    """2025-11-25 basic/utilities/tasks, "Task Isolation and Access Control": tasks are there for the caller that began
    them."""
    async with gateway(server(tasks=ServerTasks(offer="auto"))) as found:
        alice, bob = await with_tasks(found, ALICE), await with_tasks(found, BOB)
        task = await begun(alice, "echo", text="x")
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            answers = [await bob.request(method, {"taskId": id}) for id in (task, "0" * len(task))]
            assert "error" in answers[0]
            assert json.dumps(answers[0]["error"]).replace(task, "0" * len(task)) == json.dumps(answers[1]["error"])
        assert task not in json.dumps(await bob.request("tasks/list"))
        answer = await alice.request("tasks/result", {"taskId": task})
        assert answer["result"]["content"][0]["text"] == "toolbox says x"


async def test_case_18_the_state_of_a_call_of_another_caller_is_refused_like_one_that_was_changed() -> None:
    """2026-07-28 basic/patterns/mrtr, "Server Requirements": what a client sends as `requestState` is not trusted, and
    it is bound to the caller that got it."""
    async with gateway(server()) as found:
        url = f"{found.base_url}/mcp/a"

        async def ask(token: str, **more: object) -> Json:
            headers, body = modern("tools/call", name="ask", arguments={}, **more)
            meta = json.loads(body)
            meta["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {"sampling": {}}
            async with requested(url, "POST", USUAL | shown(token) | headers, json.dumps(meta).encode()) as response:
                [message] = [each async for each in response.messages()]
            return message

        result = (await ask(ALICE))["result"]
        assert result["resultType"] == "input_required"
        [name] = result["inputRequests"]
        said = {"role": "assistant", "content": {"type": "text", "text": "five"}, "model": "m"}
        answers, state = {name: said}, result["requestState"]
        changed = state[:-4] + ("A" if state[-4] != "A" else "B") + state[-3:]
        refused = [
            (await ask(token, inputResponses=answers, requestState=each))["error"]
            for token, each in ((BOB, state), (ALICE, changed))
        ]
        assert refused[0] == refused[1]
        done = await ask(ALICE, inputResponses=answers, requestState=state)
        assert done["result"]["content"][0]["text"] == "five"
