"""Tests of `isthmus tail` with events as the API has them."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest
from isthmus.app.base.errors import Failed
from isthmus.app.commands.http_client import Isthmus, Unreachable
from isthmus.app.terminal import lines as lines_module
from isthmus.app.terminal.events import Event, Feed
from isthmus.app.terminal.filter import compiled
from isthmus.app.terminal.lines import Known, line_of
from isthmus.app.terminal.tail import Tail, Wanted

Json = dict[str, Any]


def request(n: int, key: str = "1.0", state: str = "over", **members: Any) -> Json:
    whole = {
        "n": n,
        "type": "request",
        "request": key,
        "at": 0,
        "session": "S",
        "client": "cursor 1.4",
        "server": "all",
    }
    whole |= {"method": "tools/call", "target": "read", "state": state, "outcome": "", "code": None, "ms": None}
    if state == "over":
        whole |= {"outcome": "result", "ms": 41.8, "response_bytes": 2211}
    return whole | {"attempts": [{"server": "files", "at": 0, "ms": None}]} | members


def message(n: int, leg: str, way: str, **members: Any) -> Json:
    whole = {
        "n": n,
        "type": "message",
        "at": 0,
        "leg": leg,
        "way": way,
        "channel": 1,
        "session": "S",
        "server": "files",
    }
    return whole | {"kind": "request", "id": "3", "method": "tools/call", "request": "1.0", "bytes": 120} | members


def news(events: list[Json], last: int = 0, run: str = "a", skipped: int = 0) -> Json:
    return {"run": run, "after": 0, "last": last or max((one["n"] for one in events), default=0)} | {
        "skipped": skipped,
        "events": events,
    }


class Gateway:
    """A gateway that gives these answers, one for each question for events."""

    url, is_page = "http://x", True

    def __init__(self, *answers: Json | Exception, sessions: list[Json] | None = None) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self._sessions = {"sessions": sessions or []}

    def body(self, method: str, path: str, timeout_s: float) -> bytes:
        if path == "/ui/api/sessions":
            return json.dumps(self._sessions).encode()
        self.asked.append(path.partition("after=")[2])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return json.dumps(answer).encode()

    def no_isthmus(self, why: str) -> Failed:
        return Failed(why)


def followed(gateway: Gateway, *, lines: int = 0, filter: str = "", **wanted: bool) -> list[str]:
    """Returns what is printed until the gateway has no more answers; what is no line begins with "!"."""
    printed: list[str] = []
    kinds = {"opens": False, "messages": False, "stderr": False, "as_json": False} | wanted

    def say(event: Event, raw: msgspec.Raw, row: dict[str, object]) -> None:
        printed.append(line_of(event, row).text.partition("  ")[2])

    tail = Tail(
        Feed(lambda: cast(Isthmus, gateway)),
        Wanted(compiled(filter), **kinds),
        say=say,
        complain=lambda text: printed.append(f"! {text}"),
        sleep=lambda seconds: None,
    )
    tail.begin(lines)
    tail.follow(lambda: bool(gateway.answers))
    return printed


def words(printed: list[str]) -> list[list[str]]:
    return [line.split() for line in printed]


CALL = ["cursor", "1.4", "→", "all", "(files)", "tools/call", "read"]


def test_a_request_is_a_line_when_it_is_over() -> None:
    events = [
        message(1, "client", "in"),
        request(2),
        {"n": 3, "type": "stderr", "at": 0, "server": "files", "text": "x"},
    ]
    assert words(followed(Gateway(news([]), news(events)))) == [[*CALL, "result", "42", "ms", "2.2", "KiB"]]
    failed = request(4, outcome="error", code=-32602, ms=0.4, response_bytes=7, attempts=[])
    (line,) = words(followed(Gateway(news([]), news([failed]))))
    assert line == ["cursor", "1.4", "→", "all", "tools/call", "read", "error", "-32602", "0.4", "ms", "7", "B"]


def test_the_start_of_a_request_is_shown_once() -> None:
    answers = [news([]), news([request(1, state="open")]), news([request(2, state="open")]), news([request(3)])]
    assert [line[7:8] for line in words(followed(Gateway(*answers), opens=True))] == [["open"], ["result"]]


def test_messages_have_the_target_of_their_request_and_lines_their_server() -> None:
    legs = [("client", "in"), ("server", "out"), ("server", "in"), ("client", "out")]
    events = [message(n, leg, way) for n, (leg, way) in enumerate(legs, 1)] + [request(5)]
    for each in events[2:4]:
        each |= {"kind": "response", "method": ""}
    events += [
        {"n": 6, "type": "stderr", "at": 0, "server": "files", "text": "a\x1b[31mb\n"},
        {"n": 7, "type": "note", "level": "warning", "at": 0, "server": "files", "text": "slow"},
    ]
    printed = followed(Gateway(news([]), news(events)), messages=True, stderr=True)
    assert [line[:-2] for line in words(printed)[:4]] == [
        ["cursor", "1.4", "→", "isthmus", "tools/call", "read", "request", "3"],
        ["isthmus", "→", "files", "tools/call", "read", "request", "3"],
        ["files", "→", "isthmus", "tools/call", "read", "response", "3"],
        ["isthmus", "→", "cursor", "1.4", "tools/call", "read", "response", "3"],
    ]
    assert printed[5:] == ["files stderr: a\\x1b[31mb\\n", "files warning: slow"]
    assert len(followed(Gateway(news([]), news(events)), filter="target:read id:3", messages=True, stderr=True)) == 4


def test_text_of_peers_stays_on_its_line() -> None:
    hostile = request(1, client="c\x1b[8m\n\u202e", target="\u0085t" * 900, method="tools/call\n")
    (line,) = followed(Gateway(news([]), news([hostile])))
    assert line.isprintable() and len(line) < 400


def test_the_last_lines_come_first() -> None:
    first = [news([], last=30_000), news([request(n, f"{n}.0", target=f"t{n}") for n in (1, 2, 3)], last=4)]
    gateway = Gateway(*first, news([request(4, "4.0", target="t4")], skipped=9), news([request(5, target="t5")]))
    assert [line[6] for line in words(followed(gateway, lines=2))] == ["t3", "t4", "t5"]
    assert [asked.partition("&")[0] for asked in gateway.asked[1:]] == ["10000", "3", "4"]
    gateway = Gateway(news([], last=7), news([]))
    assert followed(gateway) == [] and gateway.asked[1].startswith("7&")


def test_what_is_no_line_is_told() -> None:
    lost = Unreachable("it is gone")
    answers = [news([], last=5), lost, lost, news([request(6)], run="b"), news([request(1)], run="b", skipped=3)]
    assert [line for line in followed(Gateway(*answers)) if line.startswith("!")] == [
        "! it is gone; trying again every 1 s",
        "! connected again",
        "! the gateway has started anew",
        "! 3 skipped: the gateway has dropped so many records before they were read",
    ]
    for answer, why in ((Failed("no token"), "no token"), ({"events": 1}, "it sends no events")):
        with pytest.raises(Failed, match=why):
            followed(Gateway(news([]), cast(Json, answer)))


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "KNOWN_MAX", 2)
    known = Known()
    known.learn(msgspec.convert(request(n, f"{n}.0", session=f"S{n}"), Event) for n in range(5))

    def shown(n: int) -> object:
        event = message(9, "client", "in", request=f"{n}.0", session=f"S{n}")
        return known.row(msgspec.convert(event, Event))["target"]

    assert [shown(n) for n in range(5)] == ["", "", "", "read", "read"]
