"""Tests of the routes of the management pages: paths, methods, tokens and hosts."""

from __future__ import annotations

import itertools
import json

import pytest
from each_row import each_row
from isthmus.core.wire.http.admin_routes import (
    BROWSED,
    DELETED,
    MANAGEMENT,
    PATHS,
    POSTED,
    USE,
    Management,
    Page,
    find_page,
)
from isthmus.core.wire.http.error_responses import not_found
from isthmus.core.wire.http.origin import is_loopback
from isthmus.core.wire.http.routes import Head, McpRoute, PageRoute, Refused, Route, Surface
from isthmus.core.wire.http.server import METHODS, judge, shared_headers

HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "gate.example"})
JSON = (b"content-type", b"application/json")
MARK = (b"x-requested-with", b"curl")
BEARER = (b"authorization", b"Bearer s3cret")
OWN = "http://localhost:8932"
OPEN, SECRET = Management(), Management.with_token("s3cret")


def routed(
    path: str,
    *extra: tuple[bytes, bytes],
    method: str = "GET",
    host: bytes = b"localhost:8932",
    management: Management | None = OPEN,
    public_origin: str = "",
) -> Route:
    surface = Surface(("a", "b c"), HOSTS, frozenset(), management=management, public_origin=public_origin)
    return judge(Head(method, path, ((b"host", host), *extra)), surface)


def status_of(route: Route) -> int:
    return route.status if isinstance(route, Refused) else 200


def path_to(parts: tuple[str, ...], id: str = "a") -> str:
    return "/" + "/".join(id if part == "*" else part for part in parts)


@each_row(
    ("path", "page", "id"),
    [
        ("/health", "health", ""),
        ("/healthz", "health", ""),
        ("/readyz", "ready", ""),
        ("/info", "info", ""),
        ("/servers", "servers", ""),
        ("/servers/a", "server", "a"),
        ("/servers/a/status", "server", "a"),
        ("/servers/a/start", "start", "a"),
        ("/servers/a/stop", "stop", "a"),
        ("/servers/a/restart", "restart", "a"),
        ("/servers/b%20c", "server", "b%20c"),
        ("/tasks", "tasks", ""),
        ("/tasks/t", "task", "t"),
        ("/tasks/t/cancel", "cancel", "t"),
        ("/files", "files", ""),
        ("/files/f", "file", "f"),
        ("/files/f/content", "content", "f"),
        ("/metrics", "metrics", ""),
        ("/auth/revoke", "revoke", ""),
        ("/mcp/a/tools", "tools", "a"),
        ("/mcp/a/tools/call", "call", "a"),
        *(
            (path, None, "")
            for path in (
                "/", "", "/mcp", "/mcp/a", "/mcp//tools", "/servers/", "/servers//stop", "/servers/a/", "/servers/a/x",
                "/health/x", "/info/", "/tasks/t/content", "/files/f/cancel", "/metrics/", "//health", "/a/servers",
                "/auth", "/auth/a/revoke",
            )
        ),
    ],
)  # fmt: skip
def test_the_page_at_each_path(path: str, page: str | None, id: str) -> None:
    """The page's value is its name, which the response to an order reports."""
    found = find_page(path)
    assert (None if found is None else (found[0].value, found[1])) == (None if page is None else (page, id))


def test_the_method_and_the_group_of_each_page() -> None:
    """Orders are posted and all other pages are read; a file is deleted at the path where it is read."""
    assert {page.value for page in POSTED} == {"start", "stop", "restart", "cancel", "call", "revoke"}
    assert {page.value: other.value for page, other in DELETED.items()} == {"file": "delete"}
    assert {page.value for page in USE} == {"tools", "call"}
    assert {page.value for page in BROWSED} == {"connect", "connected"}
    everybodys = {page.value for page in Page} - {page.value for page in MANAGEMENT | USE | BROWSED}
    assert everybodys == {"health", "ready", "info"}


