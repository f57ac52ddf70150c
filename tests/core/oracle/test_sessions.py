"""Heads and streams of HTTP as the oracle judges them, row by row: which errors have a status, when a session ends."""

from __future__ import annotations

from typing import Any

import pytest
from isthmus.core.oracle import Transport, Verb
from oracle_casing import acknowledge, breaks, detailed
from wire_scenes import CLIENT, EVENTS, JSON, SERVER, K, Wire

V4, V5 = "2025-11-25", "2026-07-28"

# --- Errors that have a status ----------------------------------------------------------------------------------------

STATUS = {-32601: 404, -32020: 400, -32021: 400, -32022: 400}


@pytest.mark.parametrize("status", [200, 400, 404, 500])
@pytest.mark.parametrize("code", [*STATUS, -32602, -32603, -32700, -32000])
def test_an_error_comes_with_its_status(code: int, status: int) -> None:
    """2026-07-28: unknown methods 404, what is wrong with the head or the version 400; others have none."""
    wire = Wire(V5, Transport.HTTP)
    id = wire.call()
    before = len(wire.seen)
    channel = wire.channels[id]
    wire.head(channel, status, JSON)
    wire.say(SERVER, {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": ""}}, channel)
    found = [rule for rule in breaks(wire, before) if rule == "error-status"]
    assert found == (["error-status"] if STATUS.get(code, status) != status else [])


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities", None])
@pytest.mark.parametrize("status", [200, 400])
def test_invalid_params_have_a_status_where_what_every_request_has_is_missing(status: int, missing: str | None) -> None:
    wire = Wire(V5, Transport.HTTP)
    meta = {name: value for name, value in wire.meta().items() if name != K + str(missing)}
    id = wire.call(meta=meta)
    before = len(wire.seen)
    channel = wire.channels[id]
    wire.head(channel, status, JSON)
    wire.say(SERVER, {"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": ""}}, channel)
    assert ("error-status" in breaks(wire, before)) is (status == 200 and missing is not None)


def test_an_error_on_an_event_stream_has_the_status_of_that() -> None:
    """As one that comes after another message; and one whose head nobody looked at."""
    for kind, says_more in ((EVENTS, False), (JSON, True), (None, True)):
        wire = Wire(V5, Transport.HTTP)
        id = wire.call()
        channel = wire.channels[id]
        wire.head(channel, 200, kind)  # type: ignore[arg-type]
        if says_more:
            wire.tell("own/thing", channel=channel)
        before = len(wire.seen)
        wire.say(SERVER, {"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": ""}}, channel)
        assert "error-status" not in breaks(wire, before)


# --- What belongs to a subscription -----------------------------------------------------------------------------------

OF_A_SUBSCRIPTION: list[tuple[str, dict[str, Any]]] = [
    ("notifications/tools/list_changed", {}),
    ("notifications/prompts/list_changed", {}),
    ("notifications/resources/list_changed", {}),
    ("notifications/resources/updated", {"uri": "x:a"}),
    ("notifications/tasks", detailed("a")),
    ("notifications/subscriptions/acknowledged", {"notifications": {}}),
]
SOUGHT = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["x:a"],
    "taskIds": ["a"],
}


@pytest.mark.parametrize(("method", "said"), OF_A_SUBSCRIPTION)
def test_what_belongs_to_a_subscription_comes_on_its_stream_and_on_no_other(method: str, said: dict[str, Any]) -> None:
    wire = Wire(V5, Transport.HTTP)
    id = wire.request("subscriptions/listen", notifications=SOUGHT)
    if "acknowledged" not in method:
        acknowledge(wire, id, SOUGHT)
    call = wire.call()
    before = len(wire.seen)
    wire.tell(method, on=id, **said, _meta={K + "subscriptionId": id})
    assert breaks(wire, before) == []
    before = len(wire.seen)
    wire.tell(method, on=call, **said, _meta={K + "subscriptionId": id})
    assert "unrelated-on-stream" in breaks(wire, before)


