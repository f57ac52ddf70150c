"""Files that cannot be had, and what is said of that: on the way in, on the way out, and among resources."""

from __future__ import annotations

import json
from typing import Any

import pytest
from disk import Disk
from driving import Client, driver, error
from file_scenes import Scene, artifacts, names, texts
from isthmus.core.base.effects import Collect, Collected, CollectedFile, PipeOpening, StorageFailed, Survey
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
from stateless_driving import modern, rise

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
    """What is said to a call that does not reach its server."""
    channel, got = scene.begin("t", **arguments)
    assert not got
    said = scene.said(channel)
    assert said["isError"] is True
    return texts(said)


# --- In ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deliver", [Deliver.DATA_URI, Deliver.BASE64, Deliver.TEXT])
def test_a_file_that_cannot_be_read_is_said_and_nothing_is_sent(deliver: Deliver) -> None:
    scene = Scene(consuming(deliver))
    handle = scene.upload("a.txt", b"hello")
    scene.disk.blobs.clear()
    assert complaint(scene, data=handle) == "The file a.txt cannot be handed to the tool: it is not there."


def test_a_link_that_nothing_would_serve_is_said_and_nothing_is_sent() -> None:
    scene = Scene(consuming(Deliver.URL), downloads_enabled=False)
    assert complaint(scene, data=scene.upload("a.txt", b"hello")) == (
        "Argument data: a.txt is to be passed as a link, and there is no HTTP listener, or downloads are switched off."
    )
    scene = Scene(consuming(Deliver.URL))
    _, got = scene.begin("t", data=scene.upload("a.txt", b"hello"))
    assert got["data"].startswith("http://here/artifacts/s/")


def test_content_of_just_the_limit_is_put_into_a_call() -> None:
    """One byte more is not, and the file is named that is too large."""
    scene = Scene(consuming(Deliver.TEXT), limits=Limits(inline_size_max_bytes=5))
    _, got = scene.begin("t", data=scene.upload("a.txt", b"12345"))
    assert got["data"] == "12345"
    assert complaint(scene, data=scene.upload("b.txt", b"123456")) == (
        "The file b.txt has 6 bytes, and this tool takes the content itself: at most 5 bytes are put into a call."
    )
    two = [scene.upload("c.txt", b"123"), scene.upload("d.txt", b"123")]
    assert complaint(scene, data=two).startswith("These files together have 6 bytes,")


