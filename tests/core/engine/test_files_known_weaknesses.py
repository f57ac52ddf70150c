"""What carriers of files are known to get wrong with time, room and repetition: one test for each, numbered as in
`tests/app/gateway/test_files_known_weaknesses.py`."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import msgspec
import pytest
from disk import Disk
from driving import GONE, UNIX_AT_ZERO, Client, ask_link, connect, driver, upload
from file_scenes import Scene, artifacts, names, texts
from isthmus.core.base.effects import (
    Cause,
    Connected,
    Discard,
    End,
    Forget,
    Receive,
    StoredFile,
    Sweep,
    UploadManifest,
    UploadOpening,
)
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
    """What a new upload link says in its query."""
    return ask_link(client, HELPER)


# --- Time -----------------------------------------------------------------------------------------------------------


def test_w03_what_a_running_call_writes_to_is_never_cleaned_up() -> None:
    """However long it runs, its place stays, and what it put there at last is taken in."""
    scene = Scene(FILES, limits=Limits(artifact_ttl_s=10, upload_ttl_s=10, session_idle_ttl_s=10, reply_timeout_s=9000))
    channel, got = scene.begin("save", path="report.txt")
    before = len(scene.world.log)
    scene.world.wait(5000)
    scene.disk.settle()
    assert not [e for e in scene.world.log[before:] if isinstance(e, Sweep | Discard | Forget)]
    scene.disk.write(got["path"], b"late but whole")
    assert names(scene.end(channel, "done")) == ["report.txt"]


def test_w03_a_file_in_use_stays_while_its_call_runs() -> None:
    """Neither its expiry nor newer files take it away; and once the call is over, it goes at its time."""
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
    assert "it expired" in texts(scene.said(scene.begin("take", path=handle)[0]))


def test_w29_defaults_are_for_people() -> None:
    """A session without any use ends; an upload lives for longer than a person thinks, and each use lengthens that."""
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


def test_w29_a_link_is_not_spent_by_an_upload_that_failed() -> None:
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


def test_w29_a_session_that_ended_keeps_nothing_on_the_disk() -> None:
    """Its uploads go at once, with the folders its server ran in; no grave keeps a file, only a word of it."""
    scene = Scene(AUTO, limits=Limits(artifact_ttl_s=50))
    scene.upload("a.txt", b"x")
    scene.call("run", writes={"out.txt": b"made"})
    base = scene.base
    scene.client.delete()
    scene.world.end(scene.world.dials[0].channel)
    scene.disk.settle()
    assert [path for path in scene.disk.files if path.startswith(base)] == []
    assert list(scene.disk.blobs.values()) == [b"made"], "its artifact, for whom it has a link"
    scene.world.wait(51)
    scene.disk.settle()
    assert (scene.disk.blobs, scene.disk.records) == ({}, {})


# --- Room -----------------------------------------------------------------------------------------------------------


def test_w05_what_was_just_taken_in_is_not_what_makes_room() -> None:
    """A file that fits is counted once, and what is told to the client is there."""
    scene = Scene(AUTO, limits=Limits(session_storage_max_bytes=100))
    (made,) = artifacts(scene.call("run", "wrote a.txt", writes={"a.txt": b"x" * 60}))
    read = scene.ask("resources/read", uri=made["artifact_uri"])
    assert read["result"]["contents"][0]["text"] == "x" * 60
    scene.world.wait(1)
    (more,) = artifacts(scene.call("run", "wrote b.txt", writes={"b.txt": b"y" * 100}))
    assert scene.ask("resources/read", uri=more["artifact_uri"])["result"]["contents"][0]["text"] == "y" * 100


def test_w05_what_cannot_fit_takes_nothing_else_away() -> None:
    """It is refused before anything makes room for it: an upload by its head, an output by its size."""
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


def test_w05_neither_what_came_with_it_nor_what_is_in_use_goes_for_a_file() -> None:
    """Two files of one call do not drive each other out, and an output not its own call's input."""
    scene = Scene(AUTO, limits=Limits(session_storage_max_bytes=100))
    (made,) = artifacts(scene.call("run", writes={"a.txt": b"a" * 60, "b.txt": b"b" * 60}))
    assert made["filename"] == "a.txt"
    assert scene.ask("resources/read", uri=made["artifact_uri"])["result"]["contents"][0]["text"] == "a" * 60
    held = Scene(FILES, limits=Limits(session_storage_max_bytes=100))
    handle = held.upload("in.txt", b"x" * 60)
    taking = held.client.request("50", "tools/call", json.dumps({"name": "take", "arguments": {"path": handle}}))
    held.disk.settle()
    heard = held.world.hear("tools/call")
    assert artifacts(held.call("make", "Saved to ./c.txt", writes={"c.txt": b"c" * 60})) == []
    held.world.answer(heard, '{"content":[]}')
    assert "result" in held.world.said(taking)
    assert held.begin("take", path=handle)[1], "it is still there"


def test_w05_room_that_was_never_used_is_given_back() -> None:
    """Held for a body that broke off, it can be used at once."""
    scene = Scene(FILES, limits=Limits(session_storage_max_bytes=100))
    for _ in range(10):
        channel = scene.world.engine.new_channel()
        scene.world.open(channel, UploadOpening(server="s", query=link(scene.client), size_bytes=90))
        assert scene.world.last(Receive).channel == channel
        scene.world.end(channel, GONE)
    assert scene.upload("a.txt", b"x" * 90)


