"""Tasks among peers that are hostile, clumsy or gone at the wrong time."""

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
    Heard,
    connect,
    driver,
    newcomer,
    notification,
    request,
)
from isthmus.core.base.effects import (
    Cause,
    Collect,
    Collected,
    CollectedFile,
    Connected,
    Delete,
    Discard,
    Effect,
    End,
    Forget,
    Listen,
    Save,
    Saved,
    StorageFailed,
)
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Offer, Plan, ServerPlan, Sharing, TaskRules
from isthmus.core.base.revisions import Era
from isthmus.core.engine import Engine
from isthmus.core.status import Command
from isthmus.core.tasks.record import StoredTask
from stateless_driving import ABLE, FORM, Modern, emerge, modern, rise, tables

TASKS = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
LEGACY_ABLE = '{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}'
MODERN_ABLE = f'{{"tools":{{}},"extensions":{{"{TASKS}":{{}}}}}}'
KNOWS = {**ABLE, "extensions": {TASKS: {}}}
TOOLS = '{"tools":[{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}]}'
CALL = '{"name":"t","arguments":{},"task":{}}'
RESULT = '{"content":[]}'
AUTO = TaskRules(offer=Offer.AUTO)


def plan(id: str, kind: Kind = Kind.PIPE, *, tasks: TaskRules = AUTO, **said: Any) -> ServerPlan:
    return ServerPlan(id=id, kind=kind, tasks=tasks, **said)


def orders(world: Driver, *kinds: type[Effect]) -> list[Any]:
    """Those the storage has not answered."""
    waiting = world.engine._waiting._thens
    return [effect for effect in world.log if isinstance(effect, kinds) and effect.ticket in waiting]  # type: ignore[attr-defined]


def save(world: Driver) -> None:
    """Be a storage that does all it is ordered."""
    while found := orders(world, Save, Collect):
        for order in found:
            if isinstance(order, Save):
                world.store(order.ticket, Saved())
            else:
                world.store(order.ticket, Collected(files=(CollectedFile(filename="o", size_bytes=1),)))


def learn(world: Driver) -> None:
    """Be a server whose list of tools is read."""
    if world.hears("tools/list"):
        world.answer(world.hear("tools/list"), TOOLS)


def created(name: str = "s1", status: str = "working", *, is_modern: bool = False) -> str:
    ttl = "ttlMs" if is_modern else "ttl"
    task = {"taskId": name, "status": status, "createdAt": "", "lastUpdatedAt": "", ttl: 60_000}
    return json.dumps({**task, "resultType": "task"} if is_modern else {"task": task})


def state(name: str = "s1", status: str = "working", **said: Any) -> str:
    """What a server answers `tasks/get` with; a modern one, if `is_modern` is said."""
    ttl = "ttlMs" if said.pop("is_modern", False) else "ttl"
    task = {"taskId": name, "status": status, "createdAt": "", "lastUpdatedAt": "", ttl: 60_000, **said}
    return json.dumps({"resultType": "complete", **task})


def answer_of(world: Driver, channel: ChannelId, id: Any) -> dict[str, Any]:
    (found,) = [frame for frame in world.frames(channel) if "method" not in frame and frame["id"] == id]
    return found


def handle_of(world: Driver, channel: ChannelId, id: Any) -> str:
    """The task that a request was answered with."""
    result = answer_of(world, channel, id)["result"]
    name = result["task"]["taskId"] if "task" in result else result["taskId"]
    assert isinstance(name, str)
    return name


def told(world: Driver, channel: ChannelId, method: str) -> list[dict[str, Any]]:
    return [frame for frame in world.frames(channel) if frame.get("method") == method]


def legacy_task(world: Driver, client: Client, id_raw: str = "1", name: str = "s1") -> tuple[str, Heard]:
    """A task of a server with sessions that its client was told of, and the request for its outcome."""
    channel = client.request(id_raw, "tools/call", CALL)
    learn(world)
    world.answer(world.hear("tools/call"), created(name))
    save(world)
    return handle_of(world, channel, int(id_raw)), world.hear("tasks/result")


