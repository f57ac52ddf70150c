"""A client sends any request head: it gets a route to a server that exists, or a refusal that is valid HTTP.

The input is the head as on the wire: method, target and version with spaces between; then lines with names and values.
Accepted outcomes: a `Refused` with a final status and valid headers; or a route, for a Host and an Origin that an
independent reader allows, for a server of the surface, and with the token for a page of operators. No header that is
forwarded or returned has a line end.
"""

from __future__ import annotations

import re

from isthmus.core.wire.headers import Headers
from isthmus.core.wire.http.admin_routes import MANAGEMENT, USE, Management, Page
from isthmus.core.wire.http.reverse_proxy import HeaderRules, Sender, request_headers, response_headers
from isthmus.core.wire.http.reverse_proxy_target import ForwardTarget
from isthmus.core.wire.http.routes import (
    DownloadRoute,
    ForwardRoute,
    Head,
    McpRoute,
    PageRoute,
    Refused,
    SocketRoute,
    Surface,
    UploadRoute,
)
from isthmus.core.wire.http.server import judge, reply_to, shared_headers

HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
FORWARD_TARGET = ForwardTarget("raw", "http://up.example/base?own=1", b"key of this target")
SURFACE = Surface(
    servers=("ops", "a b", "raw"),
    hosts=HOSTS,
    origins=frozenset({"https://page.example"}),
    transparent={"raw": FORWARD_TARGET},
    management=Management.with_local_token("t", "the right one"),
    passes={"ops": (("authorization", "authorization"), ("cookie", "x-cookie"))},
    required={"a b": ("x-team",)},
    upload_size_max_bytes=1000,
    aliases={"/old": "/mcp/ops"},
)
RULES = (HeaderRules(), HeaderRules(allow=("cookie", "x-*"), deny=("x-no",), x_forwarded=True, forwarded=True))
STATUSES = frozenset({200, 204, 303, 400, 401, 403, 404, 405, 406, 411, 412, 413, 415, 417, 426, 431, 501, 505})


def head_of(data: bytes) -> Head:
    """Returns the head as the HTTP parser gives it: names in lower case, no line ends or outer whitespace in values."""
    first, *lines = data.replace(b"\r", b"").replace(b"\0", b"").split(b"\n")
    method, _, rest = first.decode("latin-1").partition(" ")
    target, _, version = rest.partition(" ")
    pairs = (line.partition(b":") for line in lines if b":" in line)
    headers = tuple((name.strip().lower(), value.strip(b" \t")) for name, _, value in pairs)
    return Head(method, re.sub(r"[^!-~]", "", target), headers, version or "1.1")


def check_headers(headers: Headers) -> None:
    for name, value in headers:
        assert not re.search(rb"[\r\n\0]", name + value)


def test_one_input(data: bytes) -> None:
    head = head_of(data)
    check_headers(shared_headers(head, SURFACE))
    route = judge(head, SURFACE)
    assert judge(head, SURFACE) == route
    for rules in RULES:
        sent = request_headers(head, rules, authority=b"up", sender=Sender("::1", "localhost", "http"))
        check_headers(tuple(sent))
        assert [value for name, value in sent if name == b"host"] == [b"up"]
        assert {name for name, _ in sent}.isdisjoint({b"te", b"keep-alive", b"proxy-connection"})
        check_headers(response_headers(head.headers, rules, status=200))
    if isinstance(route, Refused):
        assert route.status in STATUSES
        check_headers(route.headers)
        assert not (route.status == 204 and route.body)
        return
    check_allowed(head)
    match route:
        case McpRoute(opening):
            assert opening.server in ("ops", "a b")
            assert head.method in ("GET", "POST", "DELETE")
            reply_to(opening)
        case UploadRoute(opening, _):
            assert opening.server in ("ops", "a b")
            assert opening.size_bytes is None or opening.size_bytes >= 0
        case DownloadRoute(opening, _):
            assert opening.server in ("ops", "a b")
            assert "/" not in opening.filename + opening.sid + opening.artifact
        case SocketRoute(opening, _):
            assert opening.server in ("ops", "a b")
            assert head.method == "GET"
        case ForwardRoute(server, target, _):
            assert server == "raw"
            assert target.startswith(b"/base")
            assert re.fullmatch(rb"[!-~]+", target)
        case PageRoute(page, _, _):
            if page in MANAGEMENT | USE and page is not Page.METRICS:
                shown = [value for name, value in head.headers if name == b"authorization"]
                assert len(shown) == 1 and re.fullmatch(rb"(?i:bearer) \s*t\s*", shown[0])
                assert {name for name, _ in head.headers}.isdisjoint({b"via", b"forwarded", b"x-forwarded-for"})


def check_allowed(head: Head) -> None:
    """Checks that the request names one of our hosts, in its one Host header or its target, and no Origin but ours."""
    absolute = re.match(r"(?i)https?://([^/]+)", head.target)
    named = [value.decode("latin-1") for name, value in head.headers if name == b"host"]
    assert len(named) <= 1
    host = absolute[1] if absolute else named[0]
    assert re.sub(r":[0-9]+\Z", "", host.lower()) in HOSTS
    for name, value in head.headers:
        if name == b"origin":
            origin = value.decode("latin-1").lower()
            found = re.fullmatch(r"https?://(.+?)(:[0-9]+)?", origin)
            assert origin == "https://page.example" or (found is not None and found[1] in HOSTS)
