"""Transparent servers behind the reverse proxy: the targets of requests, and the headers that cross."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

import msgspec
import pytest
from each_row import each_row
from hanging import no_hang
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.wire.http.admin_routes import Page
from isthmus.core.wire.http.error_responses import not_found
from isthmus.core.wire.http.reverse_proxy import (
    HeaderRules,
    Sender,
    hop_headers,
    is_upgrade,
    request_headers,
    response_headers,
)
from isthmus.core.wire.http.reverse_proxy_target import ForwardTarget
from isthmus.core.wire.http.routes import (
    DownloadRoute,
    ForwardRoute,
    Head,
    McpRoute,
    PageRoute,
    Refused,
    Surface,
    UploadRoute,
)
from isthmus.core.wire.http.server import FORWARD_METHODS, judge

HOSTS = frozenset({"localhost"})
HERE = Sender("192.0.2.7", "proxy.example:8932", "http")


def target(url: str = "http://up.example/base", server: str = "far", **options: str) -> ForwardTarget:
    return ForwardTarget(server, url, b"key", **options)


def surface(*servers: str, url: str = "http://up.example/base") -> Surface:
    return Surface(servers or ("far",), HOSTS, frozenset(), transparent={"far": target(url)})


def routed(path: str, *, method: str = "POST", on: Surface | None = None, **headers: str) -> object:
    fields = {"host": "localhost"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return judge(Head(method, path, tuple((n.encode(), v.encode()) for n, v in fields.items())), on or surface())


# --- Routes and targets ---------------------------------------------------------------------------------------------


@each_row("method", [*FORWARD_METHODS, "BREW"])
@each_row(
    "path, upstream",
    [
        ("/mcp", "/base"),
        ("/mcp/", "/base"),
        ("/mcp/far", "/base"),
        ("/mcp/far/", "/base"),
        ("/mcp/far?a=1&b", "/base?a=1&b"),
        ("/mcp/far/rest/of%20it/?q=%2F", "/base/rest/of%20it/?q=%2F"),
        ("/mcp/f%61r/x", "/base/x"),
        ("/mcp/far//x", "/base//x"),
        ("http://localhost/mcp/far/x", "/base/x"),
    ],
)
def test_every_method_is_passed_on(method: str, path: str, upstream: str) -> None:
    assert routed(path, method=method) == ForwardRoute("far", upstream.encode(), "localhost")


def test_required_headers_are_required_here_too() -> None:
    here = msgspec.structs.replace(surface(), required={"far": ("X-Tenant",)})
    for path in ("/mcp", "/mcp/far", "/mcp/far/rest"):
        refused = routed(path, on=here)
        assert isinstance(refused, Refused) and refused.status == 400
        assert b"X-Tenant" in refused.body
        assert isinstance(routed(path, on=here, x_tenant="blue"), ForwardRoute)


@pytest.mark.parametrize(
    "path, status",
    [
        ("/mcp/farther", 404),
        ("/mcp/far/../admin", 400),
        ("/mcp/far/x/..", 400),
        ("/mcp/far/./x", 400),
        ("/mcp/far/%2e%2E/admin", 400),
        ("/mcp/far/x%2f..%2fadmin", 400),
        ("/mcp/far/%252e%252e/admin", 400),
        ("/mcp/far/..\\admin", 400),
        ("/mcp/far/~/", 404),
        ("/mcp/far/~/deadbeef/admin", 404),
        (f"/mcp/far/~/{'0' * 32}/admin", 404),
        ("/upload/far", 404),
        ("/artifacts/far/s/a/f", 404),
    ],
)
def test_no_other_path_of_the_host_can_be_reached(path: str, status: int) -> None:
    route = routed(path)
    assert isinstance(route, Refused) and route.status == status


def test_other_servers_are_not_affected() -> None:
    both = surface("far", "near")
    assert isinstance(routed("/mcp/near", on=both, content_type="application/json"), McpRoute)
    assert isinstance(routed("/upload/near", on=both), UploadRoute)
    assert isinstance(routed("/artifacts/near/s/a/f", on=both, method="GET"), DownloadRoute)
    assert isinstance(routed("/mcp/far", on=both), ForwardRoute)
    refused = routed("/mcp", on=both, content_type="application/json")
    assert isinstance(refused, Refused) and refused.status == 404
    assert b"expected /mcp/ID with ID one of far, near" in not_found("/", both).body
    assert b"expected /sse/ID with ID one of near" in not_found("/sse/far", both).body
    assert routed("/healthz", method="GET") == PageRoute(Page.HEALTH)


@pytest.mark.parametrize("method", ["CONNECT", "TRACE"])
def test_methods_that_make_no_sense_are_not_passed_on(method: str) -> None:
    refused = routed("/mcp/far", method=method)
    assert isinstance(refused, Refused) and refused.status == 405


def test_preflights_are_answered_here() -> None:
    preflight = {"origin": "http://localhost", "access_control_request_method": "PATCH"}
    answer = routed("/mcp/far/x", method="OPTIONS", **preflight)
    assert isinstance(answer, Refused) and answer.status == 204
    assert dict(answer.headers)[b"access-control-allow-methods"] == ", ".join(FORWARD_METHODS).encode()
    assert isinstance(routed("/mcp/far/x", method="OPTIONS"), ForwardRoute)
    refused = routed("/mcp/far", origin="http://evil.example")
    assert isinstance(refused, Refused) and refused.status == 403


@pytest.mark.parametrize(
    "url, rest, query, upstream",
    [
        ("http://h", "", "", "/"),
        ("http://h/", "/x", "", "/x"),
        ("http://h?key=1", "", "a=2", "/?key=1&a=2"),
        ("http://h/mcp/?key=1", "", "", "/mcp/?key=1"),
        ("http://h/mcp/?key=1", "/x", "a=2", "/mcp/x?key=1&a=2"),
        ("https://h:8443/a%20b", "/c", "", "/a%20b/c"),
        ("http://h/BASE_Q", "/c", "", "/BASE_Q/c"),
        ("http://h/BASE_Q/", "/%ff%25fe", "", "/BASE_Q/%ff%25fe"),
    ],
)
def test_the_rest_of_the_path_is_appended(url: str, rest: str, query: str, upstream: str) -> None:
    assert target(url).to_upstream(rest, query) == upstream.encode()


@pytest.mark.parametrize(
    "url, requested, uri, client",
    [
        ("http://h/base", "/base/sse", "/base/messages?id=1", "/mcp/far/messages?id=1"),
        ("http://h/base", "/base/sse", "messages?id=1", "/mcp/far/messages?id=1"),
        ("http://h/base", "/base/sse", "http://h:80/base/m", "/mcp/far/m"),
        ("http://h/base/", "/base/", "m", "/mcp/far/m"),
        ("http://h", "/sse", "/messages/", "/mcp/far/messages/"),
        ("http://h/sse", "/sse", "?id=1", "/mcp/far/~/*/sse?id=1"),
        ("http://h/sse", "/sse", "/messages?id=1", "/mcp/far/~/*/messages?id=1"),
        ("http://h/base", "/base", "/based", "/mcp/far/~/*/based"),
        ("http://h/base?key=1", "/base?key=1", "/base/m", "/mcp/far/~/*/base/m"),
        ("http://h/", "/", "/~/x", "/mcp/far/~/*/~/x"),
        ("http://h/base", "/base", "/base/%2e%2e/x", "/mcp/far/~/*/base/%2e%2e/x"),
        ("http://h/base", "/base", "/base/%ff", "/mcp/far/%ff"),
        ("https://h/base", "/base", "https://h:443/base/m", "/mcp/far/m"),
        ("https://h:443/base", "/base", "https://h/base/m", "/mcp/far/m"),
        ("http://h/BASE_Q/", "/", "/BASE_Q/m", "/mcp/far/m"),
        ("http://h/BASE_Q", "/", "/BASE_Q/m", "/mcp/far/m"),
        ("http://h/BASE_Q", "/", "http://h", "/mcp/far/~/*/"),
        ("http://h/BASE_Q", "/", "/BASE_/m", "/mcp/far/~/*/BASE_/m"),
    ],
)
def test_an_endpoint_leads_back_through_the_proxy(url: str, requested: str, uri: str, client: str) -> None:
    found = target(url).to_client(uri, requested.encode())
    before, star, after = client.partition("*")
    assert found.startswith(before) and found.endswith(after) and (star == "*") == ("/~/" in found)
    assert found == client or star
    assert target(url, public_path="/pre").to_client(uri, requested.encode()) == "/pre" + found


@pytest.mark.parametrize(
    "uri",
    [
        "http://evil.example/base/m",
        "https://up.example/base/m",
        "http://up.example:81/base/m",
        "http://up.example:443/base/m",
        "http://up.example:x/base/m",
        "http://user@up.example/base/m",
        "//evil.example/m",
        "ftp://up.example/base",
        "javascript:x",
        "http://[",
        "",
        "a b",
        "/ä",
        "/a\tb",
        "/a\x7f",
    ],
)
def test_an_endpoint_elsewhere_is_refused(uri: str) -> None:
    with pytest.raises(RemoteProtocolError):
        target().to_client(uri, b"/base/sse")


PATHS = st.text("abz~/.%25é-_"[:9], max_size=12).map(lambda text: "/" + text)


@given(path=PATHS, query=st.text("ab=&%2", max_size=6), base=st.sampled_from(["", "/", "/base", "/base/", "/a/b?k=1"]))
def test_there_and_back(path: str, query: str, base: str) -> None:
    """A request to a rewritten endpoint reaches the endpoint that the server named."""
    here = target("http://up.example" + base)
    uri = "http://up.example" + path + (f"?{query}" if query else "")
    client = here.to_client(uri, b"/")
    path_back, _, query_back = client.removeprefix("/mcp/far").partition("?")
    sent = here.to_upstream(path_back, query_back).decode()
    resolved = urlsplit(urljoin(uri, uri))
    expected = (resolved.path or "/") + (f"?{resolved.query}" if resolved.query else "")
    assert sent == expected


def relocated(here: ForwardTarget, location: str, requested: str) -> str:
    headers = ((b"vary", b"/base/x"), (b"location", location.encode("latin-1")))
    (vary, moved) = here.relocate(headers, requested.encode())
    assert vary == headers[0] and moved[0] == b"location"
    assert here.relocate(((b"content-location", headers[1][1]),), requested.encode()) == (
        (b"content-location", moved[1]),
    )
    return moved[1].decode("latin-1")


@pytest.mark.parametrize(
    "url, requested, location, client",
    [
        ("http://h/base", "/base/x", "/base/y?q=1#part", "/mcp/far/y?q=1#part"),
        ("http://h/base", "/base/x", "http://H:80/base/y", "/mcp/far/y"),
        ("http://h/base", "/base/x", "//h/base/y", "/mcp/far/y"),
        ("http://h/base", "/base/x", "y", "/mcp/far/y"),
        ("http://h/base", "/base", "/base/", "/mcp/far/~/*/base/"),  # /mcp/far/ is /base
        ("http://h/base/", "/base/", "/base", "/mcp/far/~/*/base"),
        ("http://h/base", "/base/", "/base", "/mcp/far"),
        ("http://h/base", "/base/", "/base?q#part", "/mcp/far?q#part"),
        ("http://h/base?key=1", "/base/x?key=1", "/base?key=1", "/mcp/far"),
        ("http://h/base?key=1", "/base/x?key=1", "/base?q=2", "/mcp/far/~/*/base?q=2"),
        ("http://h", "/", "/any/thing", "/mcp/far/any/thing"),
        ("http://h", "/any", "http://h", "/mcp/far"),
        ("http://h", "/any", "/", "/mcp/far"),
        ("http://h/BASE_Q", "/", "/BASE_Q/m", "/mcp/far/m"),
        ("http://h/BASE_Q/", "/", "/BASE_Q/m", "/mcp/far/m"),
        ("http://h/BASE_Q", "/", "/BASE_Q", "/mcp/far"),
        ("https://h/base", "/", "https://h:443/base/m", "/mcp/far/m"),
    ],
)
def test_a_location_within_the_url_leads_back_through_the_proxy(
    url: str, requested: str, location: str, client: str
) -> None:
    here = target(url)
    found = relocated(here, location, requested)
    before, star, after = client.partition("*")
    assert found.startswith(before) and found.endswith(after) and (star == "*") == ("/~/" in found)
    assert found == client or star
    assert relocated(target(url, public_path="/pre"), location, requested) == (
        "/pre" + found if found.startswith("/") else found
    )


@given(path=PATHS, query=st.text("ab=&%2", max_size=6), base=st.sampled_from(["", "/", "/base", "/base/", "/a/b?k=1"]))
def test_a_rewritten_location_leads_to_its_target(path: str, query: str, base: str) -> None:
    here = target("http://up.example" + base)
    location = base.partition("?")[0].rstrip("/") + path + (f"?{query}" if query else "")
    moved = relocated(here, location, "/")
    if moved != location:
        path_back, _, query_back = moved.removeprefix("/mcp/far").partition("?")
        resolved = urlsplit(urljoin("http://up.example/", location))
        expected = (resolved.path or "/") + (f"?{resolved.query}" if resolved.query else "")
        assert here.to_upstream(path_back, query_back).decode() == expected


@pytest.mark.parametrize(
    "location",
    [
        "http://evil.example/base/m",
        "https://up.example/base/m",
        "http://up.example:81/base/m",
        "http://up.example:x/base/m",
        "http://user@up.example/base/m",
        "//evil.example/base",
        "javascript:x",
        "http://[",
        "/login",
        "/based",
        "/",
        "../login",
        "/base/%2e%2e/login",
        "http://up.example/base/../login",
        "",
        "/base/a b",
        "/base/\xe4",
    ],
)
def test_any_other_location_is_left_as_it_is(location: str) -> None:
    assert relocated(target(), location, "/base/x") == location


@pytest.mark.parametrize("name", ["locations", "refresh", "link", "x-location"])
def test_only_headers_with_a_location_are_rewritten(name: str) -> None:
    headers = ((name.encode(), b"/base/y"), (b"vary", b"/base/y"))
    assert target().relocate(headers, b"/base/x") == headers
    both = (*headers, (b"location", b"/base/y"))
    assert target().relocate(both, b"/base/x") == (*headers, (b"location", b"/mcp/far/y"))


def test_a_mark_is_a_signature() -> None:
    """The mark is half of a SHA-256, in hexadecimal."""
    (mark,) = {target("http://h/sse").to_client("/m", b"/sse").split("/")[4]}
    assert len(mark) == 32
    assert set(mark) <= set("0123456789abcdef")


def test_a_mark_is_good_for_its_path_and_server_only() -> None:
    here = target("http://h/sse")
    marked = here.to_client("/messages", b"/sse").removeprefix("/mcp/far")
    assert here.to_upstream(marked, "id=1") == b"/messages?id=1"
    for other in (target("http://h/sse", server="other"), ForwardTarget("far", "http://h/sse", b"another key")):
        with pytest.raises(RemoteProtocolError):
            other.to_upstream(marked, "")
    with pytest.raises(RemoteProtocolError):
        here.to_upstream(marked + "/more", "")
    with pytest.raises(RemoteProtocolError):
        here.to_upstream(marked.replace("/~/", "/~/é"), "")


# --- Headers --------------------------------------------------------------------------------------------------------


def sent(
    rules: HeaderRules | None = None, *, method: str = "POST", sender: Sender = HERE, **headers: str
) -> dict[str, str]:
    fields = tuple((name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items())
    head = Head(method, "/mcp/far", ((b"host", b"localhost"), *fields))
    found = request_headers(head, rules or HeaderRules(), authority=b"up.example", sender=sender)
    assert len({name for name, _ in found}) == len(found)
    assert found[0] == (b"host", b"up.example")
    return {name.decode(): value.decode("latin-1") for name, value in found[1:]}


DROPPED = ["connection", "keep_alive", "proxy_connection", "proxy_anything", "te", "trailer", "upgrade", "expect"]
WITHHELD = ["authorization", "cookie", "origin", "forwarded", "proxy_authorization", "x_forwarded_for"]
WITHHELD += ["x_forwarded_host", "x_forwarded_proto", "x_forwarded_anything"]


@pytest.mark.parametrize("name", DROPPED)
def test_hop_by_hop_headers_are_not_forwarded(name: str) -> None:
    dashed = name.replace("_", "-")
    for rules in (HeaderRules(), HeaderRules(allow=("*", dashed))):
        assert dashed not in sent(rules, **{name: "x"})


@pytest.mark.parametrize("name", WITHHELD)
def test_headers_meant_for_the_proxy_are_forwarded_by_name_only(name: str) -> None:
    dashed = name.replace("_", "-")
    for allow in (None, (), ("*",), (dashed[:-1] + "*",)):
        assert dashed not in sent(HeaderRules(allow=allow), **{name: "x"})
    assert sent(HeaderRules(allow=("*", dashed)), **{name: "x"})[dashed] == "x"
    assert dashed not in sent(HeaderRules(allow=(dashed,), deny=("*-*" if "-" in dashed else dashed,)), **{name: "x"})


def test_headers_named_by_connection_are_not_forwarded() -> None:
    found = sent(connection="close, X-Hop,content-length", x_hop="1", x_end="2", content_length="3")
    assert found == {"x-end": "2", "content-length": "3"}


@pytest.mark.parametrize(
    "allow, deny, passing",
    [
        (None, (), {"x-mine-a", "x-mine-b", "y"}),
        (None, ("x-mine-*",), {"y"}),
        (("y",), (), {"y"}),
        (("x-*",), ("x-mine-a",), {"x-mine-b"}),
        ((), (), set()),
        (("*",), ("*",), set()),
        (("x*a",), (), {"x-mine-a"}),
        (("x*i*e*b", "*y*"), (), {"x-mine-b", "y"}),
        (("x-mine-*a-a", "x-mine*e-a", "x*e*m*", "*-"), (), set()),  # no part is read twice, and parts have an order
    ],
)
def test_lists_of_names_and_globs(allow: tuple[str, ...] | None, deny: tuple[str, ...], passing: set[str]) -> None:
    found = sent(HeaderRules(allow=allow, deny=deny), x_mine_a="1", x_mine_b="2", y="3", accept="a", mcp_session_id="s")
    kept = set() if deny == ("*",) else {"accept", "mcp-session-id"}
    assert set(found) == passing | kept


def test_a_glob_of_many_parts_is_searched_for_once() -> None:
    with no_hang():
        found = sent(HeaderRules(deny=("*a" * 20 + "*b",)), **{"a" * 10_000: "1", "a" * 20 + "b": "2"})
    assert found == {"a" * 10_000: "1"}


def test_framing_is_that_of_the_request() -> None:
    assert sent(content_length="5") == {"content-length": "5"}
    assert sent(transfer_encoding="chunked") == {"transfer-encoding": "chunked"}
    rules = HeaderRules(set=((b"host", b"evil"), (b"content-length", b"1")), deny=("content-length",))
    assert sent(rules, content_length="5") == {"content-length": "5"}


def test_configured_headers_replace_those_of_clients() -> None:
    rules = HeaderRules(set=((b"authorization", b"ours"), (b"x-mine", b"1")), allow=("authorization",))
    assert sent(rules, authorization="theirs", x_mine="2") == {"authorization": "ours", "x-mine": "1"}


def test_event_streams_are_requested_without_compression() -> None:
    gzip = {"accept_encoding": "gzip"}
    assert sent(method="GET", accept="text/event-stream", **gzip)["accept-encoding"] == "identity"
    assert sent(method="GET", accept="application/json", **gzip)["accept-encoding"] == "gzip"
    assert sent(accept="text/event-stream", **gzip)["accept-encoding"] == "gzip"


@pytest.mark.parametrize(
    "sender, node, address",
    [
        (HERE, "192.0.2.7", "192.0.2.7"),
        (Sender("2001:db8::1", "h", "https"), '"[2001:db8::1]"', "2001:db8::1"),
        (Sender("", "h", "http"), "unknown", None),
        (Sender("/run/socket", "h", "http"), "unknown", None),
    ],
)
def test_the_forwarded_header_names_the_sender_if_configured(sender: Sender, node: str, address: str | None) -> None:
    assert sent(sender=sender) == {}
    found = sent(HeaderRules(x_forwarded=True, forwarded=True), sender=sender, x_forwarded_for="1.1.1.1")
    assert found.get("x-forwarded-for") == address
    assert found["x-forwarded-host"] == sender.host and found["x-forwarded-proto"] == sender.scheme
    assert found["forwarded"] == f'for={node};host="{sender.host}";proto={sender.scheme}'


def test_earlier_proxies_are_named_if_their_headers_are_allowed() -> None:
    names = ("x-forwarded-for", "x-forwarded-proto", "forwarded")
    rules = HeaderRules(allow=names, x_forwarded=True, forwarded=True)
    found = sent(rules, x_forwarded_for="1.1.1.1", x_forwarded_proto="https", forwarded="for=1.1.1.1")
    assert found["x-forwarded-for"] == "1.1.1.1, 192.0.2.7"
    assert found["x-forwarded-proto"] == "https"
    assert found["forwarded"].startswith("for=1.1.1.1, for=192.0.2.7;")


UPGRADE = {"connection": "keep-alive, Upgrade", "upgrade": "websocket", "sec-websocket-key": "k", "x": "y"}


def test_an_upgrade_is_requested_anew() -> None:
    found = sent(method="GET", **{name.replace("-", "_"): value for name, value in UPGRADE.items()})
    assert found["connection"] == "Upgrade" and found["upgrade"] == "websocket"
    assert found["sec-websocket-key"] == "k"


@pytest.mark.parametrize(
    "method, version, changed, is_one",
    [
        ("GET", "1.1", {}, True),
        ("GET", "1.1", {"upgrade": "WebSocket"}, True),
        ("POST", "1.1", {}, False),
        ("GET", "1.0", {}, False),
        ("GET", "1.1", {"upgrade": "h2c"}, False),
        ("GET", "1.1", {"connection": "close"}, False),
    ],
)
def test_upgrades(method: str, version: str, changed: dict[str, str], is_one: bool) -> None:
    headers = tuple((name.encode(), value.encode()) for name, value in (UPGRADE | changed).items())
    assert is_upgrade(Head(method, "/", headers, version)) is is_one


def received(status: int = 200, rules: HeaderRules | None = None, **headers: str) -> dict[str, str]:
    fields = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    found = response_headers(fields, rules or HeaderRules(), status=status)
    return {name.decode(): value.decode() for name, value in found}


def test_the_headers_of_a_response() -> None:
    ends = {
        "keep_alive": "1",
        "upgrade": "h2c",
        "trailer": "x",
        "proxy_authenticate": "x",
        "x_hop": "1",
    }
    ends |= {"connection": "x-hop", "access_control_allow_origin": "*", "access_control_expose_headers": "x"}
    ends |= {"alt_svc": "h3=1", "set_cookie": "a=b"}
    passes = {
        "content_type": "text/plain",
        "mcp_session_id": "s",
        "www_authenticate": "Bearer",
        "vary": "x",
        "date": "d",
    }
    passes |= {"location": "/x", "content_length": "3", "server": "s"}
    assert received(**ends, **passes) == {name.replace("_", "-"): value for name, value in passes.items()}
    assert received(204, content_length="0") == {}
    assert received(transfer_encoding="chunked", content_length="3", x="y") == {"x": "y"}
    assert received(rules=HeaderRules(allow=("set-cookie",)), set_cookie="a=b") == {"set-cookie": "a=b"}
    assert received(rules=HeaderRules(allow=("*",)), set_cookie="a=b") == {}
    switched = received(101, connection="Upgrade", upgrade="websocket", sec_websocket_accept="x")
    assert switched == {"sec-websocket-accept": "x", "connection": "Upgrade", "upgrade": "websocket"}


def test_repeated_headers_stay_repeated() -> None:
    twice = ((b"x", b"1"), (b"y", b"2"), (b"x", b"3"))
    assert response_headers(twice, HeaderRules(), status=200) == twice
    head = Head("POST", "/", ((b"host", b"h"), *twice))
    assert request_headers(head, HeaderRules(), authority=b"u", sender=HERE)[1:] == list(twice)


# --- Other replicas -------------------------------------------------------------------------------------------------

SENT = st.sampled_from(
    [b"host", b"connection", b"te", b"upgrade", b"expect", b"content-length", b"isthmus-hop", b"accept", b"x-mine"]
)


@given(st.lists(st.tuples(SENT, st.sampled_from([b"1", b"host", b"content-length, x-mine"]))), st.booleans())
def test_another_replica_gets_what_the_client_sent(headers: list[tuple[bytes, bytes]], is_streamed: bool) -> None:
    """No client can take a header away, or send one that replicas trust."""
    passed = hop_headers(Head("POST", "/mcp", tuple(headers)), b"signed", is_streamed=is_streamed)
    ends_here = {b"connection", b"te", b"upgrade", b"expect", b"isthmus-hop"}
    assert passed == [*(pair for pair in headers if pair[0] not in ends_here), (b"isthmus-hop", b"signed")]


def test_a_body_that_was_read_goes_to_another_replica_with_its_length() -> None:
    head = Head("POST", "/mcp", ((b"host", b"x"), (b"transfer-encoding", b"chunked")))
    assert hop_headers(head, b"-", is_streamed=True)[1] == (b"transfer-encoding", b"chunked")
    assert hop_headers(head, b"-", is_streamed=False)[1] == (b"content-length", b"0")