@pytest.mark.parametrize("name", ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"])
def test_a_forwarded_request_is_not_local(name: str) -> None:
    """A forwarding header is enough, even an empty one. Other headers of similar names do not count."""
    for value in (b"127.0.0.1", b""):
        assert status_of(routed("/servers", (name.encode(), value))) == 404
    assert status_of(routed("/servers", (b"x-" + name.encode(), b"127.0.0.1"))) == 200


@each_row(
    ("lines", "is_right"),
    [
        ([b"Bearer s3cret"], True),
        ([b"BEARER   s3cret "], True),
        ([], False),
        ([b""], False),
        ([b"Bearer"], False),
        ([b"Bearer "], False),
        ([b"Bearer s3cret", b"Bearer s3cret"], False),
        ([b"Bearer s3crets"], False),
        ([b"Bearer\ts3cret"], False),
    ],
)
@each_row("token", ["s3cret", "", "Q"])
def test_a_token_is_shown_once_and_whole(lines: list[bytes], is_right: bool, token: str) -> None:
    """An empty token, which no configuration has, lets in only a request whose own token is empty."""
    shown = [(b"authorization", line) for line in lines]
    expected = (is_right and token == "s3cret") or (token == "" and lines in ([b"Bearer"], [b"Bearer "]))
    assert status_of(routed("/servers", *shown, management=Management.with_token(token))) == (200 if expected else 401)


@pytest.mark.parametrize("parts", PATHS, ids="/".join)
def test_every_page_has_its_methods_and_content_types(parts: tuple[str, ...]) -> None:
    page, path = PATHS[parts], path_to(parts)
    id = "a" if "*" in parts else ""
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
        right = method == "POST" if page in POSTED else method in ("GET", "HEAD")
        for extra in ((JSON,), ((b"content-type", b"text/plain"), MARK), (MARK,), ()):
            route = routed(path + "?x=1", *extra, method=method)
            is_deletion = method == "DELETE" and page in DELETED
            if not right and not is_deletion:
                assert status_of(route) == 405
            elif (page in POSTED or is_deletion) and not extra:
                assert status_of(route) == 403, "a page of another origin can send it"
            elif (page in POSTED or is_deletion) and extra != (JSON,) and (len(extra) == 2 or page in USE):
                assert status_of(route) == 415, "what a form of another page can send is not taken"
            elif is_deletion:
                assert route == PageRoute(DELETED[page], id, {"x": "1"})
            else:
                assert route == PageRoute(page, id, {"x": "1"})
    assert find_page(path + "/") is None or "*" in parts


def test_tools_do_not_hide_the_endpoint_of_a_server() -> None:
    """The endpoint is found for servers of any name."""
    surface = Surface(("tools", "call"), HOSTS, frozenset())
    accept = (b"accept", b"application/json, text/event-stream")
    for path in ("/mcp/tools", "/mcp/tools/", "/mcp/call"):
        assert isinstance(judge(Head("POST", path, ((b"host", b"localhost"), JSON, accept)), surface), McpRoute)
    listed = judge(Head("GET", "/mcp/tools/tools", ((b"host", b"localhost"),)), surface)
    assert listed == PageRoute(Page.TOOLS, "tools")


def test_task_pages_are_management_pages() -> None:
    """The ids of tasks are secrets of their clients."""
    assert {Page.TASKS, Page.TASK, Page.CANCEL, Page.METRICS} <= MANAGEMENT
    assert routed("/tasks?server=a&status=working") == PageRoute(Page.TASKS, "", {"server": "a", "status": "working"})
    assert routed("/tasks/0f%2D") == PageRoute(Page.TASK, "0f-")
    assert routed("/tasks/x/cancel", MARK, method="POST") == PageRoute(Page.CANCEL, "x")
    for path in ("/tasks/", "/tasks/x/cancel/now", "/tasks/x/result", "/metrics/x"):
        assert status_of(routed(path)) == 404
    assert status_of(routed("/tasks?server=a&server=b")) == 400


def test_file_pages_are_management_pages() -> None:
    """A file's name may be the only proof that its client has."""
    assert {Page.FILES, Page.FILE, Page.CONTENT, Page.DELETE} <= MANAGEMENT
    assert routed("/files?kind=upload") == PageRoute(Page.FILES, "", {"kind": "upload"})
    assert routed("/files/x/content", method="HEAD") == PageRoute(Page.CONTENT, "x")
    assert routed("/files/x", MARK, method="DELETE") == PageRoute(Page.DELETE, "x")
    assert status_of(routed("/files/x", (b"sec-fetch-site", b"cross-site"), method="DELETE")) == 403
    for management, status in ((None, 404), (SECRET, 401)):
        assert status_of(routed("/files/x", method="DELETE", management=management)) == status
    for path in ("/files/", "/files/x/content/y", "/files/x/delete"):
        assert status_of(routed(path)) == 404


def test_servers_are_named_as_in_other_paths() -> None:
    assert routed("/servers/b%20c") == PageRoute(Page.SERVER, "b c")
    assert routed("/mcp/b%20c/tools") == PageRoute(Page.TOOLS, "b c")
    assert status_of(routed("/servers/a%2Fb")) == 400
    assert routed("/servers/none") == PageRoute(Page.SERVER, "none"), "the page says that there is none"
    missing = routed("/mcp/none/tools")
    assert isinstance(missing, Refused) and missing.status == 404
    assert json.loads(missing.body)["code"] == 404


@pytest.mark.parametrize("parts", [parts for parts in PATHS if PATHS[parts] in MANAGEMENT], ids="/".join)
def test_management_pages_are_hidden_without_the_right_token_or_host(parts: tuple[str, ...]) -> None:
    path, method = path_to(parts), "POST" if PATHS[parts] in POSTED else "GET"
    wrong_method = "GET" if method == "POST" else "POST"
    bearer = (b"authorization", b"Bearer s3cret")
    for management, host, forwarded, shown in itertools.product(
        (None, OPEN, SECRET),
        (b"localhost", b"127.0.0.1:8932", b"[::1]:1", b"gate.example"),
        ((), ((b"x-forwarded-for", b"10.0.0.1"),), ((b"via", b"1.1 gate"),)),
        (
            (),
            (bearer,),
            ((b"authorization", b"bearer  s3cret"),),
            ((b"authorization", b"Bearer other"),),
            ((b"authorization", b"Basic s3cret"),),
            ((b"authorization", b"s3cret"),),
            (bearer, bearer),
        ),
    ):
        if management is None:
            expected = 404
        elif management is OPEN:
            expected = 200 if host != b"gate.example" and not forwarded else 404
        else:
            is_right = len(shown) == 1 and shown[0][1].lower().split() == [b"bearer", b"s3cret"]
            expected = 200 if is_right else 401
        route = routed(path, JSON, *forwarded, *shown, method=method, host=host, management=management)
        assert status_of(route) == expected, (management, host, forwarded, shown)
        if expected == 200:
            continue
        assert route == routed(path, *forwarded, *shown, method=wrong_method, host=host, management=management), (
            "nothing else is told either"
        )
        assert isinstance(route, Refused)
        if expected == 404:
            assert route == not_found(path, Surface(("a", "b c"), HOSTS, frozenset()))
        else:
            assert dict(route.headers)[b"www-authenticate"].startswith(b"Bearer")
            assert json.loads(route.body)["code"] == 401


def test_foreign_hosts_and_origins_are_refused_first() -> None:
    for path in map(path_to, PATHS):
        for management in (None, OPEN, SECRET):
            is_probed = path in ("/health", "/healthz", "/readyz")
            assert status_of(routed(path, host=b"evil.example", management=management)) == (200 if is_probed else 403)
            assert status_of(routed(path, (b"origin", b"http://evil.example"), management=management)) == 403


COMMANDS = sorted(
    (method, path)
    for path in map(path_to, PATHS)
    for method in ("POST", "PUT", "PATCH", "DELETE", "BREW")
    if isinstance(routed(path, JSON, method=method), PageRoute)
)
"""All requests for pages that change something, of all methods."""
FORMS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "")
FOREIGN = (
    "http://localhost:3000", "http://localhost", "http://127.0.0.1:8932", "http://[::1]:8932", "https://localhost:8932",
    "null", "", "http://evil.example", f"{OWN}.", f"{OWN}/",
)  # fmt: skip


