"""The rules of the HTTP surface, enumerated: each request is routed, or refused with the right status."""

from __future__ import annotations

import itertools
import json

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import (
    DeleteOpening,
    DownloadOpening,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    PostOpening,
    UploadOpening,
)
from isthmus.core.wire.headers import SESSION_ID_MAX_CHARS, accepts
from isthmus.core.wire.http.admin_routes import Page
from isthmus.core.wire.http.error_responses import is_mcp, not_found
from isthmus.core.wire.http.request_target import QUERY_FIELDS_MAX
from isthmus.core.wire.http.routes import (
    DownloadRoute,
    Head,
    McpRoute,
    PageRoute,
    Refused,
    Route,
    Surface,
    UploadRoute,
)
from isthmus.core.wire.http.server import judge

HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
ONE = Surface(("files",), HOSTS, frozenset({"https://app.example"}))
TWO = Surface(("a", "b c"), HOSTS, frozenset())

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
PATHS = ("/mcp", "/mcp/", "/mcp/files", "/mcp/files/", "/mcp/other", "/mcp/files/x", "/upload/files", "/upload/other")
PATHS += ("/ws", "/ws/", "/ws/files", "/ws/files/", "/ws/other", "/ws/files/x", "/wsx")
PATHS += ("/artifacts/files/s/a/f", "/artifacts/other/s/a/f", "/artifacts/files/s/a", "/", "/healthz", "//mcp", "/mcpx")
ACCEPTS = {  # what is allowed: JSON, events
    None: (True, True),
    "": (True, True),
    "*/*": (True, True),
    "application/json, text/event-stream": (True, True),
    "application/json": (True, False),
    "APPLICATION/JSON ; charset=utf-8": (True, False),
    "text/event-stream": (False, True),
    "application/*": (True, False),
    "text/*;q=0.1": (False, True),
    "*/*, application/json;q=0": (False, True),
    "text/*;q=0, text/event-stream": (False, True),
    "text/event-stream;q=0.0, */*;q=0.5": (True, False),
    "text/html": (False, False),
    "application/json, application/json;q=0": (True, False),
    "*/*;q=0": (False, False),
    "application/jsonx": (False, False),
    ",;,": (False, False),
}
CONTENT_TYPES = {
    None: False,
    "application/json": True,
    "Application/JSON; charset=utf-8": True,
    "application/json-rpc": False,
    "text/plain": False,
    "": False,
}


def routed(
    target: str = "/mcp", *extra: tuple[str, str], method: str = "POST", surface: Surface = ONE, host: str = "localhost"
) -> Route:
    headers = [("host", host), *extra]
    head = Head(method, target, tuple((name.encode(), value.encode("latin-1")) for name, value in headers))
    return judge(head, surface)


def post(*extra: tuple[str, str], target: str = "/mcp", **options: object) -> Route:
    return routed(target, ("content-type", "application/json"), *extra, **options)  # type: ignore[arg-type]


def status_of(route: Route) -> int:
    return route.status if isinstance(route, Refused) else 200


def expected(method: str, path: str, accept: str | None, content_type: str | None) -> tuple[int, type]:
    """States the rules once more, as a list."""
    json_ok, events_ok = ACCEPTS[accept]
    if path in ("/mcp", "/mcp/", "/mcp/files", "/mcp/files/"):
        if method == "DELETE":
            return 200, McpRoute
        if method == "GET":
            return (200, McpRoute) if events_ok else (406, Refused)
        if method != "POST":
            return 405, Refused
        if not CONTENT_TYPES[content_type]:
            return 415, Refused
        return (200, McpRoute) if json_ok or events_ok else (406, Refused)
    if path in ("/ws", "/ws/", "/ws/files", "/ws/files/"):
        return 426 if method == "GET" else 405, Refused
    if path.startswith(("/mcp/", "/ws/")) or path.endswith("/other") or "/other/" in path:
        return 404, Refused
    if path == "/upload/files":
        if method == "OPTIONS":
            return 204, Refused
        return (200, UploadRoute) if method in ("POST", "PUT") else (405, Refused)
    if path == "/artifacts/files/s/a/f":
        return (200, DownloadRoute) if method in ("GET", "HEAD") else (405, Refused)
    if path == "/healthz":
        return (200, PageRoute) if method in ("GET", "HEAD") else (405, Refused)
    return 404, Refused


