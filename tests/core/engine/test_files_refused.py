"""Tests of files that are not available, and of the errors for that: inputs, outputs, and resources."""

from __future__ import annotations

import json
from typing import Any

import pytest
from disk import Disk
from driving import Client, driver, error
from file_scenes import Scene, artifacts, names, texts
from inside import Inside
from isthmus.core.base.events import PipeOpening
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
from isthmus.core.base.storage import Collect, Collected, CollectedFile, StorageFailed, Survey
from stateless_driving import modern, start_legacy_server

AUTO = ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles())
HELPER = "s_get_upload_url"


def consuming(deliver: Deliver) -> ServerPlan:
    return ServerPlan(
        id="s",
        kind=Kind.PIPE,
        consumers=(UploadConsumer(tools=("t",), file_path_argument="data", deliver=deliver),),
    )


def producing(*modes: LocatorMode, **more: Any) -> ServerPlan:
    locator = OutputLocator(mode=modes, output_path_regexes=(r"saved (\S+)",))
    return ServerPlan(
        id="s", kind=Kind.PIPE, producers=(ArtifactProducer(tools=("*",), output_locator=locator, **more),)
    )


def complaint(scene: Scene, **arguments: object) -> str:
    """The error text of a call that does not reach its server."""
    channel, got = scene.begin("t", **arguments)
    assert not got
    answer = scene.only_message(channel)
    assert answer["isError"] is True
    return texts(answer)


# --- Inputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deliver", [Deliver.DATA_URI, Deliver.BASE64, Deliver.TEXT])
def test_a_file_that_cannot_be_read_fails_the_call_and_nothing_is_sent(deliver: Deliver) -> None:
    scene = Scene(consuming(deliver))
    handle = scene.upload("a.txt", b"hello")
    scene.disk.blobs.clear()
    assert complaint(scene, data=handle) == "The file a.txt cannot be handed to the tool: it is not there."


def test_a_link_that_nothing_would_serve_fails_the_call_and_nothing_is_sent() -> None:
    scene = Scene(consuming(Deliver.URL), downloads_enabled=False)
    assert complaint(scene, data=scene.upload("a.txt", b"hello")) == (
        "Argument data: a.txt is to be passed as a link, and there is no HTTP listener, or downloads are switched off."
    )
    scene = Scene(consuming(Deliver.URL))
    _, got = scene.begin("t", data=scene.upload("a.txt", b"hello"))
    assert got["data"].startswith("http://here/artifacts/s/")


def test_content_of_just_the_limit_is_put_into_a_call() -> None:
    """One byte more is refused, and the error names the file."""
    scene = Scene(consuming(Deliver.TEXT), limits=Limits(inline_size_max_bytes=5))
    _, got = scene.begin("t", data=scene.upload("a.txt", b"12345"))
    assert got["data"] == "12345"
    assert complaint(scene, data=scene.upload("b.txt", b"123456")) == (
        "The file b.txt has 6 bytes, and this tool takes the content itself: at most 5 bytes are put into a call."
    )
    two = [scene.upload("c.txt", b"123"), scene.upload("d.txt", b"123")]
    assert complaint(scene, data=two).startswith("These files together have 6 bytes,")


