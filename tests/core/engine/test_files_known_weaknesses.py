"""Tests of mistakes with time, quota and repetition that programs which carry files are known to make.

Those that need a real disk and real sockets are in `tests/app/gateway/test_files_known_weaknesses.py`.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import msgspec
import pytest
from disk import Disk
from driving import GONE, UNIX_AT_ZERO, Client, ask_link, connect, driver, upload
from file_scenes import Scene, artifacts, names, texts
from isthmus.core.base.events import Cause, Connected, End, UploadOpening
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import (
    ArtifactProducer,
    AutoFiles,
    FileScope,
    Kind,
    LocatorMode,
    OutputLocator,
    ServerPlan,
    UploadConsumer,
)
from isthmus.core.base.storage import Discard, Forget, Receive, StoredFile, Sweep, UploadManifest

FILES = ServerPlan(
    id="s",
    kind=Kind.PIPE,
    consumers=(UploadConsumer(tools=("take",), file_path_argument="path"),),
    producers=(
        ArtifactProducer(tools=("save",), output_path_argument="path"),
        ArtifactProducer(tools=("make",), output_locator=OutputLocator(mode=LocatorMode.REGEX)),
    ),
)
AUTO = ServerPlan(id="s", kind=Kind.PIPE, auto_files=AutoFiles())
HELPER = "s_get_upload_url"


def link(client: Client) -> dict[str, str]:
    """The query of a new upload link."""
    return ask_link(client, HELPER)


# --- Time -----------------------------------------------------------------------------------------------------------


def test_the_output_folder_of_a_running_call_is_never_cleaned_up() -> None:
    """The output's place stays for as long as the call runs, and the file is collected at the end."""
    scene = Scene(FILES, limits=Limits(artifact_ttl_s=10, upload_ttl_s=10, session_idle_ttl_s=10, reply_timeout_s=9000))
    channel, got = scene.begin("save", path="report.txt")
    before = len(scene.world.log)
    scene.world.wait(5000)
    scene.disk.settle()
    assert not [e for e in scene.world.log[before:] if isinstance(e, Sweep | Discard | Forget)]
    scene.disk.write(got["path"], b"late but whole")
    assert names(scene.end(channel, "done")) == ["report.txt"]


def test_a_file_in_use_stays_while_its_call_runs() -> None:
    """A file in use neither expires nor makes room for newer ones; after the call it goes at its time."""
    limits = Limits(upload_ttl_s=10, session_storage_max_bytes=100, reply_timeout_s=9000)
    scene = Scene(FILES, limits=limits)
    handle = scene.upload("in.txt", b"x" * 60)
    channel, got = scene.begin("take", path=handle)
    scene.world.wait(1000)
    assert got["path"] in scene.disk.files
    assert handle.rpartition("/")[2] in "".join(scene.disk.records)
    scene.disk.settle()
    assert len(scene.disk.blobs) == 1
    assert texts(scene.end(channel, "read")) == "read"
    scene.world.wait(11)
    scene.disk.settle()
    assert (scene.disk.blobs, scene.disk.records) == ({}, {})
    assert "it expired" in texts(scene.only_message(scene.begin("take", path=handle)[0]))


def test_default_lifetimes_are_long_enough_for_people() -> None:
    """An unused session ends. An upload lives at least an hour, and each use renews that."""
    limits = Limits()
    assert limits.upload_ttl_s >= 3600
    scene = Scene(FILES, limits=Limits(session_idle_ttl_s=100_000))
    handle = scene.upload("in.txt", b"x")
    for _ in range(3):
        scene.world.wait(limits.upload_ttl_s * 0.9)
        channel, _ = scene.begin("take", path=handle)
        assert texts(scene.end(channel, "read")) == "read"
    idle = Scene(FILES)
    idle.world.wait(limits.session_idle_ttl_s + 1)
    assert idle.world.engine.session_count == 0


