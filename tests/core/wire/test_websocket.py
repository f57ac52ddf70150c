"""WebSocket's handshake and closing, as rules over headers and payloads."""

from __future__ import annotations

import base64
import json

import pytest
from hanging import no_hang
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.events import PipeOpening
from isthmus.core.wire.http.routes import Head, Refused, Route, SocketRoute, Surface
from isthmus.core.wire.http.server import judge
from isthmus.core.wire.websocket import (
    REASON_MAX_BYTES,
    Deflate,
    SocketError,
    accept_token,
    accept_upgrade,
    check_accepted,
    describe_close,
    end_of_part,
    may_close_with,
    parse_close,
    request_headers,
    truncate_reason,
)

ONE = Surface(("files",), frozenset({"localhost"}), frozenset({"https://app.example"}))
TWO = Surface(("a", "b c"), frozenset({"localhost"}), frozenset())
NONCE = bytes(range(16))
KEY = base64.b64encode(NONCE)
USUAL = {
    b"host": b"localhost:8932",
    b"upgrade": b"websocket",
    b"connection": b"Upgrade",
    b"sec-websocket-key": KEY,
    b"sec-websocket-version": b"13",
}


def routed(changes: dict[bytes, bytes | None] | None = None, *, target: str = "/ws", surface: Surface = ONE) -> Route:
    """Routes a request to upgrade. `changes` are put into its headers; None removes one."""
    headers = {**USUAL, **(changes or {})}
    head = Head("GET", target, tuple((name, value) for name, value in headers.items() if value is not None))
    return judge(head, surface)


def granted(changes: dict[bytes, bytes | None] | None = None) -> tuple[dict[bytes, bytes], Deflate | None]:
    route = routed(changes)
    assert isinstance(route, SocketRoute), route
    return dict(route.upgrade.headers), route.upgrade.deflate


def refused(changes: dict[bytes, bytes | None], **options: object) -> tuple[int, str, dict[bytes, bytes]]:
    route = routed(changes, **options)  # type: ignore[arg-type]
    assert isinstance(route, Refused), route
    return route.status, json.loads(route.body)["detail"], dict(route.headers)


# --- The handshake, as the server sees it ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target, surface, server",
    [
        ("/ws", ONE, "files"),
        ("/ws/", ONE, "files"),
        ("/ws/files", ONE, "files"),
        ("/ws/files/?x=1", ONE, "files"),
        ("/ws/b%20c", TWO, "b c"),
    ],
)
def test_the_path_names_the_server(target: str, surface: Surface, server: str) -> None:
    route = routed(target=target, surface=surface)
    assert isinstance(route, SocketRoute)
    assert route.opening == PipeOpening(server, base_url="http://localhost:8932")


@pytest.mark.parametrize("target, surface", [("/ws", TWO), ("/ws/other", ONE), ("/ws/files/x", ONE)])
def test_a_path_without_a_server_is_not_found(target: str, surface: Surface) -> None:
    status, detail, _ = refused({}, target=target, surface=surface)
    assert status == 404 and "/ws/" in detail


def test_foreign_hosts_and_origins_are_refused() -> None:
    """A browser would open a socket for any page."""
    assert refused({b"host": b"evil.example"})[0] == 403
    assert refused({b"origin": b"https://evil.example"})[0] == 403
    assert granted({b"origin": b"https://app.example"})


def test_the_token_is_that_of_the_specification() -> None:
    """Source: RFC 6455, 1.3."""
    assert accept_token(b"dGhlIHNhbXBsZSBub25jZQ==") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    headers, deflate = granted()
    assert headers == {b"upgrade": b"websocket", b"connection": b"Upgrade", b"sec-websocket-accept": accept_token(KEY)}
    assert deflate is None


@pytest.mark.parametrize("connection", [b"upgrade", b"keep-alive, Upgrade", b"UPGRADE,,x"])
@pytest.mark.parametrize("upgrade", [b"WebSocket", b"h2c, websocket"])
def test_the_headers_that_ask_for_it_are_lists_without_case(connection: bytes, upgrade: bytes) -> None:
    assert granted({b"connection": connection, b"upgrade": upgrade})


@pytest.mark.parametrize("missing", [b"connection", b"upgrade"])
@pytest.mark.parametrize("value", [None, b"", b"keep-alive", b"websockets"])
def test_a_request_without_an_upgrade_gets_the_expected_headers(missing: bytes, value: bytes | None) -> None:
    status, detail, headers = refused({missing: value})
    assert (status, headers[b"upgrade"], headers[b"connection"]) == (426, b"websocket", b"Upgrade")
    assert "Upgrade: websocket" in detail and "expected" in detail


