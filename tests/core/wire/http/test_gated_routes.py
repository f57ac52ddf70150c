"""Tests of routes behind the gate: what is refused, what is free, and whose a request is."""

from __future__ import annotations

import msgspec
import pytest
from each_row import each_row
from isthmus.core.access.gate import Gate, GateSettings
from isthmus.core.access.static_tokens import StaticToken, digest_of, new_token
from isthmus.core.base.plan import AccessRule, AccessRules
from isthmus.core.wire.http.admin_routes import (
    BROWSED,
    EACH,
    MANAGEMENT,
    PATHS,
    POSTED,
    PROBED,
    READING,
    Management,
    Page,
    find_page,
)
from isthmus.core.wire.http.callers import metadata_at
from isthmus.core.wire.http.reverse_proxy_target import ForwardTarget
from isthmus.core.wire.http.routes import (
    AREAS,
    DownloadRoute,
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
from isthmus.core.wire.http.server import METHODS, judge

ALICE, BOB = (new_token(lambda size, byte=byte: bytes([byte]) * size) for byte in (1, 2))
SURFACE = Surface(
    ("a", "b"),
    frozenset({"localhost"}),
    frozenset(),
    transparent={"b": ForwardTarget("b", "http://far", b"k" * 16, "")},
    management=Management(),
    profiles={"all": ("a",)},
    default="all",
    areas=AREAS,
)
JSON = ((b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream"))
UPGRADE = (
    (b"connection", b"upgrade"),
    (b"upgrade", b"websocket"),
    (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
    (b"sec-websocket-version", b"13"),
)
PROFILED = ("mcp", "sse", "messages")
TUS = f"/upload/a/tus/{'0' * 32}"


def gate(**settings: object) -> Gate:
    tokens = (
        StaticToken("alice", digest_of(ALICE), groups=frozenset({"admin"})),
        StaticToken("bob", digest_of(BOB), expires_at=100.0),
    )
    return Gate(GateSettings(tokens=tokens, **settings))  # type: ignore[arg-type]


def routed(method: str, target: str, *headers: tuple[bytes, bytes], token: str = "", **settings: object) -> Route:
    shown = ((b"authorization", f"Bearer {token}".encode()),) if token else ()
    head = Head(method, target, ((b"host", b"localhost"), *headers, *shown))
    return judge(head, SURFACE, gate=gate(**settings), now=50.0)


def all_routes() -> list[tuple[str, str]]:
    """Every method of every path of the tables, with the paths of profiles, of a transparent server and of one that
    does not exist."""
    targets = {"mcp": "/mcp/a", "sse": "/sse/a", "messages": "/messages/a?sessionId=x", "upload": "/upload/a"}
    found = [(method, targets[area]) for area, methods in METHODS.items() if area in targets for method in methods]
    found += [(method, f"/{area}/all?sessionId=x") for area in METHODS if area in PROFILED for method in METHODS[area]]
    found += [(method, f"/{area}?sessionId=x") for area in METHODS if area in PROFILED for method in METHODS[area]]
    found += [
        (method, f"/{id}/{area}?sessionId=x") for id in ("a", "all") for area in PROFILED for method in METHODS[area]
    ]
    found += [("GET", "/a/ws"), ("POST", "/b/mcp"), ("GET", "/b/mcp/"), ("POST", "/none/mcp")]
    found += [("GET", "/ws/all"), ("GET", "/ws"), ("GET", "/artifacts/all/s/i/f")]
    found += [(method, "/artifacts/a/s/i/f") for method in METHODS["artifacts"]]
    found += [(method, TUS) for method in METHODS["upload"]] + [("PUT", "/upload/a/name.txt")]
    found += [("GET", "/ws/a"), ("POST", "/mcp/b"), ("GET", "/mcp/b/deeper"), ("GET", "/nothing"), ("GET", "/mcp/none")]
    for parts, page in PATHS.items():
        path = "/" + "/".join("a" if part == EACH else part for part in parts)
        found += [(method, path) for method in (("POST",) if page in POSTED else ("GET", "HEAD", "DELETE"))]
    return [(method, target) for method, target in found if method != "OPTIONS"]


def is_for_everyone(method: str, target: str) -> bool:
    """True for probes, and for reading the pages to which a ticket or a cookie is the credential."""
    found = find_page(target.partition("?")[0])
    return found is not None and (found[0] in PROBED or (found[0] in BROWSED and method in READING))


@each_row("links", ["enough", "authenticated"])
@each_row(("method", "target"), all_routes())
def test_every_route_without_a_token_is_refused(method: str, target: str, links: str) -> None:
    """A signed link may be a credential by itself, and probes are told no more than that the process runs."""
    route = routed(method, target, *JSON, *UPGRADE, lets_links_in=links == "enough")
    if is_for_everyone(method, target):
        assert not isinstance(route, PageRoute) or not route.shows_all
    elif target.startswith(("/upload/", "/artifacts/")) and links == "enough":
        assert not isinstance(route, UploadRoute | DownloadRoute) or route.opening.principal is None
    else:
        assert isinstance(route, Refused)
        assert route.status == 401
        assert dict(route.headers)[b"www-authenticate"] == b'Bearer realm="isthmus"'
        assert route.denied == "no credentials"
        assert b"mcp/a" not in route.body, "a stranger learns no name"


@each_row(("method", "target"), all_routes())
def test_every_route_with_a_wrong_token_is_refused(method: str, target: str) -> None:
    route = routed(method, target, *JSON, *UPGRADE, token=ALICE[:-1])
    if is_for_everyone(method, target):
        assert not isinstance(route, PageRoute) or not route.shows_all
        return
    assert isinstance(route, Refused)
    assert route.status == 401
    assert b'error="invalid_token"' in dict(route.headers)[b"www-authenticate"]
    assert ALICE[:-1].encode() not in route.body


@pytest.mark.parametrize(
    ("method", "target", "kind"),
    [
        ("POST", "/mcp/a", McpRoute),
        ("GET", "/mcp/a", McpRoute),
        ("DELETE", "/mcp/a", McpRoute),
        ("GET", "/sse/a", McpRoute),
        ("POST", "/messages/a?sessionId=x", McpRoute),
        ("GET", "/ws/a", SocketRoute),
        ("POST", "/mcp", McpRoute),
        ("GET", "/sse/", McpRoute),
        ("POST", "/messages?sessionId=x", McpRoute),
        ("GET", "/ws", SocketRoute),
        ("DELETE", "/mcp/all", McpRoute),
        ("PUT", "/upload/a", UploadRoute),
        ("GET", TUS, UploadRoute),
        ("GET", "/artifacts/a/s/i/f", DownloadRoute),
        ("POST", "/mcp/b", ForwardRoute),
        ("GET", "/mcp/a/tools", PageRoute),
    ],
)
def test_a_request_is_its_callers(method: str, target: str, kind: type) -> None:
    headers = (
        *(each for each in JSON if method == "POST" or each[0] == b"accept"),
        *(UPGRADE if "/ws" in target else ()),
    )
    route = routed(method, target, *headers, token=BOB)
    assert isinstance(route, kind), route
    if isinstance(route, McpRoute | SocketRoute | UploadRoute | DownloadRoute):
        assert route.opening.principal == "token:bob"
    if isinstance(route, McpRoute | SocketRoute | ForwardRoute | PageRoute):
        assert (route.identity.principal, route.identity.expires_at) == ("token:bob", 100.0)


@pytest.mark.parametrize("page", sorted(MANAGEMENT, key=lambda page: page.value))
def test_pages_of_operators_are_for_the_group_admin(page: Page) -> None:
    parts = next(parts for parts, each in PATHS.items() if each is page or (page is Page.DELETE and each is Page.FILE))
    path = "/" + "/".join("x" if part == EACH else part for part in parts)
    method = "POST" if page in POSTED else "DELETE" if page is Page.DELETE else "GET"
    assert isinstance(routed(method, path, *JSON, token=ALICE), PageRoute)
    refused = routed(method, path, *JSON, token=BOB)
    assert isinstance(refused, Refused)
    assert refused.status == 403
    assert b"admin" in refused.body
    assert refused.denied


def test_anonymous_callers_are_no_operators() -> None:
    """A browser on this machine may act for others."""
    settings = {"allows_anonymous": True}
    for headers, status in ((), 401), (((b"x-forwarded-for", b"203.0.113.9"),), 404):
        refused = routed("GET", "/servers", *headers, **settings)
        assert isinstance(refused, Refused)
        assert refused.status == status
    assert isinstance(routed("GET", "/metrics", **settings), PageRoute)
    route = routed("POST", "/mcp/a", *JSON, **settings)
    assert isinstance(route, McpRoute)
    assert route.opening.principal == ""


def test_an_anonymous_caller_of_a_listener_that_is_open_to_others_is_no_operator() -> None:
    """The Host header of such a caller says nothing about where it is."""
    surface = msgspec.structs.replace(SURFACE, management=Management(is_local=False))
    head = Head("GET", "/servers", ((b"host", b"localhost"),))
    route = judge(head, surface, gate=gate(allows_anonymous=True), now=50.0)
    assert isinstance(route, Refused)
    assert route.status == 404


def test_a_preflight_is_free_and_a_foreign_page_is_refused_before_it_is_asked() -> None:
    asks = (b"access-control-request-method", b"POST")
    preflight = routed("OPTIONS", "/mcp/a", (b"origin", b"http://localhost"), asks)
    assert isinstance(preflight, Refused)
    assert preflight.status == 204
    foreign = routed("POST", "/mcp/a", *JSON, (b"origin", b"http://evil.example"), token=ALICE)
    assert isinstance(foreign, Refused)
    assert foreign.status == 403


@pytest.mark.parametrize("links", ["enough", "authenticated"])
def test_a_token_in_the_query_is_not_read(links: str) -> None:
    """2026-07-28 basic/authorization, "Access Token Usage": tokens "MUST NOT be included in the URI query string"."""
    route = routed("POST", f"/mcp/a?access_token={ALICE}", *JSON, lets_links_in=links == "enough")
    assert isinstance(route, Refused)
    assert route.status == 401
    assert ALICE not in route.denied


def test_probes_show_all_to_those_who_are_let_in() -> None:
    for token, shows_all in (("", False), (ALICE[:-1], False), (BOB, True)):
        route = routed("GET", "/healthz", token=token)
        assert isinstance(route, PageRoute)
        assert route.shows_all is shows_all


@pytest.mark.parametrize(
    "name", ["oauth-protected-resource/mcp/a", "oauth-authorization-server", "openid-configuration"]
)
def test_clients_that_look_for_an_issuer_find_that_there_is_none(name: str) -> None:
    """No credentials are asked for there, and no name of a server is told."""
    refused = routed("GET", f"/.well-known/{name}")
    assert isinstance(refused, Refused)
    assert refused.status == 404
    assert b"/mcp/b" not in refused.body


@pytest.mark.parametrize("rule", [AccessRule(groups=("chiefs",)), AccessRule(scopes=("write",))])
def test_a_link_is_enough_for_a_server_with_access_rules(rule: AccessRule) -> None:
    """The caller that got the link may use the server. A caller that shows a token must be allowed to."""
    surface = msgspec.structs.replace(SURFACE, access={"a": AccessRules(rule)})
    for target, kind in (("/upload/a", UploadRoute), ("/artifacts/a/s/i/f", DownloadRoute)):
        method = "PUT" if kind is UploadRoute else "GET"
        assert isinstance(judge(Head(method, target, ((b"host", b"localhost"),)), surface, gate=gate(), now=50.0), kind)
        shown = ((b"host", b"localhost"), (b"authorization", f"Bearer {BOB}".encode()))
        refused = judge(Head(method, target, shown), surface, gate=gate(), now=50.0)
        assert isinstance(refused, Refused)
        assert refused.status in (403, 404)


def test_the_metadata_of_a_profile_name_the_scopes_of_its_servers() -> None:
    rules = {id: AccessRules(AccessRule(scopes=(f"use-{id}",))) for id in ("a", "b")}
    surface = msgspec.structs.replace(SURFACE, access=rules)
    wanted = {
        "/mcp": ["use-a"],
        "/ws/all": ["use-a"],
        "/mcp/a": ["use-a"],
        "/mcp/b": ["use-b"],
        "/b/mcp": ["use-b"],
        "": ["use-a", "use-b"],
    }
    for path, scopes in wanted.items():
        found = metadata_at(Head("GET", "", ()), path, surface, ("https://issuer.example",), "http://localhost")
        document = msgspec.json.decode(found.body)
        assert (document["resource"], document["scopes_supported"]) == (f"http://localhost{path}", scopes)
