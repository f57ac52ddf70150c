"""Dialogues about access rules: what callers with other groups and scopes see, and what they are told of a change."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client
from expected_values import Containing
from isthmus.core import Era, Kind, ServerPlan
from isthmus.core.base.plan import AccessRule, AccessRules

STAFF = AccessRule(groups=("staff",))
RULES = AccessRules(
    tools=(("deploy", STAFF), ("write", AccessRule(scopes=("write",)))), resources=(("secret:*", STAFF),)
)
LISTS = {"tools": {}, "prompts": {}, "resources": {}}
TOOLS, PROMPTS, RESOURCES = ({f"{kind}ListChanged": True} for kind in ("tools", "prompts", "resources"))
CHANGED = {kind: f"{kind}/list_changed" for kind in LISTS}
UPS = pytest.mark.parametrize("up", list(Era))
KINDS = pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])


def met(down: Era, up: Era = Era.HANDSHAKE, kind: Kind = Kind.PIPE, **shown: Any) -> tuple[Dialogue, Client]:
    play = Dialogue(ServerPlan(id="files", kind=kind, era=up, access=RULES))
    alice = play.client("alice", "http", era=down, principal="alice", **shown)
    alice.meets(play.server, able=LISTS)
    return play, alice


def sees_no_resources(play: Dialogue, client: Client) -> None:
    """A client lists the resources, of which the server has none."""
    asked = client.asks("resources/list")
    cached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
    received = play.server.is_asked("resources/list", ...)
    play.server.answers(received, {"resources": []} | (cached if play.server.era is Era.STATELESS else {}))
    client.is_answered(asked, ...)


def sees(play: Dialogue, client: Client, *names: str) -> None:
    """A client lists the tools, of which the server has three, and gets these."""
    asked = client.asks("tools/list")
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("deploy", "read", "write")]
    cached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
    received = play.server.is_asked("tools/list", ...)
    play.server.answers(received, {"tools": tools} | (cached if play.server.era is Era.STATELESS else {}))
    client.is_answered(asked, Containing({"tools": [Containing({"name": name}) for name in names]}))


@UPS
@KINDS
def test_a_session_is_told_once_that_its_lists_are_others_now(up: Era, kind: Kind) -> None:
    play, alice = met(Era.HANDSHAKE, up, kind)
    stream = alice.listens()
    sees(play, alice, "read", "write")
    sees_no_resources(play, alice)
    alice.shows("staff")
    call = alice.asks("prompts/get", {"name": "read"})
    alice.is_notified(CHANGED["tools"], on=stream)
    alice.is_notified(CHANGED["resources"], on=stream)
    received = play.server.is_asked("prompts/get", ...)
    play.finish()
    play.server.answers(received, {"messages": []} | ({"resultType": "complete"} if up is Era.STATELESS else {}))
    alice.is_answered(call, ...)
    sees(play, alice, "deploy", "read", "write")
    alice.shows("staff others")  # no rule names them
    sees(play, alice, "deploy", "read", "write")
    alice.shows("staff", "write")  # what needs a scope is listed without it
    sees(play, alice, "deploy", "read", "write")
    alice.shows()
    refused = alice.asks("tools/call", {"name": "deploy"})
    alice.is_notified(CHANGED["tools"], on=stream)
    alice.is_notified(CHANGED["resources"], on=stream)
    alice.is_answered(refused, error={"code": -32602, "message": "Unknown tool: deploy"})
    sees(play, alice, "read", "write")


@UPS
@KINDS
@pytest.mark.parametrize(
    ("wanted", "told"), [(TOOLS, ["tools"]), (PROMPTS, []), (TOOLS | PROMPTS | RESOURCES, ["tools", "resources"])]
)
def test_a_subscription_is_told_of_the_lists_that_it_asks_for(
    up: Era, kind: Kind, wanted: dict[str, Any], told: list[str]
) -> None:
    play, alice = met(Era.STATELESS, up, kind)
    listen = alice.asks("subscriptions/listen", {"notifications": wanted})
    granted = {name: True for name in wanted if name != "promptsListChanged"}
    if up is Era.STATELESS:
        if wanted is not PROMPTS:  # which is a subscription of the server alone
            play.waits(0.05)
        play.server.grants(play.server.is_asked("subscriptions/listen"), {})
    alice.is_granted(listen, granted)
    alice.shows("staff", issued_at_unix=20.0)
    for _ in range(2):
        refused = alice.asks("tools/call", {"name": "write"})
        for kind_of_list in told:
            alice.is_told(listen, CHANGED[kind_of_list])
        alice.is_answered(refused, error={"code": -31009})
        told = []


def test_an_older_token_of_the_same_caller_changes_nothing_for_its_subscriptions() -> None:
    """Two programs of one caller, one of which has not refreshed its token yet, do not notify each other for ever."""
    _play, alice = met(Era.STATELESS)
    alice.shows("staff", issued_at_unix=10.0)
    listen = alice.asks("subscriptions/listen", {"notifications": TOOLS})
    alice.is_granted(listen, TOOLS)
    for groups, issued_at_unix, is_told in [
        ("", 9.0, False),
        ("", 10.0, False),
        ("", 11.0, True),
        ("staff", 10.0, False),
        ("staff", 12.0, True),
    ]:
        alice.shows(groups, issued_at_unix=issued_at_unix)
        refused = alice.asks("tools/call", {"name": "write"})
        if is_told:
            alice.is_told(listen, CHANGED["tools"])
        alice.is_answered(refused, error={"code": -31009})


def test_another_caller_is_told_nothing() -> None:
    play, alice = met(Era.HANDSHAKE)
    stream = alice.listens()
    sees(play, alice, "read", "write")
    sees_no_resources(play, alice)
    bob = play.client("bob", "http", principal="bob")
    greeting = bob.greets()
    play.server.starts(able=LISTS)
    bob.is_answered(greeting, Containing({"capabilities": Containing({"tools": {"listChanged": True}, "prompts": {}})}))
    bob.notifies("initialized")
    bob.shows("staff")
    sees(play, bob, "deploy", "read", "write")
    alice.shows("staff")
    refused = alice.asks("tools/call", {"name": "write"})
    alice.is_notified(CHANGED["tools"], on=stream)
    alice.is_notified(CHANGED["resources"], on=stream)
    alice.is_answered(refused, error={"code": -31009})