def test_a_link_is_not_spent_by_an_upload_that_failed() -> None:
    scene = Scene(FILES)
    query = link(scene.client)
    for _ in range(3):
        channel = scene.world.engine.new_channel()
        scene.world.open(channel, UploadOpening(server="s", query=query))
        assert scene.world.last(Receive).channel == channel
        scene.world.end(channel, GONE)
    channel = scene.world.engine.new_channel()
    scene.world.open(channel, UploadOpening(server="s", query=query))
    assert scene.world.last(Receive).channel == channel


@pytest.mark.parametrize("scope", FileScope)
def test_a_session_that_ended_keeps_only_its_files_on_the_disk(scope: FileScope) -> None:
    """The server's folders go at once, and uploads where files are of their session; a tombstone keeps no file."""
    scene = Scene(AUTO, limits=Limits(artifact_ttl_s=50, upload_ttl_s=50), file_scope=scope)
    scene.upload("a.txt", b"x")
    scene.call("run", writes={"out.txt": b"made"})
    base = scene.base
    scene.client.delete()
    scene.world.end(scene.world.dials[0].channel)
    scene.disk.settle()
    assert [path for path in scene.disk.files if path.startswith(base)] == []
    assert sorted(scene.disk.blobs.values()) == ([b"made"] if scope is FileScope.SESSION else [b"made", b"x"])
    scene.world.wait(51)
    scene.disk.settle()
    assert (scene.disk.blobs, scene.disk.records) == ({}, {})


# --- Room -----------------------------------------------------------------------------------------------------------


def test_a_file_that_was_just_collected_is_not_evicted() -> None:
    """A file that fits is counted once, and the client can read it."""
    scene = Scene(AUTO, limits=Limits(session_storage_max_bytes=100))
    (made,) = artifacts(scene.call("run", "wrote a.txt", writes={"a.txt": b"x" * 60}))
    read = scene.ask("resources/read", uri=made["artifact_uri"])
    assert read["result"]["contents"][0]["text"] == "x" * 60
    scene.world.wait(1)
    (more,) = artifacts(scene.call("run", "wrote b.txt", writes={"b.txt": b"y" * 100}))
    assert scene.ask("resources/read", uri=more["artifact_uri"])["result"]["contents"][0]["text"] == "y" * 100


def test_a_file_that_cannot_fit_evicts_nothing() -> None:
    """A file that cannot fit is refused before anything is evicted: an upload by its head, an output by its size."""
    scene = Scene(AUTO, limits=Limits(session_storage_max_bytes=100))
    handle = scene.upload("kept.txt", b"x" * 60)
    channel = scene.world.engine.new_channel()
    query = link(scene.client)
    scene.world.open(channel, UploadOpening(server="s", query=query, size_bytes=100_000_000))
    assert scene.world.sent[channel][0].status == 413
    result = scene.call("run", "wrote big.bin", writes={"big.bin": b"z" * 101})
    assert artifacts(result) == []
    assert "too large" in result["_meta"]["artifact_error"]
    scene.world.wait(1)
    assert artifacts(scene.call("run", writes={"bigger.bin": b"z" * 102})) == []
    read = scene.begin("run", path=handle)[0]
    assert not scene.world.sent[read], "the file is there, and the call is on its way"
    assert scene.disk.blobs.keys() == {json.loads(record)["blob"] for record in scene.disk.records.values()}
    assert list(scene.disk.blobs.values()) == [b"x" * 60]


