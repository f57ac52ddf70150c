"""What a request's head asks for, and whether it may: the rules of MCP's HTTP endpoint and of the pages beside it.

`judge` looks at method, target and headers only, before any byte of a body is read. It either names the route, with the
opening the engine is told of, or gives the refusal to send. Whoever reads requests, with whatever parser, calls it.
"""

from __future__ import annotations

from typing import Final, TypeVar
from urllib.parse import unquote

import msgspec

from ...base.effects import (
    DeleteOpening,
    DownloadOpening,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    PipeOpening,
    PostOpening,
)
from ...base.errors import RemoteProtocolError
from ...base.revisions import is_known_modern
from ..headers import (
    EVENTS,
    JSON,
    TRANSPORTS,
    USUAL_ACCEPT,
    Headers,
    accepts,
    check_host,
    check_origin,
    read_fields,
    read_session,
    read_visible,
)
from ..websocket import UpgradeRefused, accept_upgrade
from . import cors
from .admin_routes import DELETED, MANAGEMENT, POSTED, USE, Access, Page, access, find_page, is_of_another_site
from .error_responses import not_found, page_error, refusal, refusal_at
from .header_forwarding import check_required, passed_headers
from .mcp_headers import read_mirrored
from .reply import Reply
from .request_target import decode_segment, parse_query, split_target
from .reverse_proxy_target import ForwardTarget
from .routes import (
    DownloadRoute,
    ForwardRoute,
    Head,
    McpOpening,
    McpRoute,
    NotAllowed,
    PageRoute,
    Refused,
    Route,
    SocketRoute,
    Surface,
)
from .upload import tus_headers, upload_route

