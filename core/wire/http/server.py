"""Routes HTTP requests by their heads: the rules of the MCP endpoint and of the pages beside it.

`judge` looks at method, target and headers only, before any byte of a body is read. It returns the route, with the
opening event for the engine, or the refusal to send. The HTTP server calls it for every request, with whatever parser
it read the head.
"""

from __future__ import annotations

from typing import Final, TypeVar
from urllib.parse import unquote

import msgspec

from ...access.gate import Gate
from ...access.identity import ANONYMOUS, NOBODY, Identity, Peer
from ...access.metadata import WELL_KNOWN
from ...base.errors import RemoteProtocolError
from ...base.events import (
    DeleteOpening,
    DownloadOpening,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    PipeOpening,
    PostOpening,
)
from ...base.revisions import is_known_modern
from ..headers import (
    EVENTS,
    JSON,
    TRANSPORTS,
    USUAL_ACCEPT,
    Headers,
    accepts,
    read_fields,
    read_session,
    read_visible,
)
from ..websocket import UpgradeRefused, accept_upgrade
from . import cors
from .admin_routes import (
    ADMIN,
    BROWSED,
    DELETED,
    MANAGEMENT,
    POSTED,
    PROBED,
    READING,
    USE,
    WATCHED,
    Access,
    Page,
    access,
    access_of,
    check_command,
    check_site,
    find_page,
    is_of_another_site,
)
from .callers import Caller, by_link, metadata_at, of_caller, recognise
from .endpoint_paths import second_path, usual_path
from .error_responses import not_found, page_error, refusal, refusal_at
from .header_forwarding import check_required, passed_headers, trace_context_of
from .mcp_headers import read_mirrored
from .origin import check_host, check_origin, is_expected
from .reply import HttpReply
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
    UploadRoute,
)
from .upload import tus_headers, upload_route

