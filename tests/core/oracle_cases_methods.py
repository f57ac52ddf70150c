"""Cases of the oracle: the rules of methods, capabilities, the handshake and progress."""

from __future__ import annotations

from oracle_case import HTTP, PIPE, V5, acknowledge, case
from wire_scenes import CLIENT_CAN as ABLE
from wire_scenes import SERVER_CAN, K, Wire, without

# --- Methods and capabilities -----------------------------------------------------------------------------------------


@case("method-foreign")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    if broken:
        method = "ping" if w.is_stateless else "tasks/update"
        w.answer(w.request(method), error={"code": -32601, "message": ""})
    else:
        w.reply(w.request("tools/list"))


@case("method-direction")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    if broken and w.is_stateless:
        w.notify("notifications/progress", progressToken=1, progress=1)
    elif broken:
        w.answer(w.request("roots/list"), error={"code": -32601, "message": ""})


@case("method-kind")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    if broken:
        w.tell("tools/list" if False else "notifications/tools/list_changed", id=5) if not w.is_stateless else None
        if w.is_stateless:
            w.notify("tools/list")
        else:
            w.respond(5)


@case("request-by-server")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    id = w.call()
    if broken:
        w.tell("elicitation/create", id=1)
        w.respond(1)
    w.reply(id)


@case("capability-undeclared")
def _(w: Wire, broken: bool) -> None:
    w.handshake(server_can=without(SERVER_CAN, "prompts") if broken else None)
    w.reply(w.request("prompts/list"))


@case("capability-undeclared")
def _(w: Wire, broken: bool) -> None:
    w.handshake(without(ABLE, "roots", "listChanged") if broken else None)
    if not w.is_stateless:
        w.notify("notifications/roots/list_changed")
    else:
        w.reply(w.request("prompts/list" if not broken else "own/list"))
        if broken:
            w.seen.clear()
            w.handshake(server_can=without(SERVER_CAN, "completions"))
            w.reply(w.request("completion/complete"))


@case("elicitation-mode")
def _(w: Wire, broken: bool) -> None:
    w.handshake({"elicitation": {}})
    w.tell("elicitation/create", id=1, mode="url" if broken else "form", elicitationId="e")
    w.respond(1, action="cancel")


@case("sampling-tools")
def _(w: Wire, broken: bool) -> None:
    w.handshake(without(ABLE, "sampling", "tools") if broken else None)
    w.tell("sampling/createMessage", id=1, tools=[])
    w.respond(1)


@case("elicitation-id")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.tell("elicitation/create", id=1, mode="url", elicitationId="e")
    w.respond(1, action="accept")
    w.answer(w.call(), error={"code": -32042, "message": "", "data": {"elicitations": [{"elicitationId": "f"}, 1]}})
    w.tell("notifications/elicitation/complete", elicitationId="f")
    w.tell("notifications/elicitation/complete", elicitationId="g" if broken else "e")


for _transport in (PIPE, HTTP):

    @case("log-unasked", _transport)
    def _(w: Wire, broken: bool) -> None:
        w.handshake()
        id = w.call(meta=w.meta(**{K + "logLevel": "warning"}))
        w.tell("notifications/message", id, level="info" if broken else "error", data=1)
        w.reply(id)

    @case("log-unasked", _transport)
    def _(w: Wire, broken: bool) -> None:
        w.handshake()
        id = w.call(meta=w.meta(**({} if broken else {K + "logLevel": "debug"})))
        w.tell("notifications/message", id, level="info", data=1)
        w.reply(id)


@case("log-stream", HTTP)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
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
    w.handshake()


@case("initialize-first")
def _(w: Wire, broken: bool) -> None:
    w.initialize()
    if broken:
        w.answer_initialize()
    else:
        w.answer(0, error={"code": -32602, "message": ""})
    info = {"name": "n", "version": "1"}
    params = {"protocolVersion": w.revision, "capabilities": {}, "clientInfo": info}
    w.request("initialize", 1, **params)
    w.reply(1, **{**params, "serverInfo": info})


@case("client-early")
def _(w: Wire, broken: bool) -> None:
    w.initialize()
    id = w.request("tools/list" if broken else "ping")
    w.reply(id)
    w.answer_initialize()


@case("initialized-missing")
def _(w: Wire, broken: bool) -> None:
    w.handshake(is_ready=not broken)
    w.reply(w.call())
    w.reply(w.call())


@case("server-early")
def _(w: Wire, broken: bool) -> None:
    w.handshake(is_ready=False)
    w.tell("roots/list" if broken else "ping", id=1)
    w.respond(1)


@case("initialize-params")
def _(w: Wire, broken: bool) -> None:
    w.initialize(clientInfo=... if broken else {"name": "c", "version": "1"})
    w.answer_initialize()


@case("initialize-result")
def _(w: Wire, broken: bool) -> None:
    w.initialize()
    w.answer_initialize(serverInfo={"name": "s"} if broken else {"name": "s", "version": "1"})


@case("version-answered")
def _(w: Wire, broken: bool) -> None:
    w.initialize()
    w.answer_initialize(protocolVersion=V5 if broken else "2024-11-05")


@case("version-answered", server_revisions=["2025-03-26", "2025-11-25", "2024-11-05", "2025-06-18"])
def _(w: Wire, broken: bool) -> None:
    w.initialize()
    w.answer_initialize(protocolVersion="2024-10-07" if broken else w.revision)


@case("version-unsupported", client_revisions=["2025-11-25", "2025-06-18", "2024-11-05", "2025-03-26"])
def _(w: Wire, broken: bool) -> None:
    w.initialize()
    w.answer_initialize(protocolVersion="2024-10-07" if broken else w.revision)
    w.notify("notifications/initialized")
    w.reply(w.request("ping"))


# --- Progress ---------------------------------------------------------------------------------------------------------


@case("progress-token")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.reply(w.call(meta=w.meta(progressToken=True if broken else "t")))


@case("progress-token")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    id = w.call(meta=w.meta(progressToken="t"))
    w.tell("notifications/progress", progressToken=None if broken else "t", progress=1)
    w.reply(id)


@case("progress-token-reused")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    first = w.call(meta=w.meta(progressToken=1))
    if not broken:
        w.reply(first)
    second = w.call(meta=w.meta(progressToken=1))
    if broken:
        w.reply(first)
    w.reply(second)


@case("progress-unknown")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    id = w.call(meta=w.meta(progressToken=1))
    w.tell("notifications/progress", progressToken="1" if broken else 1, progress=1)
    w.reply(id)


@case("progress-late")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    id = w.call(meta=w.meta(progressToken=1))
    if broken:
        w.reply(id)
    w.tell("notifications/progress", progressToken=1, progress=1)
    if not broken:
        w.reply(id)


@case("progress-stands")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    id = w.call(meta=w.meta(progressToken=1))
    for progress in (0, 0.5, "x", 0.5 if broken else 1):
        w.tell("notifications/progress", progressToken=1, progress=progress)
    w.reply(id)