@pytest.mark.parametrize("version", [None, b"8", b"", b"13, 8"])
def test_another_version_gets_the_known_one(version: bytes | None) -> None:
    status, detail, headers = refused({b"sec-websocket-version": version})
    assert (status, headers[b"sec-websocket-version"], headers[b"upgrade"]) == (426, b"13", b"websocket")
    assert detail.startswith("got ") and detail.endswith("expected 13")


@pytest.mark.parametrize("key", [None, b"", b"short", base64.b64encode(bytes(15)), KEY + b", " + KEY, b"\xff" * 24])
def test_a_key_has_sixteen_bytes(key: bytes | None) -> None:
    assert refused({b"sec-websocket-key": key})[0] == 400


@pytest.mark.parametrize("line", [b"connection", b"sec-websocket-key", b"sec-websocket-version"])
def test_lines_are_joined_and_doubles_refused(line: bytes) -> None:
    headers = (*USUAL.items(), (line, USUAL[line]))
    route = judge(Head("GET", "/ws", headers), ONE)
    assert isinstance(route, SocketRoute) == (line == b"connection")


@pytest.mark.parametrize(
    "offered, chosen",
    [(None, None), (b"", None), (b"mcp", b"mcp"), (b"graphql, mcp", b"mcp"), (b"MCP", 400), (b"graphql-ws", 400)],
)
def test_mcp_is_chosen_where_anything_is_offered(offered: bytes | None, chosen: bytes | int | None) -> None:
    changes = {b"sec-websocket-protocol": offered}
    if chosen == 400:
        status, detail, _ = refused(changes)
        assert status == 400 and "expected mcp" in detail
    else:
        assert granted(changes)[0].get(b"sec-websocket-protocol") == chosen


TERMS = b"permessage-deflate; server_no_context_takeover; client_no_context_takeover"


@pytest.mark.parametrize(
    "offer, answer, agreed",
    [
        (b"permessage-deflate", TERMS, Deflate()),
        (b"permessage-deflate; client_max_window_bits", TERMS, Deflate()),
        (b"permessage-deflate; client_max_window_bits=9; client_no_context_takeover", TERMS, Deflate()),
        (b"permessage-deflate ; server_max_window_bits = 10", TERMS + b"; server_max_window_bits=10", Deflate(10)),
        (b'permessage-deflate; server_max_window_bits="9"', TERMS + b"; server_max_window_bits=9", Deflate(9)),
        (b"x-webkit-deflate-frame, permessage-deflate", TERMS, Deflate()),
        (b'a="b, permessage-deflate; c", permessage-deflate', TERMS, Deflate()),
        (b"permessage-deflate; unknown, permessage-deflate; client_max_window_bits", TERMS, Deflate()),
        (b"permessage-deflate; server_max_window_bits=8", None, None),
        (b"permessage-deflate; server_max_window_bits=16", None, None),
        (b"permessage-deflate; server_max_window_bits", None, None),
        (b"permessage-deflate; client_max_window_bits=abc", None, None),
        (b"permessage-deflate; client_no_context_takeover=1", None, None),
        (b"permessage-deflate; client_no_context_takeover; client_no_context_takeover", None, None),
        (b"permessage-deflate; x", None, None),
        (b"permessage-bzip2", None, None),
        (b';;,,="', None, None),
        (b'a="\\",\\"b, permessage-deflate', TERMS, Deflate()),  # a quote without an end separates
        (b'permessage-deflate; client_max_window_bits="10', None, None),
    ],
)
def test_compression_is_agreed_on_our_terms_or_left_out(
    offer: bytes, answer: bytes | None, agreed: Deflate | None
) -> None:
    headers, deflate = granted({b"sec-websocket-extensions": offer})
    assert (headers.get(b"sec-websocket-extensions"), deflate) == (answer, agreed)


def test_quotes_without_an_end_are_not_each_searched_for_one() -> None:
    offer = b'a="' + 400_000 * b'\\"' + b", permessage-deflate"
    with no_hang():
        assert granted({b"sec-websocket-extensions": offer})[1] == Deflate()


# --- The handshake, as the client sees it ----------------------------------------------------------------------------


def test_both_sides_agree() -> None:
    """The server accepts the client's request, and the client accepts the server's response."""
    upgrade = accept_upgrade(tuple(request_headers(NONCE)))
    assert dict(upgrade.headers)[b"sec-websocket-protocol"] == b"mcp"
    assert check_accepted(upgrade.headers, NONCE) == upgrade.deflate == Deflate()


