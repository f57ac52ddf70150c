"""The handshake as the oracle judges it, and requests with their responses: every member, every order."""

from __future__ import annotations

from typing import Any

import pytest
from isthmus.core.oracle import Oracle, Transport
from oracle_casing import breaks
from wire_scenes import CLIENT, SERVER, Wire

V1, V4, V5 = "2024-11-05", "2025-11-25", "2026-07-28"
INFO = {"name": "n", "version": "1"}


def judged(wire: Wire, **oracle: Any) -> list[str]:
    """The rules that are broken, for an oracle that knows more."""
    found = Oracle(None, wire.transport, **oracle)
    return [violation.rule for each in wire.seen for violation in found.receive(each)]


# --- What both sides say of themselves --------------------------------------------------------------------------------

BAD = [
    ("protocolVersion", ...),
    ("protocolVersion", 7),
    ("capabilities", ...),
    ("capabilities", []),
    ("capabilities", None),
    ("info", ...),
    ("info", "n"),
    ("info", {}),
    ("info", {"name": "n"}),
    ("info", {"version": "1"}),
    ("info", {"name": 7, "version": "1"}),
    ("info", {"name": "n", "version": 1}),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_each_side_says_what_it_speaks_what_it_can_and_what_it_is(name: str, value: Any) -> None:
    wire = Wire(V4)
    wire.hello(**{"clientInfo" if name == "info" else name: value})
    assert breaks(wire) == ["initialize-params"]
    wire = Wire(V4)
    wire.hello()
    before = len(wire.seen)
    wire.welcome(**{"serverInfo" if name == "info" else name: value})
    assert breaks(wire, before) == ["initialize-result"]


def test_what_each_side_says_is_named_where_it_is_missing() -> None:
    wire = Wire(V4)
    wire.hello(protocolVersion=..., capabilities=7, clientInfo={"name": "n"})
    oracle = Oracle(None, Transport.PIPE)
    (found,) = [violation for each in wire.seen for violation in oracle.receive(each)]
    assert found.text == "expected protocolVersion, capabilities, name and version in clientInfo"


@pytest.mark.parametrize(
    ("asked", "answered", "server", "rules"),
    [
        (V4, V4, None, []),
        (V4, V1, None, []),
        (V4, V1, [V1], []),
        (V4, V1, [V1, V4], ["version-answered"]),
        (V4, "2025-03-26", [V1], ["version-answered"]),
        ("2099-01-01", V4, [V4, V1], []),
        ("2099-01-01", "2099-01-01", [V4], []),
        (V4, V5, None, ["version-answered"]),
        (V4, V5, [V5], ["version-answered"]),
    ],
)
def test_a_server_answers_with_the_version_that_was_asked_for_if_it_has_it(
    asked: str, answered: str, server: list[str] | None, rules: list[str]
) -> None:
    """And with one that it has, if not; never with one that has no handshake."""
    wire = Wire(V4)
    wire.hello(protocolVersion=asked)
    wire.welcome(protocolVersion=answered)
    assert judged(wire, server_revisions=server) == rules


@pytest.mark.parametrize(
    ("negotiated", "client", "is_wrong"),
    [(V4, [V4], False), (V1, [V4], True), (V1, [V4, V1], False), (V1, None, False), ("2024-10-07", [V4], True)],
)
def test_a_client_goes_on_with_a_version_that_it_has(negotiated: str, client: list[str] | None, is_wrong: bool) -> None:
    """It is told so once, however much it says."""
    wire = Wire(V4)
    wire.hello()
    wire.welcome(protocolVersion=negotiated)
    wire.notify("notifications/initialized")
    for _ in range(2):
        wire.request("ping")
    assert judged(wire, client_revisions=client) == (["version-unsupported"] if is_wrong else [])


# --- In which order ---------------------------------------------------------------------------------------------------


def test_before_the_handshake_only_pings_are_said() -> None:
    """By the client; what its server asks then is early, too, and that is told once."""
    wire = Wire(V4)
    wire.request("ping")
    wire.request("tools/list")
    wire.notify("own/thing")
    assert breaks(wire) == ["initialize-first", "initialize-first"]
    wire = Wire(V4)
    wire.hello()
    before = len(wire.seen)
    wire.request("ping")
    wire.notify("own/thing")
    wire.request("tools/list")
    assert breaks(wire, before) == ["client-early"]


def test_a_client_says_that_it_is_ready_before_it_asks() -> None:
    """It is missed once; a ping is always well, and so is what is no request."""
    wire = Wire(V4)
    wire.greet(is_ready=False)
    before = len(wire.seen)
    wire.request("ping")
    wire.notify("own/thing")
    assert breaks(wire, before) == []
    wire.request("tools/list")
    wire.request("tools/list")
    assert breaks(wire, before) == ["initialized-missing"]


@pytest.mark.parametrize(
    ("method", "id", "is_early"),
    [("ping", 1, False), ("roots/list", 1, True), ("own/thing", 1, True), ("notifications/message", None, False)],
)
def test_a_server_asks_when_its_client_is_ready(method: str, id: Any, is_early: bool) -> None:
    """One that asks without having said so is ready as well."""
    params = {"level": "info", "data": ""}
    for says in ("nothing", "ready", "asks"):
        wire = Wire(V4)
        wire.greet(is_ready=says == "ready")
        if says == "asks":
            wire.reply(wire.request("tools/list"), tools=[])
        before = len(wire.seen)
        wire.tell(method, id=id, **params)
        assert ("server-early" in breaks(wire, before)) is (is_early and says == "nothing"), says


def test_a_handshake_is_made_once_unless_it_was_refused() -> None:
    wire = Wire(V4)
    wire.hello()
    wire.answer(0, error={"code": -32602, "message": ""})
    before = len(wire.seen)
    said = {"protocolVersion": V4, "capabilities": {}, "clientInfo": INFO}
    again = wire.request("initialize", 5, **said)
    assert breaks(wire, before) == []
    wire.reply(again, protocolVersion=V4, capabilities={}, serverInfo=INFO)
    before = len(wire.seen)
    wire.request("initialize", 6, **said)
    assert breaks(wire, before) == ["initialize-first"]


# --- Requests and responses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("revision", "is_reused"), [(V4, True), (V5, False)])
def test_an_id_is_used_once(revision: str, is_reused: bool) -> None:
    """In a session; without one, once at a time. Each side has its own, and 1 is not "1"."""
    wire = Wire(revision)
    wire.greet()
    wire.reply(wire.call(1))
    before = len(wire.seen)
    wire.call("1")
    wire.call(1)
    assert breaks(wire, before) == (["id-reused"] if is_reused else [])
    before = len(wire.seen)
    wire.call(1.0)
    assert breaks(wire, before) == ["id-reused"]
    if revision == V4:
        before = len(wire.seen)
        wire.tell("roots/list", id=1)
        assert breaks(wire, before) == []


@pytest.mark.parametrize("kind", ["result", "error"])
def test_a_response_answers_what_was_asked_and_once(kind: str) -> None:
    body: dict[str, Any] = {"result": {}} if kind == "result" else {"error": {"code": -32603, "message": ""}}
    wire = Wire(V4)
    wire.greet()
    id = wire.request("ping")
    before = len(wire.seen)
    wire.answer(id, **body)
    assert breaks(wire, before) == []
    wire.answer(id, **body)
    assert breaks(wire, before) == ["response-twice"]
    before = len(wire.seen)
    wire.say(SERVER, {"jsonrpc": "2.0", "id": 9999, **body})
    wire.say(CLIENT, {"jsonrpc": "2.0", "id": id, **body})
    assert breaks(wire, before) == ["response-unknown", "response-unknown"]


@pytest.mark.parametrize("sender", [CLIENT, SERVER])
def test_an_error_without_id_is_for_what_could_not_be_read(sender: Any) -> None:
    """As many as there were of these; of whichever side."""
    wire = Wire(V4)
    wire.greet()
    for _ in range(2):
        wire.raw(sender.other, b"{")
    before = len(wire.seen)
    error = {"jsonrpc": "2.0", "error": {"code": -32700, "message": ""}}
    for _ in range(3):
        wire.say(sender, error)
    assert breaks(wire, before) == ["error-without-id"]
    assert list(breaks(wire)) == ["not-json", "not-json", "error-without-id"]


def test_at_the_end_everything_was_answered_or_cancelled() -> None:
    """But for subscriptions, and for what was cancelled; of each side."""
    wire = Wire(V4)
    wire.greet()
    wire.call(1)
    wire.call(2)
    wire.notify("notifications/cancelled", requestId=2)
    wire.tell("roots/list", id="q")
    wire.reply(wire.call(3))
    oracle = Oracle(None, Transport.PIPE)
    assert [violation for each in wire.seen for violation in oracle.receive(each)] == []
    assert sorted((each.who.value, each.rule, each.text) for each in oracle.finish()) == [
        ("client", "unanswered", "roots/list 'q' was neither answered nor cancelled"),
        ("server", "unanswered", "tools/call 1 was neither answered nor cancelled"),
    ]
    wire = Wire(V5)
    wire.request("subscriptions/listen", notifications={})
    oracle = Oracle(None, Transport.PIPE)
    assert [violation for each in wire.seen for violation in oracle.receive(each)] + oracle.finish() == []
