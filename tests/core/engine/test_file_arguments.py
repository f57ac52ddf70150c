"""Tests of file adapters: each form of a file in an argument, each place that names an output, and artifacts as
resources."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from driving import UploadOpening, send_in
from file_scenes import BOTH, Scene, artifacts, names, texts
from inside import Inside
from isthmus.core.base.events import DownloadOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import (
    ArtifactProducer,
    Deliver,
    Kind,
    LocatorMode,
    OutputLocator,
    ServerPlan,
    SharedFolder,
    UploadConsumer,
)
from isthmus.core.base.storage import Serve

DATA = "Grüße".encode()


def consumer(tool: str, deliver: Deliver = Deliver.PATH, **more: Any) -> UploadConsumer:
    return UploadConsumer(tools=(tool,), file_path_argument=more.pop("argument", "file"), deliver=deliver, **more)


def producer(tool: str, *modes: LocatorMode, **more: Any) -> ArtifactProducer:
    locator = OutputLocator(
        mode=modes if len(modes) != 1 else modes[0],
        output_path_key=more.pop("key", None),
        path_arguments=more.pop("path_arguments", ()),
    )
    return ArtifactProducer(tools=(tool,), output_locator=locator, **more)


def scene(*entries: UploadConsumer | ArtifactProducer, limits: Limits | None = None, **more: Any) -> Scene:
    plan = ServerPlan(
        id="files",
        kind=more.pop("kind", Kind.PIPE),
        consumers=tuple(entry for entry in entries if isinstance(entry, UploadConsumer)),
        producers=tuple(entry for entry in entries if isinstance(entry, ArtifactProducer)),
        shared=more.pop("shared", ()),
        stage=more.pop("stage", "in"),
    )
    return Scene(plan, limits=limits, **more)


# --- Deliveries -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deliver", "expected"),
    [
        (Deliver.BASE64, base64.b64encode(DATA).decode()),
        (Deliver.DATA_URI, "data:text/plain;base64," + base64.b64encode(DATA).decode()),
        (Deliver.TEXT, DATA.decode()),
    ],
)
def test_content_in_an_argument(deliver: Deliver, expected: str) -> None:
    files = scene(consumer("eat", deliver))
    handle = files.upload("a.txt", DATA)
    _, got = files.begin("eat", file=handle, n=1.5)
    assert got == {"file": expected, "n": 1.5}


def test_content_that_is_no_text_is_refused_as_such() -> None:
    files = scene(consumer("eat", Deliver.TEXT))
    channel, got = files.begin("eat", file=files.upload("a.bin", b"\xff\xfe"))
    assert got == {}
    assert "not UTF-8" in texts(files.only_message(channel))


def test_content_that_is_too_large_is_refused_before_it_is_read() -> None:
    files = scene(consumer("eat", Deliver.BASE64), limits=Limits(inline_size_max_bytes=4))
    channel, got = files.begin("eat", file=files.upload("a.txt", DATA))
    assert got == {}
    assert f"{len(DATA)} bytes" in texts(files.only_message(channel))


def test_a_link_in_an_argument_serves_the_file() -> None:
    files = scene(consumer("eat", Deliver.URL))
    _, got = files.begin("eat", file=files.upload("a b.txt", DATA))
    link = urlsplit(got["file"])
    _, _, server, sid, uid, _ = link.path.split("/")
    opening = DownloadOpening(server, sid, uid, "a b.txt", dict(parse_qsl(link.query)))
    channel = files.world.engine.new_channel()
    files.world.open(channel, opening)
    serve = files.world.only(Serve)
    assert (serve.channel, serve.filename, serve.size_bytes) == (channel, "a b.txt", len(DATA))
    assert files.disk.blobs[serve.blob] == DATA


def test_several_arguments_and_other_values() -> None:
    files = scene(consumer("eat", argument=("one", "more[*].file"), accept_other=True))
    first, second = files.upload("1.txt", b"1"), files.upload("2.txt", b"2")
    _, got = files.begin("eat", one=first, more=[{"file": second}, {"file": "https://example.com/x"}, {}])
    assert files.disk.files[got["one"]].data == b"1"
    assert files.disk.files[got["more"][0]["file"]].data == b"2"
    assert got["more"][1:] == [{"file": "https://example.com/x"}, {}]


def test_uploads_are_placed_where_the_server_may_look() -> None:
    files = scene(consumer("eat"), stage="out")
    _, got = files.begin("eat", file=files.upload("a.txt", DATA))
    assert got["file"].startswith(f"{files.base}/out/")


def test_paths_are_translated_to_those_that_the_server_sees() -> None:
    entry = ArtifactProducer(tools=("make",), output_path_argument="out")
    files = scene(consumer("eat"), entry, shared=(SharedFolder("/w", "/mnt/w"),))
    _, got = files.begin("eat", file=files.upload("a.txt", DATA))
    assert got["file"].startswith(f"/mnt{files.base}/in/")
    channel, got = files.begin("make", out="x.txt")
    assert got["out"].startswith(f"/mnt{files.base}/out/")
    files.disk.write(got["out"].removeprefix("/mnt"), b"made")
    assert names(files.end(channel, "done")) == ["x.txt"]


def test_a_file_in_use_outlives_its_time() -> None:
    files = scene(consumer("eat"), limits=Limits(upload_ttl_s=60))
    handle = files.upload("a.txt", DATA)
    channel, _ = files.begin("eat", file=handle)
    files.world.wait(300)
    files.disk.settle()
    assert DATA in files.disk.blobs.values()
    files.end(channel, "done")
    files.world.wait(1)
    files.disk.settle()
    assert DATA not in files.disk.blobs.values()
    channel, got = files.begin("eat", file=handle)
    assert got == {}
    assert "expired" in texts(files.only_message(channel))


# --- Outputs ----------------------------------------------------------------------------------------------------------


def test_a_file_that_an_argument_names_is_collected_if_it_changed() -> None:
    files = scene(producer("write", LocatorMode.ARGUMENT, path_arguments=("path",)), roots=("/shared",))
    channel, _ = files.begin("write", path="a.txt", other="b.txt")
    files.disk.write(f"{files.ws}/a.txt", b"a")
    files.disk.write(f"{files.ws}/b.txt", b"b")
    assert names(files.end(channel, "ok")) == ["a.txt"]
    assert artifacts(files.call("write", arguments={"path": "a.txt"})) == []
    files.disk.write("/shared/old.txt", b"old")
    assert artifacts(files.call("write", arguments={"path": "/shared/old.txt"})) == []
    channel, _ = files.begin("write", path="/shared/old.txt")
    files.disk.write("/shared/old.txt", b"newer")
    assert names(files.end(channel, "ok")) == ["old.txt"]


def test_several_locators_find_each_file_once() -> None:
    files = scene(producer("make", LocatorMode.STRUCTURED, LocatorMode.REGEX, LocatorMode.CHANGED, key="files[*]"))
    writes = {"a.txt": b"a", "b.txt": b"b", "c.txt": b"c"}
    result = files.call("make", "Saved to ./b.txt", writes=writes, structuredContent={"files": ["a.txt", "b.txt"]})
    assert names(result) == ["a.txt", "b.txt", "c.txt"]


def test_a_tool_may_choose_the_suffix_of_an_output() -> None:
    files = scene(ArtifactProducer(tools=("make",), output_path_argument="out"))
    channel, got = files.begin("make", out="report")
    files.disk.write(got["out"] + ".docx", b"PK")
    assert names(files.end(channel, "ok")) == ["report.docx"]


def test_an_output_that_is_to_be_moved_is_removed() -> None:
    files = scene(producer("make", LocatorMode.CHANGED, move=True))
    assert names(files.call("make", writes={"a.txt": b"a"})) == ["a.txt"]
    assert f"{files.ws}/a.txt" not in files.disk.files


def test_a_required_file_may_come_from_anywhere_that_is_looked() -> None:
    files = scene(producer("make", LocatorMode.REGEX, LocatorMode.CHANGED, required=True))
    assert names(files.call("make", writes={"a.txt": b"a"})) == ["a.txt"]
    result = files.call("make", "nothing to see")
    assert result["isError"] is True


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
def test_a_resource_that_is_linked_is_taken_in(kind: Kind) -> None:
    files = scene(producer("make", LocatorMode.RESOURCE_LINK), kind=kind)
    channel, _ = files.begin("make")
    links = [{"type": "resource_link", "uri": f"demo://r/{name}", "name": name} for name in ("a.txt", "b.png")]
    files.world.answer(files.received, json.dumps({"content": links}))
    read = {}
    for _ in links:
        received = files.world.take_sent("resources/read")
        read[received.frame["params"]["uri"]] = received
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    text = {"contents": [{"uri": "demo://r/a.txt", "text": "hello"}]}
    files.world.answer(read["demo://r/a.txt"], json.dumps(text))
    assert channel not in files.world.over
    files.world.answer(
        read["demo://r/b.png"],
        json.dumps({"contents": [{"uri": "demo://r/b.png", "mimeType": "image/png", "blob": png}]}),
    )
    files.disk.settle()
    found = files.only_message(channel)
    assert sorted(names(found)) == ["a.txt", "b.png"]
    assert found["content"][:2] == links


def test_a_linked_resource_that_does_not_come_delays_no_call() -> None:
    files = scene(producer("make", LocatorMode.RESOURCE_LINK))
    channel, _ = files.begin("make")
    link = {"type": "resource_link", "uri": "demo://r/a.txt", "name": "a.txt"}
    files.world.answer(files.received, json.dumps({"content": [link]}))
    files.world.wait(60)
    found = files.only_message(channel)
    assert found["content"] == [link]
    assert "demo://r/a.txt" in found["_meta"]["artifact_error"]


# --- Resources --------------------------------------------------------------------------------------------------------


def listed(files: Scene, **params: object) -> tuple[list[str], str | None]:
    """The names on one page of the resources, and the next cursor; the server answers with its own resource."""
    files._ids += 1
    channel = files.client.request(str(files._ids), "resources/list", json.dumps(params))
    if files.world.was_sent("resources/list"):
        own = '{"resources":[{"uri":"demo://own","name":"own"}]}'
        files.world.answer(files.world.take_sent("resources/list"), own)
    result = files.only_message(channel)
    return [entry["name"] for entry in result["resources"] if entry["uri"] != "doc://upload_workflow.md"], result.get(
        "nextCursor"
    )


def test_artifacts_are_listed_page_by_page_and_each_once() -> None:
    files = scene(producer("make", LocatorMode.CHANGED), limits=Limits(artifact_page_max=2))
    for number in range(5):
        files.call("make", writes={f"{number}.txt": b"x"})
        files.world.wait(1)
    seen, cursor = listed(files)
    assert seen == ["own", "0.txt", "1.txt"]
    files.call("make", writes={"late.txt": b"x"})
    while cursor is not None:
        more, cursor = listed(files, cursor=cursor)
        assert len(more) <= 2
        seen += more
    assert seen == ["own", "0.txt", "1.txt", "2.txt", "3.txt", "4.txt", "late.txt"]
    assert not files.world.unread


def test_artifacts_of_one_moment_are_each_on_a_page() -> None:
    """A page may end among artifacts of the same time."""
    files = scene(producer("make", LocatorMode.CHANGED), limits=Limits(artifact_page_max=2))
    files.call("make", writes={f"{number}.txt": b"x" for number in range(5)})
    seen, cursor = listed(files)
    while cursor is not None:
        more, cursor = listed(files, cursor=cursor)
        seen += more
    assert sorted(seen) == ["0.txt", "1.txt", "2.txt", "3.txt", "4.txt", "own"]


def test_a_cursor_that_was_not_given_is_refused() -> None:
    files = scene(producer("make", LocatorMode.CHANGED))
    answer = files.ask("resources/list", cursor="isthmus-artifact:x:y")
    assert answer["error"]["code"] == -32602


def test_a_client_is_notified_of_new_artifacts_and_of_those_that_go() -> None:
    files = scene(producer("make", LocatorMode.CHANGED), limits=Limits(artifact_ttl_s=60))
    stream = files.client.listen()
    files.list_resources()
    result = files.call("make", writes={"a.txt": b"a", "b.txt": b"b"})
    files.world.wait(0.001)
    received = [frame["method"] for frame in files.world.frames(stream)]
    assert received == ["notifications/resources/list_changed"]
    first, second = (artifact["artifact_uri"] for artifact in artifacts(result))
    assert files.ask("resources/subscribe", uri=first)["result"] == {}
    assert files.ask("resources/subscribe", uri=second)["result"] == {}
    assert files.ask("resources/unsubscribe", uri=second)["result"] == {}
    assert files.ask("resources/subscribe", uri=first[:50])["error"]["code"] == -32002
    files.client.request('"theirs"', "resources/subscribe", '{"uri":"demo://own"}')
    files.world.answer(files.world.take_sent("resources/subscribe"))
    files.world.wait(61)
    frames = list(files.world.frames(stream))[1:]
    updated = [frame["params"]["uri"] for frame in frames if frame["method"] == "notifications/resources/updated"]
    assert updated == [first]
    assert "notifications/resources/list_changed" in [frame["method"] for frame in frames]
    assert not files.world.unread, "none of it goes to the server"


def test_reading_an_expired_artifact_says_that_it_expired() -> None:
    files = scene(producer("make", LocatorMode.CHANGED), limits=Limits(artifact_ttl_s=60))
    uri = artifacts(files.call("make", writes={"a.txt": b"a"}))[0]["artifact_uri"]
    assert files.ask("resources/read", uri=uri)["result"]["contents"][0]["text"] == "a"
    files.world.wait(120)
    error = files.ask("resources/read", uri=uri)["error"]
    assert error["code"] == -32002
    assert "expired" in error["message"]


def test_capabilities_that_the_server_lacks_are_declared_for_our_part() -> None:
    files = scene(producer("make", LocatorMode.CHANGED), capabilities="{}")
    assert files.ask("resources/list")["result"]["resources"] == []
    assert json.loads(BOTH)["resources"] == {}


def test_an_upload_link_serves_nothing_else() -> None:
    files = scene(consumer("eat", Deliver.URL))
    _, got = files.begin("eat", file=files.upload("a.txt", DATA))
    link = urlsplit(got["file"])
    query = dict(parse_qsl(link.query))
    _, _, server, sid, uid, _ = link.path.split("/")
    for opening in (
        DownloadOpening(server, sid, uid, "b.txt", query),
        DownloadOpening(server, sid, "0" * 32, "a.txt", query),
        DownloadOpening("other", sid, uid, "a.txt", query),
    ):
        channel = files.world.engine.new_channel()
        files.world.open(channel, opening)
        assert files.world.sent[channel][0].status in (403, 404)
    upload = send_in(files.world, UploadOpening(server="files", query=query))
    assert files.world.sent[upload][0].status == 403
    assert not files.world.every(Serve)


def making(**limits: Any) -> tuple[Scene, list[str]]:
    """Two artifacts that last a minute. Returns their URIs."""
    files = scene(producer("make", LocatorMode.CHANGED), limits=Limits(artifact_ttl_s=60, **limits))
    made = artifacts(files.call("make", writes={"a.txt": b"a", "b.txt": b"b"}))
    return files, [artifact["artifact_uri"] for artifact in made]


def updated_uris(files: Scene, stream: ChannelId) -> list[str]:
    """URIs of the artifacts that a client got update notifications of."""
    frames = [frame for frame in files.world.frames(stream) if frame["method"] == "notifications/resources/updated"]
    return [frame["params"]["uri"] for frame in frames]


def test_a_client_without_subscriptions_gets_no_artifact_updates() -> None:
    files, (first, _) = making()
    stream = files.client.listen()
    for method in ("resources/subscribe", "resources/unsubscribe", "resources/unsubscribe"):
        assert files.ask(method, uri=first)["result"] == {}
    files.world.wait(61)
    assert updated_uris(files, stream) == []


def test_a_session_subscribes_to_so_many_artifacts() -> None:
    """A subscription to one more is refused; the first artifact's update is sent."""
    files, (first, second) = making(subscriptions_per_session_max=1)
    stream = files.client.listen()
    assert files.ask("resources/subscribe", uri=first)["result"] == {}
    refused = files.ask("resources/subscribe", uri=second)["error"]
    assert refused["message"].startswith("1 resources are subscribed to")
    files.world.wait(61)
    assert updated_uris(files, stream) == [first]