def test_what_was_learned_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of arguments that are for URIs only so many are known; one that is learned again counts as new."""
    monkeypatch.setattr("isthmus.core.files.calls.inputs.LEARNED_MAX", 2)
    scene = Scene(AUTO)
    channel = scene.client.request('"tools"', "tools/list")
    scene.world.answer(scene.world.hear("tools/list"), '{"tools":[{"name":"t","inputSchema":{}}]}')
    assert scene.said(channel)
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
    world.shake_hands(capabilities='{"tools":{}}')
    world.sent[client.pipe].clear()
    said = world.said(client.request("1", "tools/call", json.dumps({"name": HELPER})))["result"]
    assert (said["isError"], texts(said)) == (True, "Uploads need an HTTP listener, and this proxy has none.")
    assert not world.hears("tools/call")


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
    """Nor is anything kept for it."""
    scene = Scene(AUTO, limits=Limits(upload_size_max_bytes=10))
    said = scene.ask("tools/call", name=HELPER, arguments=arguments)["result"]
    assert said["isError"] is (problem is not None)
    assert ("upload_url" in said.get("structuredContent", {})) is (problem is None)
    assert problem is None or texts(said) == problem
    assert len(scene.world.engine._plane._nonces) == (problem is None)


# --- Out --------------------------------------------------------------------------------------------------------------


def test_a_place_that_the_tool_left_empty_is_no_fault_if_it_names_another() -> None:
    scene = Scene(producing(LocatorMode.NONE, LocatorMode.REGEX, output_path_argument="out"))
    found = scene.call("t", "saved other.txt", writes={"other.txt": b"x"}, arguments={"out": "wanted.txt"})
    assert names(found) == ["other.txt"]
    assert "artifact_error" not in found["_meta"]
    found = scene.call("t", "hm", arguments={"out": "wanted.txt"})
    assert found["_meta"]["artifact_error"] == "wanted.txt: missing"


def test_an_awaited_file_that_a_call_beside_has_taken_is_shared_and_awaited_no_more() -> None:
    scene = Scene(producing(LocatorMode.REGEX))
    assert "late.txt: missing" in scene.call("t", "saved late.txt")["_meta"]["artifact_error"]
    first, _ = scene.begin("t")
    one = scene.heard
    second, _ = scene.begin("t")
    two = scene.heard
    scene.disk.write(f"{scene.ws}/late.txt", b"done")
    scene.world.answer(one, '{"content":[{"type":"text","text":"hm"}]}')
    looking = scene.world.last(Survey)
    scene.disk._read = len(scene.world.log)
    scene.heard = two
    taken = artifacts(scene.end(second, "hm"))
    assert [artifact["filename"] for artifact in taken] == ["late.txt"]
    seen = scene.disk._carry_out(looking)
    assert seen is not None
    scene.world.store(looking.ticket, seen)
    scene.disk.settle()
    assert artifacts(scene.said(first)) == taken
    before = len(scene.world.every(Survey))
    assert artifacts(scene.call("t", "hm")) == []
    assert len(scene.world.every(Survey)) == before, "nothing is looked for"


def test_a_file_of_a_call_beside_that_is_named_twice_is_shared_once() -> None:
    scene = Scene(AUTO)
    scene.call("t")
    first, _ = scene.begin("t")
    one = scene.heard
    second, _ = scene.begin("t")
    scene.disk.write(f"{scene.ws}/a.txt", b"x")
    taken = artifacts(scene.end(second, "wrote a.txt"))
    assert len(taken) == 1
    scene.heard = one
    assert artifacts(scene.end(first, f"wrote a.txt, which is {scene.ws}/a.txt")) == taken


@pytest.mark.parametrize(
    "answer", [StorageFailed(reason="full"), Collected(files=(CollectedFile(problem="unfinished"),))]
)
def test_what_could_not_be_taken_in_is_nothing_to_a_call_that_is_over(answer: StorageFailed | Collected) -> None:
    scene = Scene(AUTO)
    channel, _ = scene.begin("t")
    scene.disk.write(f"{scene.ws}/a.txt", b"hello")
    scene.world.answer(scene.heard, '{"content":[{"type":"text","text":"wrote a.txt"}]}')
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
def test_artifacts_are_told_of_only_where_they_are_resources(is_exposed: bool) -> None:
    """A server that tells of nothing is no reason not to; switched off, nothing is confirmed."""
    world = driver(AUTO, expose_as_resources=is_exposed)
    Disk(world)
    client = modern(world, "s")
    own = f"artifact://sessions/{'a' * 32}/{'b' * 32}/a.txt"
    wanted = {"resourcesListChanged": True, "resourceSubscriptions": [own, "a:b"]}
    channel = client.request("subscriptions/listen", notifications=wanted)
    rise(world, capabilities='{"tools":{}}')
    if is_exposed:  # clients are told that they may subscribe to resources
        heard = world.hear("resources/subscribe")
        assert heard.frame["params"] == {"uri": "a:b"}
        world.reply(heard, error(str(heard.id), '{"code":-32601,"message":"no"}'))
    (told,) = client.told(channel)
    expected = {"resourcesListChanged": True, "resourceSubscriptions": [own]} if is_exposed else {}
    assert told["params"]["notifications"] == expected


URI = "artifact_uri"
LIST_CHANGED = "notifications/resources/list_changed"


def heard_of(scene: Scene) -> list[tuple[str, str | None]]:
    """What the client is told of resources: method and URI."""
    stream = scene.client.stream or scene.client.listen()
    frames = [frame for frame in scene.world.frames(stream) if "resources" in frame.get("method", "")]
    return [(frame["method"], frame.get("params", {}).get("uri")) for frame in frames]


def subscribed(scene: Scene) -> int:
    """How many sessions something is kept of."""
    return len(scene.world.engine._resources._subscribed)


def test_who_subscribes_to_an_artifact_hears_when_it_is_gone() -> None:
    """Everybody hears that the list has changed; of that artifact only who wants to, and as long as that."""
    scene = Scene(AUTO, limits=Limits(artifact_ttl_s=100.0, session_idle_ttl_s=1000.0))
    scene.client.listen()
    (one, other) = artifacts(scene.call("t", "done", writes={"a.txt": b"x", "b.txt": b"y"}))
    scene.world.wait(0.0)
    assert heard_of(scene) == [(LIST_CHANGED, None)]
    for artifact in (one, other):
        assert scene.ask("resources/subscribe", uri=artifact[URI])["result"] == {}
    assert scene.ask("resources/unsubscribe", uri=other[URI])["result"] == {}
    assert subscribed(scene) == 1
    scene.world.wait(100.0)
    assert heard_of(scene)[1:] == [("notifications/resources/updated", one[URI]), (LIST_CHANGED, None)]
    assert scene.ask("resources/unsubscribe", uri=one[URI])["result"] == {}
    assert subscribed(scene) == 0


def test_nothing_is_kept_of_what_an_ended_session_subscribed_to() -> None:
    scene = Scene(AUTO)
    (artifact,) = artifacts(scene.call("t", "done", writes={"a.txt": b"x"}))
    assert scene.ask("resources/subscribe", uri=artifact[URI])["result"] == {}
    assert subscribed(scene) == 1
    scene.client.delete()
    assert subscribed(scene) == 0
    assert "resources" not in {purpose for purpose, _ in scene.world.engine._desk.timers._live}


def test_only_so_many_artifacts_are_subscribed_to() -> None:
    scene = Scene(AUTO, limits=Limits(subscriptions_per_session_max=1))
    one, other = artifacts(scene.call("t", "done", writes={"a.txt": b"x", "b.txt": b"y"}))
    assert scene.ask("resources/subscribe", uri=one[URI])["result"] == {}
    error = scene.ask("resources/subscribe", uri=other[URI])["error"]
    assert error == {"code": -31007, "message": "1 resources are subscribed to, the most a session may have"}


@pytest.mark.parametrize(("by_tool", "by_plan"), [(False, True), (True, False)])
def test_nobody_is_told_of_artifacts_that_are_no_resources(by_tool: bool, by_plan: bool) -> None:
    plan = producing(LocatorMode.CHANGED, expose_as_resource=by_tool)
    scene = Scene(plan, expose_as_resources=by_plan)
    scene.client.listen()
    (artifact,) = artifacts(scene.call("t", "done", writes={"a.txt": b"x"}))
    scene.world.wait(1.0)
    assert heard_of(scene) == []
    assert scene.ask("resources/read", uri=artifact[URI])["error"]["code"] == -32002


def test_pages_of_artifacts_have_each_once() -> None:
    """In the order they were made, whatever comes and goes between two pages."""
    scene = Scene(producing(LocatorMode.CHANGED), limits=Limits(artifact_page_max=2))
    for name in "abcde":
        scene.call("t", "done", writes={f"{name}.txt": b"x"})
        scene.world.wait(1.0)
    channel = scene.client.request('"l"', "resources/list")
    scene.world.answer(scene.world.hear("resources/list"), '{"resources":[]}')
    page, listed = scene.said(channel), []
    while True:
        assert len(page["resources"]) <= 2
        listed += [entry["name"] for entry in page["resources"]]
        if "nextCursor" not in page:
            break
        page = scene.ask("resources/list", cursor=page["nextCursor"])["result"]
    assert listed == ["a.txt", "b.txt", "c.txt", "d.txt", "e.txt"]


def test_while_uploads_are_switched_off_artifacts_may_still_be_passed() -> None:
    """To tools that take files; an upload's handle, and what is none, is refused."""
    consumer = UploadConsumer(tools=("t",), file_path_argument="data")
    maker = ArtifactProducer(tools=("make",), output_locator=OutputLocator(mode=(LocatorMode.CHANGED,)))
    plan = ServerPlan(id="s", kind=Kind.PIPE, consumers=(consumer,), producers=(maker,))
    scene = Scene(plan, uploads_enabled=False)
    (artifact,) = artifacts(scene.call("make", "done", writes={"a.txt": b"x"}))
    _, got = scene.begin("t", data=artifact[URI])
    assert got["data"].endswith("/a.txt")
    for text in (f"upload://sessions/{'a' * 32}/{'b' * 32}", "/etc/passwd"):
        assert complaint(scene, data=text) == "Argument data is for uploads, and uploads are switched off here."