METHODS: Final[dict[str, tuple[str, ...]]] = {
    "mcp": ("GET", "POST", "DELETE"),
    "sse": ("GET",),
    "messages": ("POST",),
    "upload": ("POST", "PUT", "HEAD", "GET", "PATCH", "DELETE", "OPTIONS"),
    "artifacts": ("GET", "HEAD"),
}
"""The methods of each area that web pages may call, by the first segment of the path."""
PAGE_METHODS: Final = ("GET", "HEAD")
FORWARD_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""The methods of transparent servers that a preflight announces. Any other method is forwarded too, except two:
CONNECT asks for a tunnel to another host, and the response to TRACE would show credentials that this proxy added."""
ALL_METHODS: Final = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")
"""The methods of the server as a whole, for `OPTIONS *`."""


def judge(
    head: Head,
    surface: Surface,
    *,
    scheme: str = "http",
    address: str = "",
    gate: Gate | None = None,
    peer: Peer = NOBODY,
    now: float = 0.0,
) -> Route:
    """Routes a request by its head. Every problem of the request becomes a `Refused`; nothing is raised.

    Args:
        scheme: `http` or `https`, the scheme of the listener. URLs given to the client start with it.
        address: the address that the request came from, as `budget.address_owner` gives it.
        gate: decides who the request is from; None: callers are not asked, and all are the anonymous principal.
        peer: the program at the other end of the connection, for the gate.
        now: Unix seconds, for the gate.
    """
    path = ""
    try:
        _check_version(head)
        is_asterisk = head.method == "OPTIONS" and head.target == "*"  # RFC 9110, 9.3.7: the whole server
        authority, path, query = ("", "*", "") if is_asterisk else split_target(head.target)
        if head.root and (path == head.root or path.startswith(head.root + "/")):
            path = path[len(head.root) :] or "/"
        path = surface.aliases.get(path.rstrip("/"), path)
        usual = usual_path(path)
        fields = read_fields(head.headers)
        found = find_page(path) if surface.areas & {"pages", "ui"} else None
        if found is not None and ("ui" if found[0] in WATCHED else "pages") not in surface.areas:
            found = None
        host_seen = authority or fields.get(b"host")
        is_probe = found is not None and found[0] in PROBED
        knows_host = not is_probe or is_expected(host_seen, surface.hosts, any_host=surface.any_host)
        names = surface.names
        host = check_host(host_seen, surface.hosts, any_host=surface.any_host, more=names.hosts) if knows_host else ""
        base = f"{surface.public_origin or f'{scheme}://{host}'}{surface.prefix}{head.root}"
        if gate is not None and gate.issuers is not None and path.startswith(WELL_KNOWN):
            return metadata_at(head, path[len(WELL_KNOWN) :], surface, gate.issuers.urls, base)
        if gate is not None and path.startswith("/.well-known/"):
            return refusal(404, f"got the path {path[:200]!r}, and there is nothing of that name")
        check_origin(fields.get(b"origin"), surface.hosts, surface.origins, more=names.origins)
        if is_asterisk:
            return Refused(204, b"", _allow(ALL_METHODS))
        area, *rest = usual[1:].split("/")
        forward = _forward_target(rest, surface) if area == "mcp" and surface.transparent else None
        methods = METHODS.get(area) if forward is None else FORWARD_METHODS
        if forward is None and found is not None and found[0] in POSTED:
            methods = None  # no page of another origin may post here
        if methods and cors.is_preflight(head.method, head.headers):
            # A missing server is no reason to refuse: the request itself gets the 404, in a response the page can read.
            return Refused(204, b"", cors.preflight_headers(head.headers, methods))
        identity: Identity | None = ANONYMOUS
        if gate is not None:
            is_open = is_probe or (found is not None and found[0] in BROWSED and head.method in READING)
            caller = recognise(head, path, surface, gate, peer, base, now, is_open=is_open)
            if not isinstance(caller, Caller):
                return caller
            identity, surface = caller
            forward = _forward_target(rest, surface) if area == "mcp" and surface.transparent else None
        if found is None and area not in surface.areas:
            return not_found(path, surface, head.root)
        if forward is not None:
            check_required(head.headers, surface.required.get(forward.server, ()))
            return _forward_route(head.method, forward, rest, query, host, identity or ANONYMOUS)
        if found is not None:
            asks = gate is not None
            return _page_route(
                head, *found, query, fields, surface, host=host, scheme=scheme, identity=identity, asks=asks
            )
        if area == "mcp":
            base_url = f"{scheme}://{host}"
            route = _mcp_route(head.method, rest, fields, surface, head.headers, base_url=base_url, address=address)
            return of_caller(_with_headers(route, head.headers, surface), identity)
        if area == "sse":
            base_url = f"{scheme}://{host}"
            route = _event_pipe_route(
                head, rest, fields, surface, base_url=base_url, address=address, is_second=usual != path
            )
            return of_caller(_with_headers(route, head.headers, surface), identity)
        if area == "messages":
            route = _message_route(head.method, rest, query, fields, surface)
            return of_caller(_with_headers(route, head.headers, surface), identity)
        if area == "ws":
            socket = _socket_route(head, rest, surface, base_url=f"{scheme}://{host}", address=address)
            return of_caller(_with_headers(socket, head.headers, surface), identity)
        if area == "upload":
            server, fields_of = _server(rest[:1], surface), parse_query(query)
            upload = upload_route(head, server, rest[1:], fields_of, surface, base_url=f"{scheme}://{host}")
            if isinstance(upload, UploadRoute):
                return UploadRoute(by_link(upload.opening, gate, identity), upload.content_type)
            return upload or not_found(path, surface, head.root)
        if area == "artifacts" and len(rest) == 4:
            download = _download_route(head.method, rest, query, surface)
            return DownloadRoute(by_link(download.opening, gate, identity), download.head_only)
        return not_found(path, surface, head.root)
    except _NotFound:
        return not_found(path, surface, head.root)
    except NotAllowed as error:
        message = f"got method {error.method[:32]}, expected one of {', '.join(error.allowed)}"
        return refusal_at(path, 405, message, _allow(error.allowed))
    except UpgradeRefused as error:
        return refusal(error.http_status, error.message, extra=error.headers)
    except RemoteProtocolError as error:
        return refusal_at(path, error.http_status, error.message)


def reply_to(opening: McpOpening) -> HttpReply:
    """Returns the reply to a request with this opening, with nothing written yet."""
    if isinstance(opening, PostOpening):
        return HttpReply(
            accepts_json=opening.accepts_json,
            accepts_events=opening.accepts_events,
            # Without a session, the reply in a revision with sessions may have to name a new one in its head.
            may_commit=opening.session is not None or is_known_modern(opening.revision or ""),
        )
    if isinstance(opening, GetOpening | EventPipeOpening):
        return HttpReply(accepts_json=False, is_stream=True)
    return HttpReply(accepts_events=False)


def lasts(opening: McpOpening) -> bool:
    """True if the response is an event stream without an end of its own: it is not a response to one request."""
    if isinstance(opening, PostOpening):
        return ("mcp-method", "subscriptions/listen") in opening.mirrored
    return isinstance(opening, GetOpening | EventPipeOpening)


def shared_headers(head: Head, surface: Surface) -> Headers:
    """Returns the headers that every response to this request has besides its own: those of CORS and of tus.

    Responses of management pages, and those to commands, have none of CORS: no web page of another origin may read
    them, and ours need none.
    """
    if head.target.startswith(WELL_KNOWN):
        return ()
    is_file = head.target.startswith(("/upload/", "/artifacts/"))
    exposed = cors.EXPOSED_FILE_HEADERS if is_file else cors.EXPOSED_HEADERS
    allowed = cors.response_headers(head.headers, surface.hosts, surface.origins, exposed=exposed)
    if allowed and _is_closed(head.method, head.target, surface):
        allowed = ()
    return (*allowed, *tus_headers(head))


def _is_closed(method: str, target: str, surface: Surface) -> bool:
    """True if the request is for a management page, or a command for any page."""
    path = target.partition("?")[0]
    found = find_page(surface.aliases.get(path.rstrip("/"), path))
    if found is None or (found[0] in USE and unquote(found[1], errors="replace") in surface.transparent):
        return False
    return found[0] in MANAGEMENT or method not in READING


def _allow(methods: tuple[str, ...]) -> Headers:
    return ((b"allow", ", ".join(methods).encode()),)


class _NotFound(Exception):
    pass


# --- Routes ---------------------------------------------------------------------------------------------------------


def _mcp_route(
    method: str,
    rest: list[str],
    fields: dict[bytes, str],
    surface: Surface,
    headers: Headers,
    *,
    base_url: str,
    address: str,
) -> McpRoute:
    server = _mcp_server(rest, surface)
    if method not in METHODS["mcp"]:
        raise NotAllowed(method, METHODS["mcp"])
    revision = read_visible(fields, b"mcp-protocol-version", "MCP-Protocol-Version")
    is_stateless = revision is not None and is_known_modern(revision)
    # 2026-07-28 basic/transports/streamable-http has no sessions: a header that names one is ignored.
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
        last_event_id = fields.get(b"last-event-id") or None  # a client that saw no id sends an empty one
        return McpRoute(GetOpening(server, session=session, revision=revision, last_event_id=last_event_id))

    clause = f'{TRANSPORTS}, "Sending Messages to the Server"'
    _check_json(fields, clause)
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
            address=address,
        )
    )


R = TypeVar("R", McpRoute, SocketRoute)


def _with_headers(route: R, headers: Headers, surface: Surface) -> R:
    """Returns the route with the request headers that are forwarded to the server, after checking for required ones."""
    opening = route.opening
    check_required(headers, surface.required.get(opening.server, ()))
    passed = passed_headers(headers, surface.passes.get(opening.server, ()))
    if surface.reads_traces and isinstance(opening, PostOpening | MessageOpening):
        opening = msgspec.structs.replace(opening, trace_context=trace_context_of(headers))
        route = msgspec.structs.replace(route, opening=opening)
    if not passed:
        return route
    return msgspec.structs.replace(route, opening=msgspec.structs.replace(opening, headers=passed))


def _check_json(fields: dict[bytes, str], clause: str) -> None:
    """Refuses a body that is not JSON, or encoded: a compressed one could be a thousand times as large.

    Source: RFC 9110, 15.5.16.
    """
    content_type = fields.get(b"content-type")
    if content_type is None or content_type.partition(";")[0].strip().lower() != JSON:
        seen = "no Content-Type" if content_type is None else f"Content-Type {content_type[:200]}"
        raise RemoteProtocolError(f"got {seen}, expected {JSON}", http_status=415, clause=clause)
    coding = fields.get(b"content-encoding", "")
    if coding.lower() not in ("", "identity"):
        raise RemoteProtocolError(f"got Content-Encoding {coding[:32]!r}, expected none", http_status=415)


def _page_route(
    head: Head,
    page: Page,
    id: str,
    query: str,
    fields: dict[bytes, str],
    surface: Surface,
    *,
    host: str,
    scheme: str,
    identity: Identity | None,
    asks: bool,
) -> PageRoute | Refused:
    """Routes a request for an admin page. Access is checked first: a client without it must not learn that the page
    exists.

    Args:
        identity: the caller; None for one that the gate does not let in.
        asks: there is a gate.
    """
    if asks and identity is not None and identity.principal:
        granted = access_of(identity, surface.management, page)
    else:
        granted = access(head.headers, host, surface.management, page)
    if granted is Access.FORBIDDEN:
        assert identity is not None
        seen = f"got the caller {identity.principal[:200]}"
        refused = page_error(403, f"{seen}, expected one of the group {ADMIN}")
        return msgspec.structs.replace(refused, denied=f"{seen}, who is not in the group {ADMIN}")
    if granted is Access.HIDDEN:
        raise _NotFound
    if granted is Access.DENIED:
        assert surface.management is not None
        message = surface.management.explain(head.headers)
        return page_error(401, message, ((b"www-authenticate", b'Bearer realm="isthmus"'),))
    name = id if page is Page.STATIC else _server([id], surface) if page in USE else decode_segment(id)
    allowed = ("POST",) if page in POSTED else (*PAGE_METHODS, "DELETE") if page in DELETED else PAGE_METHODS
    if head.method not in allowed:
        raise NotAllowed(head.method, allowed)
    if head.method == "DELETE":
        page = DELETED[page]
    if page in WATCHED:
        check_site(head.headers)
    if head.method not in READING:
        check_command(head.headers, {f"{scheme}://{host}", surface.public_origin or f"{scheme}://{host}"})
        # An order such as START has no body, and so no type. A form, which a web page could send, always has one.
        if page in USE or b"content-type" in fields:
            _check_json(fields, "")
    elif page is Page.TOOLS and is_of_another_site(head.headers):
        raise RemoteProtocolError("got a request on behalf of another site, expected none", http_status=403)
    if page in USE:
        check_required(head.headers, surface.required.get(name, ()))
    return PageRoute(
        page,
        name,
        parse_query(query),
        shows_all=bool(host) and identity is not None,
        identity=identity or ANONYMOUS,
        cookie=_cookies(head.headers) if page in BROWSED else "",
    )


def _cookies(headers: Headers) -> str:
    return "; ".join(value.decode("latin-1") for name, value in headers if name == b"cookie")


def _event_pipe_route(
    head: Head,
    rest: list[str],
    fields: dict[bytes, str],
    surface: Surface,
    *,
    base_url: str,
    address: str,
    is_second: bool,
) -> McpRoute:
    """Routes a GET for an HTTP+SSE stream (2024-11-05 basic/transports, "HTTP with SSE"). A missing `Accept` is
    accepted: the `EventSource` of browsers and older clients send none.

    Args:
        is_second: the request names the endpoint by its second path. So does the endpoint for messages then, which a
            proxy in front may pass on by the same rule.
    """
    server = _mcp_server(rest, surface)
    if head.method != "GET":
        # A client that tries Streamable HTTP first takes a 405 as the sign to open an event stream instead.
        raise NotAllowed(head.method, METHODS["sse"])
    accept = fields.get(b"accept", EVENTS)
    if not accepts(accept, EVENTS):
        raise RemoteProtocolError(f"got Accept {accept[:200]!r}, expected {EVENTS}", http_status=406)
    path = "/messages" if not rest or rest == [""] else f"/messages/{rest[0]}"
    if is_second:
        path = second_path("messages", rest[0])
    endpoint = surface.prefix + head.root + path
    return McpRoute(EventPipeOpening(server, base_url=base_url, endpoint=endpoint, address=address))


def _message_route(method: str, rest: list[str], query: str, fields: dict[bytes, str], surface: Surface) -> McpRoute:
    server = _mcp_server(rest, surface)
    if method != "POST":
        raise NotAllowed(method, METHODS["messages"])
    _check_json(fields, '2024-11-05 basic/transports, "HTTP with SSE"')
    token = parse_query(query).get("sessionId")
    if token is None:
        raise RemoteProtocolError("got no sessionId in the query, expected the address that the event stream named")
    return McpRoute(MessageOpening(server, token=token))


def _socket_route(head: Head, rest: list[str], surface: Surface, *, base_url: str, address: str) -> SocketRoute:
    server = _mcp_server(rest, surface)
    if head.method != "GET":
        raise NotAllowed(head.method, ("GET",))
    return SocketRoute(PipeOpening(server, base_url=base_url, address=address), accept_upgrade(head.headers))


def _forward_target(rest: list[str], surface: Surface) -> ForwardTarget | None:
    """Returns the transparent server that a path below `/mcp` belongs to, if any."""
    if rest in ([], [""]):
        return surface.transparent.get(surface.unnamed)
    return surface.transparent.get(unquote(rest[0], errors="replace"))


def _forward_route(
    method: str, forward: ForwardTarget, rest: list[str], query: str, host: str, identity: Identity
) -> ForwardRoute:
    if method in ("CONNECT", "TRACE"):
        raise NotAllowed(method, FORWARD_METHODS)
    return ForwardRoute(
        forward.server, forward.to_upstream("".join("/" + part for part in rest[1:]), query), host, identity
    )


def _download_route(method: str, rest: list[str], query: str, surface: Surface) -> DownloadRoute:
    server = _server(rest[:1], surface)
    if method not in METHODS["artifacts"]:
        raise NotAllowed(method, METHODS["artifacts"])
    sid, artifact, filename = (decode_segment(part) for part in rest[1:])
    opening = DownloadOpening(server, sid, artifact, filename, query=parse_query(query))
    return DownloadRoute(opening, head_only=method == "HEAD")


def _mcp_server(rest: list[str], surface: Surface) -> str:
    """Returns the id of the server in the path. A slash at the end is ignored: many clients are configured with one."""
    parts = rest[:-1] if rest and rest[-1] == "" else rest
    if not parts and surface.default:
        return surface.default
    if len(parts) == 1 and surface.profiles and (profile := decode_segment(parts[0])) in surface.profiles:
        return profile
    return _server(parts, surface)


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