def test_the_requests_that_change_something() -> None:
    """A new one is named here and in `docs/operating.md`.

    Beside the pages, `METHODS` has the transports of MCP, which web pages may use, and files: an upload needs its
    signed link, which no other page knows.
    """
    assert COMMANDS == [
        ("DELETE", "/files/a"),
        ("POST", "/auth/revoke"),
        ("POST", "/mcp/a/tools/call"),
        ("POST", "/servers/a/restart"),
        ("POST", "/servers/a/start"),
        ("POST", "/servers/a/stop"),
        ("POST", "/tasks/a/cancel"),
    ]
    assert set(METHODS) == {"mcp", "sse", "messages", "upload", "artifacts"}


@pytest.mark.parametrize("management", [OPEN, SECRET], ids=["open", "token"])
@pytest.mark.parametrize(("method", "path"), COMMANDS)
def test_web_pages_of_other_origins_send_no_commands(method: str, path: str, management: Management) -> None:
    """Each hostile request differs from a legal one in one thing."""
    legal = (JSON, MARK, BEARER)

    def status(*extra: tuple[bytes, bytes], public_origin: str = "") -> int:
        return status_of(routed(path, *extra, method=method, management=management, public_origin=public_origin))

    assert status(*legal) == 200
    assert status(*legal, (b"origin", OWN.encode()), (b"sec-fetch-site", b"same-origin")) == 200
    assert status(*legal, (b"sec-fetch-site", b"none")) == 200
    assert status(JSON, BEARER, MARK, (b"origin", b"HTTP://LocalHost:8932")) == 200
    for origin in FOREIGN:
        line = (b"origin", origin.encode())
        assert status(*legal, line) == 403, origin
        head = Head(method, f"{path}?x", ((b"host", b"localhost:8932"), line))
        assert shared_headers(head, Surface(("a",), HOSTS, frozenset({origin}))) == (), "it may not read the refusal"
    for site in (b"cross-site", b"same-site", b"Same-Site", b"", b"new"):
        assert status(*legal, (b"sec-fetch-site", site)) == 403, site
    for form in FORMS:
        assert status(MARK, BEARER, (b"content-type", form.encode())) == 415, form
    public = "https://gate.example"
    assert status(*legal, (b"origin", public.encode()), public_origin=public) == 200
    assert status(*legal, (b"origin", b"https://gate.example:444"), public_origin=public) == 403
    if management is SECRET:
        assert status(JSON, MARK) == status(JSON, MARK, (b"authorization", b"Bearer other")) == 401
    else:
        assert status() == status((b"authorization", b"Basic s3cret")) == 403
        assert status(JSON) == 200


