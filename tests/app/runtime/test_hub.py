"""Tests of the hub, which carries out the engine's effects: in order, at the right time, and until nothing is left."""

from __future__ import annotations

import json
import os
import random
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.app.disk.workspaces import Workspaces
from isthmus.app.runtime import hub
from isthmus.app.runtime.hub import Hub
from isthmus.app.runtime.probe import PAGES_MAX, ServerReport, probe
from isthmus.app.runtime.upstreams import UpstreamAddress
from isthmus.core.base.effects import Dial, Effect, Join, Listen, Send
from isthmus.core.base.errors import OUTCOME_UNKNOWN, OVERLOADED, TIMED_OUT, LocalProtocolError
from isthmus.core.base.events import Cause, End, Opening, PipeOpening
from isthmus.core.base.ids import ChannelId, Ticket
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, Kind, Plan, ServerPlan
from isthmus.core.base.storage import StorageAnswer, StorageFailed, StorageOrder, Sweep
from isthmus.core.base.timers import Deadline
from isthmus.core.bulk import BulkEngine
from isthmus.storage.memory import MemoryBlobs, MemoryRecords
from isthmus.transports.base.endpoint import Endpoint
from isthmus.transports.base.port import Outlet
from isthmus.transports.memory import MemoryClient, MemoryPeer, MemoryServer, MemoryUpstream
from isthmus.transports.stdio.server_process import Child, ChildSpec

PATIENCE_S = 20.0
Json = dict[str, Any]
Tool = Callable[["Server", Json], Awaitable[Json]]
"""A tool: the server it runs in and its arguments to the `result`."""

# --- Peers ----------------------------------------------------------------------------------------------------------


def send(peer: MemoryPeer, **members: object) -> None:
    peer.say(json.dumps({"jsonrpc": "2.0", **members}).encode())


class Server:
    """A server in this process: it answers `initialize`, and each tool call by a function."""

    def __init__(self, peer: MemoryServer, tools: Mapping[str, Tool]) -> None:
        self.peer = peer
        self._tools = tools
        self._last_id = 0

    async def serve(self) -> None:
        while True:
            message = await self.receive()
            if "id" not in message or "method" not in message:
                continue
            result: Json = {}
            if message["method"] == "initialize":
                version = message["params"]["protocolVersion"]
                info = {"name": "in-process", "version": "1"}
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            elif message["method"] == "tools/call":
                params = message["params"]
                result = await self._tools[params["name"]](self, params)
            send(self.peer, id=message["id"], result=result)

    async def request(self, method: str) -> Json:
        """Sends a request to the client. Other messages meanwhile are not for this tool."""
        self._last_id += 1
        send(self.peer, id=f"ask-{self._last_id}", method=method, params={})
        while (message := await self.receive()).get("id") != f"ask-{self._last_id}":
            pass
        return message

    async def receive(self) -> Json:
        message: Json = json.loads(await self.peer.receive())
        return message


def text(value: str) -> Json:
    return {"content": [{"type": "text", "text": value}]}


def upstream(**tools: Tool) -> MemoryUpstream:
    return MemoryUpstream(lambda peer: Server(peer, tools).serve())


class Client:
    def __init__(self, hub: Hub, server: str = "one") -> None:
        self.peer = MemoryClient(hub)
        self.peer.open(PipeOpening(server=server))
        self._last_id = 0

    def send_request(self, method: str, params: Json | None = None) -> int:
        self._last_id += 1
        send(self.peer, id=self._last_id, method=method, params=params or {})
        return self._last_id

    async def receive(self) -> Json:
        with anyio.fail_after(PATIENCE_S):
            message: Json = json.loads(await self.peer.receive())
        return message

    async def request(self, method: str, params: Json | None = None) -> Json:
        """The response. Notifications of changed resources may come before it."""
        id = self.send_request(method, params)
        while (answer := await self.receive()).get("method") == "notifications/resources/list_changed":
            pass
        assert answer["id"] == id
        return answer

    async def call(self, tool: str, **arguments: object) -> Json:
        return await self.request("tools/call", {"name": tool, "arguments": arguments})

    async def initialize(self, **capabilities: Json) -> Json:
        params = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": {}}
        answer = await self.request("initialize", params)
        send(self.peer, method="notifications/initialized")
        return answer


