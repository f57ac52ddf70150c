"""Tests of two processes that share a storage: each serves the files that the other has stored."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from driving import connect, send_in
from file_scenes import Scene, artifacts, texts
from inside import Inside
from isthmus.core.base.events import DownloadOpening
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import (
    ArtifactProducer,
    FileScope,
    Kind,
    LocatorMode,
    OutputLocator,
    ServerPlan,
    UploadConsumer,
)
from isthmus.core.base.storage import Discard, Fetch, Forget, Load, Loaded, Materialize, Save, Serve, StorageFailed
from isthmus.core.files import foreign_files
from isthmus.core.files.foreign_files import FOREIGN_FILES_MAX
from isthmus.core.files.store.shared import LOOK_AGAIN_S

PLAN = ServerPlan(
    id="s",
    kind=Kind.PIPE,
    consumers=(UploadConsumer(tools=("eat",), file_path_argument="file"),),
    producers=(ArtifactProducer(tools=("make",), output_locator=OutputLocator(mode=(LocatorMode.CHANGED,))),),
)
UNKNOWN = f"upload://sessions/{'0' * 32}/{'1' * 32}"


def pair(**more: Any) -> tuple[Scene, Scene]:
    """Returns two processes with one storage, with a client of one principal each."""
    one = Scene(PLAN, shares_storage=True, **more)
    two = Scene(PLAN, shares_storage=True, seed=2, **more)
    two.disk.records, two.disk.blobs = one.disk.records, one.disk.blobs
    return one, two


def made(scene: Scene) -> dict[str, Any]:
    (artifact,) = artifacts(scene.call("make", "done", writes={"a b.txt": b"hello"}))
    return artifact


def test_a_tool_takes_a_file_that_was_uploaded_to_another_process() -> None:
    """The second process looks for it once, and has it from then on as it has its own."""
    one, two = pair()
    handle = one.upload("a.txt", b"hello")
    for _ in range(2):
        channel, got = two.begin("eat", file=handle)
        assert two.disk.files[got["file"]].data == b"hello"
        two.end(channel, "eaten")
    assert len(two.world.every(Load)) == 1
    assert not one.world.every(Load), "what is known is not looked for"
    assert len(two.world.engine.files()) == 1


def test_a_file_is_of_its_principal_in_every_process() -> None:
    """A handle of another principal is refused as one that does not exist."""
    one, two = pair()
    handle = one.upload("a.txt", b"hello")
    eve = connect(two.world, "http", "s", principal="eve")
    for named in (handle, UNKNOWN):
        channel = eve.request("7", "tools/call", json.dumps({"name": "eat", "arguments": {"file": named}}))
        two.disk.settle()
        text = texts(two.world.only_message(channel)["result"])
        assert text.startswith(f"Unknown upload handle {named}: it has expired, or belongs to another client")
    assert not two.world.every(Materialize)


def test_an_artifact_of_another_process_is_read_and_taken_as_an_argument() -> None:
    one, two = pair()
    artifact = made(one)
    uri = artifact["artifact_uri"]
    assert two.ask("resources/read", uri=uri)["result"]["contents"][0]["text"] == "hello"
    _, got = two.begin("eat", file=uri)
    assert two.disk.files[got["file"]].data == b"hello"


def test_a_handle_is_seen_however_its_slashes_are_written() -> None:
    one, two = pair()
    handle = one.upload("a.txt", b"hello").replace("/", "\\/")
    two.client.request("7", "tools/call", f'{{"name":"eat","arguments":{{"file":"{handle}"}}}}')
    two.disk.settle()
    assert two.world.take_sent("tools/call").frame["params"]["arguments"]["file"].endswith("a.txt")


def test_a_link_to_a_file_of_another_process_serves_it() -> None:
    one, two = pair()
    url = urlsplit(made(one)["download_url"])
    _, _, server, sid, id, _ = url.path.split("/")
    for _ in range(2):
        send_in(two.world, DownloadOpening(server, sid, id, "a b.txt", dict(parse_qsl(url.query))))
        two.disk.settle()
    assert [order.blob for order in two.world.every(Serve)] == list(one.disk.blobs) * 2
    assert len(two.world.every(Load)) == 2, "it may be an upload or an artifact, and is known then"


def test_a_link_is_told_that_the_storage_is_away() -> None:
    one, two = pair()
    url = urlsplit(made(one)["download_url"])
    _, _, server, sid, id, _ = url.path.split("/")
    channel = send_in(two.world, DownloadOpening(server, sid, id, "a b.txt", dict(parse_qsl(url.query))))
    for load in two.world.every(Load):
        two.world.store(load.ticket, StorageFailed("no answer"))
    (sent,) = two.world.sent[channel]
    assert (sent.status, json.loads(sent.message)["detail"]) == (503, "no answer")


# --- While the records are loaded -------------------------------------------------------------------------------------


def asking(two: Scene, *handles: str) -> tuple[Any, list[Load]]:
    """A call that names files, whose records are not loaded yet. Returns its channel, and the orders."""
    arguments = {"file": list(handles)} if len(handles) > 1 else {"file": handles[0]}
    channel = two.client.request("7", "tools/call", json.dumps({"name": "eat", "arguments": arguments}))
    assert not two.world.was_sent("tools/call")
    return channel, two.world.every(Load)


def test_a_call_whose_files_cannot_be_looked_up_is_refused_and_may_be_tried_again() -> None:
    one, two = pair()
    handle = one.upload("a.txt", b"hello")
    channel, (load,) = asking(two, handle)
    two.world.store(load.ticket, StorageFailed("no answer"))
    error = two.world.only_message(channel)["error"]
    text = "the files that this request names could not be looked up: no answer: try again"
    assert (error["code"], error["message"]) == (-32603, text)
    _, got = two.begin("eat", file=handle)
    assert two.disk.files[got["file"]].data == b"hello"


def test_a_call_that_was_cancelled_meanwhile_is_not_sent() -> None:
    one, two = pair()
    handle = one.upload("a.txt", b"hello")
    _, (load,) = asking(two, handle)
    two.client.notify("notifications/cancelled", '{"requestId":7}')
    assert two.world.store(load.ticket, Loaded(one.disk.records[load.key])) == []
    assert not two.world.was_sent("tools/call")


def test_a_session_that_ended_meanwhile_gets_nothing() -> None:
    one, two = pair()
    handle = one.upload("a.txt", b"hello")
    _, (load,) = asking(two, handle)
    two.client.delete()
    assert two.world.store(load.ticket, Loaded(one.disk.records[load.key])) == []


def test_so_many_files_are_looked_for_in_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_files, "FOREIGN_FILES_MAX", 3)
    assert FOREIGN_FILES_MAX > 3
    _, two = pair()
    handles = [f"upload://sessions/{'0' * 32}/{n:032x}" for n in range(5)]
    _, loads = asking(two, handles[0], handles[0], *handles)
    assert [load.key for load in loads] == [f"upload/{'0' * 32}/{n:032x}" for n in range(3)], "each once"


@pytest.mark.parametrize("value", [None, b"{}", b"[", b'{"blob":"\xff"}'])
def test_a_record_that_is_gone_or_of_another_release_is_no_file(value: bytes | None) -> None:
    _, two = pair()
    channel, (load,) = asking(two, UNKNOWN)
    two.world.store(load.ticket, Loaded(value))
    assert texts(two.world.only_message(channel)["result"]).startswith(f"Unknown upload handle {UNKNOWN}")


def test_a_record_under_the_key_of_another_is_no_file() -> None:
    one, two = pair()
    handle = one.upload("a.txt", b"hello")
    channel, (load,) = asking(two, UNKNOWN)
    two.world.store(load.ticket, Loaded(one.disk.records["upload/" + handle.removeprefix("upload://sessions/")]))
    assert texts(two.world.only_message(channel)["result"]).startswith(f"Unknown upload handle {UNKNOWN}")
    assert two.world.engine.files() == ()


def test_without_a_shared_storage_nothing_is_looked_for() -> None:
    alone = Scene(PLAN)
    alone.begin("eat", file=UNKNOWN)
    assert not alone.world.every(Load)


# --- The age of an upload ---------------------------------------------------------------------------------------------

SHORT = Limits(upload_ttl_s=100.0)


def test_an_upload_lives_as_long_as_any_process_uses_it() -> None:
    one, two = pair(limits=SHORT)
    handle = one.upload("a.txt", b"hello")
    for scene in (one, two):
        scene.world.wait(80.0)
    channel, got = two.begin("eat", file=handle)
    assert got
    two.end(channel, "eaten")
    one.world.wait(25.0)
    one.disk.settle()
    assert one.world.every(Load), "it has expired here, and was looked up"
    assert not one.world.every(Discard)
    assert one.begin("eat", file=handle)[1], "it is good for as long as the other process has extended it"


def test_an_upload_that_nobody_uses_goes() -> None:
    one, two = pair(limits=SHORT)
    handle = one.upload("a.txt", b"hello")
    channel, _ = two.begin("eat", file=handle)
    two.end(channel, "eaten")
    for scene in (one, two):
        scene.world.wait(110.0)
        scene.disk.settle()
        scene.world.wait(110.0)
        scene.disk.settle()
        assert scene.world.engine.files() == ()
    assert not one.disk.records and not one.disk.blobs
    assert one.world.every(Forget) and one.world.every(Discard)


def test_an_expired_upload_is_kept_while_the_storage_is_away() -> None:
    one, _ = pair(limits=SHORT)
    one.upload("a.txt", b"hello")
    one.world.wait(100.0)
    (load,) = one.world.every(Load)
    one.world.wait(1.0)
    assert len(one.world.every(Load)) == 1, "it is looked up once at a time"
    one.world.store(load.ticket, StorageFailed("no answer"))
    assert not one.world.every(Discard)
    one.world.wait(LOOK_AGAIN_S)
    one.world.store(one.world.last(Load).ticket, Loaded(None))
    assert one.world.every(Discard)


def test_the_record_never_says_less_than_the_lifetime() -> None:
    """Others go by it. So each use that would leave it behind saves it, for somewhat longer."""
    one, _ = pair(limits=SHORT)
    handle = one.upload("a.txt", b"hello")
    for wait_s in (10.0, 10.0, 30.0):
        one.world.wait(wait_s)
        channel, _ = one.begin("eat", file=handle)
        one.end(channel, "eaten")
        (value,) = one.disk.records.values()
        until = json.loads(value)["expires_at_unix"] - Inside(one.world.engine).context.unix_at_zero
        assert one.world.now + 100.0 <= until <= one.world.now + 125.0
    assert len(one.world.every(Save)) == 3, "one for the upload, and not one for each use"


# --- Files of their session -------------------------------------------------------------------------------------------


def test_where_files_are_of_their_session_only_links_lead_to_them_elsewhere() -> None:
    one, two = pair(file_scope=FileScope.SESSION)
    handle, artifact = one.upload("a.txt", b"hello"), made(one)
    channel, got = two.begin("eat", file=handle)
    assert got == {}
    assert texts(two.only_message(channel)).startswith("Unknown upload handle")
    assert "error" in two.ask("resources/read", uri=artifact["artifact_uri"])
    assert not two.world.every(Fetch)
    url = urlsplit(artifact["download_url"])
    _, _, server, sid, id, _ = url.path.split("/")
    send_in(two.world, DownloadOpening(server, sid, id, "a b.txt", dict(parse_qsl(url.query))))
    two.disk.settle()
    assert len(two.world.every(Serve)) == 1


def tell(scene: Scene, records: dict[str, bytes | None]) -> None:
    """Reports records of another process."""
    scene.world._note(scene.world.engine.receive_records(records.items(), scene.world.now))


def test_a_subscriber_learns_that_another_process_has_removed_an_artifact() -> None:
    one, two = pair()
    artifact = made(one)
    uri = artifact["artifact_uri"]
    (key,) = [key for key in one.disk.records if key.startswith("artifact/")]
    tell(two, {key: one.disk.records[key], "other/x": b"{}", "artifact/x": b"{}", "upload/x/y": None})
    assert [file.id for file in two.world.engine.files()] == [key.rpartition("/")[2]]
    stream = two.client.listen()
    assert two.ask("resources/subscribe", uri=uri)["result"] == {}
    tell(two, {key: None})
    two.world.wait(0.1)
    assert [frame["params"] for frame in two.world.frames(stream) if frame["method"].endswith("/updated")] == [
        {"uri": uri}
    ]
    assert not two.world.engine.files()
    assert not two.world.every(Forget)
    assert not two.world.every(Discard)
    assert not two.world.every(Load)


def test_a_file_that_a_call_uses_is_kept_until_the_call_ends() -> None:
    one, two = pair()
    handle = one.upload("a.txt", b"hello")
    (key,) = [key for key in one.disk.records if key.startswith("upload/")]
    channel, _ = two.begin("eat", file=handle)
    tell(two, {key: None})
    assert two.world.engine.files()
    two.end(channel, "eaten")
    tell(two, {key: None})
    assert not two.world.engine.files()
