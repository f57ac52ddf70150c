"""Tests of files where storage orders, cancellations and ends cross: none is lost, and none is kept for ever."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from disk import Disk
from driving import driver
from file_scenes import Scene, artifacts, names, texts
from inside import Inside
from isthmus.core.base.effects import Spawn
from isthmus.core.base.events import Connected
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import (
    ArtifactProducer,
    AutoFiles,
    Deliver,
    Kind,
    LocatorMode,
    OutputLocator,
    ServerPlan,
    UploadConsumer,
)
from isthmus.core.base.storage import Collect, Materialize, Materialized, Save, StorageFailed, Survey, Sweep
from stateless_driving import modern, start_legacy_server, start_stateless_server, tables


def producing(*modes: LocatorMode, **more: Any) -> ServerPlan:
    locator = OutputLocator(mode=modes, output_path_regexes=more.pop("patterns", ()))
    return ServerPlan(
        id="s", kind=Kind.PIPE, producers=(ArtifactProducer(tools=("*",), output_locator=locator, **more),)
    )


AUTO = ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles())
NAMED = producing(LocatorMode.REGEX, patterns=(r"saved (\S+)",))


def listed(scene: Scene) -> Scene:
    """The client lists the tools."""
    channel = scene.client.request('"tools"', "tools/list")
    scene.world.answer(scene.world.take_sent("tools/list"), '{"tools":[]}')
    assert scene.only_message(channel)
    return scene


# --- Awaited files ----------------------------------------------------------------------------------------------------


def test_a_call_that_is_cancelled_during_a_survey_loses_no_awaited_file() -> None:
    scene = Scene(NAMED)
    assert "artifact_error" in scene.call("t", "saved late.txt")["_meta"]
    scene.disk.write(f"{scene.ws}/late.txt", b"done")
    scene.begin("t")
    scene.world.answer(scene.received, json.dumps({"content": [{"type": "text", "text": "hm"}]}))
    scene.client.notify("notifications/cancelled", f'{{"requestId":{scene._ids}}}')
    scene.disk.settle()
    assert names(scene.call("t", "hm")) == ["late.txt"]


def test_an_awaited_file_that_could_not_be_taken_in_is_awaited_still(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(NAMED)
    scene.call("t", "saved late.txt")
    scene.disk.write(f"{scene.ws}/late.txt", b"done")
    carry_out = scene.disk._carry_out
    monkeypatch.setattr(
        scene.disk,
        "_carry_out",
        lambda order: StorageFailed(reason="busy") if isinstance(order, Collect) else carry_out(order),
    )
    assert not artifacts(scene.call("t", "hm"))
    monkeypatch.undo()
    assert names(scene.call("t", "hm")) == ["late.txt"]


@pytest.mark.parametrize("plan", [AUTO, NAMED])
def test_a_file_outside_of_the_session_that_is_finished_between_two_calls_is_collected(plan: ServerPlan) -> None:
    scene = Scene(plan, roots=("/srv",))
    scene.disk.write("/srv/late.txt", b"")
    result = scene.call("t", "saved /srv/late.txt", writes={"/srv/late.txt": b""})
    assert "empty" in result["_meta"]["artifact_error"]
    scene.world.wait(60.0)
    scene.disk.write("/srv/late.txt", b"done")
    scene.world.wait(60.0)
    assert names(scene.call("t", "hm")) == ["late.txt"]


# --- Staged files -----------------------------------------------------------------------------------------------------


def test_a_staged_file_that_is_surveyed_before_it_is_placed_keeps_its_handle() -> None:
    """A survey may see the file before the storage says that it is placed."""
    scene = Scene(AUTO)
    handle = scene.upload("a.txt", b"hello")
    channel = scene.client.request("77", "tools/call", json.dumps({"name": "t", "arguments": {"path": handle}}))
    placing, looking = scene.world.last(Materialize), scene.world.last(Survey)
    placed = scene.disk._carry_out(placing)
    seen = scene.disk._carry_out(looking)
    scene.disk._read = len(scene.world.log)
    assert placed is not None
    assert seen is not None
    scene.world.store(looking.ticket, seen)
    scene.world.store(placing.ticket, placed)
    if scene.world.was_sent("tools/list"):
        scene.world.answer(scene.world.take_sent("tools/list"), '{"tools":[]}')
    scene.received = scene.world.take_sent("tools/call")
    path = scene.received.frame["params"]["arguments"]["path"]
    found = scene.end(channel, f"read {path}")
    assert texts(found) == f"read {handle}/a.txt" or texts(found) == f"read {handle}"


def test_a_file_that_is_being_staged_is_no_output_of_a_concurrent_call() -> None:
    scene = Scene(AUTO)
    handle = scene.upload("a.txt", b"hello")
    first, _ = scene.begin("t")
    received = scene.received
    scene.client.request("78", "tools/call", json.dumps({"name": "t", "arguments": {"path": handle}}))
    placing = scene.world.last(Materialize)
    placed = scene.disk._carry_out(placing)
    assert placed is not None
    scene.disk._read = len(scene.world.log)
    scene.received = received
    assert not artifacts(scene.end(first, "done"))
    scene.world.store(placing.ticket, placed)


# --- Names ------------------------------------------------------------------------------------------------------------


def test_a_custom_scheme_is_what_text_is_reworded_to() -> None:
    plan = ServerPlan(
        id="s",
        kind=Kind.PIPE,
        consumers=(UploadConsumer(tools=("t",), file_path_argument="path", uri_scheme="myup://"),),
        producers=(ArtifactProducer(tools=("t",), rewrite_text=True),),
    )
    scene = Scene(plan)
    handle = scene.upload("a.txt", b"hello")
    assert handle.startswith("myup://")
    channel, got = scene.begin("t", path=handle)
    assert handle in texts(scene.end(channel, f"read {got['path']}"))


# --- Resources that are read for a call -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
def test_a_linked_resource_that_never_comes_is_not_waited_for_for_good(kind: Kind) -> None:
    plan = producing(LocatorMode.RESOURCE_LINK)
    scene = Scene(msgspec.structs.replace(plan, kind=kind))
    block = '{"content":[{"type":"resource_link","uri":"x://a","name":"a"}]}'
    for _ in range(3):
        channel, _ = scene.begin("t")
        scene.world.answer(scene.received, block)
        scene.world.wait(Limits().lookup_s + 5)
        scene.disk.settle()
        assert "could not be read in time" in scene.only_message(channel)["_meta"]["artifact_error"]
    scene.begin("t")
    scene.world.answer(scene.received, block)
    scene.client.notify("notifications/cancelled", f'{{"requestId":{scene._ids}}}')
    assert not tables(scene.world.engine)["pending"]


# --- Use --------------------------------------------------------------------------------------------------------------


def test_rewording_a_result_does_not_count_as_use_of_every_artifact() -> None:
    scene = Scene(AUTO)
    scene.call("t", writes={"old.txt": b"old"})
    scene.world.wait(10)
    scene.call("t", writes={"new.txt": b"new"})
    before = {file.filename: file.used_at_unix for file in scene.world.engine.files()}
    scene.world.wait(10)
    scene.call("t", "nothing")
    assert {file.filename: file.used_at_unix for file in scene.world.engine.files()} == before


def test_an_old_client_gets_the_file_that_structured_content_names() -> None:
    locator = OutputLocator(mode=LocatorMode.STRUCTURED, output_path_key="file")
    plan = ServerPlan(id="s", kind=Kind.PIPE, producers=(ArtifactProducer(tools=("*",), output_locator=locator),))
    scene = Scene(plan, revision="2024-11-05")
    scene.disk.write(f"{scene.ws}/a.txt", b"hello")
    assert names(scene.call("t", structuredContent={"file": "a.txt"})) == ["a.txt"]


def test_a_handle_of_an_expired_upload_is_not_put_into_text() -> None:
    scene = listed(Scene(AUTO, limits=Limits(upload_ttl_s=10.0)))
    handle = scene.upload("a.txt", b"hello")
    channel, got = scene.begin("t", path=handle)
    scene.end(channel, "done")
    scene.world.wait(60)
    assert handle not in texts(scene.call("t", f"there is {got['path']}"))


# --- Clients and servers without sessions -----------------------------------------------------------------------------


def test_the_proxys_own_failure_has_a_result_type() -> None:
    """The proxy's own failure has a `resultType`, although results of a server of the stateless era pass unchanged."""
    plan = msgspec.structs.replace(NAMED, kind=Kind.HTTP)
    plan = msgspec.structs.replace(plan, producers=(msgspec.structs.replace(plan.producers[0], required=True),))
    world = driver(plan)
    disk = Disk(world)
    client = modern(world, "s")
    channel = client.call("t")
    disk.settle()
    start_stateless_server(world)
    if world.was_sent("tools/list"):
        world.answer(world.take_sent("tools/list"), '{"resultType":"complete","tools":[]}')
    disk.settle()
    world.answer(world.take_sent("tools/call"), '{"resultType":"complete","content":[]}')
    disk.settle()
    answer = client.answered(channel)["result"]
    assert answer["isError"] is True
    assert answer["resultType"] == "complete"


