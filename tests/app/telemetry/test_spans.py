"""Tests of the spans that are made of telemetry events: their names, attributes, ends and bounds."""

from __future__ import annotations

from typing import Any

import pytest
from isthmus.app.telemetry import spans
from isthmus.app.telemetry.spans import Arguments, FinishedSpan, Spans
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.telemetry import (
    Outcome,
    RequestAnswered,
    RequestEnded,
    RequestSent,
    RequestStarted,
    SpanIds,
    TaskGiven,
)

TRACE = "1" * 32
SECRET = "hunter2-of-the-vault"


class World:
    """A listener, what it made, and a clock that counts its readings."""

    def __init__(self, arguments: Arguments = "never") -> None:
        self.made: list[FinishedSpan] = []
        self.now = 0
        self.spans = Spans(self.made.append, arguments, self.tick)

    def tick(self) -> int:
        self.now += 1
        return self.now

    def start(self, number: int = 1, **rest: Any) -> None:
        given = {"method": "tools/call", "target": "echo", "is_pipe": False, "id_raw": b"7", "params": None} | rest
        self.spans.receive(
            RequestStarted(
                server="files",
                session="abcdefghij",
                client="tester 1",
                revision="2025-11-25",
                principal="token:ci",
                request=(1, number),
                span=SpanIds(TRACE, f"{number:016x}", "f" * 16, links=(("2" * 32, "2" * 16),)),
                **given,
            )
        )

    def send(self, number: int = 1, attempt: int = 1, server: str = "files", is_pipe: bool = True) -> None:
        ids = SpanIds(TRACE, f"{number:014x}{attempt:02x}", f"{number:016x}")
        self.spans.receive(RequestSent((1, number), server, 40 + attempt, ChannelId(3), attempt, "", is_pipe, ids))

    def answer(self, number: int = 1, code: int | None = None, server: str = "files") -> None:
        self.spans.receive(RequestAnswered((1, number), server, "tools/call", 0.5, code))

    def end(self, outcome: Outcome = Outcome.RESULT, number: int = 1, code: int | None = None) -> None:
        self.spans.receive(
            RequestEnded(
                server="files",
                session="abcdefghij",
                client="tester 1",
                revision="2025-11-25",
                principal="token:ci",
                is_pipe=False,
                request=(1, number),
                method="tools/call",
                target="echo",
                outcome=outcome,
                duration_s=1.0,
                code=code,
                links=(("3" * 32, "3" * 16),),
            )
        )


def test_a_request_has_a_span_and_its_attempt_another() -> None:
    world = World()
    world.start()
    world.send()
    world.answer()
    world.end()
    inner, outer = world.made
    assert (outer.name, outer.is_server, outer.is_error) == ("tools/call echo", True, False)
    assert (outer.begun_ns, inner.begun_ns, inner.ended_ns, outer.ended_ns) == (1, 2, 3, 4)
    assert outer.links == (("2" * 32, "2" * 16), ("3" * 32, "3" * 16))
    assert outer.attributes == {
        "mcp.method.name": "tools/call",
        "jsonrpc.request.id": "7",
        "mcp.session.id": "abcdef",
        "mcp.protocol.version": "2025-11-25",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "isthmus.server": "files",
        "isthmus.client": "tester 1",
    }
    assert (inner.name, inner.is_server, inner.ids.parent_id) == ("tools/call echo", False, outer.ids.span_id)
    assert inner.attributes == {
        "mcp.method.name": "tools/call",
        "jsonrpc.request.id": "41",
        "network.transport": "pipe",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "isthmus.server": "files",
    }


OUTCOMES: dict[Outcome, tuple[int | None, dict[str, str]]] = {
    Outcome.RESULT: (None, {}),
    Outcome.TOOL_ERROR: (None, {"error.type": "tool_error"}),
    Outcome.ERROR: (-32602, {"error.type": "-32602", "rpc.response.status_code": "-32602"}),
    Outcome.CANCELLED: (None, {"error.type": "cancelled"}),
    Outcome.UNREAD: (None, {"isthmus.outcome": "unread"}),
}


@pytest.mark.parametrize("outcome", Outcome)
def test_a_span_says_how_its_request_ended(outcome: Outcome) -> None:
    code, expected = OUTCOMES[outcome]
    world = World()
    world.start()
    world.end(outcome, code=code)
    (outer,) = world.made
    said = ("error.type", "rpc.response.status_code", "isthmus.outcome")
    assert {key: value for key, value in outer.attributes.items() if key in said} == expected
    assert outer.is_error is ("error.type" in expected)