def test_w26_a_manifest_larger_than_what_was_ordered_is_not_believed() -> None:
    """Whoever stored more than was allowed, none of it stays."""
    scene = Scene(FILES, limits=Limits(session_storage_max_bytes=100))
    channel = scene.world.engine.new_channel()
    scene.world.open(channel, UploadOpening(server="s", query=link(scene.client), size_bytes=90))
    order = scene.world.last(Receive)
    scene.disk.blobs[order.blobs[0]] = b"z" * 5000
    manifest = UploadManifest((StoredFile("a", 5000, "0" * 64),))
    scene.world.say(channel, msgspec.json.encode(manifest))
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
def test_w06_no_call_is_sent_twice_for_what_its_answer_says(kind: Kind, answer: dict[str, Any]) -> None:
    """Only a server that provably did not run it is asked again: with a status, not with words."""
    world = driver(ServerPlan(id="s", kind=kind, auto_files=AutoFiles(), session_retries=5))
    disk = Disk(world)
    client = connect(world, "http", "s", capabilities='{"tools":{}}')
    channel = client.request("7", "tools/call", '{"name":"pay","arguments":{}}')
    disk.settle()
    heard = world.hear("tools/call")
    dials = len(world.dials)
    world.reply(heard, json.dumps({"jsonrpc": "2.0", "id": heard.id, **answer}).encode())
    disk.settle()
    assert not world.hears("tools/call")
    assert len(world.dials) == dials, "and the server's session is not begun anew"
    said = world.said(channel)
    assert said["id"] == 7
    assert {name: said[name] for name in answer} == answer


def test_w07_the_limit_of_calls_at_once_holds_until_they_are_answered() -> None:
    """Not until their responses have begun: a stream that is open, with progress on it, is a call under way."""
    scene = Scene(FILES, limits=Limits(exchanges_per_session_max=1))
    first = scene.client.request("1", "tools/call", '{"name":"slow","_meta":{"progressToken":1}}')
    heard = scene.world.hear("tools/call")
    token = heard.frame["params"]["_meta"]["progressToken"]
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
    scene.world.say(heard.channel, json.dumps(progress).encode())
    assert len(scene.world.sent[first]) == 1, "its response has begun"
    for number in (2, 3):
        refused = scene.client.request(str(number), "tools/call", '{"name":"slow"}')
        assert "error" in scene.world.said(refused)
        assert not scene.world.hears("tools/call")
    scene.world.answer(heard, '{"content":[]}')
    scene.client.request("4", "tools/call", '{"name":"slow"}')
    assert scene.world.hears("tools/call")


def test_w07_a_call_whose_files_are_taken_in_is_still_under_way() -> None:
    scene = Scene(FILES, limits=Limits(exchanges_per_session_max=1))
    scene.client.request("1", "tools/call", '{"name":"make","arguments":{}}')
    heard = scene.world.hear("tools/call")
    scene.world.answer(heard, '{"content":[{"type":"text","text":"Saved to ./a.txt"}]}')
    assert "error" in scene.world.said(scene.client.request("2", "tools/call", '{"name":"make"}'))
    scene.disk.settle()
    scene.client.request("3", "tools/call", '{"name":"make"}')
    assert scene.world.hears("tools/call")


def test_w10_a_server_that_comes_late_is_not_one_without_rules() -> None:
    """A call that waits for its server to start is judged as all others are."""
    scene = Scene(FILES, limits=Limits(restart_backoff_s=5))
    scene.world.end(scene.world.dials[0].channel, Cause(End.BROKEN))
    channel, got = scene.begin("take", path="/etc/hostname")
    assert got == {}
    assert scene.said(channel)["isError"]
    for dial in scene.world.dials[1:]:
        if dial.channel not in scene.world.over:
            scene.world.open(dial.channel, Connected())
    assert not scene.world.hears("tools/call")


def test_w30_a_structured_result_of_an_adapted_tool_names_the_artifact() -> None:
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


def test_w31_whoever_knows_a_file_is_told_until_when() -> None:
    scene = Scene(AUTO, limits=Limits(artifact_ttl_s=100))
    (made,) = artifacts(scene.call("run", writes={"a.txt": b"x"}))
    told = datetime.fromisoformat(made["expires_at"]).timestamp()
    assert told == UNIX_AT_ZERO + scene.world.now + 100
    scene.world.wait(99)
    assert "result" in scene.ask("resources/read", uri=made["artifact_uri"])
    scene.world.wait(2)
    assert "error" in scene.ask("resources/read", uri=made["artifact_uri"])


def test_upload_is_for_the_server_it_was_made_for() -> None:
    """Two servers of one person do not see each other's files."""
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
    world.answer(world.hear("tools/list"), '{"tools":[]}')
    channel = stranger.request("7", "tools/call", json.dumps({"name": "run", "arguments": {"path": handle}}))
    disk.settle()
    assert world.said(channel)["result"]["isError"]
    assert not world.hears("tools/call")
