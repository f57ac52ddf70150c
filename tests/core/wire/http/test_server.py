"""Routing by heads, area by area: allowed methods, base URLs of links, and the words of refusals."""

from __future__ import annotations

import json

import pytest
from isthmus.core.base.events import (
    DeleteOpening,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    PipeOpening,
    PostOpening,
    UploadOpening,
)
from isthmus.core.wire.http.admin_routes import Management, Page
from isthmus.core.wire.http.reply import HttpReply
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
ONE = Surface(("a",), HOSTS, frozenset({"https://page.example"}), management=Management.with_token("t"))
BEARER = {"authorization": "Bearer t"}
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


def routed(
    method: str, target: str, headers: dict[str, str] | None = None, *, on: Surface = ONE, scheme: str = "http"
) -> Route:
    return judge(head(method, target, headers), on, scheme=scheme)


def message(route: Route) -> tuple[int, str]:
    """Returns the status and the words of a refusal, whatever form its clients expect."""
    assert isinstance(route, Refused), route
    body = json.loads(route.body)
    text = body.get("detail") or body["error"]
    return route.status, text if isinstance(text, str) else text["message"]


def transparent() -> Surface:
    rules = {"a": ForwardTarget("a", "http://up.example/base", b"key")}
    return Surface(("a", "b"), HOSTS, frozenset({"https://page.example"}), transparent=rules)


def shape(reply: HttpReply) -> dict[str, object]:
    """All attributes of a reply that has written nothing yet."""
    return {name: getattr(reply, name) for name in HttpReply.__slots__}


# --- Methods ----------------------------------------------------------------------------------------------------------


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
def test_a_preflight_gets_the_methods_of_its_path(path: str, methods: str) -> None:
    """A server that does not exist is reported later."""
    preflight = {"origin": "https://page.example", "access-control-request-method": "POST"}
    route = routed("OPTIONS", path, preflight)
    assert isinstance(route, Refused)
    assert (route.status, route.body) == (204, b"")
    assert dict(route.headers)[b"access-control-allow-methods"] == methods.encode()


@pytest.mark.parametrize("path", ["/ws", "/ws/a", "/healthz", "/servers", "/none"])
def test_foreign_pages_may_do_nothing_on_other_paths(path: str) -> None:
    preflight = {"origin": "https://page.example", "access-control-request-method": "POST"}
    route = routed("OPTIONS", path, preflight)
    assert isinstance(route, Refused)
    assert route.status in (401, 404, 405)


def test_a_transparent_server_decides_on_methods_itself() -> None:
    """Browsers get every named method."""
    preflight = {"origin": "https://page.example", "access-control-request-method": "POST"}
    route = routed("OPTIONS", "/mcp/a", preflight, on=transparent())
    assert isinstance(route, Refused)
    assert dict(route.headers)[b"access-control-allow-methods"] == b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
    for method in ("OPTIONS", "BREW", "PATCH"):
        assert routed(method, "/mcp/a", on=transparent()) == ForwardRoute("a", b"/base", "localhost:80")
    for method in ("CONNECT", "TRACE"):
        refused = routed(method, "/mcp/a", on=transparent())
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
def test_a_refused_method_gets_the_allowed_ones(path: str, allowed: str) -> None:
    method = "X" * 40
    route = routed(method, path, BEARER)
    assert message(route) == (405, f"got method {'X' * 32}, expected one of {allowed}")
    assert isinstance(route, Refused)
    assert dict(route.headers)[b"allow"] == allowed.encode()


# --- Base URLs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_links_begin_with_the_host_of_the_request(scheme: str) -> None:
    base_url = f"{scheme}://localhost:80"
    routes = [
        routed("POST", "/mcp", JSON, scheme=scheme),
        routed("GET", "/sse", scheme=scheme),
        routed("GET", "/ws", UPGRADE, scheme=scheme),
    ]
    assert [route.opening.base_url for route in routes if isinstance(route, McpRoute | SocketRoute)] == [base_url] * 3
    upload = routed("POST", "/upload/a", {"tus-resumable": "1.0.0", "upload-length": "1"}, scheme=scheme)
    assert isinstance(upload, UploadRoute) and not isinstance(upload.opening, UploadOpening)
    assert upload.opening.base_url == base_url


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [("/sse", "/messages"), ("/sse/", "/messages"), ("/sse/a", "/messages/a"), ("/sse/a/", "/messages/a")],
)
@pytest.mark.parametrize("prefix", ["", "/pre"])
def test_an_event_stream_names_its_endpoint(path: str, endpoint: str, prefix: str) -> None:
    surface = Surface(("a",), HOSTS, frozenset(), prefix=prefix)
    route = routed("GET", path, on=surface)
    assert route == McpRoute(EventPipeOpening("a", base_url="http://localhost:80", endpoint=prefix + endpoint))


@pytest.mark.parametrize("accept", [None, "", "*/*", "text/event-stream", "text/*", "application/json", "text/html"])
def test_an_event_stream_is_for_clients_that_accept_events(accept: str | None) -> None:
    """A browser's own reader may send no Accept."""
    route = routed("GET", "/sse", {} if accept is None else {"accept": accept})
    if accept in ("application/json", "text/html"):
        assert message(route) == (406, f"got Accept {accept!r}, expected text/event-stream")
    else:
        assert isinstance(route, McpRoute)