def test_files_of_the_same_call_and_files_in_use_are_not_evicted() -> None:
    """Two files of one call do not evict each other, and an output does not evict its own call's input."""
    scene = Scene(AUTO, limits=Limits(session_storage_max_bytes=100))
    (made,) = artifacts(scene.call("run", writes={"a.txt": b"a" * 60, "b.txt": b"b" * 60}))
    assert made["filename"] == "a.txt"
    assert scene.ask("resources/read", uri=made["artifact_uri"])["result"]["contents"][0]["text"] == "a" * 60
    other = Scene(FILES, limits=Limits(session_storage_max_bytes=100))
    handle = other.upload("in.txt", b"x" * 60)
    taking = other.client.request("50", "tools/call", json.dumps({"name": "take", "arguments": {"path": handle}}))
    other.disk.settle()
    received = other.world.take_sent("tools/call")
    assert artifacts(other.call("make", "Saved to ./c.txt", writes={"c.txt": b"c" * 60})) == []
    other.world.answer(received, '{"content":[]}')
    assert "result" in other.world.only_message(taking)
    assert other.begin("take", path=handle)[1], "it is still there"


def test_room_that_was_never_used_is_given_back() -> None:
    """The reservation for a body that broke off can be used at once."""
    scene = Scene(FILES, limits=Limits(session_storage_max_bytes=100))
    for _ in range(10):
        channel = scene.world.engine.new_channel()
        scene.world.open(channel, UploadOpening(server="s", query=link(scene.client), size_bytes=90))
        assert scene.world.last(Receive).channel == channel
        scene.world.end(channel, GONE)
    assert scene.upload("a.txt", b"x" * 90)


def test_a_manifest_larger_than_what_was_ordered_is_not_believed() -> None:
    """An upload larger than its reservation is discarded whole."""
    scene = Scene(FILES, limits=Limits(session_storage_max_bytes=100))
    channel = scene.world.engine.new_channel()
    scene.world.open(channel, UploadOpening(server="s", query=link(scene.client), size_bytes=90))
    order = scene.world.last(Receive)
    scene.disk.blobs[order.blobs[0]] = b"z" * 5000
    manifest = UploadManifest((StoredFile("a", 5000, "0" * 64),))
    scene.world.send(channel, msgspec.json.encode(manifest))
    scene.disk.settle()
    assert scene.world.sent[channel][0].status == 507
    assert (scene.disk.blobs, scene.disk.records) == ({}, {})


# --- Repetition -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
@pytest.mark.parametrize(
    "answer",
    [
        {"result": {"content": [{"type": "text", "text": "Session not found"}], "isError": True}},
        {"error": {"code": -32600, "message": "Session terminated"}},
        {"error": {"code": -32001, "message": "session not found"}},
    ],
)
def test_no_call_is_sent_twice_for_what_its_answer_says(kind: Kind, answer: dict[str, Any]) -> None:
    """A call is sent again only if it is proved that it did not run, never because of a text."""
    world = driver(ServerPlan(id="s", kind=kind, auto_files=AutoFiles(), session_retries=5))
    disk = Disk(world)
    client = connect(world, "http", "s", capabilities='{"tools":{}}')
    channel = client.request("7", "tools/call", '{"name":"pay","arguments":{}}')
    disk.settle()
    received = world.take_sent("tools/call")
    world.reply(received, json.dumps({"jsonrpc": "2.0", "id": received.id, **answer}).encode())
    if kind is Kind.HTTP and "error" in answer:
        world.answer(world.take_sent("ping"))
    disk.settle()
    assert not world.unread, "and the server's session is not begun anew"
    response = world.only_message(channel)
    assert response["id"] == 7
    assert {name: response[name] for name in answer} == answer


def test_open_calls_count_until_they_are_answered() -> None:
    """A call whose stream is open, with progress on it, still counts."""
    scene = Scene(FILES, limits=Limits(exchanges_per_session_max=1))
    first = scene.client.request("1", "tools/call", '{"name":"slow","_meta":{"progressToken":1}}')
    received = scene.world.take_sent("tools/call")
    token = received.frame["params"]["_meta"]["progressToken"]
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
    scene.world.send(received.channel, json.dumps(progress).encode())
    assert len(scene.world.sent[first]) == 1, "its response has begun"
    for number in (2, 3):
        refused = scene.client.request(str(number), "tools/call", '{"name":"slow"}')
        assert "error" in scene.world.only_message(refused)
        assert not scene.world.was_sent("tools/call")
    scene.world.answer(received, '{"content":[]}')
    scene.client.request("4", "tools/call", '{"name":"slow"}')
    assert scene.world.was_sent("tools/call")