# --- Untold -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["operator", "expiry", "storage", "stop"])
def test_nothing_is_said_of_a_task_whose_client_was_not_told_of_it(end: str) -> None:
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
    assert not told(world, client.pipe, "notifications/tasks/status")
    assert not world.engine.tasks()
    save(world)
    assert [order.key for order in world.every(Forget)] == [f"task/{task.id}"]


def test_a_pipe_is_owed_the_handle_of_a_task_whose_record_is_being_stored() -> None:
    """Its client may have closed its end: it is told all the same, once that lasts."""
    world = driver(plan("pipe"))
    client = connect(world, "pipe", "pipe")
    other = newcomer(world, "pipe", "pipe")
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
    """Two clients of one process, both ready."""
    world = driver(plan("pipe", sharing=Sharing.CONCURRENT))
    ann, bob = (newcomer(world, "pipe", "pipe", principal=who) for who in ("ann", "bob"))
    for client in (ann, bob):
        client.initialize('{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}')
    world.shake_hands(capabilities=LEGACY_ABLE)
    for client in (ann, bob):
        client.notify("notifications/initialized")
    return world, ann, bob


def named(params: str, task: str) -> str:
    return json.dumps({**json.loads(params), "_meta": {RELATED: {"taskId": task}}})


def test_a_shared_process_asks_whose_task_it_is_and_nobody_else() -> None:
    world, ann, bob = shared()
    assert ann.pipe is not None
    assert bob.pipe is not None
    task, fetch = legacy_task(world, ann)
    ann.request("2", "tasks/result", json.dumps({"taskId": task}))
    bob.request("1", "tools/call", '{"name":"t","arguments":{}}')
    world.say(fetch.channel, request('"q"', "elicitation/create", named(FORM, "s1")))
    assert not told(world, bob.pipe, "elicitation/create")
    (asked,) = told(world, ann.pipe, "elicitation/create")
    assert asked["params"]["_meta"][RELATED]["taskId"] == task


def test_a_shared_process_that_names_no_task_known_asks_nobody() -> None:
    world, _, bob = shared()
    assert bob.pipe is not None
    bob.request("1", "tools/call", '{"name":"t","arguments":{}}')
    learn(world)
    heard = world.hear("tools/call")
    world.say(heard.channel, request('"q"', "elicitation/create", named(FORM, "another's")))
    assert "error" in world.hear("").frame
    assert not told(world, bob.pipe, "elicitation/create")


def test_what_a_shared_process_says_of_a_task_is_for_whose_it_is() -> None:
    world, ann, bob = shared()
    assert ann.pipe is not None
    assert bob.pipe is not None
    _, fetch = legacy_task(world, ann)
    log = '{"level":"info","data":"secret"}'
    world.say(fetch.channel, notification("notifications/message", named(log, "s1")))
    world.say(fetch.channel, notification("notifications/message", log))
    bob.request("1", "tools/call", '{"name":"t","arguments":{}}')
    world.say(fetch.channel, notification("notifications/message", named(log, "s1")))
    world.say(fetch.channel, notification("notifications/message", named(log, "another's")))
    assert len(told(world, ann.pipe, "notifications/message")) == 3
    assert not told(world, bob.pipe, "notifications/message")


def test_a_call_whose_client_left_a_shared_process_is_cancelled_as_the_task_that_it_becomes() -> None:
    world = driver(plan("pipe", sharing=Sharing.CONCURRENT, era=Era.STATELESS))
    ann, bob = (modern(world, "pipe", "pipe", principal=who, capabilities=KNOWS) for who in ("ann", "bob"))
    assert ann.pipe is not None
    ann.call("t")
    emerge(world, capabilities=MODERN_ABLE)
    bob.call("t")
    call = world.hear("tools/call")
    world.end(ann.pipe, GONE)
    world.answer(call, created(is_modern=True))
    assert world.hear("tasks/cancel").frame["params"]["taskId"] == "s1"


# --- What a task comes to ---------------------------------------------------------------------------------------------


