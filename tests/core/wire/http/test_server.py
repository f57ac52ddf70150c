"""Requests by their heads, area by area: what may be done there, where links begin, and what is said of a mistake."""

from __future__ import annotations

import json

import pytest
from isthmus.core.base.effects import (
    DeleteOpening,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    PipeOpening,
    PostOpening,
    UploadOpening,
)
from isthmus.core.wire.http.admin_routes import Management, Page
from isthmus.core.wire.http.reply import Reply
from isthmus.core.wire.http.reverse_proxy_target import ForwardTarget
from isthmus.core.wire.http.routes import (
    ForwardRoute,
    Head,
    McpRoute,
    PageRoute,
    Refused,
    Route,
    SocketRoute,
    Surface,
    UploadRoute,
)
from isthmus.core.wire.http.server import judge, reply_to, shared_headers

HOSTS = frozenset({"localhost"})
ONE = Surface(("a",), HOSTS, frozenset({"https://page.example"}), management=Management())
JSON = {"content-type": "application/json"}
UPGRADE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "sec-websocket-protocol": "mcp",
}


def head(method: str, target: str, headers: dict[str, str] | None = None, version: str = "1.1") -> Head:
    fields = {"host": "localhost:80", **(headers or {})}
    return Head(method, target, tuple((name.encode(), value.encode()) for name, value in fields.items()), version)


def ask(
    method: str, target: str, headers: dict[str, str] | None = None, *, on: Surface = ONE, scheme: str = "http"
) -> Route:
    return judge(head(method, target, headers), on, scheme=scheme)


def message(route: Route) -> tuple[int, str]:
    """The status and the words of a refusal, whatever its clients expect."""
    assert isinstance(route, Refused), route
    body = json.loads(route.body)
    said = body.get("detail") or body["error"]
    return route.status, said if isinstance(said, str) else said["message"]


def transparent() -> Surface:
    ways = {"a": ForwardTarget("a", "http://up.example/base", b"key")}
    return Surface(("a", "b"), HOSTS, frozenset({"https://page.example"}), transparent=ways)


def shape(reply: Reply) -> dict[str, object]:
    """All that a reply is, with nothing written yet."""
    return {name: getattr(reply, name) for name in Reply.__slots__}


# --- What may be done -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/mcp", "GET, POST, DELETE"),
        ("/mcp/a", "GET, POST, DELETE"),
        ("/sse", "GET"),
        ("/sse/a", "GET"),
        ("/messages", "POST"),
        ("/messages/none", "POST"),
        ("/upload/a", "POST, PUT, HEAD, GET, PATCH, DELETE, OPTIONS"),
        ("/artifacts/a/s/x/f", "GET, HEAD"),
        ("/artifacts", "GET, HEAD"),
    ],
)
def test_a_page_is_told_what_it_may_do_before_it_does(path: str, methods: str) -> None:
    """Whether there is such a server it is told later."""
    preflight = {"origin": "https://page.example", "access-control-request-method": "POST"}
    route = ask("OPTIONS", path, preflight)
    assert isinstance(route, Refused)
    assert (route.status, route.body) == (204, b"")
    assert dict(route.headers)[b"access-control-allow-methods"] == methods.encode()


@pytest.mark.parametrize("path", ["/ws", "/ws/a", "/healthz", "/servers", "/none"])
def test_elsewhere_pages_of_others_may_do_nothing(path: str) -> None:
    preflight = {"origin": "https://page.example", "access-control-request-method": "POST"}
    route = ask("OPTIONS", path, preflight)
    assert isinstance(route, Refused)
    assert route.status in (404, 405)


