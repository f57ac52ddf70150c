"""Tests of tasks with peers that are hostile, faulty or gone at the wrong time."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from driving import (
    GONE,
    LINK_KEY,
    UNIX_AT_ZERO,
    Client,
    Driver,
    SentMessage,
    connect,
    driver,
    new_client,
    notification,
    request,
)
from isthmus.core.base.effects import Delete, Effect, Listen
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer, Plan, ServerPlan, Sharing, TaskRules
from isthmus.core.base.revisions import Era
from isthmus.core.base.storage import Collect, Collected, CollectedFile, Discard, Forget, Save, Saved, StorageFailed
from isthmus.core.bulk import BulkEngine
from isthmus.core.state.records import StoredTask
from isthmus.core.status import Command
from stateless_driving import ABLE, FORM, Modern, modern, start_legacy_server, start_stateless_server, tables

TASKS = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
LEGACY_ABLE = '{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}'
MODERN_ABLE = f'{{"tools":{{}},"extensions":{{"{TASKS}":{{}}}}}}'
KNOWS = {**ABLE, "extensions": {TASKS: {}}}
TOOLS = '{"tools":[{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}]}'
CALL = '{"name":"t","arguments":{},"task":{}}'
RESULT = '{"content":[]}'
AUTO = TaskRules(offer=Offer.AUTO)


def plan(id: str, kind: Kind = Kind.PIPE, *, tasks: TaskRules = AUTO, **rest: Any) -> ServerPlan:
    return ServerPlan(id=id, kind=kind, tasks=tasks, **rest)


def orders(world: Driver, *kinds: type[Effect]) -> list[Any]:
    """Returns the orders that the storage has not answered."""
    waiting = tables(world.engine)["storage"]
    return [effect for effect in world.log if isinstance(effect, kinds) and effect.ticket in waiting]  # type: ignore[attr-defined]


def save(world: Driver) -> None:
    """Carries out all orders of the storage."""
    while found := orders(world, Save, Collect):
        for order in found:
            if isinstance(order, Save):
                world.store(order.ticket, Saved())
            else:
                world.store(order.ticket, Collected(files=(CollectedFile(filename="o", size_bytes=1),)))


def learn(world: Driver) -> None:
    """Answers the proxy's `tools/list`, if it was sent."""
    if world.was_sent("tools/list"):
        world.answer(world.take_sent("tools/list"), TOOLS)


def created(name: str = "s1", status: str = "working", *, is_modern: bool = False) -> str:
    ttl = "ttlMs" if is_modern else "ttl"
    task = {"taskId": name, "status": status, "createdAt": "", "lastUpdatedAt": "", ttl: 60_000}
    return json.dumps({**task, "resultType": "task"} if is_modern else {"task": task})


def state(name: str = "s1", status: str = "working", **members: Any) -> str:
    """Returns a result of `tasks/get`, in the form of the stateless era with `is_modern`."""
    ttl = "ttlMs" if members.pop("is_modern", False) else "ttl"
    task = {"taskId": name, "status": status, "createdAt": "", "lastUpdatedAt": "", ttl: 60_000, **members}
    return json.dumps({"resultType": "complete", **task})


def answer_of(world: Driver, channel: ChannelId, id: Any) -> dict[str, Any]:
    (found,) = [frame for frame in world.frames(channel) if "method" not in frame and frame["id"] == id]
    return found


def handle_of(world: Driver, channel: ChannelId, id: Any) -> str:
    """Returns the id of the task that a request was answered with."""
    result = answer_of(world, channel, id)["result"]
    name = result["task"]["taskId"] if "task" in result else result["taskId"]
    assert isinstance(name, str)
    return name


def frames_of(world: Driver, channel: ChannelId, method: str) -> list[dict[str, Any]]:
    return [frame for frame in world.frames(channel) if frame.get("method") == method]