@pytest.mark.parametrize(
    "changes, words",
    [
        ({b"upgrade": b"h2c"}, "something else"),
        ({b"connection": b"keep-alive"}, "something else"),
        ({b"sec-websocket-accept": None}, "Sec-WebSocket-Accept"),
        ({b"sec-websocket-accept": b"\xff"}, "Sec-WebSocket-Accept"),
        ({b"sec-websocket-accept": accept_token(b"another")}, "Sec-WebSocket-Accept"),
        ({b"sec-websocket-protocol": b"graphql"}, "'graphql', expected mcp"),
        ({b"sec-websocket-extensions": b"permessage-bzip2"}, "not offered"),
        ({b"sec-websocket-extensions": b"permessage-deflate, permessage-deflate"}, "not offered"),
        ({b"sec-websocket-extensions": b"permessage-deflate; client_max_window_bits=10"}, "not offered"),
        ({b"sec-websocket-extensions": b"permessage-deflate; server_max_window_bits=7"}, "not offered"),
        ({b"sec-websocket-extensions": b"permessage-deflate; server_no_context_takeover=1"}, "not offered"),
    ],
)
def test_an_answer_to_something_else_is_refused(changes: dict[bytes, bytes | None], words: str) -> None:
    headers = {**dict(accept_upgrade(tuple(request_headers(NONCE))).headers), **changes}
    with pytest.raises(RemoteProtocolError, match=words):
        check_accepted(tuple((name, value) for name, value in headers.items() if value is not None), NONCE)


@pytest.mark.parametrize(
    "extensions, agreed",
    [
        (None, None),
        (b"permessage-deflate", Deflate(peer_keeps_window=True)),
        (b"permessage-deflate; server_no_context_takeover", Deflate()),
        (b"permessage-deflate; server_max_window_bits=8; client_no_context_takeover", Deflate(peer_keeps_window=True)),
    ],
)
def test_a_server_may_agree_to_less(extensions: bytes | None, agreed: Deflate | None) -> None:
    headers = [(b"upgrade", b"websocket"), (b"connection", b"upgrade"), (b"sec-websocket-accept", accept_token(KEY))]
    if extensions is not None:
        headers.append((b"sec-websocket-extensions", extensions))
    assert check_accepted(tuple(headers), NONCE) == agreed


# --- Closing ---------------------------------------------------------------------------------------------------------


@given(code=st.integers(0, 65_535), reason=st.text(max_size=200))
def test_a_close_frame_is_read_as_it_was_written(code: int, reason: str) -> None:
    reason = truncate_reason(reason)
    payload = code.to_bytes(2, "big") + reason.encode()
    if may_close_with(code):
        assert parse_close(payload) == (code, reason)
    else:
        with pytest.raises(SocketError) as caught:
            parse_close(payload)
        assert caught.value.code == 1002


def test_codes_that_may_be_sent() -> None:
    """Source: RFC 6455, 7.4, with the codes that the registry has added since."""
    sent = [code for code in range(65_536) if may_close_with(code)]
    assert sent == [1000, 1001, 1002, 1003, *range(1007, 1015), *range(3000, 5000)]


@pytest.mark.parametrize("payload, code", [(b"\x03", 1002), (b"\x03\xe8\xff", 1007)])
def test_a_malformed_close_frame_has_a_code_of_its_own(payload: bytes, code: int) -> None:
    with pytest.raises(SocketError) as caught:
        parse_close(payload)
    assert caught.value.code == code


@given(st.text())
def test_a_reason_is_cut_between_characters(reason: str) -> None:
    cut = truncate_reason(reason)
    assert reason.startswith(cut) and len(cut.encode()) <= REASON_MAX_BYTES
    assert cut == reason or len(cut.encode()) > REASON_MAX_BYTES - 4


def test_closes_in_words() -> None:
    assert parse_close(b"") == (None, "")
    assert describe_close(None, "") == "closed without a code"
    assert describe_close(1000, "") == "closed with 1000"
    assert describe_close(1008, "policy\nviolated\x1b[2J") == "closed with 1008: policy?violated?[2J"


@given(text=st.text(min_size=1), size=st.integers(4, 20))
def test_parts_are_whole_characters(text: str, size: int) -> None:
    message, at, parts = text.encode(), 0, []
    while at < len(message):
        end = end_of_part(message, at, size)
        assert at < end <= at + size
        parts.append(message[at:end].decode())
        at = end
    assert "".join(parts) == text
    assert end_of_part(b"", 0, size) == 0


@pytest.mark.parametrize(
    ("payload", "seen"),
    [(b"\x03", "of one byte"), (b"\x03\xe7", "with code 999"), (b"\x03\xedx", "with code 1005")],
)
def test_a_malformed_close_frame_in_words(payload: bytes, seen: str) -> None:
    with pytest.raises(SocketError, match=f"got a Close frame {seen}, expected one without a code"):
        parse_close(payload)