class World:
    def __init__(self, hub: Hub, workspaces: Workspaces) -> None:
        self.hub = hub
        self.workspaces = workspaces
        self.is_over = anyio.Event()

    async def client(self, server: str = "one") -> Client:
        client = Client(self.hub, server)
        assert "result" in await client.initialize(sampling={})
        return client


@asynccontextmanager
async def world(
    root: Path,
    *,
    limits: Limits | None = None,
    producers: tuple[ArtifactProducer, ...] = (),
    log_server: Callable[[str, str], None] = lambda server, line: None,
    **upstreams: UpstreamAddress,
) -> AsyncIterator[World]:
    """A hub at work for in-process servers, the first of which is `one`; it is stopped at the end."""
    limits = limits or Limits()
    workspaces = Workspaces(
        str(root / "workspaces"),
        MemoryRecords(),
        MemoryBlobs(),
        artifact_roots={},
        working_directories={},
        limits=limits,
        tmp_root=str(root),
    )
    await workspaces.start_up()
    plan = Plan(
        servers=tuple(ServerPlan(id=id, kind=Kind.PIPE, producers=producers) for id in upstreams),
        workspaces_path=workspaces.root,
        fallback_base_url="http://127.0.0.1:1",
        link_keys=(bytes(32),),
    )

    def engine(unix_at_zero: float) -> BulkEngine:
        return BulkEngine(
            plan, entropy=random.Random(1).randbytes, unix_at_zero=unix_at_zero, has_storage=True, limits=limits
        )

    hub = Hub(engine, plan, upstreams, workspaces, limits, log_server=log_server)
    made = World(hub, workspaces)

    async def run(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        await hub.run(task_status=task_status)
        made.is_over.set()

    async with anyio.create_task_group() as tasks:
        await tasks.start(run)
        yield made
        with anyio.fail_after(PATIENCE_S):
            await hub.stop(0)
            await made.is_over.wait()


async def greet(server: Server, params: Json) -> Json:
    return text(f"hello {params['arguments']['name']}")


class Latch:
    """A tool that reports its call, and answers when the test lets it."""

    def __init__(self) -> None:
        self.called = anyio.Event()
        self.release = anyio.Event()

    async def __call__(self, server: Server, params: Json) -> Json:
        self.called.set()
        await self.release.wait()
        return text("at last")


# --- Conversations --------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_whole_conversation(tmp_path: Path) -> None:
    """The conversation is initialize, a call, a server request, a notification, and the end."""

    async def consult(server: Server, params: Json) -> Json:
        send(server.peer, method="notifications/message", params={"level": "info", "data": "thinking"})
        answer = await server.request("sampling/createMessage")
        return text(answer["result"]["content"]["text"])

    async with world(tmp_path, one=upstream(greet=greet, consult=consult)) as made:
        client = await made.client()
        assert (await client.call("greet", name="Ada"))["result"] == text("hello Ada")
        id = client.send_request("tools/call", {"name": "consult"})
        assert (await client.receive())["params"]["data"] == "thinking"
        question = await client.receive()
        assert question["method"] == "sampling/createMessage"
        send(client.peer, id=question["id"], result={"content": {"type": "text", "text": "do it"}})
        assert await client.receive() == {"jsonrpc": "2.0", "id": id, "result": text("do it")}
        assert made.hub.engine.session_count == 1
        client.peer.leave()
        assert made.hub.engine.session_count == 0


@pytest.mark.anyio
async def test_each_session_has_a_server_of_its_own(tmp_path: Path) -> None:
    served: list[MemoryServer] = []

    async def count(server: Server, params: Json) -> Json:
        served.append(server.peer)
        return text(str(len(set(map(id, served)))))

    async with world(tmp_path, one=upstream(count=count), two=upstream(greet=greet)) as made:
        first, second, other = await made.client(), await made.client(), await made.client("two")
        assert (await first.call("count"))["result"] == text("1")
        assert (await second.call("count"))["result"] == text("2")
        assert (await first.call("count"))["result"] == text("2")
        assert (await other.call("greet", name="Bo"))["result"] == text("hello Bo")
        first.peer.leave()
        await anyio.wait_all_tasks_blocked()
        assert served[0].is_closed
        assert not served[1].is_closed


@pytest.mark.anyio
async def test_a_server_that_raises_is_contained(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The call of its own session fails, and no other session is affected."""

    async def fail(server: Server, params: Json) -> Json:
        raise RuntimeError("this server is broken")

    async with world(tmp_path, one=upstream(fail=fail), two=upstream(greet=greet)) as made:
        victim, bystander = await made.client(), await made.client("two")
        error = (await victim.call("fail"))["error"]
        assert error["code"] == OUTCOME_UNKNOWN
        assert (await bystander.call("greet", name="Cy"))["result"] == text("hello Cy")
        assert (await victim.call("fail"))["error"]["code"] == OUTCOME_UNKNOWN, "it is started anew"
    assert "this server is broken" in caplog.text


@pytest.mark.anyio
async def test_a_server_that_does_not_notice_its_end_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server may send just when its channel is closed. That raises an error in the server, and nothing is
    logged."""
    latch = Latch()
    async with world(tmp_path, one=upstream(wait=latch)) as made:
        client = await made.client()
        client.send_request("tools/call", {"name": "wait"})
        await latch.called.wait()
        client.peer.leave()
        latch.release.set()
        await anyio.wait_all_tasks_blocked()
    assert caplog.text == ""


@pytest.mark.anyio
async def test_a_channel_to_no_server_leaves_nothing_behind(tmp_path: Path) -> None:
    async with world(tmp_path, one=upstream()) as made:
        with pytest.raises(LocalProtocolError, match="no server 'nine'"):
            Client(made.hub, "nine")
        with anyio.fail_after(Limits().stop_grace_s):  # `stop` waits for the remains
            await made.hub.stop(0)


# --- Order ----------------------------------------------------------------------------------------------------------

Tree = list["Tree"]
"""The inputs that each `Send` of an input causes in turn, reported while it is carried out."""


class Scripted:
    """An engine whose every input sends what the script says."""

    session_count = 0
    exchange_count = 0

    def __init__(self, script: Tree) -> None:
        self.script = script
        self.causes: dict[bytes, Tree] = {}
        self.reported = b""
        self._count = 0

    def _sends(self, tree: Tree) -> list[Effect]:
        effects: list[Effect] = []
        for below in tree:
            self._count += 1
            name = b"%d" % self._count
            self.causes[name] = below
            effects.append(Send(channel=ChannelId(1), message=name))
        return effects

    earliest_at = float("inf")

    def next_timeout(self) -> Deadline | None:
        return None

    def new_channel(self) -> ChannelId:
        return ChannelId(1)

    def receive_open(self, channel: ChannelId, opening: Opening, now: float) -> list[Effect]:
        return []

    def receive_message(self, channel: ChannelId, message: bytes, now: float) -> list[Effect]:
        return self._sends(self.script)

    def receive_close(self, channel: ChannelId, cause: Cause, now: float) -> list[Effect]:
        return []

    def receive_answer(self, ticket: Ticket, answer: StorageAnswer, now: float) -> list[Effect]:
        raise AssertionError("nothing was stored")

    def receive_sent(self, channel: ChannelId, size_bytes: int, now: float) -> list[Effect]:
        return self._sends(self.causes[self.reported])

    def receive_drain(self, now: float) -> list[Effect]:
        return []

    def receive_stop(self, now: float) -> list[Effect]:
        return []

    def handle_timeout(self, now: float) -> list[Effect]:
        return []


class Prompt(MemoryPeer):
    """An outlet that reports each message as sent at once, from within the order to send it."""

    def __init__(self, hub: Hub, engine: Scripted) -> None:
        super().__init__(hub)
        self.hub = hub
        self.engine = engine
        self.carried_out: list[bytes] = []
        self.is_sending = False

    def send(self, order: Send) -> None:
        assert not self.is_sending, "an outlet is not called from within its own order"
        self.is_sending = True
        self.carried_out.append(order.message)
        self.engine.reported = order.message
        self.hub.sent(order.channel, len(order.message))
        self.is_sending = False


def effects_in_order(tree: Tree) -> list[bytes]:
    """The effects, first come, first carried out: names are given in the order in which inputs return."""
    waiting = deque(tree)
    count = 0
    while waiting:
        waiting.extend(waiting.popleft())
        count += 1
    return [b"%d" % (n + 1) for n in range(count)]


@given(tree=st.recursive(st.just([]), st.lists, max_leaves=12))
@settings(max_examples=60)
def test_nested_inputs_keep_the_order_of_effects(tree: Tree) -> None:
    """The effects of an input that arrives while effects are carried out come after those, however deep the nesting."""

    async def run() -> None:
        engine = Scripted(tree)
        workspaces = Workspaces(
            "/nonexistent",
            MemoryRecords(),
            MemoryBlobs(),
            artifact_roots={},
            working_directories={},
            limits=Limits(),
        )
        hub = Hub(
            lambda unix_at_zero: engine,
            Plan(servers=()),
            {},
            workspaces,
            Limits(),
            log_server=lambda server, line: None,
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(hub.run)
            outlet: Outlet = (prompt := Prompt(hub, engine))
            channel = hub.open(PipeOpening(server="any"), outlet)
            hub.message(channel, b"go")
            assert prompt.carried_out == effects_in_order(tree)
            hub.closed(channel, Cause(End.GONE))
            await hub.stop(0)

    anyio.run(run)


class Dialling(Scripted):
    """An engine that dials `target` at any input."""

    def __init__(self, target: Join | Listen) -> None:
        super().__init__([])
        self.target = target
        self.closed: dict[ChannelId, Cause] = {}
        self.is_closed = anyio.Event()

    def receive_message(self, channel: ChannelId, message: bytes, now: float) -> list[Effect]:
        return [Dial(ChannelId(2), self.target)]

    def receive_close(self, channel: ChannelId, cause: Cause, now: float) -> list[Effect]:
        self.closed[channel] = cause
        self.is_closed.set()
        return []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Listen("one", session="S 1"), "a session id that is no visible ASCII"),
        (Listen("one", last_event_id="\a"), "an event id that no header can carry"),
        (Join("one", headers=(("Host", "x"),)), "header Host"),
        (Join("one"), "connection refused"),
    ],
)
async def test_an_impossible_dial_is_reported_to_the_engine(target: Join | Listen, words: str) -> None:
    """The dial fails, whatever the target contains. An HTTP server may be joined: it may turn out to be an older
    one."""
    engine = Dialling(target)
    workspaces = Workspaces(
        "/nonexistent", MemoryRecords(), MemoryBlobs(), artifact_roots={}, working_directories={}, limits=Limits()
    )
    plan = Plan(servers=(ServerPlan(id="one", kind=Kind.HTTP),))
    upstreams = {"one": Endpoint("http://127.0.0.1:1/sse")}
    hub = Hub(lambda unix_at_zero: engine, plan, upstreams, workspaces, Limits(), log_server=lambda server, line: None)
    async with anyio.create_task_group() as tasks:
        await tasks.start(hub.run)
        hub.message(ChannelId(1), b"go")
        with anyio.fail_after(PATIENCE_S):
            await engine.is_closed.wait()
            await hub.stop(0)
    [(channel, cause)] = engine.closed.items()
    assert channel == 2
    assert (cause.end, cause.unsent) == (End.UNREACHABLE, True)
    assert words in cause.detail


