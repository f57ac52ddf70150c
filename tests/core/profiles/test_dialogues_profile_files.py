"""Dialogues with a profile whose servers have files: files are of the session, whichever server they came by."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Request, Server
from expected_values import Containing
from isthmus.core import Era, Kind, Load, Profile, ProfileServer, ServerPlan
from isthmus.core.base.plan import ArtifactProducer, FileScope, LocatorMode, OutputLocator, UploadConsumer

ERAS = pytest.mark.parametrize("era", [Era.HANDSHAKE, Era.STATELESS], ids=["handshake", "stateless"])
CAN = {"tools": {}, "resources": {}}
CONSUMERS = (UploadConsumer(tools=("eat",), file_path_argument="path"),)
PRODUCERS = (
    ArtifactProducer(
        tools=("make",), output_locator=OutputLocator(mode=LocatorMode.STRUCTURED, output_path_key="file")
    ),
)
HELPER = "get_upload_url"


def meeting(era: Era, *names: str, **rest: Any) -> tuple[Dialogue, list[Client], Server, Server]:
    """Returns clients of a profile, and its two servers, of which each makes files and takes those of the others."""
    servers = [
        ServerPlan(id=id, kind=Kind.PIPE, era=Era.HANDSHAKE, consumers=CONSUMERS, producers=PRODUCERS)
        for id in ("alpha", "beta")
    ]
    play = Dialogue(*servers, profiles=(Profile("all", (ProfileServer("alpha"), ProfileServer("beta"))),), **rest)
    clients = [play.client(name, "http", server="all", era=era, principal=name.rstrip("2")) for name in names]
    for client in clients if era is Era.HANDSHAKE else ():
        greeting = client.greets()
        client.is_answered(greeting, ...)
        client.notifies("initialized")
    return play, clients, *play.servers


def calls(client: Client, name: str, **arguments: Any) -> Request:
    return client.asks("tools/call", {"name": name, "arguments": arguments})


def outcome(client: Client, request: Request) -> Any:
    return client.play.expects(client, "is answered", ..., request).what["result"]


def uploads(client: Client, server: Server, *, starts: bool = False) -> str:
    """Uploads a file with the link of a server's helper. Returns its handle."""
    link = calls(client, f"{server.name}__{server.name}_{HELPER}")
    if starts and client.era is Era.HANDSHAKE:
        server.starts(able=CAN)
    offer = outcome(client, link)["structuredContent"]
    assert offer["tool_name"] == f"{server.name}__{server.name}_{HELPER}"
    (handle,) = client.uploads(offer["upload_url"], "a.txt")
    return handle


def makes(client: Client, server: Server, *, starts: bool = False) -> str:
    """Lets a server make a file. Returns its URI."""
    call = calls(client, f"{server.name}__make")
    if starts:
        server.starts(able=CAN)
    made = server.is_asked("tools/call")
    server.answers(made, {"content": [], "structuredContent": {"file": "/out/b.txt"}})
    return str(outcome(client, call)["_meta"]["artifact"]["artifact_uri"])


def is_fed(client: Client, server: Server, handle: str, *, starts: bool = False) -> None:
    """The server gets the file at a path of its own."""
    call = calls(client, f"{server.name}__eat", path=handle)
    if starts:
        server.starts(able=CAN)
    eaten = server.is_asked("tools/call", {"name": "eat", "arguments": {"path": Containing("/w/")}})
    server.answers(eaten, {"content": []})
    client.is_answered(call, ...)


def is_refused(client: Client, server: Server, handle: str, *, starts: bool = False) -> str:
    """The file does not exist for the client. Returns what it is told."""
    call = calls(client, f"{server.name}__eat", path=handle)
    if starts:
        server.starts(able=CAN)
    found = outcome(client, call)
    assert found["isError"] is True
    return str(found["content"][0]["text"])


def lists(client: Client, *starts: Server, running: tuple[Server, ...] = ()) -> dict[str, Any]:
    """Lists resources. Returns the entries by URI."""
    listed = client.asks("resources/list")
    for server in starts:
        server.is_started()
    asked = [server.is_asked("resources/list") for server in running]
    for server, request in zip(running, asked, strict=True):
        server.answers(request, {"resources": []})
    for server in starts:
        server.connects()
        server.is_greeted(able=CAN)
        server.answers(server.is_asked("resources/list"), {"resources": []})
    return {entry["uri"]: entry for entry in outcome(client, listed)["resources"]}


@ERAS
@pytest.mark.parametrize("scope", FileScope)
def test_a_file_is_good_at_every_server_of_the_profile(era: Era, scope: FileScope) -> None:
    """Another principal does not know it. Another session does not either if files are of their session."""
    _, (alice, alice2, bob), alpha, beta = meeting(era, "alice", "alice2", "bob", file_scope=scope)
    handle = uploads(alice, alpha, starts=True)
    is_fed(alice, beta, handle, starts=True)
    artifact = makes(alice, alpha, starts=era is Era.STATELESS)
    is_fed(alice, beta, artifact)
    told = is_refused(bob, beta, handle, starts=era is Era.HANDSHAKE)
    assert "call beta__beta_put_file with its content, or beta__beta_get_upload_url" in told, told
    is_refused(bob, beta, artifact)
    if era is Era.HANDSHAKE and scope is FileScope.SESSION:
        is_refused(alice2, beta, handle, starts=True)
    elif era is Era.HANDSHAKE:
        is_fed(alice2, beta, handle, starts=True)


