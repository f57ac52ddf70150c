"""For each rule of the oracle a conversation that keeps it, and the same with one thing in it that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from isthmus.core.oracle import Oracle, Transport, Verb
from wire_scenes import BOTH, CLIENT, EVENTS, JSON, SERVER, SERVER_CAN, TASKS, K, Wire, without
from wire_scenes import CLIENT_CAN as ABLE

Play = Callable[[Wire, bool], None]
PIPE, HTTP, SSE = Transport.PIPE, Transport.HTTP, Transport.EVENTS
V5 = "2026-07-28"


class Case(NamedTuple):
    """`play(wire, is_broken)` writes the conversation. `oracle` are further arguments of the oracle's."""

    rule: str
    transport: Transport
    play: Play
    oracle: dict[str, Any]


CASES: list[Case] = []


def case(rule: str, transport: Transport = PIPE, **oracle: Any) -> Callable[[Play], Play]:
    def keep(play: Play) -> Play:
        CASES.append(Case(rule, transport, play, oracle))
        return play

    return keep


def found(case: Case, revision: str, is_broken: bool) -> tuple[Wire, list[Any]]:
    """What the oracle says of a case, from the first observation to the end."""
    wire = Wire(revision, case.transport)
    case.play(wire, is_broken)
    oracle = Oracle(None if revision == V5 else revision, case.transport, **case.oracle)
    seen = [violation for each in wire.seen for violation in oracle.receive(each)]
    return wire, seen + oracle.finish()


# --- Messages ---------------------------------------------------------------------------------------------------------


def _odd(rule: str, *messages: bytes) -> None:
    for message in messages:

        def play(w: Wire, broken: bool, message: bytes = message) -> None:
            w.greet()
            w.raw(SERVER, message if broken else b'{"jsonrpc":"2.0","method":"own/thing"}', w.last_channel)

        case(rule)(play)


_odd("not-json", b"{", b"\xff", b'{"jsonrpc":NaN}', b"[" * 20_000)
_odd("not-jsonrpc", b"[]", b"1", b"{}", b'{"jsonrpc":"2.0"}', b'{"jsonrpc":"2.0","method":1}')
_odd("not-jsonrpc", b'{"jsonrpc":"2.0","method":"own/thing","params":[]}', b'{"jsonrpc":"1.0","method":"own/thing"}')
_odd("id-type", b'{"jsonrpc":"2.0","id":null,"method":"own/thing"}', b'{"jsonrpc":"2.0","id":1.5,"method":"own/thing"}')
_odd("id-type", b'{"jsonrpc":"2.0","id":true,"error":{"code":1,"message":""}}')
_odd("response-shape", b'{"jsonrpc":"2.0","id":1}', b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}')
_odd("response-shape", b'{"jsonrpc":"2.0","id":null,"result":{}}')


@case("result-type")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    if w.is_stateless and broken:
        w.answer(w.call(), result=[])
    else:
        w.answer(w.call(), **({"result": []} if broken else {"error": {"code": 1, "message": ""}}))


@case("error-shape")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.answer(w.call(), error={"code": "1" if broken else 1, "message": ""})


@case("error-shape")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.answer(w.call(), error="" if broken else {"code": 1, "message": ""})


@case("error-code-withdrawn")
def _(w: Wire, broken: bool) -> None:
    w.answer(w.call(), error={"code": -32002 if broken else -32602, "message": ""})


@case("error-code-reserved")
def _(w: Wire, broken: bool) -> None:
    w.answer(w.call(), error={"code": -32099 if broken else -32021, "message": ""})


@case("batch-unknown")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    ping = {"jsonrpc": "2.0", "method": "own/thing"}
    w.say(SERVER, [ping, ping] if broken else ping)


@case("batch-initialize")
def _(w: Wire, broken: bool) -> None:
    w.hello()
    if broken:
        first = w.seen.pop()
        w.raw(CLIENT, b"[" + first.message + b"]")  # type: ignore[union-attr]
    w.welcome()


def _names_of_two(revision: str, sender: Any, method: str, message: dict[str, Any]) -> str | None:
    return "a name of two" if message.get("params", {}).get("name") == "two" else None