# --- Time -----------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_deadlines_ring(tmp_path: Path) -> None:
    """Each deadline is earlier than the one before, so that the alarm has to be set back; the last rings while
    nothing else happens."""
    latch = Latch()
    limits = Limits(session_idle_ttl_s=1000, reply_timeout_s=0.05)
    async with world(tmp_path, limits=limits, one=upstream(wait=latch)) as made:
        client = await made.client()
        assert (await client.call("wait"))["error"]["code"] == TIMED_OUT


def test_long_deadlines_ring_on_time(tmp_path: Path) -> None:
    """A server that does not start, and then a call without an answer, time out to the second, by a clock that
    jumps."""

    async def stay_silent(peer: MemoryServer) -> None:
        await anyio.sleep_forever()

    async def run() -> None:
        limits = Limits()
        async with world(tmp_path, one=upstream(wait=Latch()), two=MemoryUpstream(stay_silent)) as made:
            client, other = await made.client(), MemoryClient(made.hub)
            began_at = anyio.current_time()
            id = client.send_request("tools/call", {"name": "wait"})
            other.open(PipeOpening(server="two"))
            send(other, id=1, method="initialize", params={"protocolVersion": "2025-06-18"})
            assert "60 s" in json.loads(await other.receive())["error"]["message"]
            assert anyio.current_time() - began_at == pytest.approx(limits.start_timeout_s, abs=1)
            answer = json.loads(await client.peer.receive())
            assert (answer["id"], answer["error"]["code"]) == (id, TIMED_OUT)
            assert anyio.current_time() - began_at == pytest.approx(limits.reply_timeout_s, abs=1)

    clock = trio.testing.MockClock(autojump_threshold=0)
    anyio.run(run, backend="trio", backend_options={"clock": clock})