METHODS: Final[dict[str, tuple[str, ...]]] = {
    "mcp": ("GET", "POST", "DELETE"),
    "sse": ("GET",),
    "messages": ("POST",),
    "upload": ("POST", "PUT", "HEAD", "GET", "PATCH", "DELETE", "OPTIONS"),
    "artifacts": ("GET", "HEAD"),
}
"""The areas that web pages call, by the first part of the path, and what may be done there."""
PAGE_METHODS: Final = ("GET", "HEAD")
FORWARD_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""What browsers are told of transparent servers. Any other is passed on too, save two that make no sense there: CONNECT
asks for a tunnel to elsewhere, and TRACE for our own credentials in the answer."""
ALL_METHODS: Final = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")
"""Of the server as a whole, for `OPTIONS *`."""


def judge(head: Head, surface: Surface, *, scheme: str = "http") -> Route:
    """Route a request by its head.

    Args:
        scheme: `http` or `https`, as the listener speaks it; links given to the client start with it.
    """
    path = ""
    try:
        _check_version(head)
        is_asterisk = head.method == "OPTIONS" and head.target == "*"  # RFC 9110, 9.3.7: of the server as a whole
        authority, path, query = ("", "*", "") if is_asterisk else split_target(head.target)
        path = surface.aliases.get(path.rstrip("/"), path)
        fields = read_fields(head.headers)
        host = check_host(authority or fields.get(b"host"), surface.hosts, any_host=surface.any_host)
        check_origin(fields.get(b"origin"), surface.hosts, surface.origins)
        if is_asterisk:
            return Refused(204, b"", _allow(ALL_METHODS))
        found = find_page(path)
        area, *rest = path[1:].split("/")
        way = _way(rest, surface) if area == "mcp" and surface.transparent else None
        methods = METHODS.get(area) if way is None else FORWARD_METHODS
        if methods and cors.is_preflight(head.method, head.headers):
            # Whether there is such a server the request itself is told, in a response that the page can read.
            return Refused(204, b"", cors.preflight_headers(head.headers, methods))
        if way is not None:
            check_required(head.headers, surface.required.get(way.server, ()))
            return _forward_route(head.method, way, rest, query, host)
        if found is not None:
            return _page_route(head, *found, query, fields, surface, host=host)
        if area == "mcp":
            route = _mcp_route(head.method, rest, fields, surface, head.headers, base_url=f"{scheme}://{host}")
            return _with_headers(route, head.headers, surface)
        if area == "sse":
            route = _event_pipe_route(head.method, rest, fields, surface, base_url=f"{scheme}://{host}")
            return _with_headers(route, head.headers, surface)
        if area == "messages":
            return _with_headers(_message_route(head.method, rest, query, fields, surface), head.headers, surface)
        if area == "ws":
            socket = _socket_route(head, rest, surface, base_url=f"{scheme}://{host}")
            return _with_headers(socket, head.headers, surface)
        if area == "upload":
            server, fields_of = _server(rest[:1], surface), parse_query(query)
            upload = upload_route(head, server, rest[1:], fields_of, surface, base_url=f"{scheme}://{host}")
            return not_found(path, surface) if upload is None else upload
        if area == "artifacts" and len(rest) == 4:
            return _download_route(head.method, rest, query, surface)
        return not_found(path, surface)
    except _NotFound:
        return not_found(path, surface)
    except NotAllowed as error:
        message = f"got method {error.method[:32]}, expected one of {', '.join(error.allowed)}"
        return refusal_at(path, 405, message, _allow(error.allowed))
    except UpgradeRefused as error:
        return refusal(error.http_status, error.message, extra=error.headers)
    except RemoteProtocolError as error:
        return refusal_at(path, error.http_status, error.message)


def reply_to(opening: McpOpening) -> Reply:
    """The reply to a request with this opening, with nothing written yet."""
    if isinstance(opening, PostOpening):
        return Reply(
            accepts_json=opening.accepts_json,
            accepts_events=opening.accepts_events,
            # Without a session the reply may have to name a new one, where there are such.
            may_commit=opening.session is not None or is_known_modern(opening.revision or ""),
        )
    if isinstance(opening, GetOpening | EventPipeOpening):
        return Reply(accepts_json=False, is_stream=True)
    return Reply(accepts_events=False)


def shared_headers(head: Head, surface: Surface) -> Headers:
    """What every response to this request carries besides its own headers, whatever it says."""
    is_file = head.target.startswith(("/upload/", "/artifacts/"))
    exposed = cors.EXPOSED_FILE_HEADERS if is_file else cors.EXPOSED_HEADERS
    return (
        *cors.response_headers(head.headers, surface.hosts, surface.origins, exposed=exposed),
        *tus_headers(head),
    )


def _allow(methods: tuple[str, ...]) -> Headers:
    return ((b"allow", ", ".join(methods).encode()),)


class _NotFound(Exception):
    pass


# --- Routes ---------------------------------------------------------------------------------------------------------


def _mcp_route(
    method: str, rest: list[str], fields: dict[bytes, str], surface: Surface, headers: Headers, *, base_url: str
) -> McpRoute:
    server = _mcp_server(rest, surface)
    if method not in METHODS["mcp"]:
        raise NotAllowed(method, METHODS["mcp"])
    revision = read_visible(fields, b"mcp-protocol-version", "MCP-Protocol-Version")
    is_stateless = revision is not None and is_known_modern(revision)
    # 2026-07-28 basic/transports/streamable-http: there are no sessions, and a header that names one means nothing.
    session = None if is_stateless else read_session(fields)
    if method == "DELETE":
        return McpRoute(DeleteOpening(server, session=session, revision=revision))

    accept = fields.get(b"accept", "")
    accepts_json = accepts(accept, JSON)
    accepts_events = accepts(accept, EVENTS)
    if method == "GET":
        if not accepts_events:
            raise RemoteProtocolError(
                f"got Accept {accept[:200]!r}, expected {EVENTS}: a GET here opens the event stream of a session, "
                "requests are sent with POST",
                http_status=406,
                clause=f'{TRANSPORTS}, "Listening for Messages from the Server"',
            )
        last_event_id = fields.get(b"last-event-id") or None  # an empty one is what a client has that saw no id
        return McpRoute(GetOpening(server, session=session, revision=revision, last_event_id=last_event_id))

    clause = f'{TRANSPORTS}, "Sending Messages to the Server"'
    _check_content_type(fields, clause)
    if not (accepts_json or accepts_events):
        raise RemoteProtocolError(
            f"got Accept {accept[:200]!r}, expected {USUAL_ACCEPT}", http_status=406, clause=clause
        )
    return McpRoute(
        PostOpening(
            server,
            session=session,
            revision=revision,
            accepts_json=accepts_json,
            accepts_events=accepts_events,
            base_url=base_url,
            mirrored=read_mirrored(headers),
        )
    )


R = TypeVar("R", McpRoute, SocketRoute)


def _with_headers(route: R, headers: Headers, surface: Surface) -> R:
    """The route, with what of the request's headers goes on to the server."""
    opening = route.opening
    check_required(headers, surface.required.get(opening.server, ()))
    passed = passed_headers(headers, surface.passes.get(opening.server, ()))
    if not passed:
        return route
    return msgspec.structs.replace(route, opening=msgspec.structs.replace(opening, headers=passed))


def _check_content_type(fields: dict[bytes, str], clause: str) -> None:
    content_type = fields.get(b"content-type")
    if content_type is None or content_type.partition(";")[0].strip().lower() != JSON:
        seen = "no Content-Type" if content_type is None else f"Content-Type {content_type[:200]}"
        raise RemoteProtocolError(f"got {seen}, expected {JSON}", http_status=415, clause=clause)