@each_row("method", METHODS)
@each_row("path", PATHS)
def test_every_kind_of_request_is_routed_or_refused(method: str, path: str) -> None:
    for accept, content_type in itertools.product(ACCEPTS, CONTENT_TYPES):
        extra = [("accept", accept)] if accept is not None else []
        extra += [("content-type", content_type)] if content_type is not None else []
        for query in ("", "?x=1"):
            route = routed(path + query, *extra, method=method)
            assert (status_of(route), type(route)) == expected(method, path, accept, content_type), (accept, extra)


@pytest.mark.parametrize(("count", "status"), [(QUERY_FIELDS_MAX, 200), (QUERY_FIELDS_MAX + 1, 400)])
def test_a_query_has_so_many_fields(count: int, status: int) -> None:
    query = "&".join(f"x{number}=1" for number in range(count))
    assert status_of(routed(f"/upload/files?{query}", method="POST")) == status


@pytest.mark.parametrize("accept", ACCEPTS)
def test_accept_is_read_as_http_requires(accept: str | None) -> None:
    assert (accepts(accept or "", "application/json"), accepts(accept or "", "text/event-stream")) == ACCEPTS[accept]
    if ACCEPTS[accept] != (False, False):
        route = post(*([("accept", accept)] if accept is not None else []))
        assert isinstance(route, McpRoute) and isinstance(route.opening, PostOpening)
        assert (route.opening.accepts_json, route.opening.accepts_events) == ACCEPTS[accept]


def test_lines_of_accept_are_joined() -> None:
    route = post(("accept", "application/json"), ("accept", "text/event-stream"))
    assert isinstance(route, McpRoute) and isinstance(route.opening, PostOpening)
    assert route.opening.accepts_json and route.opening.accepts_events


def test_the_openings_hold_the_request() -> None:
    fields = (("mcp-session-id", "s!~"), ("mcp-protocol-version", "2025-06-18"))
    route = judge(
        Head(
            "POST",
            "/mcp/files",
            (
                (b"host", b"LocalHost:8932"),
                (b"content-type", b"application/json"),
                *((n.encode(), v.encode()) for n, v in fields),
            ),
        ),
        ONE,
        scheme="https",
    )
    assert route == McpRoute(
        PostOpening("files", session="s!~", revision="2025-06-18", base_url="https://localhost:8932")
    )
    got = routed("/mcp", *fields, ("last-event-id", "ü".encode().decode("latin-1")), method="GET")
    assert got == McpRoute(GetOpening("files", session="s!~", revision="2025-06-18", last_event_id="ü"))
    unnamed = routed("/mcp", *fields, ("last-event-id", ""), method="GET")
    assert unnamed == McpRoute(GetOpening("files", session="s!~", revision="2025-06-18")), "it has seen no id"
    deleted = routed("/mcp", *fields, method="DELETE")
    assert deleted == McpRoute(DeleteOpening("files", session="s!~", revision="2025-06-18"))
    uploaded = routed("/upload/files?sig=a%2Bb&exp=", ("mcp-session-id", "s"), ("content-length", "12"))
    assert uploaded == UploadRoute(UploadOpening("files", {"sig": "a+b", "exp": ""}, session="s", size_bytes=12), "")
    chunked = routed("/upload/files", ("transfer-encoding", "chunked"), ("content-type", "multipart/form-data; b=x"))
    assert chunked == UploadRoute(UploadOpening("files", {}), "multipart/form-data; b=x")
    download = routed("/artifacts/files/s/a/r%C3%A9%20x.png?sig=1", method="HEAD")
    assert download == DownloadRoute(DownloadOpening("files", "s", "a", "ré x.png", {"sig": "1"}), head_only=True)
    assert routed("/healthz?x", method="GET") == PageRoute(Page.HEALTH, query={"x": ""})


def test_the_short_path_needs_a_single_server() -> None:
    assert status_of(post(surface=TWO)) == 404
    route = post(target="/mcp/b%20c", surface=TWO)
    assert isinstance(route, McpRoute) and route.opening.server == "b c"


