"""Which headers cross a proxy that looks at nothing else: the rules for transparent servers.

What concerns one connection only ends with it, as RFC 9110, 7.6.1 has it. What tells a server who its client is (its
credentials, the web page it came from) was meant for us, so it does not pass unless it is allowed by its name. All else
passes, in order and repeated as it came.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ..headers import EVENTS, Headers, accepts
from .routes import Head

ENDING_HERE: Final = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"alt-svc"}
)
"""Headers of one connection. `alt-svc` leads clients to another one, past us."""

WITHHELD: Final = frozenset({b"authorization", b"cookie", b"origin", b"forwarded", b"proxy-authorization"})
"""Requests' headers that pass only if `HeaderRules.allow` has their very names; `x-forwarded-*` are like them."""

ALWAYS: Final = ("accept", "content-type", "content-encoding", "last-event-id", "mcp-*", "sec-websocket-*")
"""Without these no message passes at all, so a list of what is allowed need not repeat them."""

_SET_AT_HOME: Final = frozenset({b"host", b"content-length"})
_ADDRESS: Final = re.compile(r"[0-9.]+|[0-9A-Fa-f:.]+")


class HeaderRules(msgspec.Struct, frozen=True, kw_only=True):
    """What passes to one server.

    Attributes:
        allow: names and globs (`x-mine-*`) in lower case; None: all that is not withheld. A glob allows nothing that is
            withheld.
        deny: names and globs in lower case. It has the last word.
        set: sent with every request, in place of what clients send by these names. Names in lower case.
        x_forwarded: add X-Forwarded-For, -Host and -Proto.
        forwarded: add Forwarded (RFC 7239).
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    set: Headers = ()
    x_forwarded: bool = False
    forwarded: bool = False


class Sender(msgspec.Struct, frozen=True):
    """Whom a request came from, and by what name it reached us. `address` is empty where there is none to tell."""

    address: str
    host: str
    scheme: str


def is_upgrade(head: Head) -> bool:
    """Whether the client asks to go on with WebSocket (RFC 6455, 4.2.1)."""
    if head.method != "GET" or head.version != "1.1":
        return False
    return b"websocket" in _tokens(head.headers, b"upgrade") and b"upgrade" in _tokens(head.headers, b"connection")


def request_headers(head: Head, rules: HeaderRules, *, authority: bytes, sender: Sender) -> list[tuple[bytes, bytes]]:
    """What is sent on, framing included: it is that of the request.

    Args:
        authority: the server's, for Host.
    """
    named = _tokens(head.headers, b"connection")
    replaced = {name for name, _ in rules.set}
    is_chunked = any(name == b"transfer-encoding" for name, _ in head.headers)
    wants_events = head.method == "GET" and accepts(_joined(head.headers, b"accept"), EVENTS)
    out = [(b"host", authority)]
    for name, value in head.headers:
        if name == b"content-length" and not is_chunked:
            out.append((name, value))
        elif name == b"accept-encoding" and wants_events:
            continue
        elif name not in replaced and name not in named and _passes(name, rules):
            out.append((name, value))
    if is_chunked:
        out.append((b"transfer-encoding", b"chunked"))
    if wants_events:
        out.append((b"accept-encoding", b"identity"))  # an endpoint event has to be read
    if is_upgrade(head):
        out += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    out += [pair for pair in rules.set if pair[0] not in _SET_AT_HOME]
    for name, value, is_list in _traces(rules, sender):
        _add(out, name, value, is_list=is_list)
    return out


def response_headers(headers: Headers, rules: HeaderRules, *, status: int, keeps_length: bool = True) -> Headers:
    """What is sent back. Who may read it from a web page is for us to say, not for the server.

    Args:
        headers: names in lower case.
        status: 101 keeps what a switch to WebSocket is made of.
        keeps_length: false where the body may change its length.
    """
    named = _tokens(headers, b"connection")
    lacks_length = not keeps_length or status < 200 or status == 204  # RFC 9110, 8.6
    lacks_length |= any(name == b"transfer-encoding" for name, _ in headers)  # RFC 9112, 6.3: it is not the length
    out = [
        (name, value)
        for name, value in headers
        if name not in named
        and not _ends_here(name)
        and not name.startswith(b"access-control-")
        and not (name == b"set-cookie" and not _is_named(name, rules))
        and not (name == b"content-length" and lacks_length)
    ]
    if status == 101:
        out += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    return tuple(out)


def _ends_here(name: bytes) -> bool:
    return name in ENDING_HERE or (name.startswith(b"proxy-") and name != b"proxy-authorization")


def _passes(name: bytes, rules: HeaderRules) -> bool:
    if _ends_here(name) or name in _SET_AT_HOME:
        return False
    if name in WITHHELD or name.startswith(b"x-forwarded-"):
        return _is_named(name, rules)
    text = name.decode("latin-1")
    if _matches(text, rules.deny):
        return False
    return rules.allow is None or _matches(text, ALWAYS) or _matches(text, rules.allow)


def _is_named(name: bytes, rules: HeaderRules) -> bool:
    text = name.decode("latin-1")
    return rules.allow is not None and text in rules.allow and not _matches(text, rules.deny)


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(
        name == glob or ("*" in glob and re.fullmatch(".*".join(map(re.escape, glob.split("*"))), name) is not None)
        for glob in globs
    )


def _tokens(headers: Headers, name: bytes) -> set[bytes]:
    return {item.strip().lower() for found, value in headers if found == name for item in value.split(b",")}


def _joined(headers: Headers, name: bytes) -> str:
    return ", ".join(value.decode("latin-1") for found, value in headers if found == name)


def _traces(rules: HeaderRules, sender: Sender) -> list[tuple[bytes, bytes, bool]]:
    """Name, value, and whether earlier proxies' values stay before it."""
    address = sender.address if _ADDRESS.fullmatch(sender.address) else ""
    out = []
    if rules.x_forwarded:
        if address:
            out.append((b"x-forwarded-for", address.encode(), True))
        out.append((b"x-forwarded-host", sender.host.encode(), False))
        out.append((b"x-forwarded-proto", sender.scheme.encode(), False))
    if rules.forwarded:
        node = f'"[{address}]"' if ":" in address else address or "unknown"
        out.append((b"forwarded", f'for={node};host="{sender.host}";proto={sender.scheme}'.encode(), True))
    return out


def _add(out: list[tuple[bytes, bytes]], name: bytes, value: bytes, *, is_list: bool) -> None:
    """Behind what is there by that name: it came from a client that is allowed to say so, or was set."""
    found = [before for other, before in out if other == name]
    if found and not is_list:
        return
    out[:] = [pair for pair in out if pair[0] != name]
    out.append((name, b", ".join([*found, value])))
