"""Dialogues with clients that open a session for each call: their files outlive it, for their principal alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Server
from expected_values import Containing
from isthmus.core import Era, Kind, ServerPlan
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import ArtifactProducer, FileScope, LocatorMode, OutputLocator, UploadConsumer

CAN = {"tools": {}, "resources": {}}
FILES = ServerPlan(
    id="box",
    kind=Kind.PIPE,
    era=Era.HANDSHAKE,
    consumers=(UploadConsumer(tools=("eat",), file_path_argument="path"),),
    producers=(
        ArtifactProducer(
            tools=("make",), output_locator=OutputLocator(mode=LocatorMode.STRUCTURED, output_path_key="file")
        ),
    ),
)


class Callers:
    """Clients of one proxy, each of which has one session for one call, as LangChain makes them."""

    def __init__(self, **plan: Any) -> None:
        self.play = Dialogue(FILES, **plan)
        self.server: Server = self.play.server
        self._count = 0

    @contextmanager
    def session(self, who: str) -> Iterator[Client]:
        """A session of a principal; "" is an anonymous client."""
        self._count += 1
        client = self.play.client(f"{who}{self._count}", "http", principal=who)
        greeting = client.greets()
        self.server.starts(able=CAN)
        client.is_answered(greeting, ...)
        client.notifies("initialized")
        yield client
        client.leaves()
        self.server.is_closed()

    def calls(self, client: Client, name: str, **arguments: Any) -> Any:
        """The result of a call that is answered without the server."""
        call = client.asks("tools/call", {"name": name, "arguments": arguments})
        return client.play.expects(client, "is answered", ..., call).what["result"]

    def link(self, who: str) -> str:
        with self.session(who) as client:
            return str(self.calls(client, "box_get_upload_url")["structuredContent"]["upload_url"])

    def upload(self, who: str) -> str:
        """Uploads a file, each step in a session of its own or in none. Returns its handle."""
        link = self.link(who)
        sender = self.play.client(f"curl{self._count}", "http", principal=who)
        return sender.uploads(link, "a.txt")[0]

    def make(self, who: str) -> dict[str, Any]:
        """Lets the server write a file. Returns its artifact."""
        with self.session(who) as client:
            call = client.asks("tools/call", {"name": "make", "arguments": {}})
            made = self.server.is_asked("tools/call")
            self.server.answers(made, {"content": [], "structuredContent": {"file": "/out/b.txt"}})
            result = client.play.expects(client, "is answered", ..., call).what["result"]
            return dict(result["_meta"]["artifact"])

    def is_fed(self, who: str, handle: str) -> None:
        """A later session hands the file to the server."""
        with self.session(who) as client:
            call = client.asks("tools/call", {"name": "eat", "arguments": {"path": handle}})
            eaten = self.server.is_asked("tools/call", {"name": "eat", "arguments": {"path": Containing("/w/")}})
            self.server.answers(eaten, {"content": []})
            client.is_answered(call, ...)

    def is_refused(self, who: str, handle: str) -> str:
        """A later session may not use the file. Returns what it is told, without the handle."""
        with self.session(who) as client:
            result = self.calls(client, "eat", path=handle)
            assert result["isError"] is True
            return str(result["content"][0]["text"]).replace(handle, "…")


@pytest.mark.parametrize("who", ["ann", ""])
def test_each_step_has_a_session_of_its_own(who: str) -> None:
    """The link, the upload, the use, the artifact, and the use and the reading of that. The list shows none of it."""
    box = Callers()
    handle = box.upload(who)
    box.is_fed(who, handle)
    artifact = box.make(who)
    box.is_fed(who, artifact["artifact_uri"])
    with box.session(who) as client:
        read = client.asks("resources/read", {"uri": artifact["artifact_uri"]})
        assert client.play.expects(client, "is answered", ..., read).what["result"]["contents"][0]["text"] == "hello"
        listed = client.asks("resources/list")
        box.server.answers(box.server.is_asked("resources/list"), {"resources": []})
        shown = client.play.expects(client, "is answered", ..., listed).what["result"]["resources"]
        assert [entry["uri"] for entry in shown] == ["doc://upload_workflow.md"]


def test_another_principal_is_told_what_it_is_told_of_a_handle_that_never_was() -> None:
    box = Callers()
    handle, artifact = box.upload("ann"), box.make("ann")["artifact_uri"]
    for uri in (handle, artifact):
        parts = uri.split("/")
        never = "/".join([*parts[:4], "0" * 32, *parts[5:]])
        told = {box.is_refused(who, each) for who in ("bob", "") for each in (uri, never)}
        assert len(told) == 1
        assert "it has expired, or belongs to another client" in told.pop()
    box.is_fed("ann", handle)


def test_a_file_lives_as_long_as_it_says_and_no_longer() -> None:
    box = Callers(limits=Limits(artifact_ttl_s=500.0, upload_ttl_s=100.0))
    artifact, handle = box.make("ann"), box.upload("ann")
    box.play.waits(90)
    box.is_fed("ann", handle)
    box.play.waits(90)
    box.is_fed("ann", handle)
    box.play.waits(110)
    assert "it expired" in box.is_refused("ann", handle)
    box.is_fed("ann", artifact["artifact_uri"])
    box.play.waits(500 - 90 - 90 - 110 - 10)
    box.is_fed("ann", artifact["artifact_uri"])
    box.play.waits(11)
    assert "it expired" in box.is_refused("ann", artifact["artifact_uri"])


def test_a_setting_keeps_files_to_their_session() -> None:
    box = Callers(file_scope=FileScope.SESSION)
    sender = box.play.client("curl", "http", principal="ann")
    with pytest.raises(AssertionError, match="session_gone"):
        sender.uploads(box.link("ann"), "late.txt")
    box.play.unexpected.clear()
    artifact = box.make("ann")
    assert "it has expired, or belongs to another client" in box.is_refused("ann", artifact["artifact_uri"])
    with box.session("ann") as client:
        link = box.calls(client, "box_get_upload_url")["structuredContent"]["upload_url"]
        (handle,) = client.uploads(link, "a.txt")
    assert "it has expired, or belongs to another client" in box.is_refused("ann", handle)


@pytest.mark.parametrize(("who", "others"), [("ann", "bob"), ("ann", ""), ("", "bob")])
def test_at_the_bound_a_principals_own_oldest_file_gives_way(who: str, others: str) -> None:
    """Each file has 5 bytes. Two fit, of a principal; of all clients, four. The files of others stay."""
    box = Callers(limits=Limits(session_storage_max_bytes=10, storage_max_bytes=20))
    theirs = [box.upload(others) for _ in range(2)]
    mine = []
    for _ in range(3):
        box.play.waits(1)
        mine.append(box.upload(who))
    assert "it made room for newer files" in box.is_refused(who, mine[0])
    for handle in mine[1:]:
        box.is_fed(who, handle)
    for handle in theirs:
        box.is_fed(others, handle)


def test_a_stored_file_is_there_when_its_session_has_ended_by_itself() -> None:
    """The session has been idle for too long. A link that it was given is still good."""
    box = Callers(limits=Limits(session_idle_ttl_s=50.0, upload_ttl_s=1000.0, upload_link_ttl_s=120.0))
    client = box.play.client("ann0", "http", principal="ann")
    greeting = client.greets()
    box.server.starts(able=CAN)
    client.is_answered(greeting, ...)
    client.notifies("initialized")
    links = [box.calls(client, "box_get_upload_url")["structuredContent"]["upload_url"] for _ in range(2)]
    (handle,) = client.uploads(links[0], "a.txt")
    box.play.waits(60)
    box.server.is_closed()
    assert box.play.engine.session_count == 0
    sender = box.play.client("curl", "http", principal="ann")
    (late,) = sender.uploads(links[1], "b.txt")
    for each in (handle, late):
        box.is_fed("ann", each)
