"""The oracle's rules of the handshake, and of requests and their responses: every member, every order."""

from __future__ import annotations

from typing import Any

import pytest
from isthmus.core.oracle import Oracle, Transport
from oracle_case import breaks
from wire_scenes import CLIENT, SERVER, Wire

V1, V4, V5 = "2024-11-05", "2025-11-25", "2026-07-28"
INFO = {"name": "n", "version": "1"}


def judged(wire: Wire, **oracle: Any) -> list[str]:
    """The broken rules, for an oracle with these further arguments."""
    found = Oracle(None, wire.transport, **oracle)
    return [violation.rule for each in wire.seen for violation in found.receive(each)]


# --- The members of the handshake -------------------------------------------------------------------------------------

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
def test_each_side_names_its_version_its_capabilities_and_itself(name: str, value: Any) -> None:
    wire = Wire(V4)
    wire.initialize(**{"clientInfo" if name == "info" else name: value})
    assert breaks(wire) == ["initialize-params"]
    wire = Wire(V4)
    wire.initialize()
    before = len(wire.seen)
    wire.answer_initialize(**{"serverInfo" if name == "info" else name: value})
    assert breaks(wire, before) == ["initialize-result"]


def test_missing_members_of_the_handshake_are_named() -> None:
    wire = Wire(V4)
    wire.initialize(protocolVersion=..., capabilities=7, clientInfo={"name": "n"})
    oracle = Oracle(None, Transport.PIPE)
    (found,) = [violation for each in wire.seen for violation in oracle.receive(each)]
    assert found.text == "expected protocolVersion, capabilities, name and version in clientInfo"


@pytest.mark.parametrize(
    ("requested", "answered", "server", "rules"),
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
def test_a_server_answers_with_the_requested_version_if_it_has_it(
    requested: str, answered: str, server: list[str] | None, rules: list[str]
) -> None:
    """A server without the requested version answers with another of its own, which must have a handshake."""
    wire = Wire(V4)
    wire.initialize(protocolVersion=requested)
    wire.answer_initialize(protocolVersion=answered)
    assert judged(wire, server_revisions=server) == rules


@pytest.mark.parametrize(
    ("negotiated", "client", "is_wrong"),
    [(V4, [V4], False), (V1, [V4], True), (V1, [V4, V1], False), (V1, None, False), ("2024-10-07", [V4], True)],
)
def test_a_client_goes_on_with_a_version_that_it_has(negotiated: str, client: list[str] | None, is_wrong: bool) -> None:
    """The violation is reported once, however many messages follow."""
    wire = Wire(V4)
    wire.initialize()
    wire.answer_initialize(protocolVersion=negotiated)
    wire.notify("notifications/initialized")
    for _ in range(2):
        wire.request("ping")
    assert judged(wire, client_revisions=client) == (["version-unsupported"] if is_wrong else [])


# --- Order ------------------------------------------------------------------------------------------------------------


def test_only_pings_precede_the_handshake() -> None:
    """A server's request during the handshake is early, too, and is reported once."""
    wire = Wire(V4)
    wire.request("ping")
    wire.request("tools/list")
    wire.notify("own/thing")
    assert breaks(wire) == ["initialize-first", "initialize-first"]
    wire = Wire(V4)
    wire.initialize()
    before = len(wire.seen)
    wire.request("ping")
    wire.notify("own/thing")
    wire.request("tools/list")
    assert breaks(wire, before) == ["client-early"]


def test_a_client_is_initialized_before_its_requests() -> None:
    """The missing notification is reported once; pings and notifications are always allowed."""
    wire = Wire(V4)
    wire.handshake(is_ready=False)
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
def test_a_server_sends_requests_once_its_client_is_initialized(method: str, id: Any, is_early: bool) -> None:
    """A client that sends requests without `notifications/initialized` counts as initialized, too."""
    params = {"level": "info", "data": ""}
    for first in ("nothing", "ready", "request"):
        wire = Wire(V4)
        wire.handshake(is_ready=first == "ready")
        if first == "request":
            wire.reply(wire.request("tools/list"), tools=[])
        before = len(wire.seen)
        wire.tell(method, id=id, **params)
        assert ("server-early" in breaks(wire, before)) is (is_early and first == "nothing"), first


def test_a_handshake_is_made_once_unless_it_was_refused() -> None:
    wire = Wire(V4)
    wire.initialize()
    wire.answer(0, error={"code": -32602, "message": ""})
    before = len(wire.seen)
    params = {"protocolVersion": V4, "capabilities": {}, "clientInfo": INFO}
    again = wire.request("initialize", 5, **params)
    assert breaks(wire, before) == []
    wire.reply(again, protocolVersion=V4, capabilities={}, serverInfo=INFO)
    before = len(wire.seen)
    wire.request("initialize", 6, **params)
    assert breaks(wire, before) == ["initialize-first"]


# --- Requests and responses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("revision", "is_reused"), [(V4, True), (V5, False)])
def test_an_id_is_used_once(revision: str, is_reused: bool) -> None:
    """Ids are unique in a session, or among the open requests without one. Each side has its own, and 1 is not "1"."""
    wire = Wire(revision)
    wire.handshake()
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
def test_a_request_has_one_response(kind: str) -> None:
    body: dict[str, Any] = {"result": {}} if kind == "result" else {"error": {"code": -32603, "message": ""}}
    wire = Wire(V4)
    wire.handshake()
    id = wire.request("ping")
    before = len(wire.seen)
    wire.answer(id, **body)
    assert breaks(wire, before) == []
    wire.answer(id, **body)
    assert breaks(wire, before) == ["response-twice"]
    before = len(wire.seen)
    wire.send(SERVER, {"jsonrpc": "2.0", "id": 9999, **body})
    wire.send(CLIENT, {"jsonrpc": "2.0", "id": id, **body})
    assert breaks(wire, before) == ["response-unknown", "response-unknown"]


@pytest.mark.parametrize("sender", [CLIENT, SERVER])
def test_an_error_without_id_answers_an_unreadable_message(sender: Any) -> None:
    """Errors of either side may be as many as the unreadable messages."""
    wire = Wire(V4)
    wire.handshake()
    for _ in range(2):
        wire.raw(sender.other, b"{")
    before = len(wire.seen)
    error = {"jsonrpc": "2.0", "error": {"code": -32700, "message": ""}}
    for _ in range(3):
        wire.send(sender, error)
    assert breaks(wire, before) == ["error-without-id"]
    assert list(breaks(wire)) == ["not-json", "not-json", "error-without-id"]


def test_at_the_end_every_request_was_answered_or_cancelled() -> None:
    """Subscriptions and cancelled requests need no response; the rule holds for each side."""
    wire = Wire(V4)
    wire.handshake()
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