def legacy_task(world: Driver, client: Client, id_raw: str = "1", name: str = "s1") -> tuple[str, SentMessage]:
    """Returns a task of a server with sessions whose client has the handle, and the request for its outcome."""
    channel = client.request(id_raw, "tools/call", CALL)
    learn(world)
    world.answer(world.take_sent("tools/call"), created(name))
    save(world)
    return handle_of(world, channel, int(id_raw)), world.take_sent("tasks/result")


# --- Tasks without a handle -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["operator", "expiry", "storage", "stop"])
def test_no_notification_of_a_task_that_its_client_never_got(end: str) -> None:
    world = driver(plan("pipe"), limits=Limits(storage_timeout_s=50.0, task_ttl_s=20.0))
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    client.request("1", "tools/call", CALL)
    world.wait(1.0)
    (task,) = world.engine.tasks()
    if end == "operator":
        world._note(world.engine.receive_task_cancel(task.id, world.now))
    elif end == "expiry":
        world.wait(30.0)
    elif end == "storage":
        world.store(orders(world, Save)[0].ticket, StorageFailed(reason="full"))
    else:
        world.stop()
    assert "error" in answer_of(world, client.pipe, 1)
    assert not frames_of(world, client.pipe, "notifications/tasks/status")
    assert not world.engine.tasks()
    save(world)
    assert [order.key for order in world.every(Forget)] == [f"task/{task.id}"]


def test_a_pipe_is_owed_the_handle_of_a_task_whose_record_is_being_stored() -> None:
    """A client that has closed its end gets the handle once the record is stored."""
    world = driver(plan("pipe"))
    client = connect(world, "pipe", "pipe")
    other = new_client(world, "pipe", "pipe")
    assert client.pipe is not None and other.pipe is not None
    client.request("1", "tools/call", CALL)
    world.wait(1.0)
    assert world.engine.tasks()
    assert world.engine.owes(client.pipe)
    assert not world.engine.owes(other.pipe)
    save(world)
    assert handle_of(world, client.pipe, 1)
    assert not world.engine.owes(client.pipe)


# --- Whose it is ------------------------------------------------------------------------------------------------------


def shared() -> tuple[Driver, Client, Client]:
    """Returns two clients of one process, both ready."""
    world = driver(plan("pipe", sharing=Sharing.CONCURRENT))
    ann, bob = (new_client(world, "pipe", "pipe") for _ in range(2))
    for client in (ann, bob):
        client.initialize('{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}')
    world.start_server(capabilities=LEGACY_ABLE)
    for client in (ann, bob):
        client.notify("notifications/initialized")
    return world, ann, bob


def named(params: str, task: str) -> str:
    return json.dumps({**json.loads(params), "_meta": {RELATED: {"taskId": task}}})


def test_a_question_of_a_task_goes_to_its_session_of_a_shared_process() -> None:
    world, ann, bob = shared()
    assert ann.pipe is not None
    assert bob.pipe is not None
    task, fetch = legacy_task(world, ann)
    ann.request("2", "tasks/result", json.dumps({"taskId": task}))
    bob.request("1", "tools/call", '{"name":"t","arguments":{}}')
    world.send(fetch.channel, request('"q"', "elicitation/create", named(FORM, "s1")))
    assert not frames_of(world, bob.pipe, "elicitation/create")
    (asked,) = frames_of(world, ann.pipe, "elicitation/create")
    assert asked["params"]["_meta"][RELATED]["taskId"] == task


def test_a_question_of_an_unknown_task_is_refused() -> None:
    world, _, bob = shared()
    assert bob.pipe is not None
    bob.request("1", "tools/call", '{"name":"t","arguments":{}}')
    learn(world)
    received = world.take_sent("tools/call")
    world.send(received.channel, request('"q"', "elicitation/create", named(FORM, "another's")))
    assert "error" in world.take_sent("").frame
    assert not frames_of(world, bob.pipe, "elicitation/create")


