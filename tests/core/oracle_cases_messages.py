"""Cases of the oracle: the rules of messages, requests and their responses."""

from __future__ import annotations

from typing import Any

from oracle_case import HTTP, case, task
from wire_scenes import CLIENT, SERVER, Wire

# --- Messages ---------------------------------------------------------------------------------------------------------


def _odd(rule: str, *messages: bytes) -> None:
    for message in messages:

        def play(w: Wire, broken: bool, message: bytes = message) -> None:
            w.handshake()
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
    w.handshake()
    if w.is_stateless and broken:
        w.answer(w.call(), result=[])
    else:
        w.answer(w.call(), **({"result": []} if broken else {"error": {"code": 1, "message": ""}}))


@case("error-shape")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.answer(w.call(), error={"code": "1" if broken else 1, "message": ""})


@case("error-shape")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.answer(w.call(), error="" if broken else {"code": 1, "message": ""})


@case("error-code-withdrawn")
def _(w: Wire, broken: bool) -> None:
    w.answer(w.call(), error={"code": -32002 if broken else -32602, "message": ""})


@case("error-code-reserved")
def _(w: Wire, broken: bool) -> None:
    w.answer(w.call(), error={"code": -32099 if broken else -32021, "message": ""})


@case("batch-unknown")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    ping = {"jsonrpc": "2.0", "method": "own/thing"}
    w.send(SERVER, [ping, ping] if broken else ping)


@case("batch-initialize")
def _(w: Wire, broken: bool) -> None:
    w.initialize()
    if broken:
        first = w.seen.pop()
        w.raw(CLIENT, b"[" + first.message + b"]")  # type: ignore[union-attr]
    w.answer_initialize()


def _names_of_two(revision: str, sender: Any, method: str, message: dict[str, Any]) -> str | None:
    return "a name of two" if message.get("params", {}).get("name") == "two" else None


@case("schema", check=_names_of_two)
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.reply(w.call(name="two" if broken else "one"))


# --- Requests and their responses -------------------------------------------------------------------------------------


@case("id-reused")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.call(1)
    if not w.is_stateless or not broken:
        w.reply(1)
    w.call(1 if broken or w.is_stateless else "1")
    w.methods["1"] = "tools/call"
    w.channels["1"] = 0
    w.reply(1 if broken or w.is_stateless else "1")


@case("response-unknown")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.call(1)
    w.reply(1)
    if broken:
        w.methods["1"], w.channels["1"] = "tools/call", 0
        w.reply("1")


@case("response-twice")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.call(1)
    for _ in range(2 if broken else 1):
        w.reply(1)


@case("error-without-id")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    if broken:
        w.send(SERVER, {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": ""}})


@case("unanswered")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.call(1)
    if not broken:
        w.send(CLIENT, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})


@case("unanswered")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.call(1)
    if not broken:
        w.end(0, None)


@case("cancel-unknown")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    w.call(1)
    w.notify("notifications/cancelled", requestId="1" if broken else 1)
    if broken:
        w.reply(1)


@case("cancel-initialize")
def _(w: Wire, broken: bool) -> None:
    w.initialize()
    if broken:
        w.notify("notifications/cancelled", requestId=0)
    w.answer_initialize()


@case("cancel-of-task")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
    id = w.call(task={"ttl": 1000})
    w.reply(id, task=task("a"))
    if broken:
        w.notify("notifications/cancelled", requestId=id)


@case("cancel-by-server")
def _(w: Wire, broken: bool) -> None:
    w.handshake()
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