def remote(up: str, *, is_told: bool = True, **said: Any) -> tuple[Driver, Modern, ChannelId]:
    """A task of a modern server's, and the channel its call came on. Its client knows tasks, if `is_told`."""
    kind = Kind.PIPE if up == "pipe" else Kind.HTTP
    world = driver(plan(up, kind, era=Era.STATELESS, **said))
    client = modern(world, up, "http", capabilities=KNOWS if is_told else ABLE)
    channel = client.call("t")
    emerge(world, capabilities=MODERN_ABLE)
    if world.hears("tools/list"):
        world.answer(world.hear("tools/list"), TOOLS)
    if not is_told:
        data = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        refusal = json.dumps({"code": -32021, "message": "m", "data": data})
        heard = world.hear("tools/call")
        world.reply(heard, f'{{"jsonrpc":"2.0","id":{heard.id},"error":{refusal}}}'.encode())
    world.answer(world.hear("tools/call"), created(is_modern=True))
    save(world)
    return world, client, channel


def look(world: Driver, said: str) -> None:
    """Be asked how the task fares."""
    world.wait(2.0)
    world.answer(world.hear("tasks/get"), said)
    save(world)


@pytest.mark.parametrize("up", ["pipe", "http"])
@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("code", [-32020, -32021, -32022])
def test_a_task_may_fail_with_any_error(up: str, is_told: bool, code: int) -> None:
    """Errors that would have a call sent once more say nothing of the kind in a task."""
    world, client, channel = remote(up, is_told=is_told)
    error = {"code": code, "message": "m", "data": {"supported": ["2026-07-28"]}}
    look(world, state(status="failed", error=error, is_modern=True))
    if is_told:
        (task,) = world.engine.tasks()
        assert task.status == "failed"
    else:
        assert "error" in client.answered(channel)
    assert not world.hears("tools/call")


@pytest.mark.parametrize("is_told", [True, False])
def test_a_task_does_not_end_with_a_question(is_told: bool) -> None:
    world, client, channel = remote("http", is_told=is_told)
    asked = {"resultType": "input_required", "inputRequests": {}, "requestState": "s"}
    look(world, state(status="completed", result=asked, is_modern=True))
    if is_told:
        (task,) = world.engine.tasks()
        assert task.status == "failed"
    else:
        assert client.answered(channel)["error"]["code"] == -32603


def test_a_task_whose_server_wants_a_page_visited_fails() -> None:
    """Its client could not come back to the call that the task was made of."""
    world = driver(plan("pipe", tasks=TaskRules(offer=Offer.ALWAYS)))
    client = modern(world, "pipe", capabilities=KNOWS)
    channel = client.call("t")
    rise(world, capabilities='{"tools":{}}')
    save(world)
    task = handle_of(world, channel, 1)
    page = {"mode": "url", "message": "m", "url": "http://x", "elicitationId": "v"}
    heard = world.hear("tools/call")
    error = json.dumps({"code": -32042, "message": "m", "data": {"elicitations": [page]}})
    world.say(heard.channel, f'{{"jsonrpc":"2.0","id":{heard.id},"error":{error}}}'.encode())
    save(world)
    shown = client.answered(client.request("tasks/get", taskId=task))["result"]
    assert shown["status"] == "failed"
    assert "error" in shown


# --- The proxy stops --------------------------------------------------------------------------------------------------


def test_the_proxy_may_stop_while_the_outcome_of_a_servers_task_is_stored() -> None:
    world, _, _ = remote("http")
    world.wait(2.0)
    world.answer(world.hear("tasks/get"), state(status="completed", result={"content": []}, is_modern=True))
    world.stop()
    save(world)
    stored = [msgspec.json.decode(order.value, type=StoredTask) for order in world.every(Save)]
    assert stored[-1].status.value == "completed"
    assert stored[-1].outcome


def test_a_stop_tells_the_server_of_each_call_that_does_not_go_on_there() -> None:
    """A task that its client knows goes on; a call that its client waited for does not, though it is a task there."""
    world = driver(plan("http", Kind.HTTP))
    client = connect(world, "http", "http", capabilities=LEGACY_ABLE)
    legacy_task(world, client)
    client.request("2", "tools/call", '{"name":"t","arguments":{},"task":{}}')
    world.answer(world.hear("tools/call"), created("s2"))  # whose client is not told in time
    world.stop()
    cancelled = [heard.frame["params"]["taskId"] for heard in world.heard if heard.frame["method"] == "tasks/cancel"]
    assert cancelled == ["s2"]
    assert not [dial for dial in world.dials if isinstance(dial.target, Delete)]


