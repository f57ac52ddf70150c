"""Tests of the routes of the management pages: paths, methods, tokens and hosts."""

from __future__ import annotations

import json
from typing import Final

import pytest
from each_row import each_row
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.wire.http.admin_routes import (
    BROWSED,
    DELETED,
    MANAGEMENT,
    PATHS,
    POSTED,
    USE,
    Access,
    Management,
    Page,
    check_command,
    find_page,
)
from isthmus.core.wire.http.error_responses import not_found
from isthmus.core.wire.http.origin import is_loopback
from isthmus.core.wire.http.routes import AREAS, Head, McpRoute, PageRoute, Refused, Route, Surface
from isthmus.core.wire.http.server import METHODS, judge, shared_headers

HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "gate.example"})
JSON = (b"content-type", b"application/json")
MARK = (b"x-requested-with", b"curl")
BEARER = (b"authorization", b"Bearer s3cret")
OWN = "http://localhost:8932"
LOCAL = Management.with_local_token("s3cret", "the token that `show it` prints")
SECRET = Management.with_token("s3cret")


def routed(
    path: str,
    *extra: tuple[bytes, bytes],
    method: str = "GET",
    host: bytes = b"localhost:8932",
    management: Management | None = LOCAL,
    public_origin: str = "",
    shows_token: bool = True,
) -> Route:
    """Routes a request. It shows the right token, unless it has an `Authorization` of its own."""
    surface = Surface(("a", "b c"), HOSTS, frozenset(), management=management, public_origin=public_origin, areas=AREAS)
    shown = () if not shows_token or any(name == b"authorization" for name, _ in extra) else (BEARER,)
    return judge(Head(method, path, ((b"host", host), *extra, *shown)), surface)


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
    assert {page.value for page in POSTED} == {"start", "stop", "restart", "cancel", "call", "revoke", "replay"}
    assert {page.value: other.value for page, other in DELETED.items()} == {"file": "delete"}
    assert {page.value for page in USE} == {"tools", "call"}
    assert {page.value for page in BROWSED} == {"connect", "connected", "static"}
    everybodys = {page.value for page in Page} - {page.value for page in MANAGEMENT | USE | BROWSED}
    assert everybodys == {"health", "ready", "info"}


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
    for management in (Management.with_token(token), Management.with_local_token(token, "")):
        route = routed("/servers", *shown, management=management, shows_token=False)
        assert status_of(route) == (200 if expected else 401)


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
    for management, status in ((None, 404), (SECRET, 401), (LOCAL, 401)):
        assert status_of(routed("/files/x", method="DELETE", management=management, shows_token=False)) == status
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


