"""Cases of the oracle: the rules of stateless requests and of subscriptions."""

from __future__ import annotations

from typing import Any

from oracle_case import HTTP, PIPE, acknowledge, case, detailed
from wire_scenes import K, Wire

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
    w.handshake()
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
    w.handshake()
    w.reply(w.call(), resultType="input_required" if broken else "odd")


def _input_required(w: Wire, state: str | None = "s", **questions: Any) -> Any:
    """Makes a call that is answered with server requests. Returns its id."""
    id = w.call(arguments={"a": 1})
    requests = questions or {"q": {"method": "elicitation/create", "params": {"mode": "form"}}}
    w.reply(
        id, resultType="input_required", inputRequests=requests, **({} if state is None else {"requestState": state})
    )
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
    _input_required(w, q={"method": "ping" if broken else "roots/list"})


for _able, _mode in (({}, "form"), ({"elicitation": {"form": {}}}, "url"), ({"elicitation": {"url": {}}}, "form")):

    def _undeclared(w: Wire, broken: bool, able: dict[str, Any] = _able, mode: str = _mode) -> None:
        w.client_can = able if broken else {"elicitation": {"form": {}, "url": {}}}
        _input_required(w, q={"method": "elicitation/create", "params": {"mode": mode}})

    case("input-request-undeclared")(_undeclared)


@case("input-request-undeclared")
def _(w: Wire, broken: bool) -> None:
    w.client_can = {} if broken else {"sampling": {}, "elicitation": {}}
    questions = {"q": {"method": "sampling/createMessage", "params": {}}}
    if not broken:
        questions["r"] = {"method": "elicitation/create", "params": {}}
    _input_required(w, **questions)


_ANSWERS = {"q": {"action": "accept"}}


@case("state-changed")
def _(w: Wire, broken: bool) -> None:
    _input_required(w)
    w.reply(w.call(arguments={"a": 1}, inputResponses=_ANSWERS, requestState="t" if broken else "s"))


@case("state-changed")
def _(w: Wire, broken: bool) -> None:
    _input_required(w, "s" if broken else None)
    w.reply(w.call(arguments={"a": 1}, inputResponses=_ANSWERS))


@case("state-elsewhere")
def _(w: Wire, broken: bool) -> None:
    _input_required(w)
    w.reply(w.call(arguments={"a": 2 if broken else 1}, inputResponses=_ANSWERS, requestState="s"))


@case("retry-id")
def _(w: Wire, broken: bool) -> None:
    id = _input_required(w)
    w.reply(w.call(id if broken else None, arguments={"a": 1}, inputResponses=_ANSWERS, requestState="s"))


for _state in ("s", None):

    def _incomplete(w: Wire, broken: bool, state: str | None = _state) -> None:
        _input_required(w, state)
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


def change(w: Wire, id: Any, kind: str = "tools", on: Any = None, **params: Any) -> None:
    w.tell(f"notifications/{kind}", on or id, _meta={K + "subscriptionId": id}, **params)


def subscribe(w: Wire, **requested: Any) -> Any:
    id = w.request("subscriptions/listen", notifications=requested)
    acknowledge(w, id, requested)
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