# --- Flow control ---------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_client_that_does_not_read_holds_back_its_server(tmp_path: Path) -> None:
    """The server stops after what fits, goes on when the client reads, and nothing is lost or out of order."""
    total, size = 200, 1000
    limits = Limits(outbox_high_bytes=20_000, outbox_low_bytes=5000)
    sent_count = 0

    async def flood(server: Server, params: Json) -> Json:
        nonlocal sent_count
        for number in range(total):
            await server.peer.ready()
            send(server.peer, method="notifications/message", params={"number": number, "data": "x" * size})
            sent_count += 1
        return text("done")

    async with world(tmp_path, limits=limits, one=upstream(flood=flood)) as made:
        client = await made.client()
        id = client.send_request("tools/call", {"name": "flood"})
        await anyio.wait_all_tasks_blocked()
        assert sent_count == pytest.approx(limits.outbox_high_bytes / size, abs=3)
        numbers: list[int] = []
        while "id" not in (message := await client.receive()):
            numbers.append(message["params"]["number"])
            assert sent_count - len(numbers) <= limits.outbox_high_bytes / size + 1
        assert numbers == list(range(total))
        assert message["id"] == id


# --- Storage --------------------------------------------------------------------------------------------------------

REPORTS = ArtifactProducer(tools=("report",), output_path_argument="path", required=True)