@pytest.mark.parametrize("servers", [("a",), ("a", "b")])
def test_the_short_path_is_that_of_the_default_profile(servers: tuple[str, ...]) -> None:
    """A profile has no files of its own, and an only server keeps its short path for uploads."""
    surface = Surface(servers, HOSTS, frozenset(), profiles={"dev": ("a",), "all": servers}, default="all")
    for target in ("/mcp", "/mcp/", "/mcp/all", "/messages?sessionId=x"):
        route = post(target=target, surface=surface)
        assert isinstance(route, McpRoute)
        assert route.opening.server == "all"
    stream = routed("/sse", method="GET", surface=surface)
    assert isinstance(stream, McpRoute) and isinstance(stream.opening, EventPipeOpening)
    assert (stream.opening.server, stream.opening.endpoint) == ("all", "/messages")
    assert status_of(routed("/ws", method="GET", surface=surface)) == 426
    upload = routed("/upload", method="POST", surface=surface)
    assert status_of(upload) == status_of(
        routed("/upload", method="POST", surface=Surface(servers, HOSTS, frozenset()))
    )
    missing = routed("/mpc", surface=surface)
    assert isinstance(missing, Refused) and b"got path '/mpc', expected /mcp" in missing.body
    with pytest.raises(LocalProtocolError):
        Surface(servers, HOSTS, frozenset(), default="all")


@pytest.mark.parametrize(
    "path, status",
    [
        ("/artifacts/files/s/a/x%2Fy", 400),
        ("/artifacts/files/s%2F..%2F/a/f", 400),
        ("/artifacts/files/s/a/x%00", 400),
        ("/artifacts/files/s/a/%FF", 400),
        ("/artifacts/files/s/a/f?x=%FF", 400),
        ("/artifacts/files/s/a/f?sig=1&sig=2", 400),
        ("/artifacts/files/s/a/f?" + "&".join(f"x{n}=" for n in range(33)), 400),
        ("/artifacts/files/s/a/..", 200),
        ("/mcp/%2Ffiles", 400),
        ("*", 400),
        ("localhost:80", 400),
        ("http:///mcp", 400),
        ("http://evil.example/info", 403),
        ("http://evil.example/healthz", 200),
        ("http://localhost:1/healthz", 200),
        ("http://localhost", 404),
    ],
)
def test_targets(path: str, status: int) -> None:
    assert status_of(routed(path, method="GET")) == status


