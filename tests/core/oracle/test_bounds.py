"""The oracle at its bounds: statuses, sizes, and values that nearly match."""

from __future__ import annotations

from typing import Any

import pytest
from each_row import each_row
from isthmus.core.oracle import Transport, Verb
from isthmus.core.oracle.book import nearest
from isthmus.core.oracle.reading import read
from isthmus.core.oracle.seen import MessageKind, key_of, shown
from isthmus.core.oracle.sessions import _is_same, _mirrored_in, _unwrapped
from isthmus.core.oracle.tasks import _is_duration
from oracle_case import breaks
from wire_scenes import CLIENT, EVENTS, JSON, SERVER, K, Wire

V1, V2, V3, V4, V5 = "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"


# --- Statuses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 202, 299, 300, 399, 400, 401, 500])
def test_the_body_of_a_refusal_may_be_anything(status: int) -> None:
    """A status below 400 has a message as its body."""
    wire = Wire(V4, Transport.HTTP)
    wire.handshake()
    id = wire.call()
    before = len(wire.seen)
    channel = wire.channels[id]
    wire.head(channel, status, "text/html")
    wire.raw(SERVER, b"<html>", channel)
    found = breaks(wire, before)
    assert ("not-json" in found) is (status < 400)


@each_row("status", [199, 200, 201, 202, 204, 299, 300, 404])
@each_row("kind", [JSON, EVENTS, None, "", "text/html"])
def test_a_request_is_answered_with_200_in_a_form_that_carries_messages(status: int, kind: str | None) -> None:
    """Statuses other than successes break no rule here."""
    wire = Wire(V4, Transport.HTTP)
    wire.handshake()
    id = wire.call()
    before = len(wire.seen)
    wire.head(wire.channels[id], status, kind)  # type: ignore[arg-type]
    is_wrong = 200 <= status < 300 and (status != 200 or kind not in (JSON, EVENTS, None))
    assert breaks(wire, before) == (["content-type"] if is_wrong else [])


@pytest.mark.parametrize("status", [199, 200, 201, 202, 203, 299, 300, 400])
@pytest.mark.parametrize("body", ["notification", "response", "nothing"])
def test_a_post_without_a_request_is_accepted(body: str, status: int) -> None:
    """A success must be 202; a POST whose body was not seen is not judged."""
    wire = Wire(V4, Transport.HTTP)
    wire.handshake()
    stream = wire.listen()
    wire.tell("roots/list", channel=stream, id=1)
    before = len(wire.seen)
    channel = wire.open()
    if body == "notification":
        wire.send(CLIENT, {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}, channel)
    elif body == "response":
        wire.send(CLIENT, {"jsonrpc": "2.0", "id": 1, "result": {"roots": []}}, channel)
    wire.head(channel, status, "")
    is_wrong = body != "nothing" and 200 <= status < 300 and status != 202
    assert breaks(wire, before) == (["accepted-status"] if is_wrong else [])


@pytest.mark.parametrize(("status", "is_wrong"), [(199, False), (200, True), (299, True), (300, False), (400, False)])
def test_only_a_success_accepts_a_version_that_must_be_refused(status: int, is_wrong: bool) -> None:
    wire = Wire(V4, Transport.HTTP)
    wire.handshake()
    id = wire.call(head={"revision": "1999-01-01"})
    before = len(wire.seen)
    wire.head(wire.channels[id], status, JSON)
    assert ("version-refused" in breaks(wire, before)) is is_wrong


@pytest.mark.parametrize(
    ("revision", "is_refused"),
    [
        ("2024-11-04", True),
        ("2024-11-05", False),
        ("2099-01-01", False),
        ("1999-12-31", True),
        ("2024-11-5", True),
        ("x2024-11-05", True),
        ("2024-11-05x", True),
        ("DRAFT-2026", False),
        ("draft", False),
        ("xdraft", True),
        ("", True),
        ("latest", True),
    ],
)
def test_an_impossible_version_is_not_accepted(revision: str, is_refused: bool) -> None:
    """A date before the first revision is impossible, and a text that is no date; but drafts have names of their
    own."""
    wire = Wire(V4, Transport.HTTP)
    wire.handshake()
    id = wire.call(head={"revision": revision})
    before = len(wire.seen)
    wire.head(wire.channels[id], 200, JSON)
    assert ("version-refused" in breaks(wire, before)) is is_refused