def test_content_that_is_too_large_is_said() -> None:
    """What came in a message has no place on the disk where it would be looked for again."""
    scene = Scene(producing(LocatorMode.EMBEDDED), limits=Limits(artifact_size_max_bytes=3))
    channel, _ = scene.begin("t")
    scene.world.answer(scene.heard, '{"content":[{"type":"image","mimeType":"image/png","data":"AAAAAAAA"}]}')
    scene.disk.settle()
    assert scene.said(channel)["_meta"]["artifact_error"] == "too large: 6 bytes, at most 3"


def test_a_folder_with_more_files_than_are_taken_at_once_is_said() -> None:
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
    scene.world.answer(scene.heard, '{"content":[]}')
    looking = scene.world.last(Survey)
    seen = scene.disk._carry_out(looking)
    assert seen is not None
    scene.world.store(looking.ticket, seen)
    collect = scene.world.last(Collect)
    scene.world.wait(Limits().storage_timeout_s)
    assert "storage did not answer" in scene.said(channel)["_meta"]["artifact_error"]
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
    """And ours does not; where no artifacts are listed, none is ours."""
    scene = Scene(AUTO, expose_as_resources=offers)
    scene.client.request("1", "resources/list", json.dumps({"cursor": cursor}))
    assert bool(scene.world.hears("resources/list")) is is_the_servers


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
    assert not scene.world.heard


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
    heard = scene.world.hear(method)
    assert heard.frame["params"] == {"uri": "a:b"}
    scene.world.answer(heard, '{"x":1}')
    assert scene.said(channel) == {"x": 1}