@ERAS
def test_an_artifact_is_read_by_its_own_principal_alone(era: Era) -> None:
    _, (alice, bob), alpha, _ = meeting(era, "alice", "bob")
    artifact = makes(alice, alpha, starts=True)
    read = alice.asks("resources/read", {"uri": artifact})
    assert outcome(alice, read)["contents"][0] == Containing({"uri": artifact, "text": "hello"}).part | {
        "mimeType": "text/plain",
        "_meta": {"size_bytes": 5},
    }
    read = bob.asks("resources/read", {"uri": artifact})
    bob.is_answered(read, error=-32002 if era is Era.HANDSHAKE else -32602)


@ERAS
def test_an_artifact_of_another_process_is_read_at_a_profile(era: Era) -> None:
    """The two processes share a storage. One that nobody has made is not found, in neither of them."""
    play, (alice,), alpha, _ = meeting(era, "alice", shares_storage=True)
    artifact = makes(alice, alpha, starts=True)
    other, (again, bob), there, _ = meeting(era, "alice", "bob", shares_storage=True, seed=2)
    other.records = play.records
    read = again.asks("resources/read", {"uri": artifact})
    if era is Era.HANDSHAKE:
        there.starts(able=CAN)
    assert outcome(again, read)["contents"][0]["text"] == "hello"
    missing = -32002 if era is Era.HANDSHAKE else -32602
    bob.is_answered(bob.asks("resources/read", {"uri": artifact}), error=missing)
    again.is_answered(
        again.asks("resources/read", {"uri": f"artifact://sessions/{'0' * 32}/{'1' * 32}/x"}), error=missing
    )
    other.late_for = (Load,)
    failed = again.asks("resources/read", {"uri": f"artifact://sessions/{'2' * 32}/{'1' * 32}/x"})
    other.waits(130.0)
    again.is_answered(failed, error=-32603)


@ERAS
def test_artifacts_are_listed_to_their_own_session_alone(era: Era) -> None:
    """The list of a server is kept for all sessions of a principal. No artifact is in it."""
    play, (alice, alice2), alpha, beta = meeting(era, "alice", "alice2")
    artifact = makes(alice, alpha, starts=True)
    assert artifact in lists(alice, beta, running=(alpha,))
    found = lists(alice2)
    assert "alpha+doc://upload_workflow.md" in found
    if era is Era.HANDSHAKE:
        assert artifact not in found
        second = makes(alice2, alpha, starts=True)
        assert {artifact, second} & set(lists(alice2)) == {second}
        assert {artifact, second} & set(lists(alice)) == {artifact}
    assert not [value for key, value in play.records.items() if key.startswith("list/") and b"artifact:" in value]


def test_the_upload_helper_goes_by_the_name_that_clients_have() -> None:
    _, (alice,), alpha, beta = meeting(Era.HANDSHAKE, "alice")
    listed = alice.asks("tools/list")
    for server in (alpha, beta):
        server.is_started()
    for server in (alpha, beta):
        server.connects()
        server.is_greeted(able=CAN)
        server.answers(server.is_asked("tools/list"), {"tools": [{"name": "eat", "inputSchema": {"type": "object"}}]})
    tools = {tool["name"]: tool for tool in outcome(alice, listed)["tools"]}
    assert (
        f"call alpha__alpha_put_file with its content, or alpha__alpha_{HELPER}" in tools["alpha__eat"]["description"]
    )
    guide = alice.asks("resources/read", {"uri": "beta+doc://upload_workflow.md"})
    assert f"Call `beta__beta_{HELPER}`" in outcome(alice, guide)["contents"][0]["text"]


def test_a_client_with_a_session_is_told_of_its_artifacts() -> None:
    play, (alice, alice2), alpha, beta = meeting(Era.HANDSHAKE, "alice", "alice2")
    stream, other = alice.listens(), alice2.listens()
    lists(alice, alpha, beta)
    artifact = makes(alice, alpha)
    play.waits(0.1)
    alice.is_notified("resources/list_changed", None, on=stream)
    subscribed = alice.asks("resources/subscribe", {"uri": artifact})
    alice.is_answered(subscribed, {})
    play.waits(3601)
    alice.is_notified("resources/updated", {"uri": artifact}, on=stream)
    alice.is_notified("resources/list_changed", None, on=stream)
    refused = alice.asks("resources/read", {"uri": artifact})
    alice.is_answered(refused, error={"code": -32002, "message": Containing("it expired")})
    assert alice2.seen[other.channel] == ["1-1"], "the event that begins each stream"


def test_a_client_without_sessions_is_told_of_its_artifacts() -> None:
    play, (alice,), alpha, _ = meeting(Era.STATELESS, "alice")
    artifact = makes(alice, alpha, starts=True)
    listen = alice.asks(
        "subscriptions/listen", {"notifications": {"resourcesListChanged": True, "resourceSubscriptions": [artifact]}}
    )
    alice.is_granted(listen, {"resourcesListChanged": True, "resourceSubscriptions": [artifact]})
    makes(alice, alpha)
    play.waits(0.1)
    alice.is_told(listen, "resources/list_changed")
    play.waits(3601)
    alice.is_told(listen, "resources/updated", {"uri": artifact})
    alice.is_told(listen, "resources/list_changed")


def test_uploads_end_with_the_session_if_files_are_of_it() -> None:
    play, (alice, alice2), alpha, _ = meeting(Era.HANDSHAKE, "alice", "alice2", file_scope=FileScope.SESSION)
    handle = uploads(alice, alpha, starts=True)
    link = outcome(alice, calls(alice, f"alpha__alpha_{HELPER}"))["structuredContent"]["upload_url"]
    alice.leaves()
    alpha.is_closed()
    assert not [key for key in play.records if key.startswith("upload/")] or handle
    found = is_refused(alice2, alpha, handle, starts=True)
    assert "Unknown upload handle" in found
    with pytest.raises(AssertionError, match="session_gone"):
        alice.uploads(link, "late.txt")
    play.unexpected.clear()