@pytest.mark.parametrize(("method", "is_refused"), [("initialize", False), ("ping", True)])
def test_the_header_of_a_handshake_is_not_judged(method: str, is_refused: bool) -> None:
    """A server reads the version of `initialize` from its body."""
    wire = Wire(V4, Transport.HTTP)
    if method == "ping":
        wire.handshake()
        id = wire.request("ping", head={"revision": "1999-01-01"})
    else:
        info = {"name": "c", "version": "1"}
        written = {"protocolVersion": V4, "capabilities": {}, "clientInfo": info}
        id = wire.request("initialize", 0, head={"revision": "1999-01-01"}, **written)
    before = len(wire.seen)
    wire.head(wire.channels[id], 200, JSON)
    assert ("version-refused" in breaks(wire, before)) is is_refused


@pytest.mark.parametrize(
    ("written", "rules"),
    [(EVENTS, []), (None, []), (JSON, ["content-type"]), ("", ["content-type"])],
)
def test_a_get_is_answered_by_an_event_stream(written: str | None, rules: list[str]) -> None:
    wire = Wire(V4, Transport.HTTP)
    wire.handshake()
    channel = wire.open(Verb.GET)
    before = len(wire.seen)
    wire.head(channel, 200, written)  # type: ignore[arg-type]
    assert breaks(wire, before) == rules


# --- Values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("revision", "expected"),
    [
        (V1, V1),
        (V4, V4),
        (V5, V5),
        ("2024-01-01", V1),
        ("2024-11-06", V1),
        ("2025-06-17", V2),
        ("2025-12-01", V4),
        ("2099-01-01", V4),
        ("", V1),
    ],
)
def test_an_unknown_revision_is_judged_as_the_newest_older_one(revision: str, expected: str) -> None:
    assert nearest(revision) == expected


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (1, 1),
        ("1", "1"),
        (1.0, 1),
        (-3.0, -3),
        (1.5, None),
        ("", ""),
        (0, 0),
        (True, None),
        (False, None),
        (None, None),
        ([], None),
        ({}, None),
        (float("inf"), None),
    ],
)
def test_an_id_is_a_string_or_a_whole_number(value: object, key: object) -> None:
    found = key_of(value)
    assert found == key
    assert type(found) is type(key)


@pytest.mark.parametrize("length", [78, 79, 80, 200])
def test_quoted_values_are_short(length: int) -> None:
    """A quote has 80 characters with its marks, or as many with a sign that there is more."""
    text = shown("x" * length)
    assert text == (f"'{'x' * length}'" if length <= 78 else f"'{'x' * 76}…'")
    assert len(text) == min(length + 2, 79 if length > 78 else 80)


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        (None, True),
        (0, True),
        (1, True),
        (1.5, True),
        (-1, False),
        (-0.5, False),
        (True, False),
        ("1", False),
        ([], False),
    ],
)
def test_a_duration_is_null_or_a_number_that_is_not_negative(value: Any, is_one: bool) -> None:
    assert _is_duration(value) is is_one


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a", "a"),
        (" a ", "a"),
        ("=?base64?YQ==?=", "a"),
        ("=?base64?w7w=?=", "ü"),
        ("=?base64?YQ=?=", None),
        ("=?base64?/w==?=", None),
        ("=?base64??=", ""),
        ("=?base64?YQ==", "=?base64?YQ=="),
        ("YQ==?=", "YQ==?="),
        ("=?Base64?YQ==?=", "=?Base64?YQ==?="),
        ("=?base64?Y Q==?=", None),
    ],
)
def test_the_value_that_a_header_wraps(written: str, meant: str | None) -> None:
    assert _unwrapped(written) == meant