def test_notifications_of_a_task_go_to_its_session_of_a_shared_process() -> None:
    world, ann, bob = shared()
    assert ann.pipe is not None
    assert bob.pipe is not None
    _, fetch = legacy_task(world, ann)
    log = '{"level":"info","data":"secret"}'
    world.send(fetch.channel, notification("notifications/message", named(log, "s1")))
    world.send(fetch.channel, notification("notifications/message", log))
    bob.request("1", "tools/call", '{"name":"t","arguments":{}}')
    world.send(fetch.channel, notification("notifications/message", named(log, "s1")))
    world.send(fetch.channel, notification("notifications/message", named(log, "another's")))
    assert len(frames_of(world, ann.pipe, "notifications/message")) == 3
    assert not frames_of(world, bob.pipe, "notifications/message")


def test_a_call_without_its_session_is_cancelled_as_a_task() -> None:
    world = driver(plan("pipe", sharing=Sharing.CONCURRENT, era=Era.STATELESS))
    ann, bob = (modern(world, "pipe", "pipe", capabilities=KNOWS) for _ in range(2))
    assert ann.pipe is not None
    ann.call("t")
    start_stateless_server(world, capabilities=MODERN_ABLE)
    bob.call("t")
    call = world.take_sent("tools/call")
    world.end(ann.pipe, GONE)
    world.answer(call, created(is_modern=True))
    assert world.take_sent("tasks/cancel").frame["params"]["taskId"] == "s1"


# --- Outcomes ---------------------------------------------------------------------------------------------------------


def upstream_task(up: str, *, knows_tasks: bool = True, **rest: Any) -> tuple[Driver, Modern, ChannelId]:
    """Returns a task of a stateless server, and the channel of its call. `knows_tasks`: its client declares tasks."""
    kind = Kind.PIPE if up == "pipe" else Kind.HTTP
    world = driver(plan(up, kind, era=Era.STATELESS, **rest))
    client = modern(world, up, "http", capabilities=KNOWS if knows_tasks else ABLE)
    channel = client.call("t")
    start_stateless_server(world, capabilities=MODERN_ABLE)
    if world.was_sent("tools/list"):
        world.answer(world.take_sent("tools/list"), TOOLS)
    if not knows_tasks:
        data = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        refusal = json.dumps({"code": -32021, "message": "m", "data": data})
        received = world.take_sent("tools/call")
        world.reply(received, f'{{"jsonrpc":"2.0","id":{received.id},"error":{refusal}}}'.encode())
    world.answer(world.take_sent("tools/call"), created(is_modern=True))
    save(world)
    return world, client, channel


def poll(world: Driver, status: str) -> None:
    """Answers the next `tasks/get`."""
    world.wait(2.0)
    world.answer(world.take_sent("tasks/get"), status)
    save(world)


@pytest.mark.parametrize("up", ["pipe", "http"])
@pytest.mark.parametrize("knows_tasks", [True, False])
@pytest.mark.parametrize("code", [-32020, -32021, -32022])
def test_a_task_may_fail_with_any_error(up: str, knows_tasks: bool, code: int) -> None:
    """Codes that would repeat a call have no effect in the outcome of a task."""
    world, client, channel = upstream_task(up, knows_tasks=knows_tasks)
    error = {"code": code, "message": "m", "data": {"supported": ["2026-07-28"]}}
    poll(world, state(status="failed", error=error, is_modern=True))
    if knows_tasks:
        (task,) = world.engine.tasks()
        assert task.status == "failed"
    else:
        assert "error" in client.answered(channel)
    assert not world.was_sent("tools/call")


@pytest.mark.parametrize("knows_tasks", [True, False])
def test_a_task_does_not_end_with_a_question(knows_tasks: bool) -> None:
    world, client, channel = upstream_task("http", knows_tasks=knows_tasks)
    asked = {"resultType": "input_required", "inputRequests": {}, "requestState": "s"}
    poll(world, state(status="completed", result=asked, is_modern=True))
    if knows_tasks:
        (task,) = world.engine.tasks()
        assert task.status == "failed"
    else:
        assert client.answered(channel)["error"]["code"] == -32603


