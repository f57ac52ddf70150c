"""Tests of bounds of `Limits` when they are reached, of stops, and of misuse by the transport."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from driving import (
    DONE,
    LATEST,
    Client,
    Driver,
    ask_link,
    connect,
    driver,
    manifest,
    new_client,
    notification,
    request,
    result,
    send_in,
    upload,
)
from isthmus.core.base.effects import Effect, Pause, Resume, Send, Spawn
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import (
    Cause,
    Connected,
    DeleteOpening,
    End,
    GetOpening,
    Opening,
    PipeOpening,
    PostOpening,
    UploadOpening,
)
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import (
    ArtifactProducer,
    AutoFiles,
    Kind,
    LocatorMode,
    OutputLocator,
    ServerPlan,
    UploadConsumer,
)
from isthmus.core.base.storage import (
    Collect,
    Collected,
    CollectedFile,
    Discard,
    FileSource,
    Receive,
    Save,
    Saved,
    Survey,
)

INITIALIZE = request('"i"', "initialize", f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}')


def code(world: Driver, channel: ChannelId) -> int:
    """The code of the error that came last on a channel."""
    number = json.loads(world.messages(channel)[-1])["error"]["code"]
    assert isinstance(number, int)
    return number


# --- Sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", ["pipe", "http"])
def test_sessions_max_refuses_one_more_until_one_has_ended(down: str) -> None:
    world = driver(limits=Limits(sessions_max=2))
    first = connect(world, "http", "http")
    connect(world, "pipe", "pipe")
    third = new_client(world, down, "http")
    channel = third.send(INITIALIZE)
    assert code(world, channel) == -31007
    assert world.only_message(channel)["id"] == "i"
    assert world.sent[channel][0].status == (503 if down == "http" else 200)
    assert not world.unread
    first.delete()
    third.send(INITIALIZE)
    assert world.was_sent("initialize")


def test_children_max_refuses_one_more_until_one_is_gone() -> None:
    """A process counts until it is known to be gone, over all sessions; servers over HTTP need none."""
    world = driver(limits=Limits(children_max=2))
    first = connect(world, "http", "pipe")
    child = world.dials[-1].channel
    connect(world, "pipe", "pipe")
    connect(world, "http", "http")
    refused = new_client(world, "http", "pipe")
    channel = refused.send(INITIALIZE)
    assert code(world, channel) == -31004
    assert "2 server processes run, the most allowed" in world.only_message(channel)["error"]["message"]
    first.delete()
    assert code(world, new_client(world, "http", "pipe").send(INITIALIZE)) == -31004
    world.end(child)
    connect(world, "http", "pipe")


# --- Messages that wait for a stream ----------------------------------------------------------------------------------


def test_held_per_session_max_drops_the_oldest_message_and_never_a_change() -> None:
    world = driver(limits=Limits(held_per_session_max=4))
    client = connect(world, "http", "pipe")
    server = world.dials[0].channel
    world.send(server, notification("notifications/tools/list_changed"))
    for n in range(5):
        world.send(server, notification("notifications/message", str([n])))
    world.send(server, notification("notifications/resources/updated", '{"uri":"a"}'))
    assert [json.loads(m).get("params") for m in world.messages(client.listen())] == [None, [3], [4], {"uri": "a"}]
    assert len(world.notes("warning")) == 3


def test_held_per_session_max_full_of_changes_drops_the_newcomer() -> None:
    world = driver(limits=Limits(held_per_session_max=3))
    client = connect(world, "http", "pipe")
    server = world.dials[0].channel
    for kind in ("tools", "prompts", "resources"):
        world.send(server, notification(f"notifications/{kind}/list_changed"))
    world.send(server, notification("notifications/message", "{}"))
    world.send(server, request("1", "roots/list"))
    assert world.take_sent("").frame["error"]["code"] == -32603, "a question is refused at once"
    assert len(world.messages(client.listen())) == 3


def test_held_per_session_max_refuses_the_question_it_drops() -> None:
    world = driver(limits=Limits(held_per_session_max=2))
    client = connect(world, "http", "pipe")
    server = world.dials[0].channel
    for n in range(3):
        world.send(server, request(str(n), "roots/list"))
    assert world.take_sent("").frame["id"] == 0
    assert len(world.messages(client.listen())) == 2


# --- Idle sessions ----------------------------------------------------------------------------------------------------


def test_a_pipe_is_never_idle() -> None:
    world = driver(limits=Limits(session_idle_ttl_s=60.0))
    connect(world, "pipe", "pipe")
    world.wait(10_000.0)
    assert world.engine.session_count == 1


# --- Silence of the server --------------------------------------------------------------------------------------------


def test_each_server_may_have_time_limits_of_its_own() -> None:
    quick = ServerPlan(id="quick", kind=Kind.HTTP, reply_timeout_s=5.0, start_timeout_s=3.0)
    world = driver(quick, ServerPlan(id="usual", kind=Kind.HTTP), limits=Limits(reply_timeout_s=50, start_timeout_s=30))
    one = connect(world, "http", "quick").request("1", "tools/call", "{}")
    world.unread.clear()
    two = connect(world, "http", "usual").request("1", "tools/call", "{}")
    world.wait(5.1)
    assert code(world, one) == -31008
    assert "5 s" in world.only_message(one)["error"]["message"]
    assert not world.sent[two]
    three, four = (new_client(world, "http", server).initialize() for server in ("quick", "usual"))
    world.wait(3.1)
    assert code(world, three) == -31004
    assert not world.sent[four]
    world.wait(30.0)
    assert code(world, four) == -31004


# --- Subscriptions ----------------------------------------------------------------------------------------------------


def test_subscriptions_per_session_max_bounds_replayed_subscriptions_not_requests() -> None:
    world = driver(limits=Limits(subscriptions_per_session_max=2))
    client = connect(world, "http", "pipe")
    for name in "abc":
        channel = client.request("1", "resources/subscribe", f'{{"uri":"{name}"}}')
        world.answer(world.take_sent("resources/subscribe"))
        assert world.messages(channel) == [result("1")], "the server took it"
    world.end(world.dials[0].channel, Cause(End.BROKEN))
    world.start_server()
    assert [received.frame["params"]["uri"] for received in world.unread] == ["a", "b"]


# --- Flow control -----------------------------------------------------------------------------------------------------

FLOW = Limits(outbox_high_bytes=1000, outbox_low_bytes=300)
BIG = '{"x":"' + "y" * 1200 + '"}'


def flow(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, Pause | Resume)]


def drained(world: Driver, channel: ChannelId, *, leaving: int = 0) -> list[Effect]:
    """The transport reports all bytes of a channel as sent, except for so many."""
    size = sum(len(message) for message in world.messages(channel)) - leaving
    world.sent[channel].clear()
    return flow(world.engine.receive_sent(channel, size, world.now))


@pytest.mark.parametrize("up", ["pipe", "http"])
def test_a_full_client_pauses_the_server_that_feeds_it_until_it_has_drained(up: str) -> None:
    world = driver(limits=FLOW)
    client = connect(world, "http", up)
    stream = client.listen()
    channel = client.request("1", "tools/call", "{}")
    source = world.take_sent("tools/call").channel
    assert flow(world.send(source, notification("notifications/message", BIG))) == [Pause(channel=source)]
    assert flow(world.send(source, notification("notifications/message", BIG))) == [], "once is enough"
    assert not world.sent[stream]
    assert drained(world, channel, leaving=301) == []
    assert flow(world.engine.receive_sent(channel, 1, world.now)) == [Resume(channel=source)]


def test_a_full_server_pauses_the_client_that_feeds_it() -> None:
    world = driver(limits=FLOW)
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    child = world.dials[0].channel
    world.sent[child].clear()
    sent_before = sum(len(send.message) for send in world.every(Send) if send.channel == child)
    world.engine.receive_sent(child, sent_before, world.now)
    effects = world.send(client.pipe, request("1", "tools/call", BIG))
    assert flow(effects) == [Pause(channel=client.pipe)]
    assert drained(world, child) == [Resume(channel=client.pipe)]


def test_a_source_of_two_full_clients_is_resumed_when_both_have_drained() -> None:
    world = driver(limits=FLOW)
    client = connect(world, "http", "pipe")
    source = world.dials[0].channel
    channels = [client.request(n, "tools/call", "{}") for n in "12"]
    calls = [world.take_sent("tools/call") for _ in channels]
    answers = [flow(world.send(source, result(str(call.id), BIG))) for call in calls]
    assert answers == [[Pause(channel=source)], []]
    assert drained(world, channels[0]) == []
    assert drained(world, channels[1]) == [Resume(channel=source)]


def test_a_full_client_that_hangs_up_no_longer_holds_the_server_back() -> None:
    world = driver(limits=FLOW)
    client = connect(world, "http", "pipe")
    source = world.dials[0].channel
    channel = client.request("1", "tools/call", "{}")
    world.send(source, result(str(world.take_sent("tools/call").id), BIG))
    assert flow(world.end(channel)) == [Resume(channel=source)]


def test_a_source_that_is_gone_is_not_resumed() -> None:
    world = driver(limits=FLOW)
    client = connect(world, "http", "pipe")
    source = world.dials[0].channel
    channel = client.request("1", "tools/call", "{}")
    world.send(source, result(str(world.take_sent("tools/call").id), BIG))
    world.end(source)
    assert drained(world, channel) == []


# --- Files ------------------------------------------------------------------------------------------------------------

CONSUMER = UploadConsumer(tools=("eat",), file_path_argument="path")
PRODUCER = ArtifactProducer(
    tools=("make",), output_locator=OutputLocator(mode=LocatorMode.STRUCTURED, output_path_key="files[*]")
)
HELPER = "f_get_upload_url"


def filing(limits: Limits) -> tuple[Driver, Client]:
    world = driver(ServerPlan(id="f", kind=Kind.PIPE, consumers=(CONSUMER,), producers=(PRODUCER,)), limits=limits)
    return world, connect(world, "http", "f", capabilities='{"resources":{},"tools":{}}')


def make(world: Driver, client: Client, count: int) -> tuple[ChannelId, Collect]:
    """A call whose result names so many files; they are to be collected now."""
    channel = client.request("1", "tools/call", '{"name":"make"}')
    files = json.dumps([f"/out/{n}.txt" for n in range(count)])
    world.answer(world.take_sent("tools/call"), f'{{"content":[],"structuredContent":{{"files":{files}}}}}')
    return channel, world.last(Collect)


def take_in(world: Driver, order: Collect, size_bytes: int) -> None:
    """Every file exists, and is saved."""
    files = []
    for source in order.sources:
        assert isinstance(source, FileSource)
        path = source.candidates[0]
        files.append(CollectedFile(path=path, filename=path[5:], size_bytes=size_bytes, sha256="0" * 64, head=b"text"))
    for effect in world.store(order.ticket, Collected(files=tuple(files))):
        if isinstance(effect, Save):
            world.store(effect.ticket, Saved())


def meta_of(world: Driver, channel: ChannelId) -> dict[str, object]:
    meta = world.only_message(channel)["result"]["_meta"]
    assert isinstance(meta, dict)
    return meta


def test_the_bounds_of_an_upload_are_ordered_with_it() -> None:
    world, client = filing(Limits(upload_size_max_bytes=100, upload_files_max=3, session_storage_max_bytes=250))
    send_in(world, UploadOpening(server="f", query=ask_link(client, HELPER)))
    order = world.only(Receive)
    assert len(order.blobs) == 3
    assert order.file_size_max_bytes == 100
    assert order.total_size_max_bytes == 100, "without a length, the limit of one file"
    send_in(world, UploadOpening(server="f", query=ask_link(client, HELPER), size_bytes=120))
    assert world.last(Receive).total_size_max_bytes == 120
    send_in(world, UploadOpening(server="f", query=ask_link(client, HELPER), size_bytes=120))
    assert world.last(Receive).total_size_max_bytes == 30, "the rest beside those under way"


def test_the_room_of_an_upload_is_free_again_when_its_client_is_gone() -> None:
    world, client = filing(Limits(session_storage_max_bytes=100))
    query = ask_link(client, HELPER)
    first = send_in(world, UploadOpening(server="f", query=query))
    second = send_in(world, UploadOpening(server="f", query=query))
    assert world.only_message(second)["code"] == "storage_full"
    world.end(first, Cause(End.GONE))
    assert not world.sent[send_in(world, UploadOpening(server="f", query=query))]


def test_uploads_per_session_max_counts_files_of_no_size_too() -> None:
    world, client = filing(Limits(uploads_per_session_max=3))
    upload(client, HELPER, ("a", 0), ("b", 0))
    channel = send_in(world, UploadOpening(server="f", query=ask_link(client, HELPER)))
    assert len(world.last(Receive).blobs) == 1
    world.end(channel, Cause(End.GONE))
    upload(client, HELPER, ("c", 0))
    channel = send_in(world, UploadOpening(server="f", query=ask_link(client, HELPER)))
    assert world.only_message(channel)["code"] == "storage_full"


def test_stored_files_max_counts_those_of_all_sessions() -> None:
    world, one = filing(Limits(stored_files_max=2))
    two = connect(world, "http", "f")
    upload(one, HELPER, ("a", 0))
    upload(two, HELPER, ("a", 0))
    assert (
        world.only_message(send_in(world, UploadOpening(server="f", query=ask_link(one, HELPER))))["code"]
        == "storage_full"
    )
    two.delete()
    world.wait(1)
    upload(one, HELPER, ("b", 0))
    assert [file.filename for file in world.engine.files()] == ["a", "b"], "that of the session that is over gave way"


def test_an_upload_whose_length_says_that_it_cannot_fit_is_refused_unread() -> None:
    world, client = filing(Limits(upload_size_max_bytes=100, upload_files_max=1))
    query = ask_link(client, HELPER)
    for size, status in [(10_000_000, 413), (100, None)]:
        channel = send_in(world, UploadOpening(server="f", query=query, size_bytes=size))
        assert [send.status for send in world.sent[channel]] == ([] if status is None else [status])
    assert len(world.every(Receive)) == 1, "the link is still valid"


@pytest.mark.parametrize("limits", [Limits(session_storage_max_bytes=100), Limits(storage_max_bytes=100)])
def test_a_full_storage_takes_no_upload_until_files_have_gone(limits: Limits) -> None:
    world, client = filing(limits)
    client.listen()
    upload(client, HELPER, ("a", 100))
    query = ask_link(client, HELPER)
    channel = send_in(world, UploadOpening(server="f", query=query))
    assert world.sent[channel][0].status == 507
    assert world.only_message(channel)["code"] == "storage_full"
    world.wait(limits.upload_ttl_s + 1)
    channel = send_in(world, UploadOpening(server="f", query=ask_link(client, HELPER)))
    assert not world.sent[channel]


def test_storage_max_bounds_all_sessions_and_session_storage_max_each() -> None:
    world, one = filing(Limits(session_storage_max_bytes=100, storage_max_bytes=150))
    two = connect(world, "http", "f")
    upload(one, HELPER, ("a", 100))
    send_in(world, UploadOpening(server="f", query=ask_link(two, HELPER)))
    assert world.last(Receive).total_size_max_bytes == 50


def test_uploads_that_do_not_fit_together_are_not_both_received() -> None:
    world, client = filing(Limits(session_storage_max_bytes=100))
    query = ask_link(client, HELPER)
    first = send_in(world, UploadOpening(server="f", query=query, size_bytes=60))
    send_in(world, UploadOpening(server="f", query=query, size_bytes=60))
    assert [order.total_size_max_bytes for order in world.every(Receive)] == [60, 40]
    saves = world.send(first, manifest(("a", 60)))
    third = send_in(world, UploadOpening(server="f", query=query))
    assert world.only_message(third)["code"] == "storage_full", "also while it is being saved"
    for save in saves:
        assert isinstance(save, Save)
        world.store(save.ticket, Saved())
    assert world.only_message(first)["count"] == 1


def test_a_manifest_that_was_not_ordered_is_undone() -> None:
    world, client = filing(Limits(session_storage_max_bytes=100))
    channel = send_in(world, UploadOpening(server="f", query=ask_link(client, HELPER), size_bytes=60))
    effects = world.send(channel, manifest(("b", 61)))
    assert effects[0] == Discard(blob=world.only(Receive).blobs[0])
    assert world.only_message(channel)["code"] == "storage_failed"


def test_upload_ttl_removes_what_is_not_used_and_each_use_starts_it_anew() -> None:
    world, client = filing(Limits(upload_ttl_s=100.0))
    (used, unused) = upload(client, HELPER, ("a", 1), ("b", 2))
    blobs = world.last(Receive).blobs
    world.wait(99.0)
    client.request("1", "tools/call", f'{{"name":"eat","arguments":{{"path":"{used}"}}}}')
    world.wait(2.0)
    assert [effect.blob for effect in world.every(Discard)] == [blobs[1]]
    channel = client.request("2", "tools/call", f'{{"name":"eat","arguments":{{"path":"{unused}"}}}}')
    assert world.only_message(channel)["result"]["isError"] is True


def test_artifacts_per_call_max_bounds_what_one_result_brings_in() -> None:
    world, client = filing(Limits(artifacts_per_call_max=2))
    _, order = make(world, client, 5)
    assert len(order.sources) == 2
    assert len(order.blobs) == 2


def test_arguments_read_max_bounds_the_paths_that_are_looked_at() -> None:
    world = driver(ServerPlan(id="f", kind=Kind.PIPE, auto_files=AutoFiles()), limits=Limits(arguments_read_max=3))
    client = connect(world, "http", "f", capabilities='{"resources":{},"tools":{}}')
    paths = json.dumps([f"/out/{n}.txt" for n in range(5)])
    client.request("1", "tools/call", f'{{"name":"make","arguments":{{"paths":{paths}}}}}')
    assert [spellings[0] for spellings in world.last(Survey).named] == ["/out/0.txt", "/out/1.txt", "/out/2.txt"]


def test_artifacts_per_session_max_keeps_the_first_and_says_so_of_the_rest() -> None:
    world, client = filing(Limits(artifacts_per_session_max=3))
    channel, order = make(world, client, 2)
    take_in(world, order, 10)
    assert len(meta_of(world, channel)["artifacts"]) == 2  # type: ignore[arg-type]
    channel, order = make(world, client, 2)
    take_in(world, order, 10)
    assert "artifacts" not in meta_of(world, channel)
    assert "artifact" in meta_of(world, channel)
    assert [effect.blob for effect in world.every(Discard)] == [order.blobs[1]]
    channel, order = make(world, client, 1)
    take_in(world, order, 10)
    assert meta_of(world, channel)["artifact_error"] == "this session's storage is full"
    assert world.last(Discard).blob == order.blobs[0]


def test_artifact_sizes_are_bounded_by_their_limit_and_by_what_is_left() -> None:
    world, client = filing(Limits(artifact_size_max_bytes=80, session_storage_max_bytes=100))
    _, order = make(world, client, 2)
    assert order.size_max_bytes == 80
    take_in(world, order, 60)
    assert [effect.blob for effect in world.every(Discard)] == [order.blobs[1]], "together they are too much"
    _, order = make(world, client, 1)
    assert (order.size_max_bytes, order.total_size_max_bytes) == (80, 40)


def test_artifact_ttl_removes_artifacts_at_their_deadline_and_frees_their_room() -> None:
    world, client = filing(Limits(artifact_ttl_s=100.0, session_storage_max_bytes=100))
    _, order = make(world, client, 1)
    take_in(world, order, 70)
    assert world.only(Save).expires_at_unix == 1_000_000_000.0 + world.now + 100.0
    world.wait(99.9)
    assert not world.every(Discard)
    world.wait(0.2)
    assert world.only(Discard).blob == order.blobs[0]
    assert make(world, client, 1)[1].total_size_max_bytes == 100


def test_inline_size_max_names_the_link_instead_of_the_content() -> None:
    world, client = filing(Limits(inline_size_max_bytes=50))
    channel, order = make(world, client, 1)
    take_in(world, order, 51)
    described = meta_of(world, channel)["artifact"]
    assert isinstance(described, dict)
    read = client.request("1", "resources/read", json.dumps({"uri": described["artifact_uri"]}))
    assert code(world, read) == -31007
    assert described["download_url"] in world.only_message(read)["error"]["message"]


def test_storage_timeout_counts_as_a_failure() -> None:
    world, client = filing(Limits(storage_timeout_s=9.0))
    (handle,) = upload(client, HELPER, ("a", 1))
    channel = client.request("1", "tools/call", f'{{"name":"eat","arguments":{{"path":"{handle}"}}}}')
    world.wait(8.9)
    assert not world.sent[channel]
    world.wait(0.2)
    text = world.only_message(channel)["result"]["content"][0]["text"]
    assert world.only_message(channel)["result"]["isError"] is True
    assert "9 s" in text
    assert not world.unread


def test_an_answer_after_the_storage_timeout_does_nothing() -> None:
    world, client = filing(Limits(storage_timeout_s=9.0))
    channel, order = make(world, client, 1)
    world.wait(9.1)
    assert "9 s" in str(meta_of(world, channel)["artifact_error"])
    assert world.store(order.ticket, Collected(files=(CollectedFile(problem="gone"),))) == []


# --- Drain and stop ---------------------------------------------------------------------------------------------------


def test_the_error_of_a_call_at_stop_says_whether_it_may_have_run() -> None:
    """A call that was written to its server may have run; one that waits for a server, or fails with it, did not."""
    world = driver()
    running = connect(world, "pipe", "pipe").request("1", "tools/call", "{}")
    waiting, refused = new_client(world, "pipe", "pipe"), new_client(world, "pipe", "pipe")
    for client in (waiting, refused):
        client.initialize()
        client.request("1", "tools/call", "{}")
    assert waiting.pipe is not None
    assert refused.pipe is not None
    world.end(world.last_dial(Spawn).channel, Cause(End.BROKEN, "exited with code 1"))
    world.stop()
    errors = [json.loads(world.messages(channel)[-1])["error"] for channel in (running, waiting.pipe, refused.pipe)]
    assert [(error["code"], error["data"]["outcome"]) for error in errors] == [
        (-31001, "unknown"),
        (-31007, "not_executed"),
        (-31004, "not_executed"),
    ]
    assert errors[0]["message"].startswith("the proxy is shutting down: ")
    assert errors[1]["message"] == "the proxy is shutting down: tools/call did not run"
    assert errors[2]["message"] == "the handshake failed: tools/call did not run"


# --- Misuse -----------------------------------------------------------------------------------------------------------

INPUTS: dict[str, Callable[[Driver, float], object]] = {
    "open": lambda w, now: w.engine.receive_open(w.engine.new_channel(), PipeOpening(server="pipe"), now),
    "message": lambda w, now: w.engine.receive_message(ChannelId(1), b"{}", now),
    "close": lambda w, now: w.engine.receive_close(ChannelId(1), DONE, now),
    "sent": lambda w, now: w.engine.receive_sent(ChannelId(1), 0, now),
    "timeout": lambda w, now: w.engine.handle_timeout(now),
    "drain": lambda w, now: w.engine.receive_drain(now),
    "stop": lambda w, now: w.engine.receive_stop(now),
}


@pytest.mark.parametrize("name", INPUTS)
def test_time_that_runs_backwards_is_refused(name: str) -> None:
    world = driver()
    connect(world, "pipe", "pipe")
    with pytest.raises(LocalProtocolError, match="backwards"):
        INPUTS[name](world, world.now - 0.001)
    assert world.engine.session_count == 1
    INPUTS[name](world, world.now)


OPENINGS: list[Opening] = [
    PostOpening(server="http"),
    GetOpening(server="http"),
    DeleteOpening(server="http"),
    PipeOpening(server="pipe"),
    UploadOpening(server="http", query={}),
]


MISUSES: dict[str, Callable[[Driver, ChannelId], object]] = {
    **{
        f"{type(opening).__name__} {what}": lambda world, post, opening=opening, channel=channel: (  # type: ignore[misc]
            world.engine.receive_open(channel, opening, world.now)
        )
        for opening in OPENINGS
        for what, channel in (("on a channel in use", ChannelId(1)), ("on a channel never given out", ChannelId(9999)))
    },
    "more sent than ordered": lambda world, post: world.engine.receive_sent(ChannelId(1), 10_000_000, world.now),
    "a second body": lambda world, post: world.engine.receive_message(post, request("2", "tools/list"), world.now),
    "a server not in the plan": lambda world, post: world.engine.receive_open(
        ChannelId(9999), PostOpening(server="nowhere"), world.now
    ),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_is_refused_and_changes_nothing(misuse: str) -> None:
    """Two engines get the same inputs; one is misused in between."""

    def live(*, misused: bool) -> list[Effect]:
        world = driver()
        client = connect(world, "pipe", "pipe")
        post = new_client(world, "http", "http").initialize()
        if misused:
            with pytest.raises(LocalProtocolError):
                MISUSES[misuse](world, post)
        world.answer(
            world.take_sent("initialize"), f'{{"protocolVersion":"{LATEST}","capabilities":{{}}}}', session="S1"
        )
        client.request("1", "tools/call", "{}")
        world.send(world.dials[0].channel, request("7", "roots/list"))
        world.wait(100.0)
        world.stop()
        return world.log

    assert live(misused=True) == live(misused=False)


def test_input_for_channels_that_are_over_is_dropped() -> None:
    """Late input may have crossed a `Close`, or may be repeated."""
    world = driver()
    connect(world, "pipe", "pipe")
    channel = world.dials[0].channel
    world.engine.receive_close(channel, DONE, world.now)
    assert world.engine.receive_close(channel, DONE, world.now) == []
    assert world.engine.receive_message(channel, request("1", "roots/list"), world.now) == []
    assert world.engine.receive_sent(channel, 5, world.now) == []
    assert world.engine.receive_open(channel, Connected(), world.now) == []


def test_an_early_wake_up_does_nothing() -> None:
    world = driver()
    connect(world, "http", "http")
    deadline = world.engine.next_timeout()
    assert deadline is not None
    assert world.engine.handle_timeout(world.now) == []
    assert world.engine.next_timeout() == deadline


def test_equal_inputs_give_equal_effects() -> None:
    def live(seed: int) -> list[Effect]:
        world = driver(seed=seed)
        client = connect(world, "http", "http")
        client.request("1", "tools/call", "{}")
        world.answer(world.take_sent("tools/call"))
        client.delete()
        return world.log

    assert live(1) == live(1)
    assert live(1) != live(2)


def test_a_pipe_that_is_full_can_become_empty_enough() -> None:
    """The mark at which a peer may go on is not above that at which it has to stop."""
    with pytest.raises(ValueError, match="outbox_low_bytes is above outbox_high_bytes"):
        Limits(outbox_low_bytes=11, outbox_high_bytes=10)
    Limits(outbox_low_bytes=10, outbox_high_bytes=10)


@pytest.mark.parametrize("message", [notification("a/b"), result("7"), notification("notifications/cancelled", "{}")])
def test_any_message_of_a_client_keeps_its_session(message: bytes) -> None:
    """Any message renews the idle time, also one without a response."""
    world = driver(limits=Limits(session_idle_ttl_s=60.0))
    client = connect(world, "http", "http")
    world.wait(59.0)
    client.post(message)
    world.wait(59.0)
    assert world.engine.session_count == 1
    world.wait(1.0)
    assert world.engine.session_count == 0
