"""The two paths of each endpoint, and which of them are something else."""

from __future__ import annotations

import itertools

import pytest
from isthmus.core.base.events import (
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    PipeOpening,
    PostOpening,
    UploadOpening,
)
from isthmus.core.wire.http.admin_routes import Management, Page, find_page
from isthmus.core.wire.http.endpoint_paths import AREAS, FIXED, has_second, usual_path
from isthmus.core.wire.http.reverse_proxy_target import ForwardTarget
from isthmus.core.wire.http.routes import ForwardRoute, Head, McpRoute, PageRoute, Refused, Route, Surface
from isthmus.core.wire.http.server import judge

IDS = (*sorted(FIXED), "metrics", "healthz", "auth", "time", "b.c", "x_1", "mcp-2", "tools")
UPGRADE = (("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13"))
OPENED = {
    GetOpening: "mcp",
    PostOpening: "mcp",
    EventPipeOpening: "sse",
    MessageOpening: "messages",
    PipeOpening: "ws",
    UploadOpening: "upload",
}
KEY = ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==")


def on(*servers: str, profiles: tuple[str, ...] = (), **more: object) -> Surface:
    shown = dict.fromkeys(profiles, servers[:1])
    return Surface(servers, frozenset({"localhost"}), frozenset(), profiles=shown, management=Management(), **more)  # type: ignore[arg-type]


def routed(path: str, area: str, surface: Surface) -> Route:
    """Routes the request that a client of this area sends."""
    fields = [("host", "localhost"), ("accept", "application/json, text/event-stream")]
    if area in ("mcp", "messages"):
        fields.append(("content-type", "application/json"))
    if area == "ws":
        fields += [*UPGRADE, KEY]
    headers = tuple((name.encode(), value.encode()) for name, value in fields)
    target = f"{path}?sessionId=x" if area == "messages" else path
    return judge(Head("POST" if area in ("mcp", "messages") else "GET", target, headers), surface)


def served(route: Route) -> tuple[str, str] | None:
    """Returns the area and the id that a request was routed to; None for anything else."""
    opening = getattr(route, "opening", None)
    return None if opening is None else (OPENED[type(opening)], opening.server)


def test_no_path_is_served_by_two() -> None:
    """Each id beside each other one, and as a profile: a path leads to one of them, and always to the same."""
    for other, id in itertools.product(IDS, IDS):
        for surface in (on(id, other), on(other, profiles=(id,)) if id != other else on(id, "b")):
            for area in AREAS:
                assert served(routed(f"/{area}/{id}", area, surface)) == (area, id), (area, id)
                found = served(routed(f"/{id}/{area}", area, surface))
                if id not in FIXED:
                    assert found == (area, id), (area, id)
                else:  # the usual path of another server, if it is any
                    assert found is None or (found == (id, area) and area in (*surface.servers, *surface.profiles))


def test_a_path_that_is_something_else_stays_it() -> None:
    """Each page of operators whose path could be the second path of an endpoint, and each other area."""
    for id in IDS:
        for area in AREAS:
            path = f"/{id}/{area}"
            if find_page(path) is not None:
                assert not has_second(id) and isinstance(routed(path, "sse", on("time", "b")), PageRoute | Refused)
            if not has_second(id):
                assert usual_path(path) == path
    assert find_page("/servers/mcp") == (Page.SERVER, "mcp")
    page = routed("/servers/mcp", "sse", on("servers", "mcp"))
    assert isinstance(page, Refused) and page.status == 401
    assert served(routed("/mcp/sse", "mcp", on("mcp", "sse"))) == ("mcp", "sse")


@pytest.mark.parametrize(
    ("path", "usual"),
    [
        ("/time/mcp", "/mcp/time"),
        ("/time/mcp/", "/mcp/time"),
        ("/a%20b/sse", "/sse/a%20b"),
        ("/metrics/ws", "/ws/metrics"),
        *(
            (path, path)
            for path in ("/time/mcp//", "/time/mcp/x", "//mcp", "/mcp", "/mcp/", "/time", "/time/upload", "/")
        ),
        *(
            (path, path)
            for path in ("/mcp/sse", "/%6dcp/sse", "/files/mcp", "/upload/mcp", "/artifacts/mcp", "/x/y/mcp")
        ),
    ],
)
def test_the_usual_path(path: str, usual: str) -> None:
    assert usual_path(path) == usual
    assert usual_path(usual) == usual


def test_the_second_path_is_like_the_first() -> None:
    """The two are alike for other methods, for servers that there are not, and for transparent ones."""
    surface = on("time", "git")
    for area in ("mcp", "sse", "messages"):
        for id in ("time", "tiem"):
            for method in ("PUT", "OPTIONS", "DELETE"):
                heads = [Head(method, path, ((b"host", b"localhost"),)) for path in (f"/{area}/{id}", f"/{id}/{area}")]
                first, second = (judge(head, surface) for head in heads)
                if isinstance(first, Refused) and isinstance(second, Refused):
                    assert (first.status, first.headers[0]) == (second.status, second.headers[0])
                    assert first.body == second.body or b"got path" in second.body
                else:
                    assert first == second
    aliased = on("time", "git", aliases={"/time/mcp": "/mcp/git"})
    assert served(routed("/time/mcp", "mcp", aliased)) == ("mcp", "git")
    transparent = on("time", transparent={"time": ForwardTarget("time", "http://up.example/base", b"key")})
    route = routed("/time/mcp", "mcp", transparent)
    assert isinstance(route, ForwardRoute) and route.target == b"/base"


def test_messages_go_where_the_stream_is() -> None:
    """The endpoint for messages has the form of the stream's path: a proxy in front passes both on by one rule."""
    found = {}
    for path in ("/sse/time", "/time/sse", "/time/sse/"):
        route = routed(path, "sse", on("time", "git", prefix="/tools"))
        assert isinstance(route, McpRoute) and isinstance(route.opening, EventPipeOpening)
        found[path] = route.opening.endpoint
    second = "/tools/time/messages"
    assert found == {"/sse/time": "/tools/messages/time", "/time/sse": second, "/time/sse/": second}