def test_a_transparent_server_is_its_own_to_say_what_may_be_done() -> None:
    """What browsers are told is everything that has a name."""
    preflight = {"origin": "https://page.example", "access-control-request-method": "POST"}
    route = ask("OPTIONS", "/mcp/a", preflight, on=transparent())
    assert isinstance(route, Refused)
    assert dict(route.headers)[b"access-control-allow-methods"] == b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
    for method in ("OPTIONS", "BREW", "PATCH"):
        assert ask(method, "/mcp/a", on=transparent()) == ForwardRoute("a", b"/base", "localhost:80")
    for method in ("CONNECT", "TRACE"):
        refused = ask(method, "/mcp/a", on=transparent())
        assert isinstance(refused, Refused)
        assert dict(refused.headers)[b"allow"] == b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/mcp", "GET, POST, DELETE"),
        ("/sse", "GET"),
        ("/messages", "POST"),
        ("/ws", "GET"),
        ("/artifacts/a/s/x/f", "GET, HEAD"),
        ("/info", "GET, HEAD"),
        ("/servers", "GET, HEAD"),
        ("/servers/a/stop", "POST"),
        ("/files/f", "GET, HEAD, DELETE"),
        ("/mcp/a/tools", "GET, HEAD"),
        ("/mcp/a/tools/call", "POST"),
    ],
)
def test_a_method_that_is_none_is_told_those_that_are(path: str, allowed: str) -> None:
    method = "X" * 40
    route = ask(method, path)
    assert message(route) == (405, f"got method {'X' * 32}, expected one of {allowed}")
    assert isinstance(route, Refused)
    assert dict(route.headers)[b"allow"] == allowed.encode()


# --- Where links begin ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_links_begin_with_what_the_client_called_us(scheme: str) -> None:
    base_url = f"{scheme}://localhost:80"
    routes = [
        ask("POST", "/mcp", JSON, scheme=scheme),
        ask("GET", "/sse", scheme=scheme),
        ask("GET", "/ws", UPGRADE, scheme=scheme),
    ]
    assert [route.opening.base_url for route in routes if isinstance(route, McpRoute | SocketRoute)] == [base_url] * 3
    upload = ask("POST", "/upload/a", {"tus-resumable": "1.0.0", "upload-length": "1"}, scheme=scheme)
    assert isinstance(upload, UploadRoute) and not isinstance(upload.opening, UploadOpening)
    assert upload.opening.base_url == base_url


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [("/sse", "/messages"), ("/sse/", "/messages"), ("/sse/a", "/messages/a"), ("/sse/a/", "/messages/a")],
)
@pytest.mark.parametrize("prefix", ["", "/pre"])
def test_an_event_stream_names_where_messages_go(path: str, endpoint: str, prefix: str) -> None:
    surface = Surface(("a",), HOSTS, frozenset(), prefix=prefix)
    route = ask("GET", path, on=surface)
    assert route == McpRoute(EventPipeOpening("a", base_url="http://localhost:80", endpoint=prefix + endpoint))


@pytest.mark.parametrize("accept", [None, "", "*/*", "text/event-stream", "text/*", "application/json", "text/html"])
def test_an_event_stream_is_for_who_takes_events(accept: str | None) -> None:
    """Browsers' own reader says nothing of what it takes."""
    route = ask("GET", "/sse", {} if accept is None else {"accept": accept})
    if accept in ("application/json", "text/html"):
        assert message(route) == (406, f"got Accept {accept!r}, expected text/event-stream")
    else:
        assert isinstance(route, McpRoute)


def test_a_message_names_its_session_in_the_query() -> None:
    assert ask("POST", "/messages?sessionId=t&x=1", JSON) == McpRoute(MessageOpening("a", token="t"))
    assert ask("POST", "/messages/a?sessionId=", JSON) == McpRoute(MessageOpening("a", token=""))
    why = "got no sessionId in the query, expected the address that the event stream named"
    assert message(ask("POST", "/messages?session=t", JSON)) == (400, why)
    assert message(ask("POST", "/messages?sessionId=t")) == (415, "got no Content-Type, expected application/json")
    assert ask("GET", "/ws", UPGRADE) == SocketRoute(
        PipeOpening("a", base_url="http://localhost:80"),
        ask("GET", "/ws/a", UPGRADE).upgrade,  # type: ignore[union-attr]
    )


