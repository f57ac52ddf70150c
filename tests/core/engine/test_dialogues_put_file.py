"""Dialogues about the upload tool that takes the content of a file in its arguments."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Request
from expected_values import Containing
from isthmus.core import AutoFiles, Era, Extend, Kind, Limits, Profile, ProfileServer, Save, ServerPlan
from isthmus.core.base.plan import UploadConsumer

ERAS = pytest.mark.parametrize("era", [Era.HANDSHAKE, Era.STATELESS], ids=["handshake", "stateless"])
CONSUMERS = (UploadConsumer(tools=("eat",), file_path_argument="path"),)
SMALL = Limits(upload_part_max_bytes=8, upload_size_max_bytes=20)


def meeting(era: Era = Era.HANDSHAKE, down: str = "http", **rest: Any) -> tuple[Dialogue, Client]:
    play = Dialogue(ServerPlan(id="box", kind=Kind.PIPE, era=Era.HANDSHAKE, consumers=CONSUMERS), **rest)
    return play, met(play, "alice", era, down)


def met(play: Dialogue, name: str, era: Era = Era.HANDSHAKE, down: str = "http") -> Client:
    client = play.client(name, down, era=era, principal=name)
    if era is Era.HANDSHAKE:
        client.meets(play.server, able={"tools": {}})
    return client


def puts(client: Client, tool: str = "box_put_file", **arguments: Any) -> Any:
    """Calls the tool. Returns its result."""
    return outcome(client, client.asks("tools/call", {"name": tool, "arguments": arguments}))


def outcome(client: Client, request: Request) -> Any:
    return client.play.expects(client, "is answered", ..., request).what["result"]


def problem(result: Any) -> str:
    assert result["isError"] is True
    return str(result["content"][0]["text"])


def uploaded(result: Any) -> Any:
    assert result["isError"] is False, result
    return result["structuredContent"]


def content_of(play: Dialogue, handle: str) -> bytes:
    (record,) = (value for key, value in play.records.items() if handle.rpartition("/")[2] in key)
    return next(data for blob, data in play.drafts.items() if blob.encode() in record)


@ERAS
def test_a_file_of_one_part_is_used_like_any_upload(era: Era) -> None:
    play, alice = meeting(era)
    result = puts(alice, filename="a b.txt", text="grüße")
    found = uploaded(result)
    data = "grüße".encode()
    file = {"upload_id": ..., "filename": "a b.txt", "mime_type": "text/plain", "size_bytes": 7}
    file["sha256"] = hashlib.sha256(data).hexdigest()
    assert found["upload_handle"].startswith("upload://sessions/")
    assert found["upload_handles"] == [found["upload_handle"]] and found["server_id"] == "box" and found["count"] == 1
    assert found["upload"] == {**file, "upload_id": found["upload_handle"].rpartition("/")[2]}
    assert content_of(play, found["upload_handle"]) == data
    call = alice.asks("tools/call", {"name": "eat", "arguments": {"path": found["upload_handle"]}})
    if era is Era.STATELESS:
        play.server.starts()
    eaten = play.server.is_asked("tools/call", {"name": "eat", "arguments": {"path": Containing("/a b.txt")}})
    play.server.answers(eaten, {"content": []})
    alice.is_answered(call, ...)


@ERAS
def test_a_file_of_many_parts(era: Era) -> None:
    play, alice = meeting(era, limits=SMALL)
    parts = [b"\0\1\2", b"four", b""]
    first = uploaded(puts(alice, filename="x.bin", base64=base64.b64encode(parts[0]).decode(), more=True))
    assert (first["size_bytes"], first["is_complete"]) == (3, False)
    second = uploaded(puts(alice, filename="x.bin", text="four", more=True, append_to=first["upload_id"]))
    assert second["size_bytes"] == 7 and second["upload_id"] in second["note"]
    whole = b"".join(parts)
    done = uploaded(puts(alice, append_to=second["upload_id"], sha256=hashlib.sha256(whole).hexdigest().upper()))
    assert done["upload"]["filename"] == "x.bin" and done["upload"]["size_bytes"] == 7
    assert content_of(play, done["upload_handle"]) == whole
    gone = problem(puts(alice, filename="x.bin", text="more", append_to=second["upload_id"]))
    assert "There is no upload" in gone and "without append_to" in gone


def test_a_part_that_comes_again_is_refused_and_told_where_to_go_on() -> None:
    _, alice = meeting(limits=SMALL)
    first = uploaded(puts(alice, filename="a", text="one", more=True))
    second = uploaded(puts(alice, filename="a", text="two", more=True, append_to=first["upload_id"]))
    again = problem(puts(alice, filename="a", text="two", more=True, append_to=first["upload_id"]))
    assert "has 6 bytes now" in again and second["upload_id"] in again
    assert uploaded(puts(alice, filename="a", text="!", append_to=second["upload_id"]))["upload"]["size_bytes"] == 7


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"filename": "a"}, "neither text nor base64"),
        ({"filename": "a", "text": "x", "base64": "eA=="}, "both text and base64"),
        ({"filename": "a", "base64": "no, base64!"}, "is no base64"),
        ({"filename": "a", "base64": "eA"}, "with padding"),
        ({"text": "x"}, "Argument filename: got none"),
        ({"filename": "", "text": "x"}, "Argument filename: got none"),
        ({"filename": 5, "text": "x"}, "Argument filename: got '5', expected a string"),
        ({"filename": "a", "text": "x", "more": "yes"}, "expected true or false"),
        ({"filename": "a", "text": "x", "sha256": "00"}, "64 hexadecimal digits"),
        ({"filename": "a", "text": "x" * 9}, "in several parts, all but the last with more: true, or call box_get"),
        ({"filename": "a", "text": "x", "append_to": "nothing"}, "There is no upload 'nothing' under way"),
        ({"filename": "a", "text": "x", "sha256": "0" * 64}, "was announced"),
    ],
)
def test_what_is_no_part_of_a_file_is_refused(arguments: Any, text: str) -> None:
    play, alice = meeting(limits=SMALL)
    assert text in problem(puts(alice, **arguments))
    assert not play.drafts and not [key for key in play.records if key.startswith("upload/")]


def test_the_whole_file_has_the_limit_of_an_upload() -> None:
    play, alice = meeting(limits=SMALL)
    token = {}
    for _ in range(2):
        found = uploaded(puts(alice, filename="a", text="12345678", more=True, **token))
        token = {"append_to": found["upload_id"]}
    refused = problem(puts(alice, filename="a", text="12345", **token))
    assert "would have 21 bytes, and a file may have at most 20" in refused
    assert not play.drafts, "what came is useless"
    assert "There is no upload" in problem(puts(alice, filename="a", text="1", **token))


def test_a_full_session_takes_no_more_and_keeps_the_draft() -> None:
    _, alice = meeting(limits=Limits(upload_part_max_bytes=8, session_storage_max_bytes=10, tombstone_ttl_s=60.0))
    first = uploaded(puts(alice, filename="a", text="12345678", more=True))
    assert "storage is full" in problem(puts(alice, filename="b", text="123"))
    assert "storage is full" in problem(puts(alice, filename="a", text="345", append_to=first["upload_id"]))
    assert uploaded(puts(alice, filename="a", text="90", append_to=first["upload_id"]))["upload"]["size_bytes"] == 10


def test_room_is_given_back() -> None:
    """A complete file gives way to the next one, as uploads do, and so does what came of a draft that has ended."""
    play, alice = meeting(Era.STATELESS, limits=Limits(session_storage_max_bytes=10))
    for _ in range(2):
        uploaded(puts(alice, filename="a", text="123456"))
        play.waits(1)
    draft = uploaded(puts(alice, filename="a", text="123456", more=True))
    assert "storage is full" in problem(puts(alice, filename="b", text="123456"))
    play.waits(3601)
    uploaded(puts(alice, filename="b", text="1234567890"))
    assert "There is no upload" in problem(puts(alice, append_to=draft["upload_id"]))


def test_a_session_has_the_uploads_that_it_may_have() -> None:
    _, alice = meeting(limits=Limits(uploads_per_session_max=2))
    draft = uploaded(puts(alice, filename="a", text="", more=True))
    uploaded(puts(alice, filename="b", text=""))
    assert "storage is full" in problem(puts(alice, filename="c", text=""))
    uploaded(puts(alice, filename="a", text="1", append_to=draft["upload_id"]))


def test_the_type_is_told_from_the_beginning_of_the_file() -> None:
    _, alice = meeting()
    png = b"\x89PNG\r\n\x1a\n"
    first, second = (base64.b64encode(part).decode() for part in (png[:3], png[3:]))
    draft = uploaded(puts(alice, filename="a", base64=first, more=True))
    assert uploaded(puts(alice, base64=second, append_to=draft["upload_id"]))["upload"]["mime_type"] == "image/png"


def test_a_draft_is_of_one_server() -> None:
    plans = [ServerPlan(id=id, kind=Kind.PIPE, era=Era.HANDSHAKE, consumers=CONSUMERS) for id in ("box", "bin")]
    play = Dialogue(*plans, profiles=(Profile("all", (ProfileServer("box"), ProfileServer("bin"))),))
    alice = play.client("alice", "http", server="all", era=Era.STATELESS, principal="alice")
    draft = uploaded(puts(alice, "box__box_put_file", filename="a", text="1", more=True))
    assert "There is no upload" in problem(puts(alice, "bin__bin_put_file", append_to=draft["upload_id"]))
    uploaded(puts(alice, "box__box_put_file", append_to=draft["upload_id"]))


@pytest.mark.parametrize("name", ["upload_drafts_per_session_max", "upload_drafts_max"])
def test_the_number_of_drafts_is_bounded(name: str) -> None:
    _, alice = meeting(limits=Limits(**{name: 1}))
    first = uploaded(puts(alice, filename="a", text="1", more=True))
    assert "Too many uploads are under way" in problem(puts(alice, filename="b", text="1"))
    uploaded(puts(alice, filename="a", append_to=first["upload_id"]))
    uploaded(puts(alice, filename="b", text="1"))


def test_an_owner_leaves_room_for_the_drafts_of_others() -> None:
    play, alice = meeting(limits=Limits(upload_drafts_max=4))
    bob = met(play, "bob")
    for _ in range(3):
        uploaded(puts(alice, filename="a", text="1", more=True))
    assert "Too many uploads are under way" in problem(puts(alice, filename="a", text="1"))
    uploaded(puts(bob, filename="a", text="1"))


@pytest.mark.parametrize(("pause", "pauses"), [(3601, 1), (3000, 29)], ids=["left alone", "too long"])
def test_a_draft_ends_in_time(pause: float, pauses: int) -> None:
    play, alice = meeting(Era.STATELESS)
    found = uploaded(puts(alice, filename="a", text="1", more=True))
    for index in range(pauses):
        play.waits(pause)
        result = puts(alice, filename="a", text="1", more=True, append_to=found["upload_id"])
        if result["isError"]:
            assert index == pauses - 1
            break
        found = uploaded(result)
    assert "has expired" in problem(result)
    assert not play.drafts


def test_a_draft_ends_with_its_session() -> None:
    play, alice = meeting()
    uploaded(puts(alice, filename="a", text="1", more=True))
    alice.leaves()
    play.server.is_closed()
    assert not play.drafts


@ERAS
def test_a_draft_is_of_its_own_client(era: Era) -> None:
    play, alice = meeting(era)
    bob = play.client("bob", "http", era=era, principal="bob")
    first = uploaded(puts(alice, filename="a", text="1", more=True))
    if era is Era.HANDSHAKE:
        bob.meets(play.server)
    assert "There is no upload" in problem(puts(bob, filename="a", text="2", append_to=first["upload_id"]))
    uploaded(puts(alice, filename="a", text="2", append_to=first["upload_id"]))


def test_hashes_can_be_required() -> None:
    _, alice = meeting(require_sha256=True)
    assert "requires the SHA-256" in problem(puts(alice, filename="a", text="1"))
    uploaded(puts(alice, filename="a", text="1", sha256=hashlib.sha256(b"1").hexdigest()))


def test_at_a_profile_the_tool_goes_by_the_name_that_clients_have() -> None:
    server = ServerPlan(id="box", kind=Kind.PIPE, era=Era.HANDSHAKE, consumers=CONSUMERS)
    play = Dialogue(server, profiles=(Profile("all", (ProfileServer("box"),)),))
    alice = play.client("alice", "http", server="all", principal="alice")
    alice.is_answered(alice.greets(), ...)
    alice.notifies("initialized")
    call = alice.asks("tools/call", {"name": "box__box_put_file", "arguments": {"filename": "a", "text": "x" * 9}})
    play.server.starts(able={"tools": {}})
    handle = uploaded(outcome(alice, call))["upload_handle"]
    refused = alice.asks("tools/call", {"name": "box__eat", "arguments": {"path": handle[:-32] + "0" * 32}})
    assert "call box__box_put_file with its content, or box__box_get_upload_url" in problem(outcome(alice, refused))


@pytest.mark.parametrize("base_url", ["", "http://here"])
def test_links_are_offered_only_where_something_listens(base_url: str) -> None:
    play = Dialogue(ServerPlan(id="box", kind=Kind.PIPE, era=Era.HANDSHAKE, auto_files=AutoFiles()))
    alice = play.client("alice", base_url=base_url)
    alice.meets(play.server, able={"tools": {}})
    listed = alice.asks("tools/list")
    tool = {"name": "read", "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}}
    play.server.answers(play.server.is_asked("tools/list"), {"tools": [tool, {"name": "box_put_file"}]})
    tools = {tool["name"]: tool for tool in outcome(alice, listed)["tools"]}
    links = {"box_get_upload_url"} if base_url else set()
    assert set(tools) == {"box_put_file", "read"} | links
    assert "inputSchema" in tools["box_put_file"], "the server's own tool of that name is hidden"
    for text in (tools["read"]["description"], tools["box_put_file"]["description"]):
        assert ("box_get_upload_url" in text) is bool(links)
    assert "box_put_file" in tools["read"]["description"]
    refused = problem(puts(alice, "box_get_upload_url")) if not base_url else ""
    assert ("call box_put_file" in refused) is not bool(base_url)


def begins(client: Client, **arguments: Any) -> Request:
    return client.asks("tools/call", {"name": "box_put_file", "arguments": {"filename": "a", "text": "1", **arguments}})


def test_a_cancelled_first_part_leaves_nothing() -> None:
    """The client cannot go on with it, since it does not know the token."""
    play, alice = meeting(down="pipe")
    play.late_for = (Extend,)
    alice.cancels(begins(alice, more=True))
    play.catches_up()
    assert not play.drafts


def test_another_part_stays_though_its_call_was_cancelled() -> None:
    play, alice = meeting(down="pipe")
    first = uploaded(puts(alice, filename="a", text="1", more=True))
    play.late_for = (Extend,)
    alice.cancels(begins(alice, more=True, append_to=first["upload_id"]))
    busy = problem(puts(alice, filename="a", text="1", append_to=first["upload_id"]))
    assert "still being stored" in busy
    play.catches_up()
    token = problem(puts(alice, filename="a", append_to=first["upload_id"])).split("'")[1]
    assert uploaded(puts(alice, append_to=token))["upload"]["size_bytes"] == 2


@pytest.mark.parametrize("more", [True, False])
def test_a_session_that_ends_while_a_part_is_stored_leaves_nothing(more: bool) -> None:
    play, alice = meeting()
    play.late_for = (Extend,)
    begins(alice, more=more)
    alice.leaves()
    play.server.is_closed()
    play.unexpected.clear()  # the call is answered
    play.catches_up()
    assert not play.drafts and not [key for key in play.records if key.startswith("upload/")]


def test_a_session_that_ends_while_the_record_is_saved_leaves_nothing() -> None:
    play, alice = meeting()
    play.late_for = (Save,)
    begins(alice)
    alice.leaves()
    play.server.is_closed()
    play.unexpected.clear()
    play.catches_up()
    assert not play.drafts and not [key for key in play.records if key.startswith("upload/")]


def test_a_storage_that_does_not_answer_ends_the_draft() -> None:
    play, alice = meeting()
    play.late_for = (Extend,)
    call = begins(alice, more=True)
    play.waits(Limits().storage_timeout_s + 1)
    told = problem(outcome(alice, call))
    assert "did not answer" in told and "send it again" in told
    play.catches_up()
    assert not play.drafts, "what is stored after all is removed"


def test_no_draft_outlives_the_proxy() -> None:
    play, alice = meeting(Era.STATELESS)
    uploaded(puts(alice, filename="a", text="1", more=True))
    play.stops()
    play.unexpected.clear()
    assert not play.drafts