def test_a_stop_answers_no_question_of_a_task_that_goes_on() -> None:
    world = driver(plan("http", Kind.HTTP))
    client = connect(world, "http", "http", capabilities=LEGACY_ABLE)
    _, fetch = legacy_task(world, client)
    world.open(fetch.channel, Connected())
    world.say(fetch.channel, request('"q"', "elicitation/create", named(FORM, "s1")))
    world.stop()
    assert not world.hears("")


# --- The storage is slow ----------------------------------------------------------------------------------------------


def test_an_outcome_stored_for_a_task_that_is_gone_is_dropped() -> None:
    world = driver(plan("pipe"), limits=Limits(task_inline_max_bytes=1, task_ttl_s=20.0, storage_timeout_s=60.0))
    client = connect(world, "pipe", "pipe", capabilities=LEGACY_ABLE)
    client.request("1", "tools/call", CALL)
    learn(world)
    world.answer(world.hear("tools/call"), created())
    save(world)
    world.answer(world.hear("tasks/result"), RESULT)
    (collect,) = orders(world, Collect)
    world.store(collect.ticket, Collected(files=(CollectedFile(filename="o", size_bytes=1),)))
    world.wait(70.0)
    save(world)
    assert [order.blob for order in world.every(Discard)] == list(collect.blobs)
    assert world.every(Forget)


def test_who_takes_a_task_over_does_not_undo_how_it_ended() -> None:
    """An ended session's task is named by another client while its outcome is being stored."""
    world = driver(plan("http", Kind.HTTP, tasks=AUTO))
    first = connect(world, "http", "http")
    channel = first.request("1", "tools/call", CALL)
    world.wait(1.0)
    save(world)
    task = handle_of(world, channel, 1)
    world.answer(world.hear("tools/call"), RESULT)
    first.delete()
    second = Client(world, "http")
    opened = second.initialize()
    world.heard = [heard for heard in world.heard if heard.frame["method"] != "notifications/cancelled"]
    world.shake_hands()
    second.session = world.sent[opened][-1].session
    second.notify("notifications/initialized")
    second.request("2", "tasks/get", json.dumps({"taskId": task}))
    save(world)
    stored = [msgspec.json.decode(order.value, type=StoredTask) for order in world.every(Save)]
    statuses = [record.status.value for record in stored]
    assert set(statuses[statuses.index("completed") :]) == {"completed"}, "not even for a moment"
    assert stored[-1].sid != stored[0].sid


def test_nothing_is_kept_of_a_session_that_ended_before_a_task_of_it_was_told() -> None:
    world = driver(plan("http", Kind.HTTP), limits=Limits(stream_commit_s=1.0))
    client = connect(world, "http", "http")
    client.request("1", "tools/call", CALL)
    world.answer(world.hear("tools/call"), RESULT)
    client.delete()
    world.wait(5.0)
    save(world)
    assert not tables(world.engine)["streams"]


# --- Questions --------------------------------------------------------------------------------------------------------


def asking(world: Driver, client: Client, *, takes_events: bool = True) -> tuple[str, ChannelId]:
    """A task whose outcome its client waits for, and whose server has asked."""
    task, fetch = legacy_task(world, client)
    waiting = client.say(request("2", "tasks/result", json.dumps({"taskId": task})), takes_events=takes_events)
    if fetch.post is not None:
        world.open(fetch.channel, Connected())
    world.say(fetch.channel, request('"q"', "elicitation/create", named(FORM, "s1")))
    return task, waiting


@pytest.mark.parametrize("end", ["cancel", "expiry", "result"])
def test_a_question_that_waits_for_a_stream_goes_with_its_task(end: str) -> None:
    world = driver(plan("http", Kind.HTTP), limits=Limits(task_ttl_s=20.0))
    client = connect(world, "http", "http", capabilities=LEGACY_ABLE)
    task, _ = asking(world, client, takes_events=False)
    if end == "cancel":
        client.request("3", "tasks/cancel", json.dumps({"taskId": task}))
    elif end == "expiry":
        world.wait(70.0)
    else:
        fetch = next(dial for dial in world.dials if b"tasks/result" in getattr(dial.target, "message", b""))
        world.say(fetch.channel, b'{"jsonrpc":"2.0","id":4,"result":{"content":[]}}')
        world.heard.clear()
    save(world)
    stream = client.listen()
    assert not told(world, stream, "elicitation/create")