FOREIGN_ORIGIN: Final = (b"origin", b"http://evil.example")
REQUESTS: Final[dict[str, tuple[str, tuple[tuple[bytes, bytes], ...], bytes]]] = {
    # What is appended to the path, the headers, and the host.
    "no token": ("", (), b"localhost:8932"),
    "another token": ("", ((b"authorization", b"Bearer s3cre7"),), b"localhost:8932"),
    "another scheme": ("", ((b"authorization", b"Basic s3cret"),), b"localhost:8932"),
    "token twice": ("", (BEARER, BEARER), b"localhost:8932"),
    "token in query": ("?access_token=s3cret&token=s3cret", (), b"localhost:8932"),
    "right": ("", (BEARER,), b"localhost:8932"),
    "right, by address": ("", (BEARER,), b"[::1]"),
    "right, own origin": ("", (BEARER, (b"origin", OWN.encode())), b"localhost:8932"),
    "right, forwarded": ("", (BEARER, (b"x-forwarded-for", b"127.0.0.1")), b"localhost:8932"),
    "right, through a gateway": ("", (BEARER, (b"via", b"")), b"localhost:8932"),
    "right, public host": ("", (BEARER,), b"gate.example"),
    "no token, public host": ("", (), b"gate.example"),
    "right, foreign host": ("", (BEARER,), b"evil.example"),
    "right, foreign origin": ("", (BEARER, FOREIGN_ORIGIN), b"localhost:8932"),
}
_ALL = [401, 401, 401, 401, 401, 200, 200, 200]
"""The statuses of the first eight requests where the token decides."""
RULES: Final[dict[str, tuple[Management | None, dict[str, list[int]]]]] = {
    # For each kind of pages, the status of each of REQUESTS.
    "local token": (
        LOCAL,
        {
            "managed": [*_ALL, 404, 404, 404, 404, 403, 403],
            "used": [*_ALL, 404, 404, 404, 404, 403, 403],
            "metrics": [*[200] * 8, 404, 404, 404, 404, 403, 403],
        },
    ),
    "token": (
        SECRET,
        {
            "managed": [*_ALL, 200, 200, 200, 401, 403, 403],
            "used": [*_ALL, 200, 200, 200, 401, 403, 403],
            "metrics": [*_ALL, 200, 200, 200, 401, 403, 403],
        },
    ),
    "callers are known": (
        Management(),
        {
            "managed": [*[401] * 8, 404, 404, 404, 404, 403, 403],
            "used": [*[200] * 12, 403, 403],
            "metrics": [*[200] * 8, 404, 404, 404, 404, 403, 403],
        },
    ),
    "callers are known, from other machines too": (
        Management(is_local=False),
        {
            "managed": [*[404] * 12, 403, 403],
            "used": [*[200] * 12, 403, 403],
            "metrics": [*[404] * 12, 403, 403],
        },
    ),
    "off": (
        None,
        {
            "managed": [*[404] * 12, 403, 403],
            "used": [*[200] * 12, 403, 403],
            "metrics": [*[404] * 12, 403, 403],
        },
    ),
}
EVERYBODYS: Final = [*[200] * 12, 403, 403]
PROBED: Final = [*[200] * 13, 403]


def kind_of(page: Page) -> str:
    if page is Page.METRICS:
        return "metrics"
    return "managed" if page in MANAGEMENT else "used" if page in USE else "everybody's"


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("parts", PATHS, ids="/".join)
def test_who_may_see_each_page(parts: tuple[str, ...], rule: str) -> None:
    """A request that may not see a page learns nothing else of it, such as its methods. No refusal has the token."""
    path, page = path_to(parts), PATHS[parts]
    method, wrong_method = ("POST", "GET") if page in POSTED else ("GET", "POST")
    management, expected = RULES[rule]
    everybodys = PROBED if page in (Page.HEALTH, Page.READY) else EVERYBODYS
    for (name, request), status in zip(REQUESTS.items(), expected.get(kind_of(page), everybodys), strict=True):
        appended, headers, host = request
        asked = {"host": host, "management": management, "shows_token": False}
        route = routed(path + appended, JSON, *headers, method=method, **asked)  # type: ignore[arg-type]
        assert status_of(route) == status, name
        if status == 200:
            continue
        assert isinstance(route, Refused)
        assert b"s3cret" not in route.body
        assert route == routed(path + appended, *headers, method=wrong_method, **asked), name  # type: ignore[arg-type]
        if status == 404:
            assert route == not_found(path, Surface(("a", "b c"), HOSTS, frozenset(), areas=AREAS))
        elif status == 401:
            assert dict(route.headers)[b"www-authenticate"] == b'Bearer realm="isthmus"'
            assert json.loads(route.body)["code"] == 401


@each_row(
    ("management", "lines", "message"),
    [
        (
            LOCAL,
            [],
            "got no Authorization header, expected Authorization: Bearer and the token that `show it` prints",
        ),
        (
            SECRET,
            [b"Bearer x"],
            "got another token, expected Authorization: Bearer and the token of core.management (of isthmus wrap: "
            "ISTHMUS_TOKEN)",
        ),
        (
            Management(),
            [b"Basic x"],
            "got Authorization without Bearer, expected Authorization: Bearer and that of a caller in the group admin",
        ),
        (
            LOCAL,
            [b"Bearer x", b"Bearer x"],
            "got 2 Authorization headers, expected Authorization: Bearer and the token that `show it` prints",
        ),
    ],
)
def test_a_refusal_says_what_was_seen_and_where_the_right_token_is(
    management: Management, lines: list[bytes], message: str
) -> None:
    route = routed("/files", *((b"authorization", line) for line in lines), management=management, shows_token=False)
    assert isinstance(route, Refused)
    assert json.loads(route.body)["error"] == message


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
        ("POST", "/ui/api/replay"),
    ]
    assert set(METHODS) == {"mcp", "sse", "messages", "upload", "artifacts"}