async def report(server: Server, params: Json) -> Json:
    path = Path(params["arguments"]["path"])
    path.write_text("a report")
    return text(f"wrote {path}")


@pytest.mark.anyio
async def test_storage_orders_are_carried_out_and_answered(tmp_path: Path) -> None:
    """A workspace is prepared, a file taken in, its record kept and its bytes read back; all are removed at the end."""
    async with world(tmp_path, producers=(REPORTS,), one=upstream(report=report)) as made:
        client = await made.client()
        result = (await client.call("report", path="report.txt"))["result"]
        uri = result["_meta"]["artifact"]["artifact_uri"]
        assert uri.startswith("artifact://")
        read = (await client.request("resources/read", {"uri": uri}))["result"]
        assert read["contents"][0]["text"] == "a report"
        assert [path.read_text() for path in tmp_path.rglob("report.txt")] == ["a report"]
        client.peer.leave()
        with anyio.fail_after(PATIENCE_S):
            while os.listdir(made.workspaces.root):  # noqa: ASYNC110
                await anyio.sleep(0.005)


@pytest.mark.anyio
async def test_storage_that_fails_ends_the_call_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(order: object) -> StorageFailed:
        return StorageFailed("the disk is full", is_full=True)

    async with world(tmp_path, producers=(REPORTS,), one=upstream(report=report, greet=greet)) as made:
        client = await made.client()
        with monkeypatch.context() as patch:
            patch.setattr(made.workspaces, "carry_out", refuse)
            result = (await client.call("report", path="report.txt"))["result"]
        assert result["isError"]
        assert "full" in result["content"][0]["text"]
        assert (await client.call("greet", name="Di"))["result"] == text("hello Di")