# --- Warm processes ---------------------------------------------------------------------------------------------------


def test_a_file_is_placed_in_the_folders_of_the_process_that_gets_the_call() -> None:
    """A client of the stateless era calls before it has a process, and a warm process has folders of its own."""
    world = driver(msgspec.structs.replace(AUTO, spares=1))
    disk = Disk(world)
    first = modern(world, "s", principal="one")
    first.request("tools/list")
    start_legacy_server(world, capabilities='{"tools":{}}')
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    warm = world.last_dial(Spawn)
    world.open(warm.channel, Connected())
    second = modern(world, "s", principal="two")
    second.call("t")
    disk.settle()
    placed = world.last(Survey).workspace
    if not world.was_sent("initialize"):
        world.open(world.last_dial(Spawn).channel, Connected())
    received = world.take_sent("initialize")
    (child,) = [dial for dial in world.dials if dial.channel == received.channel]
    assert isinstance(child.target, Spawn)
    assert child.target.workspace == placed


# --- Sizes ------------------------------------------------------------------------------------------------------------


def test_no_more_content_is_put_into_a_call_than_into_a_message() -> None:
    """The limit counts each place at which a handle stands."""
    consumer = UploadConsumer(tools=("t",), file_path_argument="data", deliver=Deliver.BASE64)
    plan = ServerPlan(id="s", kind=Kind.PIPE, consumers=(consumer,))
    scene = Scene(plan, limits=Limits(inline_size_max_bytes=1000))
    handle = scene.upload("a.bin", b"x" * 600)
    channel, got = scene.begin("t", data=[handle, handle])
    assert not got
    assert "at most 1000 bytes" in texts(scene.only_message(channel))
    _, got = scene.begin("t", data=[handle])
    assert got["data"] == [base64.b64encode(b"x" * 600).decode()]