def test_a_call_whose_files_are_taken_in_is_still_under_way() -> None:
    scene = Scene(FILES, limits=Limits(exchanges_per_session_max=1))
    scene.client.request("1", "tools/call", '{"name":"make","arguments":{}}')
    received = scene.world.take_sent("tools/call")
    scene.world.answer(received, '{"content":[{"type":"text","text":"Saved to ./a.txt"}]}')
    assert "error" in scene.world.only_message(scene.client.request("2", "tools/call", '{"name":"make"}'))
    scene.disk.settle()
    scene.client.request("3", "tools/call", '{"name":"make"}')
    assert scene.world.was_sent("tools/call")


def test_a_call_that_waits_for_its_server_is_checked() -> None:
    """A call that waits for its server to start is checked as all others are."""
    scene = Scene(FILES, limits=Limits(restart_backoff_s=5))
    scene.world.end(scene.world.dials[0].channel, Cause(End.BROKEN))
    channel, got = scene.begin("take", path="/etc/hostname")
    assert got == {}
    assert scene.only_message(channel)["isError"]
    for dial in scene.world.dials[1:]:
        if dial.channel not in scene.world.over:
            scene.world.open(dial.channel, Connected())
    assert not scene.world.was_sent("tools/call")


def test_a_structured_result_of_an_adapted_tool_names_the_artifact() -> None:
    producer = ArtifactProducer(
        tools=("make",),
        output_locator=OutputLocator(mode=LocatorMode.STRUCTURED, output_path_key="files[*].path"),
        rewrite_text=True,
    )
    scene = Scene(ServerPlan(id="s", kind=Kind.PIPE, producers=(producer,)))
    structure = {"files": [{"path": f"{scene.ws}/a.txt"}, {"path": "b.txt"}], "count": 2}
    writes = {"a.txt": b"a", "b.txt": b"b"}
    result = scene.call("make", "", writes=writes, structuredContent=structure)
    uris = [made["artifact_uri"] for made in artifacts(result)]
    assert result["structuredContent"] == {"files": [{"path": uri} for uri in uris], "count": 2}
    assert len(uris) == 2


def test_an_artifact_says_when_it_expires() -> None:
    scene = Scene(AUTO, limits=Limits(artifact_ttl_s=100))
    (made,) = artifacts(scene.call("run", writes={"a.txt": b"x"}))
    expires_at = datetime.fromisoformat(made["expires_at"]).timestamp()
    assert expires_at == UNIX_AT_ZERO + scene.world.now + 100
    scene.world.wait(99)
    assert "result" in scene.ask("resources/read", uri=made["artifact_uri"])
    scene.world.wait(2)
    assert "error" in scene.ask("resources/read", uri=made["artifact_uri"])


def test_an_upload_belongs_to_one_server() -> None:
    """Two servers of one principal do not see each other's files."""
    other = ServerPlan(id="t", kind=Kind.PIPE, auto_files=AutoFiles())
    world = driver(AUTO, other)
    disk = Disk(world)
    client = connect(world, "http", "s", capabilities='{"tools":{}}')
    disk.settle()
    (handle,) = upload(client, HELPER, ("a.txt", 1))
    disk.settle()
    (record,) = disk.records.values()
    disk.blobs[json.loads(record)["blob"]] = b"x"
    stranger = connect(world, "http", "t", capabilities='{"tools":{}}', session="S2")
    stranger.request('"tools"', "tools/list")
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    channel = stranger.request("7", "tools/call", json.dumps({"name": "run", "arguments": {"path": handle}}))
    disk.settle()
    assert world.only_message(channel)["result"]["isError"]
    assert not world.was_sent("tools/call")