async def blunder(*arguments: object) -> None:
    raise ZeroDivisionError("a mistake of our own")


@pytest.mark.anyio
async def test_a_defect_in_the_storage_fails_an_order_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(tmp_path, producers=(REPORTS,), one=upstream(report=report, greet=greet)) as made:
        client = await made.client()
        with monkeypatch.context() as patch:
            patch.setattr(made.workspaces, "carry_out", blunder)
            result = (await client.call("report", path="report.txt"))["result"]
            assert result["isError"]
            assert "internal error" in result["content"][0]["text"]
            leaver = await made.client()
            leaver.peer.leave()
            await anyio.wait_all_tasks_blocked()  # its workspace is not removed, and no answer is awaited
        assert (await client.call("greet", name="Di"))["result"] == text("hello Di")
    assert "a mistake of our own" in caplog.text


@pytest.mark.anyio
async def test_a_defect_met_with_a_child_ends_its_channel_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    child = ChildSpec((sys.executable, "-c", "input()"))
    async with world(tmp_path, producers=(REPORTS,), one=child, two=upstream(greet=greet)) as made:
        bystander = await made.client("two")
        for place, name in ((made.workspaces, "prepare"), (Child, "_serve")):
            with monkeypatch.context() as patch:
                patch.setattr(place, name, blunder)
                assert "internal error" in (await Client(made.hub).initialize())["error"]["message"]
        assert made.hub.child_pids == []
        assert (await bystander.call("greet", name="Di"))["result"] == text("hello Di")
    assert caplog.text.count("Traceback") >= 2


# --- The end --------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_stop_lets_calls_finish_and_then_ends_everything(tmp_path: Path) -> None:
    latch = Latch()
    async with world(tmp_path, one=upstream(wait=latch)) as made:
        client, late = await made.client(), Client(made.hub)
        id = client.send_request("tools/call", {"name": "wait"})
        await latch.called.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.hub.stop, PATIENCE_S)
            await anyio.wait_all_tasks_blocked()
            assert not made.is_over.is_set()
            assert (await client.request("tools/list"))["error"]["code"] == OVERLOADED
            assert "error" in await late.request("initialize", {"protocolVersion": "2025-06-18"})
            latch.release.set()
            assert await client.receive() == {"jsonrpc": "2.0", "id": id, "result": text("at last")}
            for peer in (client.peer, late.peer):
                with pytest.raises(anyio.EndOfStream), anyio.fail_after(PATIENCE_S):
                    await peer.receive()
        with anyio.fail_after(PATIENCE_S):
            await made.is_over.wait()


@pytest.mark.anyio
async def test_stop_does_not_wait_beyond_its_grace(tmp_path: Path) -> None:
    """A call that does not finish is answered with an error, and its server dropped though it does not notice."""
    latch = Latch()
    async with world(tmp_path, one=upstream(wait=latch)) as made:
        client = await made.client()
        id = client.send_request("tools/call", {"name": "wait"})
        await latch.called.wait()
        with anyio.fail_after(PATIENCE_S):
            await made.hub.stop(0.01)
        answer = await client.receive()
        assert answer["id"] == id
        assert "shutting down" in answer["error"]["message"]


