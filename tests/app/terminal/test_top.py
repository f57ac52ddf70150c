"""Tests of the figures and the table of `isthmus top`, with fixed events."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from isthmus.app.commands.http_client import Isthmus
from isthmus.app.terminal import figures as figures_module
from isthmus.app.terminal import top as top_module
from isthmus.app.terminal.events import Event, Feed
from isthmus.app.terminal.figures import Figures, Look, Rates
from isthmus.app.terminal.table import ROWS_MIN, SORTS, fitted, painted, screen
from isthmus.app.terminal.top import Top

Json = dict[str, Any]
NOW = 1000.0


def event(key: str, at: float, ms: float | None, *, outcome: str = "", server: str = "files", **members: Any) -> Event:
    whole: Json = {"n": 1, "type": "request", "request": key, "at": at, "client": "cursor 1.4", "method": "tools/call"}
    whole |= {"server": "all", "target": "read", "state": "open" if ms is None else "over", "ms": ms}
    whole |= {"outcome": outcome, "attempts": [{"server": server}] if server else []} | members
    return msgspec.convert(whole, Event)


def server(name: str, state: str = "running", **members: Any) -> Json:
    return {"name": name, "state": state, "sessions": 1, "processes": 1, "in_flight": 0} | members


def session(name: str, state: str = "open", open_requests: int = 0) -> Event:
    return Event(1, "session", NOW - 65, session=name, client="c", server="s", state=state, open_requests=open_requests)


def test_the_requests_of_the_last_minute_are_counted_by_server() -> None:
    figures = Figures()
    figures.add([event("old", NOW - 100, 10)], NOW)
    times = [event(f"{n}", NOW - 50 + n, n * 10.0, outcome="error" if n == 1 else "result") for n in range(1, 21)]
    figures.add([*times, event("own", NOW - 1, 1.0, server="", outcome="tool error")], NOW)
    rates = figures.look([], [], NOW).rates
    assert rates["files"] == Rates(20 / 60, 1 / 60, 100.0, 190.0)
    assert rates["all"] == Rates(1 / 60, 1 / 60, 1.0, 1.0)
    later = figures.look([], [], NOW + 20).rates["files"]
    assert later == Rates(11 / 60, 0, 150.0, 200.0), "those that ended more than a minute ago are gone"
    assert figures.look([], [], NOW + 90).rates["files"] == Rates()


def test_the_rate_is_that_of_the_time_looked_at() -> None:
    figures = Figures()
    figures.look([], [], NOW)
    figures.add([event(f"{n}", NOW + 1, 1.0) for n in range(8)], NOW + 4)
    assert figures.look([], [], NOW + 4).rates["files"].requests_per_s == 2


def test_open_requests_are_listed_until_they_end() -> None:
    figures = Figures()
    listening = event("l", NOW - 500, None, method="subscriptions/listen")
    figures.add([event("a", NOW - 3, None), event("b", NOW - 9, None), listening], NOW)
    assert [one.request for one in figures.look([], [], NOW).open] == ["b", "a"]
    figures.add([event("b", NOW - 9, 9000.0)], NOW)
    sessions = [session("x"), session("y", open_requests=2), session("z", "over")]
    look = figures.look([server("files", status="stopping")], sessions, NOW)
    shown = look.as_json()
    assert [(one["request"], one["ms"], one["target"]) for one in shown["open"]] == [("a", 3000.0, "read")]
    assert [one["session"] for one in shown["sessions"]] == ["y", "x"]
    assert shown["servers"][0] | {"requests_per_s": 0, "errors_per_s": 0} == {
        "name": "files",
        "state": "stopping",
        "sessions": 1,
        "processes": 1,
        "in_flight": 0,
        "requests_per_s": 0,
        "errors_per_s": 0,
        "p50_ms": 9000.0,
        "p95_ms": 9000.0,
    }
    figures.forget_open()
    assert figures.look([], [], NOW).open == []


def test_figures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPEN_MAX", "SERVERS_MAX", "TIMES_MAX"):
        monkeypatch.setattr(figures_module, name, 2)
    figures = Figures()
    figures.add([event(f"o{n}", NOW - n, None) for n in range(5)], NOW)
    figures.add([event(f"{n}", NOW - 2, 2.0 + n, server=f"s{n % 3}") for n in range(12)], NOW)
    look = figures.look([], [], NOW)
    assert [one.request for one in look.open] == ["o4", "o3"]
    assert set(look.rates) == {"s0", "s1"}
    assert (look.rates["s0"].requests_per_s, look.rates["s0"].p95_ms) == (1.0, 5.0), "all are counted, two are timed"


def look_of(servers: int, opens: int, sessions: int) -> Look:
    figures = Figures()
    figures.add([event(f"o{n}", NOW - 61, None, client="c\x1b[8m") for n in range(opens)], NOW)
    listed = [server(f"s{n}", in_flight=n) for n in range(servers)]
    return figures.look(listed, [session(f"x{n}") for n in range(sessions)], NOW)


def test_the_table() -> None:
    figures = Figures()
    figures.add([event("1", NOW - 61, 0.5), event("2", NOW - 1, 41.8, outcome="error")], NOW)
    shown = screen(figures.look([server("files"), server("b\n", "failed", sessions=None)], [session("x")], NOW))
    assert shown == [
        "SERVER  STATE    SESSIONS  PROCESSES  OPEN  REQ/S  ERR/S    P50    P95",
        "files   running         1          1     0    0.0    0.0  42 ms  42 ms",
        "b\\n     failed          -          1     0    0.0    0.0      -      -",
        "",
        "SESSION  CLIENT  SERVER  CALLER  REQUESTS  OPEN  AGE",
        "x        c       s       -              0     0  1m 5s",
    ]
    assert all(line.isprintable() for line in screen(look_of(1, 2, 0)))
    assert screen(look_of(1, 1, 0))[4].split() == ["1m", "1s", "c\\x1b[8m", "all", "tools/call", "read"]


def test_servers_are_sorted_by_each_column() -> None:
    look = look_of(3, 0, 0)
    assert [line.split()[0] for line in screen(look)[1:]] == ["s0", "s1", "s2"]
    assert [line.split()[0] for line in screen(look, "in_flight")[1:]] == ["s2", "s1", "s0"]
    assert all(len(screen(look, sort)) == 4 for sort in SORTS)


@pytest.mark.parametrize("rows", [1, 2, 10, 17, 24, 50, 500])
def test_the_table_fits_the_terminal(rows: int) -> None:
    lines = fitted(look_of(30, 30, 30), SORTS[0], "top", rows)
    assert len(lines) <= rows
    if rows >= 17:
        assert [line for line in lines if line.startswith(("SERVER", "OPEN FOR", "SESSION"))][2:], "each table is there"
    shown = "\n".join(lines)
    assert ("more" in shown) == (2 < rows < 100)
    assert ROWS_MIN > 1


def test_states_and_headings_are_coloured() -> None:
    assert painted("SERVER  STATE") == "\x1b[1mSERVER  STATE\x1b[0m"
    assert painted("a  failed   1") == "a  \x1b[31mfailed\x1b[0m   1"
    assert painted("a  running  1") == "a  running  1"


class Gateway:
    """A gateway with one request in each answer, which has always more."""

    is_page, asked = True, 0

    def __init__(self) -> None:
        self.runs = ["a"]

    def body(self, method: str, path: str, timeout_s: float) -> bytes:
        if path == "/ui/api/sessions":
            return b'{"sessions":[]}'
        self.asked += 1
        n = self.asked
        opened = msgspec.to_builtins(event(f"{n}", NOW - 1, None)) | {"n": n}
        events = [] if f"after={2**53}" in path else [opened]
        return msgspec.json.encode({"run": self.runs[-1], "last": 999, "skipped": 0, "events": events})

    def servers(self) -> list[Json]:
        return [server("files")]


def test_a_look_reads_so_many_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_module, "PORTIONS_MAX", 3)
    gateway = Gateway()
    top = Top(Feed(lambda: cast(Isthmus, gateway)))
    top.begin()
    assert len(top.look(NOW).open) == 3
    assert len(top.look(NOW).open) == 6
    gateway.runs.append("b")
    assert len(top.look(NOW).open) == 2, "what the gateway did before it was started anew is forgotten"