def test_a_task_whose_server_requires_url_elicitation_fails() -> None:
    """The client could not retry the call of a task."""
    world = driver(plan("pipe", tasks=TaskRules(offer=Offer.ALWAYS)))
    client = modern(world, "pipe", capabilities=KNOWS)
    channel = client.call("t")
    start_legacy_server(world, capabilities='{"tools":{}}')
    save(world)
    task = handle_of(world, channel, 1)
    page = {"mode": "url", "message": "m", "url": "http://x", "elicitationId": "v"}
    received = world.take_sent("tools/call")
    error = json.dumps({"code": -32042, "message": "m", "data": {"elicitations": [page]}})
    world.send(received.channel, f'{{"jsonrpc":"2.0","id":{received.id},"error":{error}}}'.encode())
    save(world)
    shown = client.answered(client.request("tasks/get", taskId=task))["result"]
    assert shown["status"] == "failed"
    assert "error" in shown


# --- The proxy stops --------------------------------------------------------------------------------------------------


def test_the_proxy_may_stop_while_an_outcome_is_stored() -> None:
    world, _, _ = upstream_task("http")
    world.wait(2.0)
    world.answer(world.take_sent("tasks/get"), state(status="completed", result={"content": []}, is_modern=True))
    world.stop()
    save(world)
    stored = [msgspec.json.decode(order.value, type=StoredTask) for order in world.every(Save)]
    assert stored[-1].status.value == "completed"
    assert stored[-1].outcome


def test_a_stop_cancels_each_call_that_does_not_go_on_as_a_task() -> None:
    """A task whose client has its handle goes on. A call whose client waited is cancelled, though it is a task at the
    server."""
    world = driver(plan("http", Kind.HTTP))
    client = connect(world, "http", "http", capabilities=LEGACY_ABLE)
    legacy_task(world, client)
    client.request("2", "tools/call", '{"name":"t","arguments":{},"task":{}}')
    world.answer(world.take_sent("tools/call"), created("s2"))  # its client gets no handle in time
    world.stop()
    cancelled = [
        received.frame["params"]["taskId"] for received in world.unread if received.frame["method"] == "tasks/cancel"
    ]
    assert cancelled == ["s2"]
    assert not [dial for dial in world.dials if isinstance(dial.target, Delete)]


def test_a_stop_answers_no_question_of_a_task_that_goes_on() -> None:
    world = driver(plan("http", Kind.HTTP))
    client = connect(world, "http", "http", capabilities=LEGACY_ABLE)
    _, fetch = legacy_task(world, client)
    world.open(fetch.channel, Connected())
    world.send(fetch.channel, request('"q"', "elicitation/create", named(FORM, "s1")))
    world.stop()
    assert not world.was_sent("")


# --- The storage is slow ----------------------------------------------------------------------------------------------


def test_an_outcome_stored_for_a_task_that_is_gone_is_dropped() -> None:
    world = driver(plan("pipe"), limits=Limits(task_inline_max_bytes=1, task_ttl_s=20.0, storage_timeout_s=60.0))
    client = connect(world, "pipe", "pipe", capabilities=LEGACY_ABLE)
    client.request("1", "tools/call", CALL)
    learn(world)
    world.answer(world.take_sent("tools/call"), created())
    save(world)
    world.answer(world.take_sent("tasks/result"), RESULT)
    (collect,) = orders(world, Collect)
    world.store(collect.ticket, Collected(files=(CollectedFile(filename="o", size_bytes=1),)))
    world.wait(70.0)
    save(world)
    assert [order.blob for order in world.every(Discard)] == list(collect.blobs)
    assert world.every(Forget)