@pytest.mark.parametrize("management", [LOCAL, SECRET], ids=["local token", "token"])
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
    assert status(JSON, MARK, (b"authorization", b"Bearer other")) == 401


def test_a_command_has_one_header_that_a_form_cannot_send() -> None:
    """A caller that is known by its certificate shows no token."""
    for line in (JSON, MARK, BEARER, (b"x-requested-with", b"")):
        check_command((line,), {OWN})
    for lines in ((), ((b"authorization", b"Basic s3cret"),), ((b"accept", b"*/*"),)):
        with pytest.raises(RemoteProtocolError, match="got none of the headers") as refused:
            check_command(lines, {OWN})
        assert refused.value.http_status == 403


@pytest.mark.parametrize(("method", "path"), COMMANDS)
def test_the_preflight_of_a_command_is_refused(method: str, path: str) -> None:
    asked = ((b"origin", b"http://localhost:3000"), (b"access-control-request-method", method.encode()))
    assert status_of(routed(path, *asked, method="OPTIONS")) == 405


def test_a_link_on_another_site_starts_no_server() -> None:
    assert status_of(routed("/mcp/a/tools", (b"sec-fetch-site", b"cross-site"))) == 403
    for site in (b"none", b"same-origin", b"same-site"):
        assert status_of(routed("/mcp/a/tools", (b"sec-fetch-site", site))) == 200


def test_the_token_is_not_kept_in_the_clear() -> None:
    assert "s3cret" not in repr((SECRET, LOCAL))


@each_row("header", ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"])
def test_a_listener_with_pages_of_its_own_has_the_same_rule(header: str) -> None:
    near, name = ((b"host", b"localhost:1"), BEARER), header.encode()
    assert LOCAL.judge(near, "localhost:1") is Access.GRANTED
    assert LOCAL.judge(near[:1], "localhost:1") is Access.DENIED
    assert LOCAL.judge((*near, (b"x-" + name, b"")), "localhost:1") is Access.GRANTED
    assert LOCAL.judge(near, "gate.example") is LOCAL.judge((*near, (name, b"")), "localhost:1") is Access.HIDDEN


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


def test_the_live_page_is_there_only_where_it_is_served_and_for_no_other_site() -> None:
    paths = ["/ui", "/ui/app.js", "/ui/vendor/x.js", *(path_to(parts) for parts in PATHS if parts[0] == "ui")]
    for path in paths:
        method = "POST" if path.endswith("replay") else "GET"
        marks = (JSON,) if method == "POST" else ()
        usual = Surface(("a",), HOSTS, frozenset(), management=Management.with_token("s3cret"))
        assert status_of(judge(Head(method, path, ((b"host", b"localhost"), BEARER, *marks)), usual)) == 404
        assert status_of(routed(path, *marks, method=method)) == 200
        for site in (b"cross-site", b"same-site", b""):
            assert status_of(routed(path, (b"sec-fetch-site", site), *marks, method=method)) == 403, path
        for site in (b"none", b"same-origin"):
            assert status_of(routed(path, (b"sec-fetch-site", site), *marks, method=method)) == 200
        assert status_of(routed(path, *marks, method=method, host=b"evil.example")) in (403, 421)
    assert find_page("/ui/api/messages/7/body/x") is None and find_page("/ui/api/messages/") is None
    assert find_page("/ui/a/../b") == (Page.STATIC, "a/../b"), "what serves files looks them up in a table"