@pytest.mark.parametrize(
    "host, is_ours",
    [
        ("localhost", True),
        ("LOCALHOST:1", True),
        ("127.0.0.1:65535", True),
        ("[::1]:80", True),
        ("[::1]", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("localhost:80:80", False),
        ("localhost:", False),
        ("user@localhost", False),
        ("localhost/x", False),
        ("localhost evil", False),
        ("", False),
        ("::1", False),
    ],
)
def test_only_our_own_hosts_are_served(host: str, is_ours: bool) -> None:
    assert status_of(post(host=host)) == (200 if is_ours else 403)
    route = post(host=host, surface=Surface(("x",), HOSTS, frozenset(), any_host=True))
    well_formed = is_ours or ("evil" in host and " " not in host)
    assert status_of(route) == (200 if well_formed else 403)


@pytest.mark.parametrize(
    "origin, is_ours",
    [
        (None, True),
        ("http://localhost", True),
        ("https://LOCALHOST:6274", True),
        ("http://[::1]:80", True),
        ("https://app.example", True),
        ("http://app.example", False),
        ("https://app.example:444", False),
        ("null", False),
        ("", False),
        ("file://localhost", False),
        ("http://localhost.evil.example", False),
        ("http://evil.example", False),
        ("http://localhost/evil", False),
    ],
)
def test_only_our_own_origins_are_served(origin: str | None, is_ours: bool) -> None:
    extra = [] if origin is None else [("origin", origin)]
    for surface in (ONE, Surface(ONE.servers, HOSTS, ONE.origins, any_host=True)):
        assert status_of(post(*extra, surface=surface)) == (200 if is_ours else 403)
        assert status_of(routed("/healthz", *extra, method="GET", surface=surface)) == (200 if is_ours else 403)


@pytest.mark.parametrize("page", ["health", "healthz", "readyz"])
@pytest.mark.parametrize("host", [None, b"10.0.0.7:8932", b"isthmus.default.svc", b"", b"a b"])
def test_probes_may_have_any_host_or_none(page: str, host: bytes | None) -> None:
    """Other pages refuse them, and pages of other origins are refused here too."""
    headers = [] if host is None else [(b"host", host)]
    route = judge(Head("GET", f"/{page}", tuple(headers)), ONE)
    assert isinstance(route, PageRoute)
    assert not route.shows_all
    known = judge(Head("GET", f"/{page}", ((b"host", b"localhost"),)), ONE)
    assert isinstance(known, PageRoute)
    assert known.shows_all
    for path, origin in (("/info", None), ("/mcp/files", None), (f"/{page}", (b"origin", b"http://evil.example"))):
        head = Head("GET", path, (*headers, *([] if origin is None else [origin])))
        assert status_of(judge(head, ONE)) == 403


@pytest.mark.parametrize(
    "name", ["host", "origin", "content-type", "content-length", "mcp-session-id", "mcp-protocol-version"]
)
def test_a_second_line_is_refused_even_if_it_agrees(name: str) -> None:
    value = "http://localhost" if name == "origin" else "localhost" if name == "host" else "1"
    assert (
        status_of(routed("/healthz", (name, value), *([] if name == "host" else [(name, value)]), method="GET")) == 400
    )


@pytest.mark.parametrize(
    "version, extra, status",
    [
        ("1.0", (), 200),
        ("1.2", (), 200),
        ("0.9", (), 505),
        ("2.0", (), 505),
        ("1.0", ((b"transfer-encoding", b"chunked"),), 400),
        ("1.1", ((b"transfer-encoding", b"chunked"),), 200),
    ],
)
def test_versions(version: str, extra: tuple[tuple[bytes, bytes], ...], status: int) -> None:
    head = Head("GET", "/healthz", ((b"host", b"localhost"), *extra), version)
    assert status_of(judge(head, ONE)) == status


@pytest.mark.parametrize(
    "expectation, status",
    [
        ("100-continue", 200),
        ("100-Continue", 200),
        ("100-continue, 100-continue", 200),
        ("", 417),
        ("200-ok", 417),
        ("100-continue, more", 417),
        ("100-continue;q=1", 417),
    ],
)
def test_only_one_expectation_is_met(expectation: str, status: int) -> None:
    assert status_of(post(("expect", expectation))) == status


def test_options_for_the_whole_server() -> None:
    route = routed("*", method="OPTIONS")
    assert route == Refused(204, b"", ((b"allow", b"GET, HEAD, POST, DELETE, OPTIONS"),))
    assert status_of(routed("*", method="OPTIONS", host="evil.example")) == 403


def test_two_framings_are_refused() -> None:
    assert status_of(post(("content-length", "2"), ("transfer-encoding", "chunked"))) == 400


@pytest.mark.parametrize(
    "session, is_well_formed",
    [
        ("x" * SESSION_ID_MAX_CHARS, True),
        ("x" * (SESSION_ID_MAX_CHARS + 1), False),
        ("", False),
        ("a b", False),
        ("a\x7f", False),
        ("\xe4", False),
    ],
)
def test_session_ids_are_visible_ascii(session: str, is_well_formed: bool) -> None:
    status = 200 if is_well_formed else 400
    assert status_of(post(("mcp-session-id", session))) == status
    assert status_of(routed("/mcp", ("mcp-session-id", session), method="DELETE")) == status
    if len(session) <= SESSION_ID_MAX_CHARS:
        assert status_of(post(("mcp-protocol-version", session))) == status


def test_refusals_are_json_and_name_the_expected_value() -> None:
    for route in (post(host="evil.example"), routed("/mcp", ("content-type", "text/plain")), routed("/mcp/none")):
        assert isinstance(route, Refused)
        body = json.loads(route.body)
        assert body["id"] is None and body["error"]["code"] == -32600
        assert body["error"]["message"].startswith("got ") and "expected" in body["error"]["message"]
        assert dict(route.headers)[b"content-length"] == b"%d" % len(route.body)
    refused = routed("/mcp", ("content-type", "text/plain"))
    assert isinstance(refused, Refused)
    assert b"got Content-Type text/plain, expected application/json" in refused.body
    missing = not_found("/nothing", TWO)
    assert json.loads(missing.body)["detail"] == "got path '/nothing', expected /mcp/ID with ID one of a, b c"
    not_allowed = routed("/mcp", method="PUT")
    assert isinstance(not_allowed, Refused)
    assert dict(not_allowed.headers)[b"allow"] == b"GET, POST, DELETE"
    assert is_mcp("/mcp/x") and not is_mcp("/mcpx")


NAMES = st.sampled_from(
    [b"host", b"origin", b"accept", b"content-type", b"mcp-session-id", b"last-event-id", b"content-length", b"x"]
)


@given(
    method=st.sampled_from(METHODS),
    target=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E))
    | st.builds(
        lambda area, rest: f"/{area}/{rest}", st.sampled_from(["mcp", "upload", "artifacts"]), st.text("%/?aF0")
    ),
    headers=st.lists(st.tuples(NAMES, st.binary(max_size=20) | st.just(b"localhost"))),
)
def test_every_head_is_routed_or_refused(method: str, target: str, headers: list[tuple[bytes, bytes]]) -> None:
    """Any head has a route or a refusal, and a refusal is a well-formed error."""
    route = judge(Head(method, target, tuple(headers)), ONE)
    if isinstance(route, Refused) and (method, route.status) != ("OPTIONS", 204):
        assert 400 <= route.status < 500
        assert isinstance(json.loads(route.body), dict)