def test_a_new_owner_of_a_task_does_not_change_its_outcome() -> None:
    """Another client names the task of an ended session while its outcome is being stored."""
    world = driver(plan("http", Kind.HTTP, tasks=AUTO))
    first = connect(world, "http", "http")
    channel = first.request("1", "tools/call", CALL)
    world.wait(1.0)
    save(world)
    task = handle_of(world, channel, 1)
    world.answer(world.take_sent("tools/call"), RESULT)
    first.delete()
    second = Client(world, "http")
    opened = second.initialize()
    world.unread = [received for received in world.unread if received.frame["method"] != "notifications/cancelled"]
    world.start_server()
    second.session = world.sent[opened][-1].session
    second.notify("notifications/initialized")
    second.request("2", "tasks/get", json.dumps({"taskId": task}))
    save(world)
    stored = [msgspec.json.decode(order.value, type=StoredTask) for order in world.every(Save)]
    statuses = [record.status.value for record in stored]
    assert set(statuses[statuses.index("completed") :]) == {"completed"}, "not even for a moment"
    assert stored[-1].sid != stored[0].sid


def test_a_session_that_ends_before_its_handle_leaves_nothing() -> None:
    world = driver(plan("http", Kind.HTTP), limits=Limits(stream_commit_s=1.0))
    client = connect(world, "http", "http")
    client.request("1", "tools/call", CALL)
    world.answer(world.take_sent("tools/call"), RESULT)
    client.delete()
    world.wait(5.0)
    save(world)
    assert not tables(world.engine)["streams"]


# --- Questions --------------------------------------------------------------------------------------------------------


def task_with_question(world: Driver, client: Client, *, takes_events: bool = True) -> tuple[str, ChannelId]:
    """Returns a task whose outcome its client waits for, and whose server has sent a question."""
    task, fetch = legacy_task(world, client)
    waiting = client.send(request("2", "tasks/result", json.dumps({"taskId": task})), takes_events=takes_events)
    if fetch.post is not None:
        world.open(fetch.channel, Connected())
    world.send(fetch.channel, request('"q"', "elicitation/create", named(FORM, "s1")))
    return task, waiting


@pytest.mark.parametrize("end", ["cancel", "expiry", "result"])
def test_a_waiting_question_ends_with_its_task(end: str) -> None:
    world = driver(plan("http", Kind.HTTP), limits=Limits(task_ttl_s=20.0))
    client = connect(world, "http", "http", capabilities=LEGACY_ABLE)
    task, _ = task_with_question(world, client, takes_events=False)
    if end == "cancel":
        client.request("3", "tasks/cancel", json.dumps({"taskId": task}))
    elif end == "expiry":
        world.wait(70.0)
    else:
        fetch = next(dial for dial in world.dials if b"tasks/result" in getattr(dial.target, "message", b""))
        world.send(fetch.channel, b'{"jsonrpc":"2.0","id":4,"result":{"content":[]}}')
        world.unread.clear()
    save(world)
    stream = client.listen()
    assert not frames_of(world, stream, "elicitation/create")


def test_cancelling_a_task_withdraws_its_question() -> None:
    world = driver(plan("pipe"))
    client = connect(world, "pipe", "pipe", capabilities=LEGACY_ABLE)
    assert client.pipe is not None
    task, _ = task_with_question(world, client)
    (asked,) = frames_of(world, client.pipe, "elicitation/create")
    client.request("3", "tasks/cancel", json.dumps({"taskId": task}))
    (void,) = frames_of(world, client.pipe, "notifications/cancelled")
    assert void["params"]["requestId"] == asked["id"]