def test_a_message_names_its_session_in_the_query() -> None:
    assert routed("POST", "/messages?sessionId=t&x=1", JSON) == McpRoute(MessageOpening("a", token="t"))
    assert routed("POST", "/messages/a?sessionId=", JSON) == McpRoute(MessageOpening("a", token=""))
    reason = "got no sessionId in the query, expected the address that the event stream named"
    assert message(routed("POST", "/messages?session=t", JSON)) == (400, reason)
    assert message(routed("POST", "/messages?sessionId=t")) == (415, "got no Content-Type, expected application/json")
    assert routed("GET", "/ws", UPGRADE) == SocketRoute(
        PipeOpening("a", base_url="http://localhost:80"),
        routed("GET", "/ws/a", UPGRADE).upgrade,  # type: ignore[union-attr]
    )


@pytest.mark.parametrize("path", ["/old/Q", "/old/Q/", "/old/Q?x=1", "/"])
def test_aliases_of_paths(path: str) -> None:
    """A slash at the end makes no difference."""
    surface = Surface(("a",), HOSTS, frozenset(), aliases={"/old/Q": "/mcp/a", "": "/mcp"})
    assert isinstance(routed("POST", path, JSON, on=surface), McpRoute)
    assert message(routed("POST", "/old/QQ", JSON, on=surface))[0] == 404
    assert message(routed("POST", "/old", JSON, on=surface))[0] == 404


# --- Refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "text"),
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
def test_the_words_of_refusals(method: str, path: str, headers: dict[str, str], status: int, text: str) -> None:
    assert message(routed(method, path, BEARER | headers)) == (status, text)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.9", "2", "0.9", "", "11"])
def test_the_http_version_is_1(version: str) -> None:
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
    reason = f"got no {name} header, expected one: this server's requests must have it"
    assert message(routed(method, path, headers, on=surface)) == (400, reason)
    route = routed(method, path, {**headers, "x-key": "1"}, on=surface)
    assert not isinstance(route, Refused)
    if isinstance(route, McpRoute | SocketRoute):
        assert route.opening.headers == (("x-sent", "1"),)
    other = routed(method, path.replace("/a", "/b"), headers, on=surface)
    assert not isinstance(other, Refused)


@pytest.mark.parametrize("revision", [None, "2025-06-18", "2026-07-28"])
@pytest.mark.parametrize("session", [None, "s"])
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream", ""])
def test_the_reply_that_a_request_allows(accept: str, session: str | None, revision: str | None) -> None:
    """A POST without a session may have to name one, except in the stateless era, which ignores the session header."""
    headers = {**JSON, "accept": accept, "mcp-session-id": session or "", "mcp-protocol-version": revision or ""}
    route = routed("POST", "/mcp", {name: value for name, value in headers.items() if value})
    assert isinstance(route, McpRoute) and isinstance(route.opening, PostOpening)
    is_stateless = revision == "2026-07-28"
    assert route.opening.session == (None if is_stateless else session)
    assert (route.opening.accepts_json, route.opening.accepts_events) == (
        accept != "text/event-stream",
        accept != "application/json",
    )
    may_commit = session is not None or is_stateless
    fitting = HttpReply(
        accepts_json=accept != "text/event-stream",
        accepts_events=accept != "application/json",
        may_commit=may_commit,
    )
    assert shape(reply_to(route.opening)) == shape(fitting)


def test_the_replies_to_other_openings() -> None:
    """A GET is answered with an event stream; a DELETE, and a message of HTTP+SSE, with a single response."""
    stream, single = shape(HttpReply(accepts_json=False, is_stream=True)), shape(HttpReply(accepts_events=False))
    assert shape(reply_to(GetOpening("a"))) == shape(reply_to(EventPipeOpening("a"))) == stream
    assert shape(reply_to(DeleteOpening("a"))) == shape(reply_to(MessageOpening("a", token="t"))) == single


@pytest.mark.parametrize("management", [None, Management.with_token("t")])
def test_management_without_a_token_is_hidden_or_refused(management: Management | None) -> None:
    surface = Surface(("a",), HOSTS, frozenset(), management=management)
    route = routed("GET", "/servers", on=surface)
    assert isinstance(route, Refused)
    if management is None:
        assert route.status == 404
        assert json.loads(route.body)["code"] == "not_found"
        return
    wanted = "the token of core.management (of isthmus wrap: ISTHMUS_TOKEN)"
    reason = f"got no Authorization header, expected Authorization: Bearer and {wanted}"
    assert message(route) == (401, reason)
    assert dict(route.headers)[b"www-authenticate"] == b'Bearer realm="isthmus"'
    assert isinstance(routed("GET", "/servers", {"authorization": "Bearer t"}, on=surface), PageRoute)


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
def test_the_targets_of_a_transparent_server(path: str, target: bytes | None) -> None:
    """The short path belongs to a server only if there is no other."""
    route = routed("PUT", path, on=transparent())
    assert route == ForwardRoute("a", target, "localhost:80") if target else isinstance(route, Refused)
    rules = transparent().transparent
    alone = Surface(("a",), HOSTS, frozenset(), transparent=rules, required={"a": ("x-key",)})
    for short in ("/mcp", "/mcp/", "/mcp/a"):
        assert message(routed("PUT", short, on=alone))[0] == 400
        assert routed("PUT", short, {"x-key": "1"}, on=alone) == ForwardRoute("a", b"/base", "localhost:80")


@pytest.mark.parametrize(
    ("target", "is_file"), [("/upload/a", True), ("/artifacts/a/s/x/f", True), ("/mcp", False), ("/uploads", False)]
)
def test_pages_may_read_file_headers_on_file_paths(target: str, is_file: bool) -> None:
    headers = dict(shared_headers(head("GET", target, {"origin": "https://page.example"}), ONE))
    assert (b"Upload-Offset" in headers[b"access-control-expose-headers"]) is is_file
    assert (b"Mcp-Session-Id" in headers[b"access-control-expose-headers"]) is not is_file