def test_no_more_content_is_put_into_a_result_than_into_a_message() -> None:
    plan = producing(LocatorMode.CHANGED, allow_raw_output=True)
    scene = Scene(plan, limits=Limits(inline_size_max_bytes=1000))
    found = scene.call("t", writes={"a.bin": b"x" * 600, "b.bin": b"y" * 600, "c.bin": b"z" * 300})
    assert len(artifacts(found)) == 3
    held = [block["resource"] for block in found["content"] if block["type"] == "resource"]
    assert sum(len(resource["text"]) for resource in held) == 900


# --- Ends -------------------------------------------------------------------------------------------------------------


def is_empty(scene: Scene) -> bool:
    """True if nothing of any call is left."""
    engine = scene.world.engine
    return not (
        Inside(engine).calls._jobs or Inside(engine).storage_orders._thens or Inside(engine).file_store._quota._accounts
    )


@pytest.mark.parametrize("order", [Survey, Collect, Save])
@pytest.mark.parametrize("end", ["cancel", "delete", "time"])
def test_a_call_that_ends_while_its_files_are_taken_in_leaves_nothing(order: type[Any], end: str) -> None:
    scene = Scene(AUTO)
    scene.begin("t")
    scene.disk.write(f"{scene.ws}/a.txt", b"hello")
    before = len(scene.world.every(order))
    scene.world.answer(scene.received, '{"content":[{"type":"text","text":"hm"}]}')
    while len(scene.world.every(order)) == before:
        effect = scene.world.log[scene.disk._read]
        scene.disk._read += 1
        answer = scene.disk._carry_out(effect)
        if answer is not None:
            scene.world.store(effect.ticket, answer)  # type: ignore[attr-defined]
    if end == "cancel":
        scene.client.notify("notifications/cancelled", f'{{"requestId":{scene._ids}}}')
    elif end == "delete":
        scene.client.delete()
    else:
        scene.world.wait(Limits().storage_timeout_s + 1)
    scene.disk.settle()
    if end == "time":
        scene.world.wait(Limits().storage_timeout_s + 1)
        scene.disk.settle()
        scene.client.delete()
        scene.world.wait(Limits().artifact_ttl_s + 1)
        scene.disk.settle()
    assert is_empty(scene)
    assert not scene.disk.blobs
    assert not scene.disk.records