def test_an_artifact_that_is_read_for_a_cancelled_request_is_not_sent() -> None:
    """A client that cancels while the storage reads gets no result, and the next request reads the artifact."""
    files, (first, _) = making()
    channel = files.client.request('"r"', "resources/read", json.dumps({"uri": first}))
    files.client.notify("notifications/cancelled", '{"requestId":"r"}')
    files.disk.settle()
    assert not any("result" in frame for frame in files.world.frames(channel))
    assert files.ask("resources/read", uri=first)["result"]["contents"][0]["text"] == "a"


def test_an_artifact_that_cannot_be_read_is_an_error() -> None:
    """A client gets an error for the artifact whose bytes are gone from the storage, and the contents of the other."""
    files, (first, second) = making()
    blob = next(blob for blob, data in files.disk.blobs.items() if data == b"a")
    del files.disk.blobs[blob]
    failed = files.ask("resources/read", uri=first)["error"]
    assert failed["code"] == -32603
    assert failed["message"].startswith(f"{first} could not be read: ")
    assert files.ask("resources/read", uri=second)["result"]["contents"][0]["text"] == "b"


def test_a_cursor_like_ours_is_the_servers_if_no_artifacts_are_listed() -> None:
    """The server's answer goes to the client."""
    files = scene(producer("make", LocatorMode.CHANGED, expose_as_resource=False))
    channel = files.client.request("1", "resources/list", '{"cursor":"isthmus-artifact:x:y"}')
    received = files.world.take_sent("resources/list")
    assert received.frame["params"] == {"cursor": "isthmus-artifact:x:y"}
    files.world.answer(received, '{"resources":[]}')
    assert "nextCursor" not in files.only_message(channel)


@pytest.mark.parametrize("cursor", ["", "1", f"{'1' * 41}:a"], ids=["empty", "no name", "too long"])
def test_a_cursor_with_half_of_a_place_is_refused(cursor: str) -> None:
    files, _ = making()
    assert files.ask("resources/list", cursor=f"isthmus-artifact:{cursor}")["error"]["code"] == -32602


def test_an_artifact_that_outlives_its_session_leaves_no_notification() -> None:
    """No client is left to notify, and no notification is left waiting."""
    files, _ = making(session_idle_ttl_s=10.0)
    assert files.world.engine.session_count == 1
    files.client.delete()
    files.disk.settle()
    files.world.wait(120.0)
    files.disk.settle()
    assert files.world.engine.session_count == 0
    assert not [purpose for purpose, _ in Inside(files.world.engine).context.timers._live if purpose == "resources"]
