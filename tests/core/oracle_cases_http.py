"""Cases of the oracle: the rules of HTTP: heads, sessions and streams."""

from __future__ import annotations

from typing import Any

from isthmus.core.oracle import Verb
from oracle_case import HTTP, SSE, case
from wire_scenes import BOTH, CLIENT, EVENTS, JSON, SERVER, Wire

# --- HTTP -------------------------------------------------------------------------------------------------------------


@case("accept", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.reply(w.call(head={"accept": JSON if broken else BOTH}))


@case("accepted-status", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.notify("own/thing", head={"mirrored": None}, status=200 if broken else 202)


@case("content-type", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    id = w.call()
    w.head(w.channels[id], 200, "text/plain" if broken else JSON)
    w.reply(id)


@case("content-type", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    if w.is_stateless:
        id = w.call()
        w.head(w.channels[id], 202 if broken else 200, JSON)
        w.reply(id)
    else:
        w.head(w.open(Verb.GET), 200, JSON if broken else EVENTS)


@case("error-status", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    id = w.request("own/thing")
    w.head(w.channels[id], 200 if broken else 404, JSON)
    w.answer(id, error={"code": -32601, "message": ""})


@case("session-id-form", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.initialize()
    w.answer_initialize(session="a b" if broken else "a~b")


@case("session-id-given", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    id = w.call()
    w.begin(id, "S2" if broken else "S1")
    w.reply(id)


@case("session-id-given", HTTP)
def _(w: Wire, broken: bool) -> None:
    """A refusal gives no session id, whatever its head holds."""
    w.handshake()
    id = w.call()
    w.head(w.channels[id], 200 if broken else 400, JSON, "S2")
    w.answer(id, error={"code": -32600, "message": ""})


@case("session-id-missing", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.reply(w.call(head={"session": None if broken else "S1"}))


@case("session-id-missing", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.listen(session="S2" if broken else "S1")


def _lose(w: Wire) -> None:
    w.handshake()
    w.call(1)
    w.head(w.channels[1], 404, "")
    w.end(w.channels[1])


@case("session-id-lost", HTTP)
def _(w: Wire, broken: bool) -> None:
    _lose(w)
    if broken:
        w.call(2)
        w.head(w.channels[2], 404, "")
        w.end(w.channels[2])


@case("session-revived", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    first = w.open(Verb.GET)
    w.head(w.open(Verb.DELETE), 200 if broken else 405, "")
    w.head(first)  # it was asked for before
    w.head(w.open(Verb.GET, session="S1"))
    if broken:
        w.seen[-2] = w.seen[-2]


@case("session-end-status", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.head(w.open(Verb.DELETE), 200 if broken else 405, "")
    w.head(w.open(Verb.GET), 400, "")


for _none in ("1999-01-01", "2025", ""):

    def _unspoken(w: Wire, broken: bool, none: str = _none) -> None:
        w.handshake()
        w.head(w.open(Verb.GET, revision=none if broken else w.revision))

    case("version-refused", HTTP)(_unspoken)


@case("mismatch-refused", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.reply(w.call(head={"mirrored": (("Mcp-Method", "tools/call"), ("Mcp-Name", "u" if broken else "t"))}))


@case("session-stateless", HTTP)
def _(w: Wire, broken: bool) -> None:
    id = w.call()
    w.begin(id, "S1" if broken else None)
    w.reply(id)


@case("version-header-missing", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.reply(w.call(head={"revision": None if broken else w.revision}))


@case("version-header", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.reply(w.call(head={"revision": "2024-11-05" if broken else w.revision}))


@case("mirrored-method", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.reply(w.call(head={"mirrored": (("mcp-method", "tools/list" if broken else "tools/call"), ("Mcp-Name", "t"))}))


@case("mirrored-method", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.reply(w.request("tools/list", head={"mirrored": () if broken else (("MCP-METHOD", "tools/list"),)}))


for _good, _bad in (("=?base64?w7w=?=", "=?base64?w7w?="), ("=?base64?w7w=?=", "ü"[:0] + "u")):

    def _wrapped(w: Wire, broken: bool, good: str = _good, bad: str = _bad) -> None:
        w.reply(
            w.call(name="ü", head={"mirrored": (("Mcp-Method", "tools/call"), ("Mcp-Name", bad if broken else good))})
        )

    case("mirrored-name", HTTP)(_wrapped)

_SCHEMA = {
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "deep": {"properties": {"count": {"type": "integer", "x-mcp-header": "Count"}}},
        "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        "free": {"type": "string"},
    }
}
_ARGUMENTS = {"region": "eu", "deep": {"count": 42}, "dry": True}
_MIRRORED = {"Mcp-Param-Region": "eu", "Mcp-Param-Count": "42.0", "Mcp-Param-Dry": "true"}
for _wrong in ({"Mcp-Param-Region": "us"}, {"Mcp-Param-Count": "43"}, {"Mcp-Param-Count": "x"}, {"Mcp-Param-Dry": "1"}):

    def _mirrors(w: Wire, broken: bool, wrong: dict[str, str] = _wrong) -> None:
        w.reply(w.request("tools/list"), tools=[{"name": "t", "inputSchema": _SCHEMA}, 1])
        lines = {"Mcp-Method": "tools/call", "Mcp-Name": "t", **_MIRRORED, **(wrong if broken else {})}
        w.reply(w.call(arguments=_ARGUMENTS, head={"mirrored": tuple(lines.items())}))

    case("mirrored-argument", HTTP)(_mirrors)


@case("mirrored-argument", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.reply(w.request("tools/list"), tools=[{"name": "t", "inputSchema": _SCHEMA}])
    lines = {"Mcp-Method": "tools/call", "Mcp-Name": "t", **({"mcp-param-dry": "true"} if broken else {})}
    w.reply(w.call(head={"mirrored": tuple(lines.items())}))


@case("response-on-get", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    id = w.call()
    channel = w.begin(id)
    w.raw(SERVER, b"", channel, event_id="e1")
    w.end(channel)
    w.channels[id] = w.listen(last_event_id=None if broken else "e1")
    w.reply(id)


@case("response-stream", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    first, second = w.call(), w.call()
    w.begin(first)
    w.begin(second)
    if broken:
        w.channels[first], w.channels[second] = w.channels[second], w.channels[first]
    w.reply(first, is_last=False)
    w.reply(second, is_last=False)


@case("unrelated-on-stream", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    first, second = w.call(meta=w.meta(progressToken=1)), w.call()
    w.tell("notifications/progress", second if broken else first, progressToken=1, progress=1)
    w.reply(first)
    w.reply(second)


@case("stream-goes-on", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    id = w.call()
    if not broken:
        w.tell("own/thing", id)
    w.reply(id, is_last=not broken)
    if broken:
        w.tell("own/thing", id)


@case("stream-ended-early", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    id = w.call()
    w.begin(id)
    w.end(w.channels[id], SERVER if broken else None)


def _replay(w: Wire) -> tuple[Any, int]:
    w.handshake()
    id = w.call(meta=w.meta(progressToken=1))
    channel = w.begin(id)
    w.send(SERVER, _PROGRESS, channel, event_id="e1")
    w.send(SERVER, {**_PROGRESS, "params": {"progressToken": 1, "progress": 2}}, channel, event_id="e2")
    w.end(channel, None)
    return id, channel


_PROGRESS = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}


@case("event-id-reused", HTTP)
def _(w: Wire, broken: bool) -> None:
    id, _ = _replay(w)
    w.channels[id] = w.listen(last_event_id="e1")
    again = {**_PROGRESS, "params": {"progressToken": 1, "progress": 3 if broken else 2}}
    w.send(SERVER, again, w.channels[id], event_id="e2")
    w.reply(id)


@case("event-id-reused", HTTP)
def _(w: Wire, broken: bool) -> None:
    id, _ = _replay(w)
    channel = w.listen(last_event_id=None)
    w.send(SERVER, {"jsonrpc": "2.0", "method": "own/thing"}, channel, event_id="e2" if broken else "e3")
    w.channels[id] = w.listen(last_event_id="e2")
    w.reply(id)


@case("replay-stream", HTTP)
def _(w: Wire, broken: bool) -> None:
    first, _ = _replay(w)
    second = w.call()
    channel = w.begin(second)
    w.raw(SERVER, b"", channel, event_id="f1")
    w.end(channel, None)
    one, two = w.listen(last_event_id="e1"), w.listen(last_event_id="f1")
    w.channels[first], w.channels[second] = (two, one) if broken else (one, two)
    w.reply(first, is_last=False)
    w.reply(second, is_last=False)


@case("replay-stream", HTTP)
def _(w: Wire, broken: bool) -> None:
    first, _ = _replay(w)
    get = w.listen()
    w.send(SERVER, {"jsonrpc": "2.0", "method": "own/thing"}, get, event_id="g1")
    w.send(SERVER, {"jsonrpc": "2.0", "method": "own/thing"}, get, event_id="g2")
    w.end(get, None)
    again = w.listen(last_event_id="e1" if broken else "g1")
    w.send(SERVER, {"jsonrpc": "2.0", "method": "own/thing"}, again, event_id="g2")
    w.channels[first] = w.listen(last_event_id="e2")
    w.reply(first)


@case("endpoint-first", SSE)
def _(w: Wire, broken: bool) -> None:
    w.stream = w.listen()
    if not broken:
        w.raw(SERVER, b"/messages", w.stream, event="endpoint")
    w.send(SERVER, {"jsonrpc": "2.0", "method": "own/thing"}, w.stream)
    w.seen = w.seen[:]


@case("endpoint-first", SSE)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.send(SERVER, {"jsonrpc": "2.0", "method": "own/thing"}, w.stream, event="other" if broken else "message")


@case("message-on-post", SSE)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    channel = w.open()
    w.send(CLIENT, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, channel)
    w.head(channel)
    w.send(SERVER, {"jsonrpc": "2.0", "id": 1, "result": {}}, channel if broken else w.stream)
    w.end(channel)