def test_a_question_goes_only_to_the_session_of_its_task() -> None:
    """Ids of questions belong to a session: the same id in another session is another question."""
    world = driver(plan("http", Kind.HTTP))
    able = '{"elicitation":{}}'
    clients = []
    for index in range(2):
        client = Client(world, "http", principal="ann")
        opened = client.initialize(f'{{"protocolVersion":"2025-11-25","capabilities":{able}}}')
        world.start_server(capabilities=LEGACY_ABLE, session=f"S{index}")
        client.session = world.sent[opened][-1].session
        client.notify("notifications/initialized")
        clients.append(client)
    first, second = clients
    task, fetch = legacy_task(world, first)
    plain = second.request("1", "tools/call", '{"name":"t","arguments":{}}')
    learn(world)
    call = world.take_sent("tools/call")
    world.open(call.channel, Connected())
    world.send(call.channel, request('"own"', "elicitation/create", FORM))
    waiting = second.request("2", "tasks/result", json.dumps({"taskId": task}))
    world.open(fetch.channel, Connected())
    world.send(fetch.channel, request('"q"', "elicitation/create", named(FORM, "s1")))
    assert len(frames_of(world, plain, "elicitation/create")) == 1
    assert not frames_of(world, waiting, "elicitation/create")
    own = first.request("3", "tasks/result", json.dumps({"taskId": task}))
    (asked,) = frames_of(world, own, "elicitation/create")
    first.send(f'{{"jsonrpc":"2.0","id":{asked["id"]},"result":{{"action":"decline"}}}}'.encode())
    assert world.take_sent("").frame["id"] == "q"


def test_a_question_of_a_hidden_task_is_answered_at_the_limit_of_suspended_calls() -> None:
    """A client without tasks gets the question in its call. Over the limit the server gets a refusal."""
    limits = Limits(suspended_calls_max=1)
    world = driver(plan("http", Kind.HTTP, era=Era.STATELESS), limits=limits)
    client = modern(world, "http", capabilities=ABLE)
    data = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    refusal = json.dumps({"code": -32021, "message": "m", "data": data})
    for index in range(2):
        client.call("t")
        if index == 0:
            start_stateless_server(world, capabilities=MODERN_ABLE)
            world.answer(world.take_sent("tools/list"), TOOLS)
        received = world.take_sent("tools/call")
        world.reply(received, f'{{"jsonrpc":"2.0","id":{received.id},"error":{refusal}}}'.encode())
        world.answer(world.take_sent("tools/call"), created(f"s{index}", is_modern=True))
    asked = {"k": {"method": "elicitation/create", "params": json.loads(FORM)}}
    world.wait(1.0)
    for _ in range(2):
        received = world.take_sent("tasks/get")
        name = received.frame["params"]["taskId"]
        world.answer(received, state(name, "input_required", inputRequests=asked, is_modern=True))
    assert all("method" in received.frame for received in world.unread)
    exchanges = [e for s in tables(world.engine)["sessions"].values() for e in s.exchanges.values()]
    assert [len(exchange.upstream_task.open) for exchange in exchanges if exchange.upstream_task is not None] == [1, 0]


def test_a_question_of_a_task_outlives_the_loss_of_its_server() -> None:
    world, client, channel = upstream_task("http")
    task = handle_of(world, channel, 1)
    asked = {"k": {"method": "elicitation/create", "params": json.loads(FORM)}}
    poll(world, state(status="input_required", inputRequests=asked, is_modern=True))
    world._note(world.engine.receive_command("http", Command.RESTART, world.now))
    shown = client.answered(client.request("tasks/get", taskId=task))["result"]
    assert list(shown["inputRequests"]) == ["q1"]
    client.request("tasks/update", taskId=task, inputResponses={"q1": {"action": "decline"}})
    world.wait(5.0)
    start_stateless_server(world, capabilities=MODERN_ABLE)
    update = world.take_sent("tasks/update").frame["params"]
    assert update["inputResponses"] == {"k": {"action": "decline"}}


# --- The server forgets -----------------------------------------------------------------------------------------------


def test_a_forgotten_session_is_replaced_to_poll_its_tasks() -> None:
    """Only the polls of tasks use the session."""
    world = driver(plan("http", Kind.HTTP))
    client = connect(world, "http", "http", capabilities=LEGACY_ABLE)
    task, fetch = legacy_task(world, client)
    world.end(fetch.channel, Cause(End.REFUSED, status=404))
    channel = client.request("2", "tasks/get", json.dumps({"taskId": task}))
    world.wait(1.0)
    world.start_server(capabilities=LEGACY_ABLE, session="S2")
    posted = world.take_sent("tasks/get").post
    assert posted is not None
    assert posted.session == "S2"
    assert "result" in answer_of(world, channel, 2)