@pytest.mark.parametrize("method", ["own/thing", "notifications/message", "notifications/tasks/status"])
def test_what_belongs_to_nothing_in_particular_may_come_on_any_stream(method: str) -> None:
    wire = Wire(V5, Transport.HTTP)
    call = wire.call(meta=wire.meta(**{K + "logLevel": "debug"}))
    before = len(wire.seen)
    wire.tell(method, on=call, level="info", data="x")
    assert "unrelated-on-stream" not in breaks(wire, before)


# --- When a session is over -------------------------------------------------------------------------------------------


def ended(verb: Verb, status: int, *, has_listened: bool = False) -> Wire:
    """A session in which a request was answered so."""
    wire = Wire(V4, Transport.HTTP)
    wire.greet()
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


@pytest.mark.parametrize(
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
@pytest.mark.parametrize("after", [200, 202, 299, 300, 400, 404])
def test_a_session_is_over_when_it_was_ended_or_is_not_found(
    verb: Verb, status: int, has_listened: bool, is_over: bool, after: int
) -> None:
    """From then on it is not found; a server without event streams answers any GET with 404."""
    wire = ended(verb, status, has_listened=has_listened)
    id = wire.call()
    before = len(wire.seen)
    wire.head(wire.channels[id], after, JSON)
    found = {rule for rule in breaks(wire, before) if rule.startswith("session")}
    expected = {"session-revived"} if after < 300 else {"session-end-status"} if after == 400 else set()
    assert found == (expected if is_over else set())


def test_who_was_told_that_a_session_is_over_begins_another() -> None:
    """A 404 tells it, an answer to its own DELETE does not: something may have been on its way."""
    for verb, status, is_told in ((Verb.POST, 404, True), (Verb.DELETE, 204, False), (Verb.DELETE, 404, True)):
        wire = ended(verb, status)
        before = len(wire.seen)
        wire.call()
        assert ("session-id-lost" in breaks(wire, before)) is is_told
        wire.session = None
        wire.is_greeted = False
        before = len(wire.seen)
        wire.last_id += 50
        info = {"name": "c", "version": "1"}
        said = {"protocolVersion": V4, "capabilities": {}, "clientInfo": info}
        id = wire.request("initialize", 900, **said)
        wire.begin(id, "S2")
        wire.session = "S2"
        assert {rule for rule in breaks(wire, before) if rule.startswith("session")} == set()


@pytest.mark.parametrize(
    ("session", "is_good"), [("S", True), ("!~", True), ("a b", False), ("", False), ("ü", False), ("\x7f", False)]
)
def test_a_sessions_id_is_visible_ascii(session: str, is_good: bool) -> None:
    wire = Wire(V4, Transport.HTTP)
    wire.hello()
    before = len(wire.seen)
    wire.begin(0, session)
    assert breaks(wire, before) == ([] if is_good else ["session-id-form"])


@pytest.mark.parametrize("status", [200, 202, 399, 400, 404])
def test_a_session_gets_its_id_with_the_answer_to_the_handshake(status: int) -> None:
    """A refusal may name another; a success may say the same again."""
    for named in ("S1", "S2"):
        wire = Wire(V4, Transport.HTTP)
        wire.greet()
        id = wire.call()
        before = len(wire.seen)
        wire.head(wire.channels[id], status, JSON, session=named)
        assert ("session-id-given" in breaks(wire, before)) is (named == "S2" and status < 400)


def test_every_request_of_a_session_names_it_and_its_version() -> None:
    """Of each verb; what names another is no better than what names none."""
    for verb in Verb:
        for head, rule in (
            ({}, None),
            ({"session": None}, "session-id-missing"),
            ({"session": "S2"}, "session-id-missing"),
            ({"revision": None}, "version-header-missing"),
            ({"revision": "2025-06-18"}, "version-header"),
        ):
            wire = Wire(V4, Transport.HTTP)
            wire.greet()
            before = len(wire.seen)
            if verb is Verb.POST:
                wire.say(CLIENT, {"jsonrpc": "2.0", "method": "own/thing"}, wire.open(**head))
            else:
                wire.open(verb, **head)
            assert breaks(wire, before) == ([] if rule is None else [rule]), (verb, head)