def test_a_client_that_cancels_a_task_is_told_that_its_question_is_void() -> None:
    world = driver(plan("pipe"))
    client = connect(world, "pipe", "pipe", capabilities=LEGACY_ABLE)
    assert client.pipe is not None
    task, _ = asking(world, client)
    (asked,) = told(world, client.pipe, "elicitation/create")
    client.request("3", "tasks/cancel", json.dumps({"taskId": task}))
    (void,) = told(world, client.pipe, "notifications/cancelled")
    assert void["params"]["requestId"] == asked["id"]


def test_a_task_asks_the_session_that_it_runs_in_and_no_other_of_its_principal() -> None:
    """Numbers of questions are a session's own: what another is asked under the same one is another question."""
    world = driver(plan("http", Kind.HTTP))
    able = '{"elicitation":{}}'
    clients = []
    for index in range(2):
        client = Client(world, "http", principal="ann")
        opened = client.initialize(f'{{"protocolVersion":"2025-11-25","capabilities":{able}}}')
        world.shake_hands(capabilities=LEGACY_ABLE, session=f"S{index}")
        client.session = world.sent[opened][-1].session
        client.notify("notifications/initialized")
        clients.append(client)
    first, second = clients
    task, fetch = legacy_task(world, first)
    plain = second.request("1", "tools/call", '{"name":"t","arguments":{}}')
    learn(world)
    call = world.hear("tools/call")
    world.open(call.channel, Connected())
    world.say(call.channel, request('"own"', "elicitation/create", FORM))
    waiting = second.request("2", "tasks/result", json.dumps({"taskId": task}))
    world.open(fetch.channel, Connected())
    world.say(fetch.channel, request('"q"', "elicitation/create", named(FORM, "s1")))
    assert len(told(world, plain, "elicitation/create")) == 1
    assert not told(world, waiting, "elicitation/create")
    own = first.request("3", "tasks/result", json.dumps({"taskId": task}))
    (asked,) = told(world, own, "elicitation/create")
    first.say(f'{{"jsonrpc":"2.0","id":{asked["id"]},"result":{{"action":"decline"}}}}'.encode())
    assert world.hear("").frame["id"] == "q"


def test_a_question_of_a_task_is_answered_though_its_call_cannot_be_parked() -> None:
    """A client that knows no tasks is asked as a call asks; where there is no room for that, the server hears so."""
    limits = Limits(parks_max=1)
    world = driver(plan("http", Kind.HTTP, era=Era.STATELESS), limits=limits)
    client = modern(world, "http", capabilities=ABLE)
    data = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    refusal = json.dumps({"code": -32021, "message": "m", "data": data})
    for index in range(2):
        client.call("t")
        if index == 0:
            emerge(world, capabilities=MODERN_ABLE)
            world.answer(world.hear("tools/list"), TOOLS)
        heard = world.hear("tools/call")
        world.reply(heard, f'{{"jsonrpc":"2.0","id":{heard.id},"error":{refusal}}}'.encode())
        world.answer(world.hear("tools/call"), created(f"s{index}", is_modern=True))
    asked = {"k": {"method": "elicitation/create", "params": json.loads(FORM)}}
    world.wait(1.0)
    for _ in range(2):
        heard = world.hear("tasks/get")
        name = heard.frame["params"]["taskId"]
        world.answer(heard, state(name, "input_required", inputRequests=asked, is_modern=True))
    assert all("method" in heard.frame for heard in world.heard)
    exchanges = [e for s in world.engine._clients.sessions.values() for e in s.exchanges.values()]
    assert [len(exchange.remote.open) for exchange in exchanges if exchange.remote is not None] == [1, 0]


def test_a_question_of_a_task_outlives_the_loss_of_its_server() -> None:
    world, client, channel = remote("http")
    task = handle_of(world, channel, 1)
    asked = {"k": {"method": "elicitation/create", "params": json.loads(FORM)}}
    look(world, state(status="input_required", inputRequests=asked, is_modern=True))
    world._note(world.engine.receive_command("http", Command.RESTART, world.now))
    shown = client.answered(client.request("tasks/get", taskId=task))["result"]
    assert list(shown["inputRequests"]) == ["q1"]
    client.request("tasks/update", taskId=task, inputResponses={"q1": {"action": "decline"}})
    world.wait(5.0)
    emerge(world, capabilities=MODERN_ABLE)
    update = world.hear("tasks/update").frame["params"]
    assert update["inputResponses"] == {"k": {"action": "decline"}}


