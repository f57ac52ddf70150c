"""Refusals quote only a bounded part of a peer's input, as they are logged and sent."""

from __future__ import annotations

import base64
import json
import re

import pytest
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.revisions import LEGACY, MODERN
from isthmus.core.bridge.results import to_legacy
from isthmus.core.oracle.seen import shown
from isthmus.core.wire.http import redirects, tus
from isthmus.core.wire.http.routes import Head, Refused, Surface
from isthmus.core.wire.http.server import judge
from isthmus.core.wire.websocket import accept_token, check_accepted

SURFACE = Surface(("files",), frozenset({"localhost"}), frozenset())
JSON = ("content-type", "application/json")
SOCKET = (
    ("connection", "upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
)
LONG = "x" * 1000
TUS = ("tus-resumable", "1.0.0")


def longest(text: str) -> int:
    """The longest run of the input that the text quotes."""
    return max(map(len, re.findall("x+", text)))


@pytest.mark.parametrize(
    ("method", "target", "fields", "status", "max_chars"),
    [
        ("GET", "/mcp", {"accept": LONG}, 406, 200),
        ("POST", "/mcp", dict([JSON]) | {"accept": LONG}, 406, 200),
        ("GET", "/sse", {"accept": LONG}, 406, 200),
        ("POST", "/mcp", {"content-type": LONG}, 415, 200),
        ("POST", "/mcp", dict([JSON]) | {"content-encoding": LONG}, 415, 32),
        ("POST", "/mcp", {"host": LONG}, 403, 200),
        ("POST", "/mcp", {"origin": LONG}, 403, 200),
        ("POST", "/mcp", {"expect": LONG}, 417, 64),
        ("POST", "/mcp", dict([JSON]) | {"mcp-session-id": LONG + " "}, 400, 64),
        ("POST", "/mcp", dict([JSON]) | {"mcp-protocol-version": LONG + " "}, 400, 64),
        (LONG, "/mcp", {}, 405, 32),
        ("GET", LONG, {}, 400, 200),
        ("GET", "/" + LONG, {}, 404, 99),
        ("PUT", "/upload/files/a", {"content-length": LONG}, 400, 32),
        ("PUT", "/upload/files/a", {"content-encoding": LONG}, 415, 32),
        ("PUT", "/upload/files/a", {"x-content-sha256": LONG}, 400, 80),
        ("PUT", "/upload/files/a", {"content-digest": f"sha-256={LONG}"}, 400, 72),
        ("POST", "/upload/files", {"tus-resumable": LONG}, 412, 32),
        ("POST", "/upload/files", dict([TUS]) | {"upload-length": LONG}, 400, 32),
        ("GET", "/ws", dict(SOCKET) | {"sec-websocket-version": LONG}, 426, 32),
        ("GET", "/ws", dict(SOCKET) | {"sec-websocket-key": LONG}, 400, 64),
        ("GET", "/ws", dict(SOCKET) | {"sec-websocket-protocol": LONG}, 400, 200),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else str(value)[:20],
)
def test_a_request_is_quoted_in_part(
    method: str, target: str, fields: dict[str, str], status: int, max_chars: int
) -> None:
    headers = {"host": "localhost", **fields}
    route = judge(Head(method, target, tuple((n.encode(), v.encode()) for n, v in headers.items())), SURFACE)
    assert isinstance(route, Refused)
    body = json.loads(route.body)
    message = body["detail"] if "detail" in body else body["error"]["message"]
    assert (route.status, longest(message)) == (status, max_chars)


def test_a_response_is_quoted_in_part() -> None:
    result = json.dumps({"resultType": LONG}).encode()
    with pytest.raises(RemoteProtocolError) as caught:
        to_legacy("tools/call", result, client=LEGACY["2025-11-25"], server=MODERN["2026-07-28"])
    assert longest(caught.value.message) == 39
    with pytest.raises(RemoteProtocolError) as caught:
        tus.read_checksum(f"{LONG} AAAA")
    assert longest(caught.value.message) == 32
    assert longest(redirects.show_origin(f"http://{LONG}/".encode())) == 93


@pytest.mark.parametrize(("size", "seen"), [(78, "'" + "x" * 78 + "'"), (79, "'" + "x" * 76 + "…'")])
def test_the_oracle_quotes_a_bounded_part(size: int, seen: str) -> None:
    assert shown("x" * size) == seen


def test_a_servers_subprotocol_is_quoted_in_part() -> None:
    nonce = bytes(16)
    proof = accept_token(base64.b64encode(nonce))
    headers = ((b"connection", b"upgrade"), (b"upgrade", b"websocket"), (b"sec-websocket-accept", proof))
    with pytest.raises(RemoteProtocolError) as caught:
        check_accepted((*headers, (b"sec-websocket-protocol", LONG.encode())), nonce)
    assert longest(caught.value.message) == 200
