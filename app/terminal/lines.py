"""The lines of `isthmus tail`: a request, a message, or a line of a server, for people."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

from ..base.output import plain, short
from ..base.sizes import format_size
from .events import Event

KNOWN_MAX: Final = 5_000
"""Requests and sessions, of each kind, that are remembered: more are seldom open at a time. At it: the oldest are
forgotten, and messages of theirs show no client and no target."""
_ROUTE: Final = 34
_WHAT: Final = 34
_OUTCOME: Final = 12
_MS: Final = 10
_DIM, _RED, _YELLOW = "2", "31", "33"
_COLOURS: Final = {"error": _RED, "tool error": _RED, "cancelled": _YELLOW, "open": _YELLOW}
_V = TypeVar("_V")


class Line(NamedTuple):
    """A line, as parts with the colour that each has; "" for none."""

    parts: list[tuple[str, str]]

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.parts).rstrip()

    @property
    def painted(self) -> str:
        return "".join(f"\x1b[{colour}m{text}\x1b[0m" if colour else text for text, colour in self.parts).rstrip()


class Known:
    """The requests and sessions that are known, for the events that only name them."""

    def __init__(self) -> None:
        self._requests: dict[str, Event] = {}
        self._clients: dict[str, str] = {}

    def learn(self, events: Iterable[Event]) -> None:
        """Learns from events, before one of them is shown: a request comes after its first messages."""
        for event in events:
            if event.type == "request":
                _put(self._requests, event.request, event)
            if event.type in ("request", "session") and event.client:
                _put(self._clients, event.session, event.client)

    def row(self, event: Event) -> dict[str, object]:
        """Returns the fields of an event that a filter looks at, as the live page has them."""
        about = self._requests.get(event.request) if event.type == "message" else None
        request = event if about is None else about
        is_message = event.type == "message"
        is_request = event.type == "request"
        return {
            "server": event.server,
            "servers": ", ".join(dict.fromkeys(attempt.server for attempt in request.attempts)),
            "client": request.client or self._clients.get(event.session, ""),
            "method": event.method or request.method,
            "target": request.target,
            "outcome": event.outcome,
            "state": event.state,
            "ms": event.ms,
            "response_bytes": event.bytes if is_message else event.response_bytes if is_request else None,
            "session": event.session,
            "principal": request.principal,
            "id": event.id,
            "code": event.code,
            "kind": "request" if is_request else event.kind or event.type,
            "transport": request.transport,
            "revision": request.revision,
            "text": event.text,
        }


def _put(table: dict[str, _V], key: str, value: _V) -> None:
    table.pop(key, None)
    table[key] = value
    if len(table) > KNOWN_MAX:
        del table[next(iter(table))]


def line_of(event: Event, row: dict[str, object]) -> Line:
    """Returns the line of an event with its `Known.row`."""
    time = (f"{_clock(event.at)}  ", _DIM)
    match event.type:
        case "request":
            return Line([time, *_request(event, row)])
        case "message":
            return Line([time, *_message(event, row)])
    says = "stderr" if event.type == "stderr" else event.level
    return Line([time, (f"{_shown(event.server)} {plain(says)}: ", _DIM), (plain(event.text), "")])


def _request(event: Event, row: dict[str, object]) -> list[tuple[str, str]]:
    server = _shown(event.server)
    behind = "" if row["servers"] in ("", event.server) else f" ({_shown(row['servers'])})"
    outcome = "open" if event.state == "open" else event.outcome
    shown = outcome if event.code is None else f"{outcome} {event.code}"
    parts = [
        (f"{_shown(row['client'])} → {server}{behind}".ljust(_ROUTE) + "  ", ""),
        (_what(row).ljust(_WHAT) + "  ", ""),
        (plain(shown).ljust(_OUTCOME) + "  ", _COLOURS.get(outcome, "")),
    ]
    if event.state != "open":
        size = format_size(event.response_bytes)
        parts.append((f"{_ms(event.ms)}  {size:>10}", ""))
    return parts


def _message(event: Event, row: dict[str, object]) -> list[tuple[str, str]]:
    peer = _shown(event.server if event.leg == "server" else row["client"])
    route = f"{peer} → isthmus" if event.way == "in" else f"isthmus → {peer}"
    named = " ".join(plain(part) for part in (event.kind, event.id) if part)
    return [
        (route.ljust(_ROUTE) + "  ", _DIM),
        (_what(row).ljust(_WHAT) + "  ", ""),
        (named.ljust(_OUTCOME) + "  ", _DIM),
        (f"{format_size(event.bytes):>{_MS + 12}}", ""),
    ]


def _what(row: dict[str, object]) -> str:
    return " ".join(_shown(row[name]) for name in ("method", "target") if row[name]) or "-"


def _shown(text: object) -> str:
    return plain(short(str(text))) if text else "-"


def _ms(ms: float | None) -> str:
    return ("" if ms is None else f"{ms:.1f} ms" if ms < 9.95 else f"{ms:.0f} ms").rjust(_MS)


def _clock(at: float) -> str:
    """Returns the local time of the day, with milliseconds."""
    try:
        return datetime.fromtimestamp(at).strftime("%H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return "-"
