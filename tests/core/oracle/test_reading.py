"""What bytes say as messages, and what of them can be judged no further."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.core.oracle.reading import Problem, read
from isthmus.core.oracle.seen import Kind

V = {"jsonrpc": "2.0"}
E = {"code": -1, "message": "m"}

# What is said, the kind it has as far as it can be judged, and the rules it breaks; "!" behind one: it is an echo.
SAID: list[tuple[Any, Kind | None, list[str]]] = [
    ({**V, "id": 1, "method": "m"}, Kind.REQUEST, []),
    ({**V, "id": "", "method": "m", "params": {}}, Kind.REQUEST, []),
    ({**V, "id": 1, "method": "m", "params": []}, Kind.REQUEST, ["not-jsonrpc"]),
    ({**V, "id": 1, "method": "m", "params": None}, Kind.REQUEST, ["not-jsonrpc"]),
    ({**V, "method": "m"}, Kind.NOTIFICATION, []),
    ({**V, "method": "m", "params": 1}, Kind.NOTIFICATION, ["not-jsonrpc"]),
    ({**V, "id": None, "method": "m"}, None, ["id-type"]),
    ({**V, "id": [], "method": "m"}, None, ["id-type"]),
    ({**V, "id": True, "method": "m"}, None, ["id-type"]),
    ({**V, "id": 1, "method": 7}, None, ["not-jsonrpc"]),
    ({**V, "id": 1, "method": None, "result": {}}, None, ["not-jsonrpc"]),
    ({"id": 1, "method": "m"}, None, ["not-jsonrpc"]),
    ({"jsonrpc": "1.0", "id": 1, "method": "m"}, None, ["not-jsonrpc"]),
    ({"jsonrpc": 2.0, "id": 1, "method": "m"}, None, ["not-jsonrpc"]),
    ({**V, "id": 1, "result": {}}, Kind.RESULT, []),
    ({**V, "id": "a", "result": {"x": 1}}, Kind.RESULT, []),
    ({**V, "id": 1, "result": []}, Kind.RESULT, ["result-type"]),
    ({**V, "id": 1, "result": None}, Kind.RESULT, ["result-type"]),
    ({**V, "id": None, "result": {}}, None, ["response-shape!"]),
    ({**V, "id": {}, "result": {}}, None, ["response-shape!"]),
    ({**V, "result": {}}, None, ["response-shape"]),
    ({**V, "id": 1, "result": {}, "error": E}, None, ["response-shape"]),
    ({**V, "id": 1}, None, ["response-shape"]),
    (V, None, ["not-jsonrpc"]),
    ({**V, "id": 1, "error": E}, Kind.ERROR, []),
    ({**V, "id": None, "error": E}, Kind.ERROR, []),
    ({**V, "error": E}, Kind.ERROR, []),
    ({**V, "id": {}, "error": E}, None, ["id-type!"]),
    ({**V, "id": 1, "error": {**E, "code": "x"}}, Kind.ERROR, ["error-shape"]),
    ({**V, "id": 1, "error": {**E, "code": True}}, Kind.ERROR, ["error-shape"]),
    ({**V, "id": 1, "error": {**E, "code": 1.5}}, Kind.ERROR, ["error-shape"]),
    ({**V, "id": 1, "error": {"code": 1}}, Kind.ERROR, ["error-shape"]),
    ({**V, "id": 1, "error": {"message": "m"}}, Kind.ERROR, ["error-shape"]),
    ({**V, "id": 1, "error": "m"}, Kind.ERROR, ["error-shape"]),
    ({**V, "id": {}, "error": "m"}, None, ["error-shape", "id-type!"]),
    (7, None, ["not-jsonrpc"]),
    (None, None, ["not-jsonrpc"]),
    ("x", None, ["not-jsonrpc"]),
    ([[]], None, ["not-jsonrpc"]),
]


def rules(problems: list[Problem]) -> list[str]:
    assert all(problem.text for problem in problems)
    return [problem.rule + ("!" if problem.is_echo else "") for problem in problems]


@pytest.mark.parametrize(("said", "kind", "broken"), SAID, ids=lambda value: str(value)[:60])
def test_a_message_has_one_kind(said: Any, kind: Kind | None, broken: list[str]) -> None:
    reading = read(json.dumps(said).encode())
    single = said[0] if isinstance(said, list) else said
    assert reading.messages == ([] if kind is None else [(kind, single)])
    assert rules(reading.problems) == broken
    assert (reading.is_batch, reading.is_ambiguous) == (isinstance(said, list), False)


def test_an_array_has_all_that_its_elements_say() -> None:
    values = [said for said, _, _ in SAID if not isinstance(said, list)]
    reading = read(json.dumps(values).encode())
    rows = [row for row in SAID if not isinstance(row[0], list)]
    assert reading.messages == [(kind, said) for said, kind, _ in rows if kind is not None]
    assert rules(reading.problems) == [rule for _, _, broken in rows for rule in broken]
    assert (reading.is_batch, reading.is_ambiguous) == (True, False)
    empty = read(b"[]")
    assert (empty.messages, rules(empty.problems), empty.is_batch) == ([], ["not-jsonrpc"], True)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"NaN", b'{"a":Infinity}', b"[" * 20_000, b"1 2", b"'a'"])
def test_what_is_no_json_says_nothing(text: bytes) -> None:
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
def test_a_name_that_is_there_twice_leaves_room_for_doubt(text: bytes, is_ambiguous: bool) -> None:
    assert read(text).is_ambiguous is is_ambiguous
