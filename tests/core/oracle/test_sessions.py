"""The oracle's rules of HTTP heads and streams, row by row: the statuses of errors, and the ends of sessions."""

from __future__ import annotations

from typing import Any

import pytest
from each_row import each_row
from isthmus.core.oracle import Transport, Verb
from oracle_case import acknowledge, breaks, detailed
from wire_scenes import CLIENT, EVENTS, JSON, SERVER, K, Wire

V4, V5 = "2025-11-25", "2026-07-28"

# --- Statuses of errors -----------------------------------------------------------------------------------------------

STATUS = {-32601: 404, -32020: 400, -32021: 400, -32022: 400}


@each_row("status", [200, 400, 404, 500])
@each_row("code", [*STATUS, -32602, -32603, -32700, -32000])
def test_an_error_comes_with_its_status(code: int, status: int) -> None:
    """Unknown methods have 404, errors of the head or the version 400, and others no status of their own. Source:
    2026-07-28."""
    wire = Wire(V5, Transport.HTTP)
    id = wire.call()
    before = len(wire.seen)
    channel = wire.channels[id]
    wire.head(channel, status, JSON)
    wire.send(SERVER, {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": ""}}, channel)
    found = [rule for rule in breaks(wire, before) if rule == "error-status"]
    assert found == (["error-status"] if STATUS.get(code, status) != status else [])


@pytest.mark.parametrize("is_acknowledged", [False, True])
def test_the_stream_of_a_subscription_may_end_without_a_response_once_it_is_acknowledged(is_acknowledged: bool) -> None:
    """Source: 2026-07-28 schema, SubscriptionsListenResult."""
    wire = Wire(V5, Transport.HTTP)
    id = wire.request("subscriptions/listen", notifications={"toolsListChanged": True})
    wire.begin(id)
    before = len(wire.seen)
    if is_acknowledged:
        acknowledge(wire, id, {"toolsListChanged": True})
    wire.end(wire.channels[id], SERVER)
    assert breaks(wire, before) == ([] if is_acknowledged else ["stream-ended-early"])


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities", None])
@pytest.mark.parametrize("status", [200, 400])
def test_invalid_params_have_a_status_if_the_envelope_is_missing(status: int, missing: str | None) -> None:
    wire = Wire(V5, Transport.HTTP)
    meta = {name: value for name, value in wire.meta().items() if name != K + str(missing)}
    id = wire.call(meta=meta)
    before = len(wire.seen)
    channel = wire.channels[id]
    wire.head(channel, status, JSON)
    wire.send(SERVER, {"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": ""}}, channel)
    assert ("error-status" in breaks(wire, before)) is (status == 200 and missing is not None)


def test_an_error_on_an_event_stream_has_the_status_of_the_stream() -> None:
    """An error after another message has no status of its own, nor has one whose head was not seen."""
    for kind, has_other in ((EVENTS, False), (JSON, True), (None, True)):
        wire = Wire(V5, Transport.HTTP)
        id = wire.call()
        channel = wire.channels[id]
        wire.head(channel, 200, kind)  # type: ignore[arg-type]
        if has_other:
            wire.tell("own/thing", channel=channel)
        before = len(wire.seen)
        wire.send(SERVER, {"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": ""}}, channel)
        assert "error-status" not in breaks(wire, before)


# --- Messages of subscriptions ----------------------------------------------------------------------------------------

OF_A_SUBSCRIPTION: list[tuple[str, dict[str, Any]]] = [
    ("notifications/tools/list_changed", {}),
    ("notifications/prompts/list_changed", {}),
    ("notifications/resources/list_changed", {}),
    ("notifications/resources/updated", {"uri": "x:a"}),
    ("notifications/tasks", detailed("a")),
    ("notifications/subscriptions/acknowledged", {"notifications": {}}),
]
REQUESTED = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["x:a"],
    "taskIds": ["a"],
}


@pytest.mark.parametrize(("method", "params"), OF_A_SUBSCRIPTION)
def test_messages_of_a_subscription_come_on_its_stream_only(method: str, params: dict[str, Any]) -> None:
    wire = Wire(V5, Transport.HTTP)
    id = wire.request("subscriptions/listen", notifications=REQUESTED)
    if "acknowledged" not in method:
        acknowledge(wire, id, REQUESTED)
    call = wire.call()
    before = len(wire.seen)
    wire.tell(method, on=id, **params, _meta={K + "subscriptionId": id})
    assert breaks(wire, before) == []
    before = len(wire.seen)
    wire.tell(method, on=call, **params, _meta={K + "subscriptionId": id})
    assert "unrelated-on-stream" in breaks(wire, before)


@pytest.mark.parametrize("method", ["own/thing", "notifications/message", "notifications/tasks/status"])
def test_other_notifications_may_come_on_any_stream(method: str) -> None:
    wire = Wire(V5, Transport.HTTP)
    call = wire.call(meta=wire.meta(**{K + "logLevel": "debug"}))
    before = len(wire.seen)
    wire.tell(method, on=call, level="info", data="x")
    assert "unrelated-on-stream" not in breaks(wire, before)