@case("schema", check=_names_of_two)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.reply(w.call(name="two" if broken else "one"))


# --- Requests and their responses -------------------------------------------------------------------------------------


@case("id-reused")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.call(1)
    if not w.is_stateless or not broken:
        w.reply(1)
    w.call(1 if broken or w.is_stateless else "1")
    w.methods["1"] = "tools/call"
    w.channels["1"] = 0
    w.reply(1 if broken or w.is_stateless else "1")


@case("response-unknown")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.call(1)
    w.reply(1)
    if broken:
        w.methods["1"], w.channels["1"] = "tools/call", 0
        w.reply("1")


@case("response-twice")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.call(1)
    for _ in range(2 if broken else 1):
        w.reply(1)


@case("error-without-id")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    if broken:
        w.say(SERVER, {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": ""}})


@case("unanswered")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.call(1)
    if not broken:
        w.say(CLIENT, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})


@case("unanswered")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.call(1)
    if not broken:
        w.end(0, None)


@case("cancel-unknown")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.call(1)
    w.notify("notifications/cancelled", requestId="1" if broken else 1)
    if broken:
        w.reply(1)


@case("cancel-initialize")
def _(w: Wire, broken: bool) -> None:
    w.hello()
    if broken:
        w.notify("notifications/cancelled", requestId=0)
    w.welcome()


@case("cancel-of-task")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    id = w.call(task={"ttl": 1000})
    w.reply(id, task=task("a"))
    if broken:
        w.notify("notifications/cancelled", requestId=id)


@case("cancel-by-server")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.call(1)
    w.request("subscriptions/listen", 2, notifications={})
    w.tell("notifications/cancelled", requestId=1 if broken else 2)
    w.reply(1)


@case("cancel-over-http", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.call(1)
    if broken:
        w.notify("notifications/cancelled", head={"mirrored": None}, requestId=1)
        w.reply(1)
    else:
        w.end(w.channels[1], CLIENT)


# --- Methods and capabilities -----------------------------------------------------------------------------------------


@case("method-foreign")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    if broken:
        method = "ping" if w.is_stateless else "tasks/update"
        w.answer(w.request(method), error={"code": -32601, "message": ""})
    else:
        w.reply(w.request("tools/list"))


@case("method-direction")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    if broken and w.is_stateless:
        w.notify("notifications/progress", progressToken=1, progress=1)
    elif broken:
        w.answer(w.request("roots/list"), error={"code": -32601, "message": ""})


@case("method-kind")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    if broken:
        w.tell("tools/list" if False else "notifications/tools/list_changed", id=5) if not w.is_stateless else None
        if w.is_stateless:
            w.notify("tools/list")
        else:
            w.respond(5)


@case("request-by-server")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    id = w.call()
    if broken:
        w.tell("elicitation/create", id=1)
        w.respond(1)
    w.reply(id)


@case("capability-undeclared")
def _(w: Wire, broken: bool) -> None:
    w.greet(server_can=without(SERVER_CAN, "prompts") if broken else None)
    w.reply(w.request("prompts/list"))


@case("capability-undeclared")
def _(w: Wire, broken: bool) -> None:
    w.greet(without(ABLE, "roots", "listChanged") if broken else None)
    if not w.is_stateless:
        w.notify("notifications/roots/list_changed")
    else:
        w.reply(w.request("prompts/list" if not broken else "own/list"))
        if broken:
            w.seen.clear()
            w.greet(server_can=without(SERVER_CAN, "completions"))
            w.reply(w.request("completion/complete"))


@case("elicitation-mode")
def _(w: Wire, broken: bool) -> None:
    w.greet({"elicitation": {}})
    w.tell("elicitation/create", id=1, mode="url" if broken else "form", elicitationId="e")
    w.respond(1, action="cancel")


@case("sampling-tools")
def _(w: Wire, broken: bool) -> None:
    w.greet(without(ABLE, "sampling", "tools") if broken else None)
    w.tell("sampling/createMessage", id=1, tools=[])
    w.respond(1)


@case("elicitation-id")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.tell("elicitation/create", id=1, mode="url", elicitationId="e")
    w.respond(1, action="accept")
    w.answer(w.call(), error={"code": -32042, "message": "", "data": {"elicitations": [{"elicitationId": "f"}, 1]}})
    w.tell("notifications/elicitation/complete", elicitationId="f")
    w.tell("notifications/elicitation/complete", elicitationId="g" if broken else "e")


for _transport in (PIPE, HTTP):

    @case("log-unasked", _transport)
    def _(w: Wire, broken: bool) -> None:
        w.greet()
        id = w.call(meta=w.meta(**{K + "logLevel": "warning"}))
        w.tell("notifications/message", id, level="info" if broken else "error", data=1)
        w.reply(id)

    @case("log-unasked", _transport)
    def _(w: Wire, broken: bool) -> None:
        w.greet()
        id = w.call(meta=w.meta(**({} if broken else {K + "logLevel": "debug"})))
        w.tell("notifications/message", id, level="info", data=1)
        w.reply(id)


@case("log-stream", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    listen = w.request("subscriptions/listen", notifications={})
    acknowledge(w, listen, {})
    id = w.call(meta=w.meta(**{K + "logLevel": "debug"}))
    w.tell("notifications/message", listen if broken else id, level="info", data=1)
    w.reply(id)


# --- The handshake ----------------------------------------------------------------------------------------------------


@case("initialize-first")
def _(w: Wire, broken: bool) -> None:
    w.request("tools/list" if broken else "ping", 7)
    w.reply(7)
    w.greet()


@case("initialize-first")
def _(w: Wire, broken: bool) -> None:
    w.hello()
    if broken:
        w.welcome()
    else:
        w.answer(0, error={"code": -32602, "message": ""})
    info = {"name": "n", "version": "1"}
    params = {"protocolVersion": w.revision, "capabilities": {}, "clientInfo": info}
    w.request("initialize", 1, **params)
    w.reply(1, **{**params, "serverInfo": info})


@case("client-early")
def _(w: Wire, broken: bool) -> None:
    w.hello()
    id = w.request("tools/list" if broken else "ping")
    w.reply(id)
    w.welcome()


@case("initialized-missing")
def _(w: Wire, broken: bool) -> None:
    w.greet(is_ready=not broken)
    w.reply(w.call())
    w.reply(w.call())


@case("server-early")
def _(w: Wire, broken: bool) -> None:
    w.greet(is_ready=False)
    w.tell("roots/list" if broken else "ping", id=1)
    w.respond(1)


@case("initialize-params")
def _(w: Wire, broken: bool) -> None:
    w.hello(clientInfo=... if broken else {"name": "c", "version": "1"})
    w.welcome()


@case("initialize-result")
def _(w: Wire, broken: bool) -> None:
    w.hello()
    w.welcome(serverInfo={"name": "s"} if broken else {"name": "s", "version": "1"})


@case("version-answered")
def _(w: Wire, broken: bool) -> None:
    w.hello()
    w.welcome(protocolVersion=V5 if broken else "2024-11-05")


@case("version-answered", server_revisions=["2025-03-26", "2025-11-25", "2024-11-05", "2025-06-18"])
def _(w: Wire, broken: bool) -> None:
    w.hello()
    w.welcome(protocolVersion="2024-10-07" if broken else w.revision)


@case("version-unsupported", client_revisions=["2025-11-25", "2025-06-18", "2024-11-05", "2025-03-26"])
def _(w: Wire, broken: bool) -> None:
    w.hello()
    w.welcome(protocolVersion="2024-10-07" if broken else w.revision)
    w.notify("notifications/initialized")
    w.reply(w.request("ping"))


# --- Progress ---------------------------------------------------------------------------------------------------------


@case("progress-token")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.reply(w.call(meta=w.meta(progressToken=True if broken else "t")))


@case("progress-token")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    id = w.call(meta=w.meta(progressToken="t"))
    w.tell("notifications/progress", progressToken=None if broken else "t", progress=1)
    w.reply(id)


@case("progress-token-reused")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    first = w.call(meta=w.meta(progressToken=1))
    if not broken:
        w.reply(first)
    second = w.call(meta=w.meta(progressToken=1))
    if broken:
        w.reply(first)
    w.reply(second)


@case("progress-unknown")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    id = w.call(meta=w.meta(progressToken=1))
    w.tell("notifications/progress", progressToken="1" if broken else 1, progress=1)
    w.reply(id)


@case("progress-late")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    id = w.call(meta=w.meta(progressToken=1))
    if broken:
        w.reply(id)
    w.tell("notifications/progress", progressToken=1, progress=1)
    if not broken:
        w.reply(id)


@case("progress-stands")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    id = w.call(meta=w.meta(progressToken=1))
    for progress in (0, 0.5, "x", 0.5 if broken else 1):
        w.tell("notifications/progress", progressToken=1, progress=progress)
    w.reply(id)


# --- HTTP -------------------------------------------------------------------------------------------------------------


@case("accept", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.reply(w.call(head={"accept": JSON if broken else BOTH}))


@case("accepted-status", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.notify("own/thing", head={"mirrored": None}, status=200 if broken else 202)


@case("content-type", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    id = w.call()
    w.head(w.channels[id], 200, "text/plain" if broken else JSON)
    w.reply(id)


@case("content-type", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    if w.is_stateless:
        id = w.call()
        w.head(w.channels[id], 202 if broken else 200, JSON)
        w.reply(id)
    else:
        w.head(w.open(Verb.GET), 200, JSON if broken else EVENTS)


@case("error-status", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    id = w.request("own/thing")
    w.head(w.channels[id], 200 if broken else 404, JSON)
    w.answer(id, error={"code": -32601, "message": ""})


@case("session-id-form", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.hello()
    w.welcome(session="a b" if broken else "a~b")


@case("session-id-given", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    id = w.call()
    w.begin(id, "S2" if broken else "S1")
    w.reply(id)


@case("session-id-given", HTTP)
def _(w: Wire, broken: bool) -> None:
    """A refusal gives none, whatever it has in its head."""
    w.greet()
    id = w.call()
    w.head(w.channels[id], 200 if broken else 400, JSON, "S2")
    w.answer(id, error={"code": -32600, "message": ""})


@case("session-id-missing", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.reply(w.call(head={"session": None if broken else "S1"}))


@case("session-id-missing", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.listen(session="S2" if broken else "S1")


def _lose(w: Wire) -> None:
    w.greet()
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
    w.greet()
    first = w.open(Verb.GET)
    w.head(w.open(Verb.DELETE), 200 if broken else 405, "")
    w.head(first)  # it was asked for before
    w.head(w.open(Verb.GET, session="S1"))
    if broken:
        w.seen[-2] = w.seen[-2]


@case("session-end-status", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.head(w.open(Verb.DELETE), 200 if broken else 405, "")
    w.head(w.open(Verb.GET), 400, "")


for _none in ("1999-01-01", "2025", ""):

    def _unspoken(w: Wire, broken: bool, none: str = _none) -> None:
        w.greet()
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
    w.greet()
    w.reply(w.call(head={"revision": None if broken else w.revision}))


@case("version-header", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.greet()
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
    w.greet()
    id = w.call()
    channel = w.begin(id)
    w.raw(SERVER, b"", channel, event_id="e1")
    w.end(channel)
    w.channels[id] = w.listen(last_event_id=None if broken else "e1")
    w.reply(id)


@case("response-stream", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    first, second = w.call(), w.call()
    w.begin(first)
    w.begin(second)
    if broken:
        w.channels[first], w.channels[second] = w.channels[second], w.channels[first]
    w.reply(first, is_last=False)
    w.reply(second, is_last=False)


@case("unrelated-on-stream", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    first, second = w.call(meta=w.meta(progressToken=1)), w.call()
    w.tell("notifications/progress", second if broken else first, progressToken=1, progress=1)
    w.reply(first)
    w.reply(second)


@case("stream-goes-on", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    id = w.call()
    if not broken:
        w.tell("own/thing", id)
    w.reply(id, is_last=not broken)
    if broken:
        w.tell("own/thing", id)


@case("stream-ended-early", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    id = w.call()
    w.begin(id)
    w.end(w.channels[id], SERVER if broken else None)


def _replay(w: Wire) -> tuple[Any, int]:
    w.greet()
    id = w.call(meta=w.meta(progressToken=1))
    channel = w.begin(id)
    w.say(SERVER, _PROGRESS, channel, event_id="e1")
    w.say(SERVER, {**_PROGRESS, "params": {"progressToken": 1, "progress": 2}}, channel, event_id="e2")
    w.end(channel, None)
    return id, channel


_PROGRESS = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}


@case("event-id-reused", HTTP)
def _(w: Wire, broken: bool) -> None:
    id, _ = _replay(w)
    w.channels[id] = w.listen(last_event_id="e1")
    again = {**_PROGRESS, "params": {"progressToken": 1, "progress": 3 if broken else 2}}
    w.say(SERVER, again, w.channels[id], event_id="e2")
    w.reply(id)


@case("event-id-reused", HTTP)
def _(w: Wire, broken: bool) -> None:
    id, _ = _replay(w)
    channel = w.listen(last_event_id=None)
    w.say(SERVER, {"jsonrpc": "2.0", "method": "own/thing"}, channel, event_id="e2" if broken else "e3")
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
    w.say(SERVER, {"jsonrpc": "2.0", "method": "own/thing"}, get, event_id="g1")
    w.say(SERVER, {"jsonrpc": "2.0", "method": "own/thing"}, get, event_id="g2")
    w.end(get, None)
    again = w.listen(last_event_id="e1" if broken else "g1")
    w.say(SERVER, {"jsonrpc": "2.0", "method": "own/thing"}, again, event_id="g2")
    w.channels[first] = w.listen(last_event_id="e2")
    w.reply(first)


@case("endpoint-first", SSE)
def _(w: Wire, broken: bool) -> None:
    w.stream = w.listen()
    if not broken:
        w.raw(SERVER, b"/messages", w.stream, event="endpoint")
    w.say(SERVER, {"jsonrpc": "2.0", "method": "own/thing"}, w.stream)
    w.seen = w.seen[:]


@case("endpoint-first", SSE)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.say(SERVER, {"jsonrpc": "2.0", "method": "own/thing"}, w.stream, event="other" if broken else "message")


@case("message-on-post", SSE)
def _(w: Wire, broken: bool) -> None:
    w.greet()
    channel = w.open()
    w.say(CLIENT, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, channel)
    w.head(channel)
    w.say(SERVER, {"jsonrpc": "2.0", "id": 1, "result": {}}, channel if broken else w.stream)
    w.end(channel)


# --- Without sessions -------------------------------------------------------------------------------------------------


@case("meta-missing", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.reply(w.call(meta=w.meta(**({K + "clientCapabilities": ...} if broken else {}))))


@case("client-info")
def _(w: Wire, broken: bool) -> None:
    w.reply(w.call(meta=w.meta(**({K + "clientInfo": ...} if broken else {}))))


@case("server-info")
def _(w: Wire, broken: bool) -> None:
    w.answer(w.call(), result={"resultType": "complete", "_meta": {} if broken else {K + "serverInfo": {}}})


@case("meta-reserved")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.reply(w.call(), _meta={K + "thing" if broken else "own/thing": {}})


@case("result-kind-missing")
def _(w: Wire, broken: bool) -> None:
    w.reply(w.call(), **({"resultType": ...} if broken else {}))


@case("result-kind-unknown")
def _(w: Wire, broken: bool) -> None:
    w.client_can = {}
    w.reply(w.call(), resultType="odd" if broken else "complete")


@case("result-kind-leaked")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.reply(w.call(), resultType="input_required" if broken else "odd")


def _ask(w: Wire, state: str | None = "s", **questions: Any) -> Any:
    """A call that is answered with questions."""
    id = w.call(arguments={"a": 1})
    asked = questions or {"q": {"method": "elicitation/create", "params": {"mode": "form"}}}
    w.reply(id, resultType="input_required", inputRequests=asked, **({} if state is None else {"requestState": state}))
    return id


@case("input-required-method")
def _(w: Wire, broken: bool) -> None:
    w.reply(
        w.request("completion/complete" if broken else "prompts/get", name="p"),
        resultType="input_required",
        requestState="s",
    )


@case("input-required-empty")
def _(w: Wire, broken: bool) -> None:
    w.reply(w.call(), resultType="input_required", **({} if broken else {"inputRequests": {}}))


@case("input-request-kind")
def _(w: Wire, broken: bool) -> None:
    _ask(w, q={"method": "ping" if broken else "roots/list"})


for _able, _mode in (({}, "form"), ({"elicitation": {"form": {}}}, "url"), ({"elicitation": {"url": {}}}, "form")):

    def _undeclared(w: Wire, broken: bool, able: dict[str, Any] = _able, mode: str = _mode) -> None:
        w.client_can = able if broken else {"elicitation": {"form": {}, "url": {}}}
        _ask(w, q={"method": "elicitation/create", "params": {"mode": mode}})

    case("input-request-undeclared")(_undeclared)


@case("input-request-undeclared")
def _(w: Wire, broken: bool) -> None:
    w.client_can = {} if broken else {"sampling": {}, "elicitation": {}}
    questions = {"q": {"method": "sampling/createMessage", "params": {}}}
    if not broken:
        questions["r"] = {"method": "elicitation/create", "params": {}}
    _ask(w, **questions)


_ANSWERS = {"q": {"action": "accept"}}


@case("state-changed")
def _(w: Wire, broken: bool) -> None:
    _ask(w)
    w.reply(w.call(arguments={"a": 1}, inputResponses=_ANSWERS, requestState="t" if broken else "s"))


@case("state-changed")
def _(w: Wire, broken: bool) -> None:
    _ask(w, "s" if broken else None)
    w.reply(w.call(arguments={"a": 1}, inputResponses=_ANSWERS))


@case("state-elsewhere")
def _(w: Wire, broken: bool) -> None:
    _ask(w)
    w.reply(w.call(arguments={"a": 2 if broken else 1}, inputResponses=_ANSWERS, requestState="s"))


@case("retry-id")
def _(w: Wire, broken: bool) -> None:
    id = _ask(w)
    w.reply(w.call(id if broken else None, arguments={"a": 1}, inputResponses=_ANSWERS, requestState="s"))


for _state in ("s", None):

    def _incomplete(w: Wire, broken: bool, state: str | None = _state) -> None:
        _ask(w, state)
        more = {} if state is None else {"requestState": state}
        w.reply(w.call(arguments={"a": 1}, inputResponses={} if broken else _ANSWERS, **more))

    case("retry-incomplete")(_incomplete)


@case("cache-hints")
def _(w: Wire, broken: bool) -> None:
    w.reply(w.request("tools/list"), ttlMs=-1 if broken else 0)


@case("cache-hints")
def _(w: Wire, broken: bool) -> None:
    w.reply(w.request("resources/read", uri="u"), cacheScope="all" if broken else "public")


# --- Subscriptions ----------------------------------------------------------------------------------------------------


def acknowledge(w: Wire, id: Any, honoured: dict[str, Any], said: Any = None) -> None:
    meta = {K + "subscriptionId": id if said is None else said}
    w.tell("notifications/subscriptions/acknowledged", id, _meta=meta, notifications=honoured)


def change(w: Wire, id: Any, kind: str = "tools", on: Any = None, **params: Any) -> None:
    w.tell(f"notifications/{kind}", on or id, _meta={K + "subscriptionId": id}, **params)


def subscribe(w: Wire, **sought: Any) -> Any:
    id = w.request("subscriptions/listen", notifications=sought)
    acknowledge(w, id, sought)
    return id


def close(w: Wire, id: Any) -> None:
    w.reply(id, _meta={K + "subscriptionId": id})


for _transport in (PIPE, HTTP):

    @case("listen-first", _transport)
    def _(w: Wire, broken: bool) -> None:
        id = w.request("subscriptions/listen", notifications={"toolsListChanged": True})
        if not broken:
            acknowledge(w, id, {"toolsListChanged": True})
        change(w, id, "tools/list_changed")
        close(w, id)

    @case("listen-first", _transport)
    def _(w: Wire, broken: bool) -> None:
        id = subscribe(w, toolsListChanged=True)
        if broken:
            acknowledge(w, id, {"toolsListChanged": True})
        change(w, id, "tools/list_changed")


for _honoured in ({"promptsListChanged": True}, {"resourceSubscriptions": ["b"]}, {"resourceSubscriptions": ["a", 1]}):

    def _acknowledged(w: Wire, broken: bool, honoured: dict[str, Any] = _honoured) -> None:
        id = w.request("subscriptions/listen", notifications={"toolsListChanged": True, "resourceSubscriptions": ["a"]})
        kept = {"toolsListChanged": True, "promptsListChanged": False, "resourceSubscriptions": ["a"]}
        acknowledge(w, id, honoured if broken else kept)

    case("listen-acknowledged")(_acknowledged)


@case("listen-unrequested")
def _(w: Wire, broken: bool) -> None:
    id = subscribe(w, toolsListChanged=True)
    change(w, id, "prompts/list_changed" if broken else "tools/list_changed")


@case("listen-unrequested")
def _(w: Wire, broken: bool) -> None:
    id = w.request("subscriptions/listen", notifications={"toolsListChanged": True})
    acknowledge(w, id, {} if broken else {"toolsListChanged": True})
    change(w, id, "tools/list_changed")


@case("listen-unrequested")
def _(w: Wire, broken: bool) -> None:
    id = subscribe(w, resourceSubscriptions=["file:///a"])
    change(w, id, "resources/updated", uri="file:///b" if broken else "file:///a/b")


@case("listen-unrequested")
def _(w: Wire, broken: bool) -> None:
    id = subscribe(w, taskIds=["a"])
    change(w, id, "tasks", **detailed("b" if broken else "a"))


@case("listen-unrequested")
def _(w: Wire, broken: bool) -> None:
    id = subscribe(w, taskIds=["a"])
    change(w, id, "tasks" if not broken else "message", **detailed("a"), level="info")
    if broken:
        w.seen.pop()
        change(w, id, "resources/updated", uri="a")


@case("subscription-id")
def _(w: Wire, broken: bool) -> None:
    id = subscribe(w, toolsListChanged=True)
    if broken:
        w.tell("notifications/tools/list_changed")
    close(w, id)


@case("subscription-id")
def _(w: Wire, broken: bool) -> None:
    id = subscribe(w, toolsListChanged=True)
    w.reply(id, _meta={K + "subscriptionId": str(id) if broken else id})


@case("subscription-unknown")
def _(w: Wire, broken: bool) -> None:
    id = subscribe(w, toolsListChanged=True)
    change(w, str(id) if broken else id, "tools/list_changed", on=id)


@case("subscription-unknown")
def _(w: Wire, broken: bool) -> None:
    id = subscribe(w, toolsListChanged=True)
    if broken:
        close(w, id)
    change(w, id, "tools/list_changed")


@case("subscription-stream", HTTP)
def _(w: Wire, broken: bool) -> None:
    first, second = subscribe(w, toolsListChanged=True), subscribe(w, toolsListChanged=True)
    change(w, first, "tools/list_changed", on=second if broken else first)


# --- Tasks ------------------------------------------------------------------------------------------------------------


def task(id: str, status: str = "working", **more: Any) -> dict[str, Any]:
    """A task of 2025-11-25."""
    said = {"taskId": id, "status": status, "createdAt": "t", "lastUpdatedAt": "t", "ttl": None, **more}
    return {name: value for name, value in said.items() if value is not ...}


def detailed(id: str, status: str = "working", **more: Any) -> dict[str, Any]:
    """A task of the extension."""
    said = {"taskId": id, "status": status, "createdAt": "t", "lastUpdatedAt": "t", "ttlMs": 1000, **more}
    return {name: value for name, value in said.items() if value is not ...}


def begin_task(w: Wire, id: str = "a", **more: Any) -> Any:
    if w.is_stateless:
        call = w.call()
        w.reply(call, resultType="task", **detailed(id, **more))
    else:
        call = w.call(task={})
        w.reply(call, task=task(id, **more))
    return call


def look(w: Wire, id: str = "a", status: str = "working", *, asked_at: float | None = None, **more: Any) -> None:
    """`tasks/get` and what it says."""
    shape = detailed if w.is_stateless else task
    w.reply(w.request("tasks/get", taskId=id, at=asked_at), at=asked_at, **shape(id, status, **more))


@case("task-uncreated")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    w.reply(w.call(task={}), **({"content": []} if broken else {"task": task("a")}))


@case("task-unasked")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    if w.is_stateless:
        able = {} if broken else {"extensions": {TASKS: {}}}
        w.reply(w.call(meta=w.meta(able)), resultType="task", **detailed("a"))
    else:
        w.reply(w.call(**({} if broken else {"task": {}})), task=task("a"))


@case("task-unasked")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    if w.is_stateless:
        id = w.request("prompts/get" if broken else "tools/call", name="p")
        w.reply(id, resultType="task", **detailed("a"))
    else:
        w.tell("elicitation/create", id=1, mode="form", **({} if broken else {"x": 1}))
        w.respond(1, **({"task": task("a")} if broken else {"action": "cancel"}))


@case("task-shape")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    begin_task(w)
    ttl = "ttlMs" if w.is_stateless else "ttl"
    look(w, **({ttl: ...} if broken else {ttl: 5}))


@case("task-shape")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    begin_task(w)
    look(w, status="odd" if broken else "working")


@case("task-begins")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    begin_task(w)
    begin_task(w, "a" if broken else "b")


@case("task-begins")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    if w.is_stateless:
        begin_task(w, status="completed")
        if broken:
            begin_task(w, status="completed")
    else:
        begin_task(w, status="completed" if broken else "working")


@case("task-status")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    begin_task(w)
    look(w, status="cancelled")
    look(w, status="working" if broken else "cancelled")


@case("task-cancelled")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    begin_task(w)
    look(w, status="completed" if broken else "working")
    id = w.request("tasks/cancel", taskId="a")
    w.reply(id, **task("a", "completed" if broken else "cancelled"))


@case("task-cancelled")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    begin_task(w)
    w.reply(w.request("tasks/cancel", taskId="a"), **task("a", "working" if broken else "cancelled"))
    if not broken:
        w.reply(w.request("tasks/list"), tasks=[task("a", "cancelled")])
        w.answer(w.request("tasks/cancel", taskId="a"), error={"code": -32602, "message": ""})


@case("related-task")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    begin_task(w)
    w.reply(w.request("tasks/result", taskId="a"), _meta={K + "related-task": {"taskId": "b" if broken else "a"}})


@case("related-task-needless")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    begin_task(w)
    related = {K + "related-task": {"taskId": "a"}} if broken else {}
    w.reply(w.request("tasks/get", taskId="a", meta=related), **task("a"))


@case("related-task-needless")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    begin_task(w)
    related = {K + "related-task": {"taskId": "a"}} if broken else {}
    w.tell("notifications/tasks/status", **task("a", "completed"), _meta=related)


@case("related-task-needless")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    begin_task(w)
    look(w, _meta={K + "related-task": {"taskId": "a"}} if broken else {})


for _status, _detail in (("input_required", "inputRequests"), ("completed", "result"), ("failed", "error")):

    def _with_detail(w: Wire, broken: bool, status: str = _status, detail: str = _detail) -> None:
        begin_task(w)
        look(w, status=status, **{detail: ... if broken else {}})

    case("task-detail")(_with_detail)


@case("task-key-reused")
def _(w: Wire, broken: bool) -> None:
    begin_task(w)
    for text in ("a", "b" if broken else "a"):
        question = {"method": "elicitation/create", "params": {"message": text}}
        look(w, status="input_required", inputRequests={"k": question})


@case("task-polled-early")
def _(w: Wire, broken: bool) -> None:
    w.greet()
    begin_task(w)
    interval = "pollIntervalMs" if w.is_stateless else "pollInterval"
    look(w, asked_at=10.0, **{interval: 1000})
    look(w, asked_at=10.5 if broken else 11.0)