@pytest.mark.parametrize(
    ("written", "wanted", "is_same"),
    [
        ("a", "a", True),
        ("a", "A", False),
        ("true", True, True),
        ("false", True, False),
        ("true", False, False),
        ("false", False, True),
        ("1", True, False),
        ("1", 1, True),
        ("1.0", 1, True),
        ("1e0", 1.0, True),
        ("2", 1, False),
        ("x", 1, False),
        ("0.1", 0.1, True),
        ("1", "1", True),
        ("1", [1], False),
    ],
)
def test_a_header_equals_its_argument_by_value(written: str, wanted: Any, is_same: bool) -> None:
    assert _is_same(written, wanted) is is_same


def test_mirrored_arguments_are_found_by_properties_alone() -> None:
    schema = {
        "properties": {
            "a": {"x-mcp-header": "A"},
            "b": {"properties": {"c": {"x-mcp-header": "C"}, "d": {"x-mcp-header": 7}}, "x-mcp-header": "B"},
            "e": {"items": {"x-mcp-header": "E"}},
            "f": 7,
            "g": {"properties": 7},
        },
        "anyOf": [{"properties": {"h": {"x-mcp-header": "H"}}}],
    }
    assert list(_mirrored_in(schema, ())) == [("A", ("a",)), ("B", ("b",)), ("C", ("b", "c"))]
    for none in (None, 7, [], {}, {"properties": []}):
        assert list(_mirrored_in(none, ())) == []


# --- Messages ---------------------------------------------------------------------------------------------------------

READINGS: list[tuple[str, list[MessageKind], list[tuple[str, bool]]]] = [
    ('{"jsonrpc":"2.0","id":1,"method":"m"}', [MessageKind.REQUEST], []),
    ('{"jsonrpc":"2.0","id":"x","method":"m","params":{}}', [MessageKind.REQUEST], []),
    ('{"jsonrpc":"2.0","id":1,"method":"m","params":[]}', [MessageKind.REQUEST], [("not-jsonrpc", False)]),
    ('{"jsonrpc":"2.0","method":"m","params":null}', [MessageKind.NOTIFICATION], [("not-jsonrpc", False)]),
    ('{"jsonrpc":"2.0","id":null,"method":"m"}', [], [("id-type", False)]),
    ('{"jsonrpc":"2.0","id":1.5,"method":"m"}', [], [("id-type", False)]),
    ('{"jsonrpc":"2.0","method":"m"}', [MessageKind.NOTIFICATION], []),
    ('{"jsonrpc":"2.0","id":1,"method":7}', [], [("not-jsonrpc", False)]),
    ('{"jsonrpc":"1.0","id":1,"method":"m"}', [], [("not-jsonrpc", False)]),
    ('{"id":1,"method":"m"}', [], [("not-jsonrpc", False)]),
    ("7", [], [("not-jsonrpc", False)]),
    ("[]", [], [("not-jsonrpc", False)]),
    ('{"jsonrpc":"2.0"}', [], [("not-jsonrpc", False)]),
    ('{"jsonrpc":"2.0","id":1}', [], [("response-shape", False)]),
    ('{"jsonrpc":"2.0","id":1,"result":{}}', [MessageKind.RESULT], []),
    ('{"jsonrpc":"2.0","id":1,"result":7}', [MessageKind.RESULT], [("result-type", False)]),
    ('{"jsonrpc":"2.0","id":null,"result":{}}', [], [("response-shape", True)]),
    ('{"jsonrpc":"2.0","result":{}}', [], [("response-shape", False)]),
    ('{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', [], [("response-shape", False)]),
    ('{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}', [MessageKind.ERROR], []),
    ('{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}', [MessageKind.ERROR], []),
    ('{"jsonrpc":"2.0","error":{"code":1,"message":""}}', [MessageKind.ERROR], []),
    ('{"jsonrpc":"2.0","id":[],"error":{"code":1,"message":""}}', [], [("id-type", True)]),
    ('{"jsonrpc":"2.0","id":1,"error":{"code":true,"message":""}}', [MessageKind.ERROR], [("error-shape", False)]),
    ('{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":""}}', [MessageKind.ERROR], [("error-shape", False)]),
    ('{"jsonrpc":"2.0","id":1,"error":{"code":1}}', [MessageKind.ERROR], [("error-shape", False)]),
    ('{"jsonrpc":"2.0","id":1,"error":7}', [MessageKind.ERROR], [("error-shape", False)]),
    ("{", [], [("not-json", False)]),
    ("NaN", [], [("not-json", False)]),
]