# --- The end of a session ---------------------------------------------------------------------------------------------


def ended(verb: Verb, status: int, *, has_listened: bool = False) -> Wire:
    """A session in which a request of this verb was answered with this status."""
    wire = Wire(V4, Transport.HTTP)
    wire.handshake()
    if has_listened:
        wire.end(wire.listen())
    if verb is Verb.POST:
        id = wire.call()
        channel = wire.channels[id]
    else:
        channel = wire.open(verb)
    wire.head(channel, status, EVENTS if verb is Verb.GET else "")
    wire.end(channel)
    return wire


@each_row(
    ("verb", "status", "has_listened", "is_over"),
    [
        (Verb.DELETE, 199, False, False),
        (Verb.DELETE, 200, False, True),
        (Verb.DELETE, 204, False, True),
        (Verb.DELETE, 299, False, True),
        (Verb.DELETE, 300, False, False),
        (Verb.DELETE, 405, False, False),
        (Verb.DELETE, 404, False, True),
        (Verb.POST, 404, False, True),
        (Verb.POST, 400, False, False),
        (Verb.POST, 403, False, False),
        (Verb.GET, 404, False, False),
        (Verb.GET, 404, True, True),
        (Verb.GET, 405, True, False),
        (Verb.GET, 200, True, False),
    ],
)
@each_row("after", [200, 202, 299, 300, 400, 404])
def test_a_session_is_over_when_it_was_ended_or_is_not_found(
    verb: Verb, status: int, has_listened: bool, is_over: bool, after: int
) -> None:
    """Later requests are answered with 404; a server without event streams answers any GET with 404."""
    wire = ended(verb, status, has_listened=has_listened)
    id = wire.call()
    before = len(wire.seen)
    wire.head(wire.channels[id], after, JSON)
    found = {rule for rule in breaks(wire, before) if rule.startswith("session")}
    expected = {"session-revived"} if after < 300 else {"session-end-status"} if after == 400 else set()
    assert found == (expected if is_over else set())


def test_a_client_that_knows_of_the_end_begins_another_session() -> None:
    """A 404 ends the session for the client. The response to its own DELETE does not, as requests may have been on
    their way."""
    for verb, status, is_over in ((Verb.POST, 404, True), (Verb.DELETE, 204, False), (Verb.DELETE, 404, True)):
        wire = ended(verb, status)
        before = len(wire.seen)
        wire.call()
        assert ("session-id-lost" in breaks(wire, before)) is is_over
        wire.session = None
        wire.is_initialized = False
        before = len(wire.seen)
        wire.last_id += 50
        info = {"name": "c", "version": "1"}
        params = {"protocolVersion": V4, "capabilities": {}, "clientInfo": info}
        id = wire.request("initialize", 900, **params)
        wire.begin(id, "S2")
        wire.session = "S2"
        assert {rule for rule in breaks(wire, before) if rule.startswith("session")} == set()


@pytest.mark.parametrize(
    ("session", "is_good"), [("S", True), ("!~", True), ("a b", False), ("", False), ("ü", False), ("\x7f", False)]
)
def test_a_sessions_id_is_visible_ascii(session: str, is_good: bool) -> None:
    wire = Wire(V4, Transport.HTTP)
    wire.initialize()
    before = len(wire.seen)
    wire.begin(0, session)
    assert breaks(wire, before) == ([] if is_good else ["session-id-form"])


@pytest.mark.parametrize("status", [200, 202, 399, 400, 404])
def test_a_session_gets_its_id_with_the_answer_to_the_handshake(status: int) -> None:
    """A refusal may name another session; a success may repeat the same."""
    for named in ("S1", "S2"):
        wire = Wire(V4, Transport.HTTP)
        wire.handshake()
        id = wire.call()
        before = len(wire.seen)
        wire.head(wire.channels[id], status, JSON, session=named)
        assert ("session-id-given" in breaks(wire, before)) is (named == "S2" and status < 400)


def test_every_request_of_a_session_names_it_and_its_version() -> None:
    """The rule holds for each verb, and the id of another session counts as none."""
    for verb in Verb:
        for head, rule in (
            ({}, None),
            ({"session": None}, "session-id-missing"),
            ({"session": "S2"}, "session-id-missing"),
            ({"revision": None}, "version-header-missing"),
            ({"revision": "2025-06-18"}, "version-header"),
        ):
            wire = Wire(V4, Transport.HTTP)
            wire.handshake()
            before = len(wire.seen)
            if verb is Verb.POST:
                wire.send(CLIENT, {"jsonrpc": "2.0", "method": "own/thing"}, wire.open(**head))
            else:
                wire.open(verb, **head)
            assert breaks(wire, before) == ([] if rule is None else [rule]), (verb, head)