# --- Time -------------------------------------------------------------------------------------------------------------


def test_the_ttl_of_an_upstream_task_runs_from_its_creation() -> None:
    """The call may have waited before."""
    world = driver(plan("http", Kind.HTTP, era=Era.STATELESS))
    client = modern(world, "http", capabilities=KNOWS)
    channel = client.call("t")
    start_stateless_server(world, capabilities=MODERN_ABLE)
    world.answer(world.take_sent("tools/list"), TOOLS)
    world.wait(100.0)
    world.answer(world.take_sent("tools/call"), created(is_modern=True))
    save(world)
    created_at_unix = UNIX_AT_ZERO + world.now
    (task,) = world.engine.tasks()
    assert task.id == handle_of(world, channel, 1)
    assert task.expires_at_unix == created_at_unix + 60.0
    world.wait(59.0)
    assert world.engine.tasks()
    world.wait(1.0)
    assert not world.engine.tasks()


# --- Earlier runs -----------------------------------------------------------------------------------------------------


def restarted(before: Driver, *servers: ServerPlan) -> Driver:
    """Returns the next run of the proxy, with the stored tasks."""
    records = {order.key: msgspec.json.decode(order.value, type=StoredTask) for order in before.every(Save)}
    whole = Plan(servers=servers, link_keys=(LINK_KEY,), workspaces_path="/w")
    entropy = random.Random(2).randbytes
    stored = list(records.values())
    return Driver(
        BulkEngine(whole, entropy=entropy, unix_at_zero=UNIX_AT_ZERO, has_storage=True, stored_tasks=stored),
        now=before.now,
    )


def task_after_restart() -> tuple[Driver, Client, str, ChannelId]:
    """Returns a task of an earlier run that its client has read over another upstream session, and the GET stream of
    the client's own."""
    one = plan("http", Kind.HTTP)
    before = driver(one)
    task, _ = legacy_task(before, connect(before, "http", "http", capabilities=LEGACY_ABLE, principal="ann"))
    before.stop()
    world = restarted(before, one)
    client = connect(world, "http", "http", capabilities=LEGACY_ABLE, principal="ann", session="S2", listens=True)
    stream = world.last_dial(Listen).channel
    client.listen()
    client.request("1", "tasks/get", json.dumps({"taskId": task}))
    return world, client, task, stream


def test_a_question_in_the_client_s_own_session_is_answered_there() -> None:
    """The only call of the client is a task in another session."""
    world, client, _, stream = task_after_restart()
    assert client.stream is not None
    world.unread.clear()
    world.send(stream, request('"q"', "elicitation/create", FORM))
    (asked,) = frames_of(world, client.stream, "elicitation/create")
    client.send(f'{{"jsonrpc":"2.0","id":{asked["id"]},"result":{{"action":"decline"}}}}'.encode())
    answered = world.take_sent("").post
    assert answered is not None
    assert answered.session == "S2"


def test_a_question_in_one_session_outlives_the_loss_of_another() -> None:
    world, client, _, stream = task_after_restart()
    assert client.stream is not None
    world.send(stream, request('"q"', "elicitation/create", FORM))
    (asked,) = frames_of(world, client.stream, "elicitation/create")
    poll = world.take_sent("tasks/get")
    assert poll.post is not None
    assert poll.post.session == "S1"
    world.end(poll.channel, Cause(End.REFUSED, status=404))
    assert not frames_of(world, client.stream, "notifications/cancelled")
    world.unread.clear()
    client.send(f'{{"jsonrpc":"2.0","id":{asked["id"]},"result":{{"action":"decline"}}}}'.encode())
    assert world.take_sent("").frame["id"] == "q"
