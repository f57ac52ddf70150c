"""The figures of `isthmus top`, from the events of the last minute and the pages of servers and sessions."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from ..commands.http_client import Json
from .events import Event

MINUTE_S: Final = 60.0
SECOND_S: Final = 1.0
"""Seconds whose requests are counted together."""
TIMES_MAX: Final = 200
"""Durations of one second of one server that are kept, which is enough for percentiles. At it: the others of that
second are counted only."""
SERVERS_MAX: Final = 1_000
"""Servers whose requests are counted. More are seldom configured. At it: the requests of others are not counted."""
OPEN_MAX: Final = 10_000
"""Open requests that are remembered. At it: the oldest are forgotten."""
_FAILED: Final = ("error", "tool error")
_LASTING: Final = ("subscriptions/listen",)
"""Requests that are open for as long as their client wants: neither slow nor fast."""


class _Second:
    """The requests that ended in one second."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0
        self.errors = 0
        self.times_ms: list[float] = []


class Rates(NamedTuple):
    """The requests of a server in the last minute; None if there were none."""

    requests_per_s: float = 0.0
    errors_per_s: float = 0.0
    p50_ms: float | None = None
    p95_ms: float | None = None


class Look(NamedTuple):
    """A look at a gateway.

    Attributes:
        at: the time, in seconds since 1970.
        servers: the servers as `GET /servers` shows them.
        open: the open requests, the slowest first.
        sessions: the open sessions, those with the most open requests first.
    """

    at: float
    servers: list[Json]
    rates: dict[str, Rates]
    open: list[Event]
    sessions: list[Event]

    def as_json(self) -> Json:
        """Returns the look for programs."""
        return {
            "at": round(self.at, 3),
            "servers": [server_figures(server, self.rates_of(server)) for server in self.servers],
            "open": [
                {name: getattr(one, name) for name in _OPEN_NAMES} | {"ms": round((self.at - one.at) * 1000, 1)}
                for one in self.open
            ],
            "sessions": [{name: getattr(one, name) for name in _SESSION_NAMES} for one in self.sessions],
        }

    def rates_of(self, server: Json) -> Rates:
        return self.rates.get(str(server.get("name")), Rates())


_OPEN_NAMES: Final = ("request", "at", "session", "client", "principal", "server", "method", "target")
_SESSION_NAMES: Final = (
    *("session", "at", "client", "principal", "server", "transport", "revision"),
    *("requests", "open_requests"),
)


def server_figures(server: Json, rates: Rates) -> dict[str, Any]:
    """Returns the members of a server in JSON."""
    state = "stopping" if server.get("status") == "stopping" else server.get("state")
    known = {name: server.get(name) for name in ("sessions", "processes", "in_flight")}
    shown = {name: None if value is None else round(value, 3) for name, value in rates._asdict().items()}
    return {"name": server.get("name"), "state": state, **known, **shown}


class Figures:
    """The requests of the last minute, by server, and those that are open."""

    def __init__(self) -> None:
        self._seconds: dict[str, deque[_Second]] = {}
        self._open: dict[str, Event] = {}
        self._since = math.inf

    def forget_open(self) -> None:
        """Forgets what is open: the ends of some requests may have been skipped."""
        self._open.clear()

    def add(self, events: Iterable[Event], now: float) -> None:
        """Adds events, the oldest first."""
        for event in events:
            self._since = min(self._since, event.at or now)
            if event.type != "request" or event.method in _LASTING:
                continue
            if event.state == "open":
                self._open[event.request] = event
                if len(self._open) > OPEN_MAX:
                    del self._open[next(iter(self._open))]
            else:
                self._open.pop(event.request, None)
                if event.at + (event.ms or 0) / 1000 > now - MINUTE_S:
                    self._count(event)

    def look(self, servers: list[Json], sessions: Iterable[Event], now: float) -> Look:
        """Returns what is known now.

        Args:
            sessions: as the gateway lists them, those that are over, too.
        """
        self._since = min(self._since, now)
        covered_s = max(SECOND_S, min(MINUTE_S, now - self._since))
        rates = {server: self._rates(seconds, covered_s, now) for server, seconds in self._seconds.items()}
        shown = [session for session in sessions if session.state == "open"]
        shown.sort(key=lambda one: (-one.open_requests, one.at))
        return Look(now, servers, rates, sorted(self._open.values(), key=lambda one: one.at), shown)

    def _count(self, event: Event) -> None:
        """Counts a request for each server that got it; for its endpoint, if the gateway answered it itself."""
        ended = int(event.at + (event.ms or 0) / 1000)
        for server in {attempt.server for attempt in event.attempts} or {event.server}:
            if server not in self._seconds and len(self._seconds) >= SERVERS_MAX:
                continue
            seconds = self._seconds.setdefault(server, deque(maxlen=int(MINUTE_S) + 1))
            if not seconds or seconds[-1].at < ended:
                seconds.append(_Second(ended))
            second = next((one for one in reversed(seconds) if one.at <= ended), seconds[0])
            second.count += 1
            second.errors += event.outcome in _FAILED
            if event.ms is not None and len(second.times_ms) < TIMES_MAX:
                second.times_ms.append(event.ms)

    def _rates(self, seconds: deque[_Second], covered_s: float, now: float) -> Rates:
        while seconds and seconds[0].at <= now - MINUTE_S - SECOND_S:
            seconds.popleft()
        times = sorted(ms for second in seconds for ms in second.times_ms)
        return Rates(
            sum(second.count for second in seconds) / covered_s,
            sum(second.errors for second in seconds) / covered_s,
            _percentile(times, 0.5),
            _percentile(times, 0.95),
        )


def _percentile(times: list[float], part: float) -> float | None:
    """Returns the smallest time that so large a part of all does not exceed."""
    return times[math.ceil(part * len(times)) - 1] if times else None