@pytest.mark.anyio
async def test_stop_waits_for_what_sessions_leave_to_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is bounded."""
    async with world(tmp_path, producers=(REPORTS,), one=upstream(report=report)) as made:
        client = await made.client()
        await client.call("report", path="report.txt")
        assert list(tmp_path.rglob("report.txt"))
        sweeping, release = anyio.Event(), anyio.Event()
        carry_out = made.workspaces.carry_out

        async def linger(order: StorageOrder) -> StorageAnswer | None:
            if isinstance(order, Sweep):
                sweeping.set()
                await release.wait()
            return await carry_out(order)

        monkeypatch.setattr(made.workspaces, "carry_out", linger)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.hub.stop, 0)
            with anyio.fail_after(PATIENCE_S):
                await sweeping.wait()
                await anyio.wait_all_tasks_blocked()
                assert not made.is_over.is_set()
                release.set()
                await made.is_over.wait()
        assert not list(tmp_path.rglob("report.txt"))
        assert os.listdir(made.workspaces.root) == []

    monkeypatch.setattr(hub, "STORAGE_GRACE_S", 0.01)
    async with world(tmp_path, producers=(REPORTS,), one=upstream(report=report)) as made:
        await (await made.client()).call("report", path="report.txt")
        release = anyio.Event()
        carry_out = made.workspaces.carry_out
        monkeypatch.setattr(made.workspaces, "carry_out", linger)


@pytest.mark.anyio
async def test_every_waiter_for_idleness_is_woken(tmp_path: Path) -> None:
    latch = Latch()
    async with world(tmp_path, one=upstream(wait=latch)) as made:
        client = await made.client()
        client.send_request("tools/call", {"name": "wait"})
        await latch.called.wait()
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(made.hub.wait_idle)
                await anyio.wait_all_tasks_blocked()
                send(client.peer, id="again", method="ping")
                assert (await client.receive())["id"] == "again"
                await anyio.wait_all_tasks_blocked()  # the change was another one: they go on waiting, and do not spin
                latch.release.set()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("limits", "server"),
    [(Limits(replies_max_bytes=400_000), "two"), (Limits(replies_per_server_max_bytes=400_000), "one")],
    ids=["of all", "of one server"],
)
async def test_answers_that_are_arriving_share_their_room(tmp_path: Path, limits: Limits, server: str) -> None:
    """A server on stdio that has sent half of a long answer leaves no room for another one."""
    code = """if True:
        import json, sys
        for line in sys.stdin:
            message = json.loads(line)
            if "id" in message:
                asked = message["params"]["protocolVersion"] if message["method"] == "initialize" else None
                given = {"protocolVersion": asked, "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
                text = "x" * 300_000
                result = given if asked else {"content": [{"type": "text", "text": text}]}
                data = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
                if not asked and message["params"]["name"] == "half":
                    print(data[:290_000], end="", flush=True)
                    print("most of it is read", file=sys.stderr, flush=True)
                    sys.stdin.read()
                print(data, flush=True)"""
    spec = ChildSpec((sys.executable, "-I", "-S", "-c", code))
    is_held = anyio.Event()
    async with world(tmp_path, limits=limits, log_server=lambda *_: is_held.set(), one=spec, two=spec) as here:
        client, waiting = await here.client("one"), await here.client(server)
        assert "result" in await client.call("whole")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiting.call, "half")
            with anyio.fail_after(PATIENCE_S):
                await is_held.wait()
            error = (await client.call("whole"))["error"]
            assert error["code"] == -31007
            assert "leave no room" in error["message"]
            tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_cancelling_the_hub_ends_its_servers(tmp_path: Path) -> None:
    latch = Latch()
    async with world(tmp_path, one=upstream(wait=latch)) as made:
        client = await made.client()
        client.send_request("tools/call", {"name": "wait"})
        await latch.called.wait()
        made.hub._tasks.cancel_scope.cancel()
        with anyio.fail_after(PATIENCE_S):
            await made.is_over.wait()


# --- Probes ---------------------------------------------------------------------------------------------------------


def answering(**results: object) -> MemoryUpstream:
    """A server that answers each method (`/` written as `_`) with a result, or with a function's, given the params."""

    async def serve(peer: MemoryServer) -> None:
        while True:
            message = json.loads(await peer.receive())
            if "id" in message:
                result = results[message["method"].replace("/", "_")]
                send(peer, id=message["id"], result=result(message["params"]) if callable(result) else result)

    return MemoryUpstream(serve)


def hello(**members: object) -> Json:
    return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, **members}