def test_a_client_without_sessions_reads_lists_and_is_notified_of_artifacts() -> None:
    world = driver(AUTO)
    disk = Disk(world)
    client = modern(world, "s")
    listening = client.request("subscriptions/listen", notifications={"resourcesListChanged": True})
    start_legacy_server(world, capabilities='{"tools":{}}')
    channel = client.call("t")
    disk.settle()
    received = world.take_sent("tools/call")
    (session,) = Inside(world.engine).sessions.sessions.values()
    disk.write(f"/w/{session.workspace}/ws/a.txt", b"hello")
    world.answer(received, '{"content":[]}')
    disk.settle()
    world.wait(1)
    answer = client.answered(channel)["result"]
    assert answer["resultType"] == "complete"
    uri = answer["_meta"]["artifact"]["artifact_uri"]
    assert [notification["method"] for notification in client.notifications(listening)][
        -1
    ] == "notifications/resources/list_changed"
    page = client.answered(client.request("resources/list"))["result"]
    assert [entry["uri"] for entry in page["resources"]][-1] == uri
    assert page["resultType"] == "complete"
    reading = client.request("resources/read", uri=uri)
    disk.settle()
    read = client.answered(reading)["result"]
    assert read["contents"][0]["text"] == "hello"
    missed = client.answered(client.request("resources/read", uri=uri.replace("artifact://sessions/", "artifact://s/")))
    assert missed["error"]["code"] == -32602
    world.wait(Limits().artifact_ttl_s + 100)
    gone = client.answered(client.request("resources/read", uri=uri))
    assert gone["error"]["code"] == -32602


# --- Lists ------------------------------------------------------------------------------------------------------------


def test_a_cursor_of_null_asks_for_the_first_page() -> None:
    scene = Scene(AUTO)
    channel = scene.client.request('"tools"', "tools/list", '{"cursor":null}')
    scene.world.answer(scene.world.take_sent("tools/list"), '{"tools":[]}')
    assert [tool["name"] for tool in scene.only_message(channel)["tools"]] == ["s_get_upload_url", "s_put_file"]


def learn(scene: Scene, cursor: str, *tools: str) -> None:
    """The client lists a page of tools, each of which takes a URI as `at`."""
    takes = {"type": "object", "properties": {"at": {"type": "string", "format": "uri"}}}
    channel = scene.client.request('"tools"', "tools/list", cursor)
    listed = {"tools": [{"name": tool, "inputSchema": takes} for tool in tools], "nextCursor": "more"}
    scene.world.answer(scene.world.take_sent("tools/list"), json.dumps(listed))
    assert scene.only_message(channel)


