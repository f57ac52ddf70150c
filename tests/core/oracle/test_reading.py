"""The oracle's reader: the messages in bytes, and the problems that prevent further judgement."""

from __future__ import annotations

import json
from typing import Any

import pytest
from each_row import each_row
from isthmus.core.oracle.reading import Problem, read
from isthmus.core.oracle.seen import MessageKind

V = {"jsonrpc": "2.0"}
E = {"code": -1, "message": "m"}

# A message, its kind as far as it can be judged, and the rules it breaks; "!" marks an echo.
CASES: list[tuple[Any, MessageKind | None, list[str]]] = [
    ({**V, "id": 1, "method": "m"}, MessageKind.REQUEST, []),
    ({**V, "id": "", "method": "m", "params": {}}, MessageKind.REQUEST, []),
    ({**V, "id": 1, "method": "m", "params": []}, MessageKind.REQUEST, ["not-jsonrpc"]),
    ({**V, "id": 1, "method": "m", "params": None}, MessageKind.REQUEST, ["not-jsonrpc"]),
    ({**V, "method": "m"}, MessageKind.NOTIFICATION, []),
    ({**V, "method": "m", "params": 1}, MessageKind.NOTIFICATION, ["not-jsonrpc"]),
    ({**V, "id": None, "method": "m"}, None, ["id-type"]),
    ({**V, "id": [], "method": "m"}, None, ["id-type"]),
    ({**V, "id": True, "method": "m"}, None, ["id-type"]),
    ({**V, "id": 1, "method": 7}, None, ["not-jsonrpc"]),
    ({**V, "id": 1, "method": None, "result": {}}, None, ["not-jsonrpc"]),
    ({"id": 1, "method": "m"}, None, ["not-jsonrpc"]),
    ({"jsonrpc": "1.0", "id": 1, "method": "m"}, None, ["not-jsonrpc"]),
    ({"jsonrpc": 2.0, "id": 1, "method": "m"}, None, ["not-jsonrpc"]),
    ({**V, "id": 1, "result": {}}, MessageKind.RESULT, []),
    ({**V, "id": "a", "result": {"x": 1}}, MessageKind.RESULT, []),
    ({**V, "id": 1, "result": []}, MessageKind.RESULT, ["result-type"]),
    ({**V, "id": 1, "result": None}, MessageKind.RESULT, ["result-type"]),
    ({**V, "id": None, "result": {}}, None, ["response-shape!"]),
    ({**V, "id": {}, "result": {}}, None, ["response-shape!"]),
    ({**V, "result": {}}, None, ["response-shape"]),
    ({**V, "id": 1, "result": {}, "error": E}, None, ["response-shape"]),
    ({**V, "id": 1}, None, ["response-shape"]),
    (V, None, ["not-jsonrpc"]),
    ({**V, "id": 1, "error": E}, MessageKind.ERROR, []),
    ({**V, "id": None, "error": E}, MessageKind.ERROR, []),
    ({**V, "error": E}, MessageKind.ERROR, []),
    ({**V, "id": {}, "error": E}, None, ["id-type!"]),
    ({**V, "id": 1, "error": {**E, "code": "x"}}, MessageKind.ERROR, ["error-shape"]),
    ({**V, "id": 1, "error": {**E, "code": True}}, MessageKind.ERROR, ["error-shape"]),
    ({**V, "id": 1, "error": {**E, "code": 1.5}}, MessageKind.ERROR, ["error-shape"]),
    ({**V, "id": 1, "error": {"code": 1}}, MessageKind.ERROR, ["error-shape"]),
    ({**V, "id": 1, "error": {"message": "m"}}, MessageKind.ERROR, ["error-shape"]),
    ({**V, "id": 1, "error": "m"}, MessageKind.ERROR, ["error-shape"]),
    ({**V, "id": {}, "error": "m"}, None, ["error-shape", "id-type!"]),
    (7, None, ["not-jsonrpc"]),
    (None, None, ["not-jsonrpc"]),
    ("x", None, ["not-jsonrpc"]),
    ([[]], None, ["not-jsonrpc"]),
]


def rules(problems: list[Problem]) -> list[str]:
    assert all(problem.text for problem in problems)
    return [problem.rule + ("!" if problem.is_echo else "") for problem in problems]


@each_row(("message", "kind", "broken"), CASES)
def test_a_message_has_one_kind(message: Any, kind: MessageKind | None, broken: list[str]) -> None:
    reading = read(json.dumps(message).encode())
    single = message[0] if isinstance(message, list) else message
    assert reading.messages == ([] if kind is None else [(kind, single)])
    assert rules(reading.problems) == broken
    assert (reading.is_batch, reading.is_ambiguous) == (isinstance(message, list), False)


def test_an_array_has_the_messages_of_its_elements() -> None:
    values = [message for message, _, _ in CASES if not isinstance(message, list)]
    reading = read(json.dumps(values).encode())
    rows = [row for row in CASES if not isinstance(row[0], list)]
    assert reading.messages == [(kind, message) for message, kind, _ in rows if kind is not None]
    assert rules(reading.problems) == [rule for _, _, broken in rows for rule in broken]
    assert (reading.is_batch, reading.is_ambiguous) == (True, False)
    empty = read(b"[]")
    assert (empty.messages, rules(empty.problems), empty.is_batch) == ([], ["not-jsonrpc"], True)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"NaN", b'{"a":Infinity}', b"[" * 20_000, b"1 2", b"'a'"])
def test_text_that_is_no_json_has_no_messages(text: bytes) -> None:
    reading = read(text)
    assert (reading.messages, rules(reading.problems)) == ([], ["not-json"])
    assert (reading.is_batch, reading.is_ambiguous) == (False, False)


@pytest.mark.parametrize(
    ("text", "is_ambiguous"),
    [
        (b'{"jsonrpc":"2.0","id":1,"id":2,"result":{}}', True),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":1}}', True),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":1,"b":1}}', False),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":{"a":1},"b":[{"a":1},{"a":2}]}}', False),
    ],
)
def test_a_member_that_occurs_twice_is_ambiguous(text: bytes, is_ambiguous: bool) -> None:
    assert read(text).is_ambiguous is is_ambiguous