@pytest.mark.parametrize("path", ["/old/Q", "/old/Q/", "/old/Q?x=1", "/"])
def test_other_paths_stand_for_ours(path: str) -> None:
    """With a slash at the end, or without."""
    surface = Surface(("a",), HOSTS, frozenset(), aliases={"/old/Q": "/mcp/a", "": "/mcp"})
    assert isinstance(ask("POST", path, JSON, on=surface), McpRoute)
    assert message(ask("POST", "/old/QQ", JSON, on=surface))[0] == 404
    assert message(ask("POST", "/old", JSON, on=surface))[0] == 404


# --- Mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "said"),
    [
        ("POST", "/mcp", {}, 415, "got no Content-Type, expected application/json"),
        ("POST", "/mcp", {"content-type": "x" * 201}, 415, f"got Content-Type {'x' * 200}, expected application/json"),
        (
            "POST",
            "/mcp",
            {**JSON, "accept": "x" * 201},
            406,
            f"got Accept '{'x' * 200}', expected application/json, text/event-stream",
        ),
        (
            "GET",
            "/mcp",
            {"accept": "x" * 201},
            406,
            f"got Accept '{'x' * 200}', expected text/event-stream: a GET here opens the event stream of a session, "
            "requests are sent with POST",
        ),
        (
            "POST",
            "/mcp",
            {**JSON, "mcp-protocol-version": "a b" * 30},
            400,
            f"got MCP-Protocol-Version {('a b' * 30)[:64]!r}, expected visible ASCII characters only",
        ),
        (
            "GET",
            "/mcp",
            {"mcp-session-id": "a b"},
            400,
            "got Mcp-Session-Id 'a b', expected visible ASCII characters only",
        ),
        ("POST", "/servers/a/stop", {"content-type": "x"}, 415, "got Content-Type x, expected application/json"),
        (
            "GET",
            "/mcp/a/tools",
            {"sec-fetch-site": "cross-site"},
            403,
            "got a request on behalf of another site, expected none",
        ),
    ],
)
def test_what_is_wrong_is_said(method: str, path: str, headers: dict[str, str], status: int, said: str) -> None:
    assert message(ask(method, path, headers)) == (status, said)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.9", "2", "0.9", "", "11"])
def test_the_version_is_one_of_the_first(version: str) -> None:
    route = judge(head("GET", "/healthz", version=version), ONE)
    if version.startswith("1."):
        assert route == PageRoute(Page.HEALTH)
    else:
        assert message(route) == (505, f"got HTTP/{version}, expected HTTP/1.1")


@pytest.mark.parametrize("name", ["x-key", "X-Key"])
@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", "/mcp/a", JSON),
        ("GET", "/mcp/a", {}),
        ("GET", "/sse/a", {}),
        ("POST", "/messages/a?sessionId=t", JSON),
        ("GET", "/ws/a", UPGRADE),
        ("GET", "/mcp/a/tools", {}),
        ("POST", "/mcp/a/tools/call", JSON),
    ],
)
def test_a_header_that_is_required_is_required_everywhere(
    method: str, path: str, headers: dict[str, str], name: str
) -> None:
    surface = Surface(("a", "b"), HOSTS, frozenset(), required={"a": (name,)}, passes={"a": (("x-key", "x-sent"),)})
    why = f"got no {name} header, expected one: this server's requests must have it"
    assert message(ask(method, path, headers, on=surface)) == (400, why)
    route = ask(method, path, {**headers, "x-key": "1"}, on=surface)
    assert not isinstance(route, Refused)
    if isinstance(route, McpRoute | SocketRoute):
        assert route.opening.headers == (("x-sent", "1"),)
    other = ask(method, path.replace("/a", "/b"), headers, on=surface)
    assert not isinstance(other, Refused)