def test_uri_arguments_are_learned_from_each_page_and_forgotten_with_the_first() -> None:
    scene = Scene(AUTO, limits=Limits(tools_known_max=2))
    handle = scene.upload("a.txt", b"hello")

    def known(*tools: str) -> str:
        """The tools among these that get a URI."""
        found = ""
        for tool in tools:
            channel, got = scene.begin(tool, at=handle)
            found += tool if got["at"].startswith("file://") else ""
            scene.end(channel, "done")
        return found

    learn(scene, '{"cursor":"2"}', "a")
    learn(scene, '{"cursor":"3"}', "b")
    assert known("a", "b") == "ab"
    learn(scene, '{"cursor":"4"}', "c")
    assert known("a", "b", "c") == "ab"
    learn(scene, "{}", "c")
    assert known("a", "b", "c") == "c"


# --- Known files ------------------------------------------------------------------------------------------------------


def test_known_files_move_with_a_session_to_a_warm_process() -> None:
    consumer = UploadConsumer(tools=("t",), file_path_argument="path")
    world = driver(ServerPlan(id="s", kind=Kind.PIPE, consumers=(consumer,), spares=1))
    disk = Disk(world)
    modern(world, "s", principal="one").request("tools/list")
    start_legacy_server(world, capabilities='{"tools":{}}')
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    world.open(world.last_dial(Spawn).channel, Connected())
    modern(world, "s", principal="two").call("t")
    disk.settle()
    workspaces = {session.workspace for session in Inside(world.engine).sessions.sessions.values()}
    assert set(Inside(world.engine).calls._known_files_by_workspace) <= workspaces


# --- Bounds -----------------------------------------------------------------------------------------------------------


def test_no_more_files_are_awaited_than_the_limit_says() -> None:
    scene = Scene(NAMED, limits=Limits(files_awaited_max=1))
    scene.call("t", "saved a.txt")
    scene.call("t", "saved b.txt")
    scene.disk.write(f"{scene.ws}/a.txt", b"a")
    scene.disk.write(f"{scene.ws}/b.txt", b"b")
    assert names(scene.call("t", "hm")) == ["b.txt"]


# --- Concurrent calls -------------------------------------------------------------------------------------------------


def test_two_calls_that_end_at_once_take_a_file_once() -> None:
    scene = Scene(AUTO)
    first, _ = scene.begin("t")
    one = scene.received
    second, _ = scene.begin("t")
    scene.disk.write(f"{scene.ws}/a.txt", b"hello")
    for received in (one, scene.received):
        scene.world.answer(received, '{"content":[]}')
    scene.disk.settle()
    found = [artifacts(scene.only_message(channel)) for channel in (first, second)]
    assert [len(each) for each in found] == [1, 1]
    assert found[0] == found[1]
    assert len(scene.disk.blobs) == 1


@pytest.mark.parametrize("is_late", [False, True])
def test_folders_that_an_order_makes_anew_after_their_session_go_again(is_late: bool) -> None:
    """An order that was under way when the session ended may make its folders again: they are swept twice."""
    consumer = UploadConsumer(tools=("t",), file_path_argument="file")
    scene = Scene(ServerPlan(id="s", kind=Kind.HTTP, consumers=(consumer,)), limits=Limits(storage_timeout_s=5.0))
    handle = scene.upload("a.txt", b"hello")
    scene.client.request("1", "tools/call", json.dumps({"name": "t", "arguments": {"file": handle}}))
    order = scene.world.last(Materialize)
    if is_late:
        scene.world.wait(6.0)
    scene.client.delete()
    swept = scene.world.every(Sweep)
    assert [sweep.workspace for sweep in swept] == [order.workspace]
    scene.world.store(order.ticket, Materialized("/w/x/in/y/a.txt"))
    assert scene.world.every(Sweep) == swept * 2


def test_an_order_that_was_late_leaves_the_folders_of_a_session_that_goes_on() -> None:
    consumer = UploadConsumer(tools=("t",), file_path_argument="file")
    scene = Scene(ServerPlan(id="s", kind=Kind.HTTP, consumers=(consumer,)), limits=Limits(storage_timeout_s=5.0))
    handle = scene.upload("a.txt", b"hello")
    scene.client.request("1", "tools/call", json.dumps({"name": "t", "arguments": {"file": handle}}))
    order = scene.world.last(Materialize)
    scene.world.wait(6.0)
    scene.world.store(order.ticket, Materialized("/w/x/in/y/a.txt"))
    assert not scene.world.every(Sweep)