# --- The server forgets -----------------------------------------------------------------------------------------------


def test_a_session_that_the_server_forgot_is_made_anew_for_its_tasks() -> None:
    """Nobody says anything to it but whoever looks at a task."""
    world = driver(plan("http", Kind.HTTP))
    client = connect(world, "http", "http", capabilities=LEGACY_ABLE)
    task, fetch = legacy_task(world, client)
    world.end(fetch.channel, Cause(End.REFUSED, status=404))
    channel = client.request("2", "tasks/get", json.dumps({"taskId": task}))
    world.wait(1.0)
    world.shake_hands(capabilities=LEGACY_ABLE, session="S2")
    posted = world.hear("tasks/get").post
    assert posted is not None
    assert posted.session == "S2"
    assert "result" in answer_of(world, channel, 2)


# --- Time -------------------------------------------------------------------------------------------------------------


def test_the_time_of_a_servers_task_is_counted_from_when_it_was_made() -> None:
    """Not from when its call came: that may have waited."""
    world = driver(plan("http", Kind.HTTP, era=Era.STATELESS))
    client = modern(world, "http", capabilities=KNOWS)
    channel = client.call("t")
    emerge(world, capabilities=MODERN_ABLE)
    world.answer(world.hear("tools/list"), TOOLS)
    world.wait(100.0)
    world.answer(world.hear("tools/call"), created(is_modern=True))
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


def again(before: Driver, *servers: ServerPlan) -> Driver:
    """The next run of the proxy, with what the storage has of tasks."""
    records = {order.key: msgspec.json.decode(order.value, type=StoredTask) for order in before.every(Save)}
    whole = Plan(servers=servers, link_key=LINK_KEY, workspaces_path="/w")
    entropy = random.Random(2).randbytes
    stored = list(records.values())
    return Driver(Engine(whole, entropy=entropy, unix_at_zero=UNIX_AT_ZERO, stored_tasks=stored), now=before.now)


def taken_up() -> tuple[Driver, Client, str, ChannelId]:
    """A task of an earlier run that its client has asked for, over a session with its server that is not the client's
    own, and that one's GET stream."""
    one = plan("http", Kind.HTTP)
    before = driver(one)
    task, _ = legacy_task(before, connect(before, "http", "http", capabilities=LEGACY_ABLE, principal="ann"))
    before.stop()
    world = again(before, one)
    client = connect(world, "http", "http", capabilities=LEGACY_ABLE, principal="ann", session="S2", listens=True)
    stream = world.last_dial(Listen).channel
    client.listen()
    client.request("1", "tasks/get", json.dumps({"taskId": task}))
    return world, client, task, stream


def test_what_is_asked_in_a_clients_own_session_is_answered_there() -> None:
    """Though its only call is a task in another."""
    world, client, _, stream = taken_up()
    assert client.stream is not None
    world.heard.clear()
    world.say(stream, request('"q"', "elicitation/create", FORM))
    (asked,) = told(world, client.stream, "elicitation/create")
    client.say(f'{{"jsonrpc":"2.0","id":{asked["id"]},"result":{{"action":"decline"}}}}'.encode())
    answered = world.hear("").post
    assert answered is not None
    assert answered.session == "S2"


def test_who_asks_in_one_session_is_still_answered_when_another_is_lost() -> None:
    world, client, _, stream = taken_up()
    assert client.stream is not None
    world.say(stream, request('"q"', "elicitation/create", FORM))
    (asked,) = told(world, client.stream, "elicitation/create")
    look = world.hear("tasks/get")
    assert look.post is not None
    assert look.post.session == "S1"
    world.end(look.channel, Cause(End.REFUSED, status=404))
    assert not told(world, client.stream, "notifications/cancelled")
    world.heard.clear()
    client.say(f'{{"jsonrpc":"2.0","id":{asked["id"]},"result":{{"action":"decline"}}}}'.encode())
    assert world.hear("").frame["id"] == "q"