@each_row(("text", "kinds", "problems"), READINGS)
def test_the_messages_in_bytes(text: str, kinds: list[MessageKind], problems: list[tuple[str, bool]]) -> None:
    """Each text is read alone, and in an array."""
    alone = read(text.encode())
    assert [kind for kind, _ in alone.messages] == kinds
    assert [(problem.rule, problem.is_echo) for problem in alone.problems] == problems
    assert (alone.is_batch, alone.is_ambiguous) == (text == "[]", False)
    if problems == [("not-json", False)] or text == "[]":
        return
    several = read(f'[{text},{{"jsonrpc":"2.0","method":"n"}}]'.encode())
    assert [kind for kind, _ in several.messages] == [*kinds, MessageKind.NOTIFICATION]
    assert [(problem.rule, problem.is_echo) for problem in several.problems] == problems
    assert several.is_batch


def test_a_member_that_occurs_twice_is_ambiguous() -> None:
    """The member may be at any depth; members of two objects may share a name."""
    begin = b'{"jsonrpc":"2.0","method":"m","params":'
    assert read(begin + b'{"a":1,"a":2}}').is_ambiguous
    assert read(begin + b'{"a":{"b":[{"c":1,"c":1}]}}}').is_ambiguous
    assert not read(begin + b'{"a":{"a":1},"b":{"a":1}}}').is_ambiguous


# --- Progress ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "rules"),
    [
        ([0, 0.5, 1], []),
        ([-1, 0], []),
        ([1, 1], ["progress-stands"]),
        ([2, 1, 3], ["progress-stands"]),
        ([2, 1, 1], ["progress-stands", "progress-stands"]),
        (["x", 1, None, 2], []),
    ],
)
def test_progress_increases(steps: list[Any], rules: list[str]) -> None:
    """Each value is compared with the one before it; a value that is no number breaks another rule."""
    wire = Wire(V4)
    wire.handshake()
    id = wire.call(meta={"progressToken": "t"})
    before = len(wire.seen)
    for step in steps:
        wire.tell("notifications/progress", on=id, progressToken="t", progress=step)
    assert breaks(wire, before) == rules


@pytest.mark.parametrize("transport", list(Transport))
def test_a_log_message_belongs_to_a_request_for_it(transport: Transport) -> None:
    """Over HTTP the message is on the stream of that request, elsewhere it comes while such a request is open. Source:
    2026-07-28."""
    if transport is Transport.EVENTS:
        return
    wire = Wire(V5, transport)
    loud = wire.call(meta=wire.meta(**{K + "logLevel": "debug"}))
    quiet = wire.call()
    before = len(wire.seen)
    wire.tell("notifications/message", on=loud, level="info", data="x")
    assert breaks(wire, before) == []
    before = len(wire.seen)
    wire.tell("notifications/message", on=quiet, level="info", data="x")
    assert breaks(wire, before) == (["log-unasked"] if transport is Transport.HTTP else [])
    wire.reply(loud)
    before = len(wire.seen)
    wire.tell("notifications/message", on=quiet, level="info", data="x")
    assert breaks(wire, before) == ["log-unasked"]
