"""The rules for headers of transparent servers, whose requests and responses the proxy otherwise forwards unread.

Hop-by-hop headers are dropped (RFC 9110, 7.6.1). Headers that identify the client (its credentials, the web page it
came from) were meant for the proxy, so they pass only if the configuration allows them by name. All other headers pass,
in order and with duplicates.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ..headers import EVENTS, Headers, accepts
from .hop import HOP
from .routes import Head

ENDING_HERE: Final = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"alt-svc"}
)
"""Hop-by-hop headers. `alt-svc` is among them because it would lead clients to a connection past the proxy."""

WITHHELD: Final = frozenset({b"authorization", b"cookie", b"origin", b"forwarded", b"proxy-authorization"})
"""Request headers that pass only if `HeaderRules.allow` has their exact names. `x-forwarded-*` are treated likewise."""

ALWAYS: Final = ("accept", "content-type", "content-encoding", "last-event-id", "mcp-*", "sec-websocket-*")
"""Headers that the protocol needs. They pass even if `HeaderRules.allow` does not list them."""

_USUAL: Final = frozenset({b"cache-control", b"content-type", b"date", b"mcp-session-id", b"server", b"vary"})
"""Response headers that pass, unless `Connection` names them: most responses have no others."""
_SET_BY_PROXY: Final = frozenset({b"host", b"content-length"})
_ADDRESS: Final = re.compile(r"[0-9.]+|[0-9A-Fa-f:.]+")


class HeaderRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for the headers that pass to one server.

    Attributes:
        allow: names and globs (`x-mine-*`) in lower case; None: all headers that are not in `WITHHELD`. A glob allows
            none of those.
        deny: names and globs in lower case. It takes precedence over `allow`.
        set: headers sent with every request, in place of those that clients send by these names. Names in lower case.
        x_forwarded: add X-Forwarded-For, -Host and -Proto.
        forwarded: add Forwarded (RFC 7239).
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    set: Headers = ()
    x_forwarded: bool = False
    forwarded: bool = False


class Sender(msgspec.Struct, frozen=True):
    """The peer that sent a request, and the host name and scheme it used. `address` is empty if it is not known."""

    address: str
    host: str
    scheme: str


def is_upgrade(head: Head) -> bool:
    """True if the client asks for an upgrade to WebSocket (RFC 6455, 4.2.1)."""
    if head.method != "GET" or head.version != "1.1":
        return False
    return b"websocket" in _tokens(head.headers, b"upgrade") and b"upgrade" in _tokens(head.headers, b"connection")


def request_headers(head: Head, rules: HeaderRules, *, authority: bytes, sender: Sender) -> list[tuple[bytes, bytes]]:
    """Returns the headers to send to the server. The framing is that of the client's request.

    Args:
        authority: the `Host` of the server.
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
        out.append((b"accept-encoding", b"identity"))  # the `endpoint` event must be readable to be rewritten
    if is_upgrade(head):
        out += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    out += [pair for pair in rules.set if pair[0] not in _SET_BY_PROXY]
    for name, value, is_list in _forwarding_headers(rules, sender):
        _add(out, name, value, is_list=is_list)
    return out


def hop_headers(head: Head, hop: bytes, *, is_streamed: bool) -> list[tuple[bytes, bytes]]:
    """Returns the headers to send to another replica: all that the client has sent, but those that end here.

    Headers that `Connection` names pass, too. The replicas are one server, and each judges the same headers.

    Args:
        hop: the header `Isthmus-Hop`, in place of any that the client has sent.
        is_streamed: the framing is that of the client's request; else the body has a length.
    """
    is_chunked = any(name == b"transfer-encoding" for name, _ in head.headers)
    out = [
        (name, value)
        for name, value in head.headers
        if not (_is_hop_by_hop(name) or name == HOP or (name == b"content-length" and is_chunked))
    ]
    if is_chunked:
        out.append((b"transfer-encoding", b"chunked") if is_streamed else (b"content-length", b"0"))
    return [*out, (HOP, hop)]


def response_headers(headers: Headers, rules: HeaderRules, *, status: int, keeps_length: bool = True) -> Headers:
    """Returns the headers to send to the client. CORS headers of the server are dropped: the proxy decides which web
    pages may read a response.

    Args:
        headers: names in lower case.
        status: for 101 the headers of the switch to WebSocket are kept.
        keeps_length: False if the body may change its length.
    """
    named = _tokens(headers, b"connection")
    lacks_length = not keeps_length or status < 200 or status == 204  # RFC 9110, 8.6
    lacks_length |= any(name == b"transfer-encoding" for name, _ in headers)  # RFC 9112, 6.3: chunks decide
    out = [
        (name, value)
        for name, value in headers
        if name not in named
        and (
            name in _USUAL
            or not (
                _is_hop_by_hop(name)
                or name.startswith(b"access-control-")
                or (name == b"set-cookie" and not _is_named(name, rules))
                or (name == b"content-length" and lacks_length)
            )
        )
    ]
    if status == 101:
        out += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    return tuple(out)


def _is_hop_by_hop(name: bytes) -> bool:
    return name in ENDING_HERE or (name.startswith(b"proxy-") and name != b"proxy-authorization")


def _passes(name: bytes, rules: HeaderRules) -> bool:
    if _is_hop_by_hop(name) or name in _SET_BY_PROXY:
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
    return any(name == glob or ("*" in glob and _fits(name, glob)) for glob in globs)


def _fits(name: str, glob: str) -> bool:
    """True if `name` is `glob`, in which `*` is any text. The first place of each part is as good as any later one."""
    first, *parts, last = glob.split("*")
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    at, stop = len(first), len(name) - len(last)
    for part in parts:
        found = name.find(part, at, stop)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _tokens(headers: Headers, name: bytes) -> set[bytes]:
    return {item.strip().lower() for found, value in headers if found == name for item in value.split(b",")}


def _joined(headers: Headers, name: bytes) -> str:
    return ", ".join(value.decode("latin-1") for found, value in headers if found == name)


def _forwarding_headers(rules: HeaderRules, sender: Sender) -> list[tuple[bytes, bytes, bool]]:
    """Returns name and value of each forwarding header, and whether it is a list that follows the values of earlier
    proxies."""
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
    """Adds a header. A value that is there already was allowed or set by the configuration: a list is appended
    to it, a single value is not added."""
    found = [before for other, before in out if other == name]
    if found and not is_list:
        return
    out[:] = [pair for pair in out if pair[0] != name]
    out.append((name, b", ".join([*found, value])))