def _page_route(
    head: Head, page: Page, id: str, query: str, fields: dict[bytes, str], surface: Surface, *, host: str
) -> PageRoute | Refused:
    """Whether it is there comes first: who may not see it learns nothing of it."""
    if page in MANAGEMENT:
        granted = access(head.headers, host, surface.management)
        if granted is Access.HIDDEN:
            raise _NotFound
        if granted is Access.DENIED:
            wanted = "expected Authorization: Bearer and the token of core.management"
            return page_error(
                401, f"got no token, or another one, {wanted}", ((b"www-authenticate", b'Bearer realm="isthmus"'),)
            )
    server = _server([id], surface) if page in USE else decode_segment(id)
    allowed = ("POST",) if page in POSTED else (*PAGE_METHODS, "DELETE") if page in DELETED else PAGE_METHODS
    if head.method not in allowed:
        raise NotAllowed(head.method, allowed)
    if head.method == "DELETE":
        page = DELETED[page]
    if page in POSTED and (page in USE or b"content-type" in fields):  # an order has no body; a form always has a type
        _check_content_type(fields, "")
    if page in USE:
        check_required(head.headers, surface.required.get(server, ()))
    if (page in (Page.TOOLS, Page.DELETE) or page in POSTED) and is_of_another_site(head.headers):
        raise RemoteProtocolError("got a request on behalf of another site, expected none", http_status=403)
    return PageRoute(page, server, parse_query(query))


def _event_pipe_route(
    method: str, rest: list[str], fields: dict[bytes, str], surface: Surface, *, base_url: str
) -> McpRoute:
    """2024-11-05 basic/transports, "HTTP with SSE". Browsers' EventSource, and older clients, send no Accept."""
    server = _mcp_server(rest, surface)
    if method != "GET":
        # 405 is among what tells a client that tried Streamable HTTP first to open an event stream instead.
        raise NotAllowed(method, METHODS["sse"])
    accept = fields.get(b"accept", EVENTS)
    if not accepts(accept, EVENTS):
        raise RemoteProtocolError(f"got Accept {accept[:200]!r}, expected {EVENTS}", http_status=406)
    path = "/messages" if not rest or rest == [""] else f"/messages/{rest[0]}"
    return McpRoute(EventPipeOpening(server, base_url=base_url, endpoint=surface.prefix + path))


def _message_route(method: str, rest: list[str], query: str, fields: dict[bytes, str], surface: Surface) -> McpRoute:
    server = _mcp_server(rest, surface)
    if method != "POST":
        raise NotAllowed(method, METHODS["messages"])
    _check_content_type(fields, '2024-11-05 basic/transports, "HTTP with SSE"')
    token = parse_query(query).get("sessionId")
    if token is None:
        raise RemoteProtocolError("got no sessionId in the query, expected the address that the event stream named")
    return McpRoute(MessageOpening(server, token=token))


def _socket_route(head: Head, rest: list[str], surface: Surface, *, base_url: str) -> SocketRoute:
    server = _mcp_server(rest, surface)
    if head.method != "GET":
        raise NotAllowed(head.method, ("GET",))
    return SocketRoute(PipeOpening(server, base_url=base_url), accept_upgrade(head.headers))


def _way(rest: list[str], surface: Surface) -> ForwardTarget | None:
    """The transparent server that a path below `/mcp` is of, if it is."""
    if rest in ([], [""]):
        return surface.transparent.get(surface.servers[0]) if len(surface.servers) == 1 else None
    return surface.transparent.get(unquote(rest[0], errors="replace"))


def _forward_route(method: str, way: ForwardTarget, rest: list[str], query: str, host: str) -> ForwardRoute:
    if method in ("CONNECT", "TRACE"):
        raise NotAllowed(method, FORWARD_METHODS)
    return ForwardRoute(way.server, way.to_upstream("".join("/" + part for part in rest[1:]), query), host)


def _download_route(method: str, rest: list[str], query: str, surface: Surface) -> DownloadRoute:
    server = _server(rest[:1], surface)
    if method not in METHODS["artifacts"]:
        raise NotAllowed(method, METHODS["artifacts"])
    sid, artifact, filename = (decode_segment(part) for part in rest[1:])
    opening = DownloadOpening(server, sid, artifact, filename, query=parse_query(query))
    return DownloadRoute(opening, head_only=method == "HEAD")


def _mcp_server(rest: list[str], surface: Surface) -> str:
    """Many clients are configured with a slash at the end."""
    return _server(rest[:-1] if rest and rest[-1] == "" else rest, surface)


def _server(rest: list[str], surface: Surface) -> str:
    if not rest and len(surface.servers) == 1:
        return surface.servers[0]
    if len(rest) != 1:
        raise _NotFound
    server = decode_segment(rest[0])
    if server not in surface.servers or server in surface.transparent:
        raise _NotFound
    return server


def _check_version(head: Head) -> None:
    if not head.version.startswith("1."):
        raise RemoteProtocolError(f"got HTTP/{head.version}, expected HTTP/1.1", http_status=505)
    if head.version == "1.0" and any(name == b"transfer-encoding" for name, _ in head.headers):
        # RFC 9112, 6.1: "MUST treat the message as if the framing is faulty".
        raise RemoteProtocolError("got Transfer-Encoding in HTTP/1.0, which has none, expected Content-Length")