@pytest.mark.parametrize("revision", [None, "2025-06-18", "2026-07-28"])
@pytest.mark.parametrize("session", [None, "s"])
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream", ""])
def test_what_a_reply_may_be_is_told_by_its_request(accept: str, session: str | None, revision: str | None) -> None:
    """Without a session it may have to name one, where there are such. A header that names one means nothing else."""
    headers = {**JSON, "accept": accept, "mcp-session-id": session or "", "mcp-protocol-version": revision or ""}
    route = ask("POST", "/mcp", {name: value for name, value in headers.items() if value})
    assert isinstance(route, McpRoute) and isinstance(route.opening, PostOpening)
    is_stateless = revision == "2026-07-28"
    assert route.opening.session == (None if is_stateless else session)
    assert (route.opening.accepts_json, route.opening.accepts_events) == (
        accept != "text/event-stream",
        accept != "application/json",
    )
    may_commit = session is not None or is_stateless
    fitting = Reply(
        accepts_json=accept != "text/event-stream",
        accepts_events=accept != "application/json",
        may_commit=may_commit,
    )
    assert shape(reply_to(route.opening)) == shape(fitting)


def test_what_is_no_request_is_answered_with_a_stream_or_with_nothing_else() -> None:
    """An event stream is one; a DELETE, and a message of the older transport, have a single answer."""
    stream, single = shape(Reply(accepts_json=False, is_stream=True)), shape(Reply(accepts_events=False))
    assert shape(reply_to(GetOpening("a"))) == shape(reply_to(EventPipeOpening("a"))) == stream
    assert shape(reply_to(DeleteOpening("a"))) == shape(reply_to(MessageOpening("a", token="t"))) == single


@pytest.mark.parametrize("management", [None, Management.with_token("t")])
def test_who_may_not_look_after_servers_is_told_so_or_nothing(management: Management | None) -> None:
    surface = Surface(("a",), HOSTS, frozenset(), management=management)
    route = ask("GET", "/servers", on=surface)
    assert isinstance(route, Refused)
    if management is None:
        assert route.status == 404
        assert json.loads(route.body)["code"] == "not_found"
        return
    why = "got no token, or another one, expected Authorization: Bearer and the token of core.management"
    assert message(route) == (401, why)
    assert dict(route.headers)[b"www-authenticate"] == b'Bearer realm="isthmus"'
    assert isinstance(ask("GET", "/servers", {"authorization": "Bearer t"}, on=surface), PageRoute)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/mcp/a", b"/base"),
        ("/mcp/a/", b"/base"),
        ("/mcp/a/x", b"/base/x"),
        ("/mcp/a/x/y/?q=1", b"/base/x/y/?q=1"),
        ("/mcp/%61/x", b"/base/x"),
        ("/mcp/b", None),
        ("/mcp/b/x", None),
        ("/mcp/%ff", None),
        ("/mcp", None),
        ("/mcp/", None),
    ],
)
def test_what_is_passed_on_is_what_is_below_a_transparent_server(path: str, target: bytes | None) -> None:
    """Of two servers, the short path is neither's."""
    route = ask("PUT", path, on=transparent())
    assert route == ForwardRoute("a", target, "localhost:80") if target else isinstance(route, Refused)
    ways = transparent().transparent
    alone = Surface(("a",), HOSTS, frozenset(), transparent=ways, required={"a": ("x-key",)})
    for short in ("/mcp", "/mcp/", "/mcp/a"):
        assert message(ask("PUT", short, on=alone))[0] == 400
        assert ask("PUT", short, {"x-key": "1"}, on=alone) == ForwardRoute("a", b"/base", "localhost:80")


@pytest.mark.parametrize(
    ("target", "is_file"), [("/upload/a", True), ("/artifacts/a/s/x/f", True), ("/mcp", False), ("/uploads", False)]
)
def test_pages_may_read_what_belongs_to_files_where_there_are_files(target: str, is_file: bool) -> None:
    said = dict(shared_headers(head("GET", target, {"origin": "https://page.example"}), ONE))
    assert (b"Upload-Offset" in said[b"access-control-expose-headers"]) is is_file
    assert (b"Mcp-Session-Id" in said[b"access-control-expose-headers"]) is not is_file