async def report_of(made: World, timeout_s: float = PATIENCE_S) -> ServerReport:
    report = await probe(made.hub, "one", "9", timeout_s=timeout_s)
    await anyio.wait_all_tasks_blocked()
    assert made.hub.engine.session_count == 0, "the probe leaves"
    return report


@pytest.mark.anyio
async def test_a_probe_reads_every_page(tmp_path: Path) -> None:
    pages: dict[object, Json] = {
        None: {"tools": [{"name": "a"}, {"name": "b"}], "nextCursor": "2"},
        "2": {"tools": [{"name": "c"}, {"title": "no name"}, "no tool"], "nextCursor": "3"},
        "3": {"tools": "none"},
    }
    one = answering(
        initialize=hello(serverInfo={"name": "box", "version": "3"}),
        tools_list=lambda params: pages[params.get("cursor")],
    )
    async with world(tmp_path, one=one) as made:
        assert await report_of(made) == ServerReport(
            id="one",
            name="box",
            version="3",
            eras={"handshake": "2025-06-18"},
            era="handshake",
            capabilities=("tools",),
            declared=("tools",),
            tools=("a", "b", "c"),
        )


@pytest.mark.anyio
async def test_a_probe_has_an_end(tmp_path: Path) -> None:
    """A list that never ends, or one that begins anew, is read as far as the limit."""

    def page(params: Json) -> Json:
        number = params.get("cursor", 0) + 1
        return {"tools": [{"name": f"tool-{number}"}], "nextCursor": number}

    endless = answering(initialize=hello(), tools_list=page)
    async with world(tmp_path, one=endless) as made:
        assert (await report_of(made)).tools == tuple(f"tool-{number}" for number in range(1, PAGES_MAX + 1))
    round_and_round = answering(initialize=hello(), tools_list={"tools": [{"name": "again"}], "nextCursor": ""})
    async with world(tmp_path, one=round_and_round) as made:
        assert (await report_of(made)).tools == ("again",)


@pytest.mark.anyio
@pytest.mark.parametrize("info", [None, "text", {}], ids=str)
async def test_a_probe_takes_a_server_that_says_little(info: object, tmp_path: Path) -> None:
    one = answering(initialize={"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info})
    async with world(tmp_path, one=one) as made:
        expected = ServerReport(id="one", eras={"handshake": "2025-06-18"}, era="handshake", tools=())
        assert await report_of(made) == expected


@pytest.mark.anyio
async def test_a_probe_says_why_there_is_no_answer(tmp_path: Path) -> None:
    async def refuse(peer: MemoryServer) -> None:
        message = json.loads(await peer.receive())
        send(peer, id=message["id"], error={"code": -1, "message": "no entry"})
        await peer.receive()

    async def hang_up(peer: MemoryServer) -> None:
        await peer.receive()

    async def stay_silent(peer: MemoryServer) -> None:
        await anyio.sleep_forever()

    for serve, problem in (
        (refuse, "no entry"),
        (hang_up, "the server could not be started: its process is gone"),
        (stay_silent, "no answer within 0.02 s"),
    ):
        async with world(tmp_path, one=MemoryUpstream(serve)) as made:
            timeout_s = 0.02 if serve is stay_silent else PATIENCE_S
            assert await report_of(made, timeout_s) == ServerReport(id="one", problem=problem)


@pytest.mark.anyio
async def test_a_probe_may_be_overtaken_by_the_end(tmp_path: Path) -> None:
    """A shutdown during the probe is a problem like any other, not a failure of ours."""
    latch = anyio.Event()

    async def stall(peer: MemoryServer) -> None:
        await peer.receive()
        latch.set()
        await anyio.sleep_forever()

    reports: list[ServerReport] = []

    async with world(tmp_path, one=MemoryUpstream(stall)) as made:

        async def run_probe() -> None:
            reports.append(await probe(made.hub, "one", "9"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_probe)
            await latch.wait()
            await made.hub.stop(0)
    assert [report.problem for report in reports] == ["the proxy is shutting down: initialize did not run"]