@pytest.mark.parametrize(("method", "path"), [case for case in COMMANDS if not case[1].endswith("call")])
def test_a_command_without_a_body_has_one_header_that_a_form_cannot_send(method: str, path: str) -> None:
    for line in (JSON, MARK, BEARER, (b"x-requested-with", b"")):
        assert status_of(routed(path, line, method=method)) == 200


@pytest.mark.parametrize(("method", "path"), COMMANDS)
def test_the_preflight_of_a_command_is_refused(method: str, path: str) -> None:
    asked = ((b"origin", b"http://localhost:3000"), (b"access-control-request-method", method.encode()))
    assert status_of(routed(path, *asked, method="OPTIONS")) == 405


def test_the_tools_of_a_server_ask_for_the_token_where_there_is_one() -> None:
    for path, method in (("/mcp/a/tools", "GET"), ("/mcp/a/tools", "HEAD"), ("/mcp/a/tools/call", "POST")):
        for management, without in ((None, 200), (OPEN, 200), (SECRET, 401)):
            assert status_of(routed(path, JSON, method=method, management=management)) == without
            assert status_of(routed(path, JSON, BEARER, method=method, management=management)) == 200


def test_a_link_on_another_site_starts_no_server() -> None:
    assert status_of(routed("/mcp/a/tools", (b"sec-fetch-site", b"cross-site"))) == 403
    for site in (b"none", b"same-origin", b"same-site"):
        assert status_of(routed("/mcp/a/tools", (b"sec-fetch-site", site))) == 200


def test_the_token_is_not_kept_in_the_clear() -> None:
    assert "s3cret" not in repr(SECRET)


@pytest.mark.parametrize(
    "host, is_ours",
    [
        ("localhost", True),
        ("LocalHost:8932", True),
        ("127.0.0.1", True),
        ("127.1.2.3:1", True),
        ("[::1]:8932", True),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
        ("1127.0.0.1", False),
        ("[::2]", False),
        ("gate.example", False),
        ("", False),
    ],
)
def test_names_of_this_machine(host: str, is_ours: bool) -> None:
    assert is_loopback(host) is is_ours