@pytest.mark.parametrize(
    ("method", "target", "name", "attribute"),
    [
        ("prompts/get", "greet", "prompts/get greet", ("gen_ai.prompt.name", "greet")),
        ("resources/read", "https://ann:pw@h/a?token=x#y", "resources/read", ("mcp.resource.uri", "https://h/a")),
        ("tools/list", "", "tools/list", ("mcp.method.name", "tools/list")),
    ],
)
def test_names_hold_what_has_few_values(method: str, target: str, name: str, attribute: tuple[str, str]) -> None:
    world = World()
    world.start(method=method, target=target)
    world.end()
    assert world.made[0].name == name
    assert world.made[0].attributes[attribute[0]] == attribute[1]


def test_corner_6_a_name_with_line_ends_makes_one_line() -> None:
    world = World()
    world.start(target="a\nb\r\x1b[31m\u2028c")
    world.end()
    assert world.made[0].name == "tools/call a\ufffdb\ufffd\ufffd[31m\ufffdc"
    assert world.made[0].attributes["gen_ai.tool.name"] == "a\ufffdb\ufffd\ufffd[31m\ufffdc"


def test_corner_7_a_call_that_is_sent_again_has_two_spans_under_its_own() -> None:
    world = World()
    world.start()
    world.send(attempt=1)
    world.send(attempt=2)
    world.answer(code=-32000)
    world.end(Outcome.ERROR, code=-32000)
    first, second, outer = world.made
    assert {first.ids.parent_id, second.ids.parent_id} == {outer.ids.span_id}
    assert (first.attributes["error.type"], second.attributes["error.type"]) == ("lost", "-32000")
    assert second.attributes["isthmus.attempt"] == 2


def test_corner_8_the_span_of_a_call_that_becomes_a_task_ends_with_the_handle() -> None:
    world = World()
    world.start()
    world.send()
    world.spans.receive(TaskGiven((1, 1)))
    (outer,) = world.made
    assert (outer.is_server, outer.attributes["isthmus.outcome"]) == (True, "task")
    world.answer()
    world.end()
    assert [one.is_server for one in world.made] == [True, False]


def test_an_attempt_without_an_answer_ends_with_its_request() -> None:
    world = World()
    world.start()
    world.send()
    world.end(Outcome.CANCELLED)
    assert [one.attributes["error.type"] for one in world.made] == ["cancelled", "cancelled"]


def test_requests_without_a_span_make_none() -> None:
    world = World()
    world.answer()
    world.end()
    assert world.made == []


@pytest.mark.parametrize("id_raw", [b'"a\\"b"', b"7", b'"' + b"x" * 79])
def test_ids_are_text(id_raw: bytes) -> None:
    world = World()
    world.start(id_raw=id_raw)
    world.end()
    expected = {b'"a\\"b"': 'a"b', b"7": "7"}.get(id_raw, id_raw.decode())
    assert world.made[0].attributes["jsonrpc.request.id"] == expected


PARAMS = b'{"name":"echo","arguments":{"password":"%b","n":[1]},"_meta":{"x":"%b"}}' % (
    SECRET.encode(),
    SECRET.encode(),
)


@pytest.mark.parametrize("arguments", ["never", "keys", "full"])
def test_arguments_are_shown_as_far_as_the_settings_ask_for(arguments: Arguments) -> None:
    world = World(arguments)
    world.start(params=PARAMS)
    world.end()
    attributes = world.made[0].attributes
    shown = attributes.get("isthmus.tool.call.argument_names"), attributes.get("gen_ai.tool.call.arguments")
    assert shown == {
        "never": (None, None),
        "keys": (["password", "n"], None),
        "full": (None, '{"password":"' + SECRET + '","n":[1]}'),
    }.get(arguments)
    assert (SECRET in repr(world.made)) is (arguments == "full")


def test_large_arguments_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "KEYS_MAX", 3)
    params = b'{"arguments":{%b}}' % b",".join(b'"k%d":"%b"' % (n, b"x" * 2000) for n in range(9))
    world = World("full")
    world.start(params=params)
    world.end()
    assert len(str(world.made[0].attributes["gen_ai.tool.call.arguments"])) == spans.ARGUMENTS_MAX_CHARS
    assert world.made[0].size_bytes == spans.SPAN_BYTES + 4 * spans.ARGUMENTS_MAX_CHARS
    world = World("keys")
    world.start(params=params)
    world.end()
    assert world.made[0].attributes["isthmus.tool.call.argument_names"] == ["k0", "k1", "k2"]


def test_no_more_spans_are_open_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "OPEN_MAX", 10)
    world = World()
    for number in range(25):
        world.start(number)
        world.send(number)
    assert world.spans.lost == 30
    for number in range(25):
        world.end(number=number)
    assert len(world.made) == 20