@pytest.mark.parametrize("event_id", ["\xff", "a\xe9", "\xed\xa0\x80"], ids=ascii)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_event_id_is_utf_8(event_id: str, method: str) -> None:
    """The proxy's own event ids are UTF-8, so that any other comes from elsewhere."""
    assert status_of(routed("/mcp", ("last-event-id", event_id), method=method)) == 400


@pytest.mark.parametrize("weight", ["", "x", "1,5", "0x0", "high"])
def test_a_weight_that_cannot_be_read_counts_as_one(weight: str) -> None:
    assert accepts(f"text/event-stream;q={weight.partition(',')[0]}", "text/event-stream")
    assert not accepts("text/event-stream;q=0", "text/event-stream")
    assert accepts("text/event-stream;q2=0", "text/event-stream")
    assert not accepts("text/event-stream; a=1; Q = 0", "text/event-stream")


# --- HTTP with SSE ----------------------------------------------------------------------------------------------------


@each_row("path", ["/sse", "/sse/", "/sse/files", "/sse/files/"])
@each_row("accept", ACCEPTS)
def test_an_event_stream_of_2024_is_a_get_that_accepts_events(path: str, accept: str | None) -> None:
    """Many clients of 2024-11-05, browsers among them, send no Accept."""
    extra = [] if accept is None else [("accept", accept)]
    route = routed(path, *extra, method="GET")
    assert status_of(route) == (200 if ACCEPTS[accept][1] else 406)
    if isinstance(route, McpRoute):
        endpoint = "/messages/files" if "files" in path else "/messages"
        assert route.opening == EventPipeOpening("files", base_url="http://localhost", endpoint=endpoint)


@pytest.mark.parametrize("method", METHODS)
def test_an_event_stream_of_2024_has_one_method_and_so_has_its_endpoint(method: str) -> None:
    for path, allowed in (("/sse", "GET"), ("/messages?sessionId=t", "POST")):
        route = routed(path, ("content-type", "application/json"), method=method)
        if method == "OPTIONS":
            continue
        assert status_of(route) == (200 if method == allowed else 405)
        if isinstance(route, Refused):
            assert dict(route.headers)[b"allow"].split(b", ")[0] == allowed.encode()


@pytest.mark.parametrize("target", ["/mcp", "/messages?sessionId=t"])
@pytest.mark.parametrize(("coding", "status"), [("gzip", 415), ("br, identity", 415), ("Identity", 200)])
def test_encoded_messages_are_refused(target: str, coding: str, status: int) -> None:
    assert status_of(post(("content-encoding", coding), target=target)) == status


def test_a_message_names_its_event_stream() -> None:
    assert post(target="/messages?sessionId=t%2B1") == McpRoute(MessageOpening("files", token="t+1"))
    assert post(target="/messages/files?sessionId=") == McpRoute(MessageOpening("files", token=""))
    for target in ("/messages", "/messages?session=t", "/messages/files?sessionid=t"):
        assert status_of(post(target=target)) == 400
    assert status_of(routed("/messages?sessionId=t")) == 415
    assert status_of(post(target="/messages/other?sessionId=t")) == 404
