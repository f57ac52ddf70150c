"""Dialogues of clients with sessions about changes of lists that the proxy makes or finds: none is told before the
client has the list."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Request, Server
from isthmus.core import Era, Kind, Profile, ProfileServer, ServerPlan
from isthmus.core.base.plan import AccessRule, AccessRules, ArtifactProducer, LocatorMode, OutputLocator

ABLE = {"tools": {"listChanged": True}, "resources": {}}
PRODUCERS = (
    ArtifactProducer(
        tools=("make",), output_locator=OutputLocator(mode=LocatorMode.STRUCTURED, output_path_key="file")
    ),
)
RULES = AccessRules(tools=(("deploy", AccessRule(groups=("staff",))),))
DOWNS = pytest.mark.parametrize("down", ["pipe", "http"])
RESOURCES, TOOLS, TEMPLATES = "resources/list", "tools/list", "resources/templates/list"


def meeting(down: str, **plan: Any) -> tuple[Dialogue, Server, Client, Any]:
    """Returns a server, a client that can be told of changes at once, and where it is told of them."""
    play = Dialogue(ServerPlan(id="files", kind=Kind.PIPE, **plan))
    (alice := play.client("alice", down, principal="alice")).meets(play.server, able=ABLE)
    return play, play.server, alice, alice.listens() if down == "http" else None


def makes(alice: Client, files: Server) -> None:
    """Lets a tool make a file."""
    call = alice.asks("tools/call", {"name": "make"})
    files.answers(files.is_asked("tools/call"), {"content": [], "structuredContent": {"file": "/out/b.txt"}})
    alice.is_answered(call, ...)
    alice.play.waits(0.0)


def lists(alice: Client, files: Server, method: str) -> None:
    """Reads a list, of which the server has nothing."""
    request = alice.asks(method)
    answers(files, files.is_asked(method, ...))
    alice.is_answered(request, ...)


def answers(files: Server, asked: Request) -> None:
    array = {TOOLS: "tools", RESOURCES: "resources", TEMPLATES: "resourceTemplates"}[asked.method]
    files.answers(asked, {array: []})


@DOWNS
@pytest.mark.parametrize("listing", [RESOURCES, TEMPLATES])
def test_an_artifact_is_told_to_a_client_that_has_a_list_of_resources(down: str, listing: str) -> None:
    """The first list has the artifact in it: there is nothing to tell."""
    _, files, alice, stream = meeting(down, producers=PRODUCERS)
    makes(alice, files)
    lists(alice, files, TOOLS)
    makes(alice, files)
    lists(alice, files, listing)
    makes(alice, files)
    alice.is_notified("resources/list_changed", None, on=stream)


@DOWNS
def test_a_change_while_the_first_list_is_read_is_told_after_it_and_once(down: str) -> None:
    _, files, alice, stream = meeting(down, producers=PRODUCERS)
    request = alice.asks(RESOURCES)
    asked = files.is_asked(RESOURCES)
    makes(alice, files)
    makes(alice, files)
    answers(files, asked)
    alice.is_answered(request, ...)
    alice.is_notified("resources/list_changed", None, on=stream)
    lists(alice, files, RESOURCES)


@DOWNS
def test_a_list_that_is_refused_counts_as_read(down: str) -> None:
    """The client waits for it no more, and may ask for it again."""
    _, files, alice, stream = meeting(down, producers=PRODUCERS)
    request = alice.asks(TEMPLATES)
    files.answers(files.is_asked(TEMPLATES), error=-32603)
    alice.is_answered(request, error=-32603)
    makes(alice, files)
    alice.is_notified("resources/list_changed", None, on=stream)


@DOWNS
def test_a_list_that_is_cancelled_does_not_count(down: str) -> None:
    _, files, alice, stream = meeting(down, producers=PRODUCERS)
    request = alice.asks(RESOURCES)
    asked = files.is_asked(RESOURCES)
    alice.cancels(request)
    files.is_cancelled(asked)
    if down == "http":
        alice.is_closed(request)
    makes(alice, files)
    lists(alice, files, RESOURCES)
    makes(alice, files)
    alice.is_notified("resources/list_changed", None, on=stream)


def test_other_grants_are_told_to_a_client_that_has_the_list() -> None:
    _, files, alice, stream = meeting("http", access=RULES)
    for groups in ("staff", ""):
        alice.shows(groups)
        request = alice.asks("prompts/get", {"name": "p"})
        files.answers(files.is_asked("prompts/get", ...), {"messages": []})
        alice.is_answered(request, ...)
    lists(alice, files, TOOLS)
    alice.shows("staff")
    request = alice.asks("prompts/get", {"name": "p"})
    alice.is_notified("tools/list_changed", None, on=stream)
    files.answers(files.is_asked("prompts/get", ...), {"messages": []})
    alice.is_answered(request, ...)


@DOWNS
@pytest.mark.parametrize("is_restless", [False, True])
def test_a_profile_tells_of_changes_of_its_servers_after_the_first_list(down: str, is_restless: bool) -> None:
    """A server often tells of a change while it starts, when the client waits for its first list. The list is read once
    more for it."""
    play = Dialogue(
        ServerPlan(id="alpha", kind=Kind.PIPE, era=Era.HANDSHAKE), profiles=(Profile("all", (ProfileServer("alpha"),)),)
    )
    (alpha,), alice = play.servers, play.client("alice", down, server="all")
    alice.is_answered(alice.greets(), ...)
    alice.notifies("initialized")
    stream = alice.listens() if down == "http" else None
    call = alice.asks("tools/call", {"name": "alpha__t"})
    alpha.starts(able=ABLE)
    asked = alpha.is_asked("tools/call")
    alpha.notifies("tools/list_changed")
    alpha.answers(asked, {"content": []})
    alice.is_answered(call, ...)
    request = alice.asks(TOOLS)
    asked = alpha.is_asked(TOOLS)
    alpha.notifies("tools/list_changed")
    answers(alpha, asked)
    asked = alpha.is_asked(TOOLS)  # what it has answered may be older
    if is_restless:
        alpha.notifies("tools/list_changed")
    answers(alpha, asked)
    alice.is_answered(request, ...)
    if is_restless:
        alice.is_notified("tools/list_changed", None, on=stream)


@DOWNS
def test_a_notification_of_the_server_itself_passes(down: str) -> None:
    """A relay does not judge when a server may tell its client of a change."""
    _, files, alice, stream = meeting(down, producers=PRODUCERS)
    for method in ("tools/list_changed", "resources/list_changed"):
        files.notifies(method)
        alice.is_notified(method, None, on=stream)