def test_the_oldest_known_uri_argument_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of known URI arguments is bounded; one that is learned again counts as new."""
    monkeypatch.setattr("isthmus.core.files.calls.inputs.LEARNED_MAX", 2)
    scene = Scene(AUTO)
    channel = scene.client.request('"tools"', "tools/list")
    scene.world.answer(scene.world.take_sent("tools/list"), '{"tools":[{"name":"t","inputSchema":{}}]}')
    assert scene.only_message(channel)
    handle = scene.upload("a.txt", b"hello")

    def is_known(key: str) -> bool:
        channel, got = scene.begin("t", **{key: handle})
        scene.end(channel, "fine")
        return str(got[key]).startswith("file://")

    def refuse(key: str) -> None:
        channel, got = scene.begin("t", **{key: handle})
        scene.end(channel, f"Unsupported URI scheme: {got[key]}. Supported: file:", isError=True)

    refuse("one")
    refuse("two")
    assert [is_known(key) for key in ("one", "two")] == [True, True]
    refuse("three")
    assert [is_known(key) for key in ("one", "two", "three")] == [False, True, True]


# --- Uploads are offered ----------------------------------------------------------------------------------------------


def test_without_a_listener_there_is_nowhere_to_upload_to() -> None:
    world = driver(AUTO)
    client = Client(world, "s", world.engine.new_channel())
    assert client.pipe is not None
    world.open(client.pipe, PipeOpening("s", "", ""))
    client.initialize()
    world.start_server(capabilities='{"tools":{}}')
    world.sent[client.pipe].clear()
    answer = world.only_message(client.request("1", "tools/call", json.dumps({"name": HELPER})))["result"]
    assert answer["isError"] is True
    assert "need an HTTP listener" in texts(answer) and "call s_put_file with the file's content" in texts(answer)
    assert not world.was_sent("tools/call")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"size_bytes": 10}, None),
        ({"size_bytes": 11}, "Argument size_bytes: got 11, expected at most 10."),
        ({"sha256": "0" * 64}, None),
        ({"sha256": "0"}, "Argument sha256: got '0', expected 64 hexadecimal digits."),
    ],
)
def test_a_file_that_could_not_be_sent_gets_no_link(arguments: dict[str, object], problem: str | None) -> None:
    scene = Scene(AUTO, limits=Limits(upload_size_max_bytes=10))
    answer = scene.ask("tools/call", name=HELPER, arguments=arguments)["result"]
    assert answer["isError"] is (problem is not None)
    assert ("upload_url" in answer.get("structuredContent", {})) is (problem is None)
    assert problem is None or texts(answer) == problem


# --- Outputs ----------------------------------------------------------------------------------------------------------


def test_a_place_that_the_tool_left_empty_is_no_fault_if_it_names_another() -> None:
    scene = Scene(producing(LocatorMode.NONE, LocatorMode.REGEX, output_path_argument="out"))
    found = scene.call("t", "saved other.txt", writes={"other.txt": b"x"}, arguments={"out": "wanted.txt"})
    assert names(found) == ["other.txt"]
    assert "artifact_error" not in found["_meta"]
    found = scene.call("t", "hm", arguments={"out": "wanted.txt"})
    assert found["_meta"]["artifact_error"] == "wanted.txt: missing"


def test_an_awaited_file_that_a_concurrent_call_has_taken_is_shared_and_awaited_no_more() -> None:
    scene = Scene(producing(LocatorMode.REGEX))
    assert "late.txt: missing" in scene.call("t", "saved late.txt")["_meta"]["artifact_error"]
    first, _ = scene.begin("t")
    one = scene.received
    second, _ = scene.begin("t")
    two = scene.received
    scene.disk.write(f"{scene.ws}/late.txt", b"done")
    scene.world.answer(one, '{"content":[{"type":"text","text":"hm"}]}')
    looking = scene.world.last(Survey)
    scene.disk._read = len(scene.world.log)
    scene.received = two
    taken = artifacts(scene.end(second, "hm"))
    assert [artifact["filename"] for artifact in taken] == ["late.txt"]
    seen = scene.disk._carry_out(looking)
    assert seen is not None
    scene.world.store(looking.ticket, seen)
    scene.disk.settle()
    assert artifacts(scene.only_message(first)) == taken
    before = len(scene.world.every(Survey))
    assert artifacts(scene.call("t", "hm")) == []
    assert len(scene.world.every(Survey)) == before, "nothing is looked for"


def test_a_file_of_a_concurrent_call_that_is_named_twice_is_shared_once() -> None:
    scene = Scene(AUTO)
    scene.call("t")
    first, _ = scene.begin("t")
    one = scene.received
    second, _ = scene.begin("t")
    scene.disk.write(f"{scene.ws}/a.txt", b"x")
    taken = artifacts(scene.end(second, "wrote a.txt"))
    assert len(taken) == 1
    scene.received = one
    assert artifacts(scene.end(first, f"wrote a.txt, which is {scene.ws}/a.txt")) == taken


@pytest.mark.parametrize(
    "answer", [StorageFailed(reason="full"), Collected(files=(CollectedFile(problem="unfinished"),))]
)
def test_a_failed_collection_does_nothing_for_a_call_that_is_over(answer: StorageFailed | Collected) -> None:
    scene = Scene(AUTO)
    channel, _ = scene.begin("t")
    scene.disk.write(f"{scene.ws}/a.txt", b"hello")
    scene.world.answer(scene.received, '{"content":[{"type":"text","text":"wrote a.txt"}]}')
    looking = scene.world.last(Survey)
    seen = scene.disk._carry_out(looking)
    assert seen is not None
    scene.world.store(looking.ticket, seen)
    collect = scene.world.last(Collect)
    scene.client.notify("notifications/cancelled", f'{{"requestId":{scene._ids}}}')
    assert scene.world.store(collect.ticket, answer) == []
    assert not scene.world.messages(channel)
    scene.disk._read = len(scene.world.log)
    assert names(scene.call("t", "hm")) == ["a.txt"], "a later call takes it"


# --- Resources --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_exposed", [True, False])
def test_artifact_subscriptions_are_confirmed_only_if_artifacts_are_resources(is_exposed: bool) -> None:
    """Subscriptions to artifacts are confirmed whatever the server declares; switched off, none is."""
    world = driver(AUTO, expose_as_resources=is_exposed)
    Disk(world)
    client = modern(world, "s")
    own = f"artifact://sessions/{'a' * 32}/{'b' * 32}/a.txt"
    wanted = {"resourcesListChanged": True, "resourceSubscriptions": [own, "a:b"]}
    channel = client.request("subscriptions/listen", notifications=wanted)
    start_legacy_server(world, capabilities='{"tools":{}}')
    if is_exposed:  # `resources.subscribe` is declared, so the server is asked as well
        received = world.take_sent("resources/subscribe")
        assert received.frame["params"] == {"uri": "a:b"}
        world.reply(received, error(str(received.id), '{"code":-32601,"message":"no"}'))
    (confirmation,) = client.notifications(channel)
    expected = {"resourcesListChanged": True, "resourceSubscriptions": [own]} if is_exposed else {}
    assert confirmation["params"]["notifications"] == expected


URI = "artifact_uri"
LIST_CHANGED = "notifications/resources/list_changed"


def resource_notifications(scene: Scene) -> list[tuple[str, str | None]]:
    """Method and URI of each notification about resources that the client got."""
    stream = scene.client.stream or scene.client.listen()
    frames = [frame for frame in scene.world.frames(stream) if "resources" in frame.get("method", "")]
    return [(frame["method"], frame.get("params", {}).get("uri")) for frame in frames]


def subscribed_sessions(scene: Scene) -> int:
    """The number of sessions with artifact subscriptions."""
    return len(Inside(scene.world.engine).file_store.subscribers._uris)


def test_a_subscriber_of_an_artifact_is_notified_when_it_is_gone() -> None:
    """Every client is notified that the list has changed; of one artifact only those that are subscribed to it."""
    scene = Scene(AUTO, limits=Limits(artifact_ttl_s=100.0, session_idle_ttl_s=1000.0))
    scene.client.listen()
    scene.list_resources()
    (one, other) = artifacts(scene.call("t", "done", writes={"a.txt": b"x", "b.txt": b"y"}))
    scene.world.wait(0.0)
    assert resource_notifications(scene) == [(LIST_CHANGED, None)]
    for artifact in (one, other):
        assert scene.ask("resources/subscribe", uri=artifact[URI])["result"] == {}
    assert scene.ask("resources/unsubscribe", uri=other[URI])["result"] == {}
    assert subscribed_sessions(scene) == 1
    scene.world.wait(100.0)
    assert resource_notifications(scene)[1:] == [("notifications/resources/updated", one[URI]), (LIST_CHANGED, None)]
    assert scene.ask("resources/unsubscribe", uri=one[URI])["result"] == {}
    assert subscribed_sessions(scene) == 0


def test_artifact_subscriptions_end_with_their_session() -> None:
    scene = Scene(AUTO)
    (artifact,) = artifacts(scene.call("t", "done", writes={"a.txt": b"x"}))
    assert scene.ask("resources/subscribe", uri=artifact[URI])["result"] == {}
    assert subscribed_sessions(scene) == 1
    scene.client.delete()
    assert subscribed_sessions(scene) == 0
    assert "resources" not in {purpose for purpose, _ in Inside(scene.world.engine).context.timers._live}


def test_only_so_many_artifacts_are_subscribed_to() -> None:
    scene = Scene(AUTO, limits=Limits(subscriptions_per_session_max=1))
    one, other = artifacts(scene.call("t", "done", writes={"a.txt": b"x", "b.txt": b"y"}))
    assert scene.ask("resources/subscribe", uri=one[URI])["result"] == {}
    error = scene.ask("resources/subscribe", uri=other[URI])["error"]
    assert error == {"code": -31007, "message": "1 resources are subscribed to, the most a session may have"}


@pytest.mark.parametrize(("by_tool", "by_plan"), [(False, True), (True, False)])
def test_no_client_is_notified_of_artifacts_that_are_no_resources(by_tool: bool, by_plan: bool) -> None:
    plan = producing(LocatorMode.CHANGED, expose_as_resource=by_tool)
    scene = Scene(plan, expose_as_resources=by_plan)
    scene.client.listen()
    (artifact,) = artifacts(scene.call("t", "done", writes={"a.txt": b"x"}))
    scene.world.wait(1.0)
    assert resource_notifications(scene) == []
    assert scene.ask("resources/read", uri=artifact[URI])["error"]["code"] == -32002


def test_pages_of_artifacts_have_each_once() -> None:
    """Artifacts come in the order they were made, whatever comes and goes between two pages."""
    scene = Scene(producing(LocatorMode.CHANGED), limits=Limits(artifact_page_max=2))
    for name in "abcde":
        scene.call("t", "done", writes={f"{name}.txt": b"x"})
        scene.world.wait(1.0)
    channel = scene.client.request('"l"', "resources/list")
    scene.world.answer(scene.world.take_sent("resources/list"), '{"resources":[]}')
    page, listed = scene.only_message(channel), []
    while True:
        assert len(page["resources"]) <= 2
        listed += [entry["name"] for entry in page["resources"]]
        if "nextCursor" not in page:
            break
        page = scene.ask("resources/list", cursor=page["nextCursor"])["result"]
    assert listed == ["a.txt", "b.txt", "c.txt", "d.txt", "e.txt"]


def test_while_uploads_are_switched_off_artifacts_may_still_be_passed() -> None:
    """A tool that takes files gets artifacts; uploads and other values are refused."""
    consumer = UploadConsumer(tools=("t",), file_path_argument="data")
    maker = ArtifactProducer(tools=("make",), output_locator=OutputLocator(mode=(LocatorMode.CHANGED,)))
    plan = ServerPlan(id="s", kind=Kind.PIPE, consumers=(consumer,), producers=(maker,))
    scene = Scene(plan, uploads_enabled=False)
    (artifact,) = artifacts(scene.call("make", "done", writes={"a.txt": b"x"}))
    _, got = scene.begin("t", data=artifact[URI])
    assert got["data"].endswith("/a.txt")
    for text in (f"upload://sessions/{'a' * 32}/{'b' * 32}", "/etc/passwd"):
        assert complaint(scene, data=text) == "Argument data is for uploads, and uploads are switched off here."


def test_content_that_is_too_large_is_reported() -> None:
    """Embedded content has no place on the disk, and is not awaited."""
    scene = Scene(producing(LocatorMode.EMBEDDED), limits=Limits(artifact_size_max_bytes=3))
    channel, _ = scene.begin("t")
    scene.world.answer(scene.received, '{"content":[{"type":"image","mimeType":"image/png","data":"AAAAAAAA"}]}')
    scene.disk.settle()
    assert scene.only_message(channel)["_meta"]["artifact_error"] == "too large: 6 bytes, at most 3"


def test_a_folder_with_more_files_than_are_taken_at_once_is_reported() -> None:
    scene = Scene(AUTO, limits=Limits(artifacts_per_call_max=2))
    writes = {f"traces/{name}.txt": b"x" for name in "abc"}
    found = scene.call("t", "- [Traces](traces)", writes=writes)
    assert "traces has more files than are taken at once" in found["_meta"]["artifact_error"]
    assert len(artifacts(found)) == 2


@pytest.mark.parametrize("is_late", [StorageFailed(reason="full"), Collected(files=(CollectedFile(problem="x"),))])
def test_a_failure_that_comes_late_leaves_nothing_to_undo(is_late: StorageFailed | Collected) -> None:
    scene = Scene(AUTO)
    channel, _ = scene.begin("t")
    scene.disk.write(f"{scene.ws}/a.txt", b"hello")
    scene.world.answer(scene.received, '{"content":[]}')
    looking = scene.world.last(Survey)
    seen = scene.disk._carry_out(looking)
    assert seen is not None
    scene.world.store(looking.ticket, seen)
    collect = scene.world.last(Collect)
    scene.world.wait(Limits().storage_timeout_s)
    assert "storage did not answer" in scene.only_message(channel)["_meta"]["artifact_error"]
    assert scene.world.store(collect.ticket, is_late) == []


@pytest.mark.parametrize(
    ("cursor", "offers", "is_the_servers"),
    [
        ("n", True, True),
        (5, True, True),
        ("isthmus-artifac:1.0:x", True, True),
        ("isthmus-artifact:1.0:x", False, True),
        ("isthmus-artifact:1.0:x", True, False),
        ("isthmus-artifact:nonsense", True, False),
    ],
)
def test_a_cursor_that_is_not_ours_goes_to_the_server(cursor: object, offers: bool, is_the_servers: bool) -> None:
    """The proxy's own cursors do not; with artifacts switched off, every cursor does."""
    scene = Scene(AUTO, expose_as_resources=offers)
    scene.client.request("1", "resources/list", json.dumps({"cursor": cursor}))
    assert bool(scene.world.was_sent("resources/list")) is is_the_servers


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("tools/list", {"tools": []}),
        ("resources/list", {"resources": []}),
        ("resources/templates/list", {"resourceTemplates": []}),
    ],
)
def test_a_list_that_neither_the_server_nor_we_have_is_empty(method: str, result: dict[str, Any]) -> None:
    scene = Scene(producing(LocatorMode.CHANGED), capabilities="{}")
    assert scene.ask(method)["result"] == result
    assert not scene.world.unread


@pytest.mark.parametrize(("size_bytes", "is_taken"), [(5, True), (6, False)])
def test_a_session_may_be_filled_to_the_last_byte(size_bytes: int, is_taken: bool) -> None:
    scene = Scene(AUTO, limits=Limits(session_storage_max_bytes=5))
    found = scene.call("t", writes={"a.txt": b"x" * size_bytes})
    assert names(found) == (["a.txt"] if is_taken else [])
    assert ("artifact_error" in found.get("_meta", {})) is not is_taken


@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
def test_a_subscription_to_a_resource_of_the_servers_is_for_it(method: str) -> None:
    scene = Scene(AUTO, capabilities='{"tools":{},"resources":{"subscribe":true}}')
    channel = scene.client.request("1", method, '{"uri":"a:b"}')
    received = scene.world.take_sent(method)
    assert received.frame["params"] == {"uri": "a:b"}
    scene.world.answer(received, '{"x":1}')
    assert scene.only_message(channel) == {"x": 1}
