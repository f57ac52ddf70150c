"""The callers of requests: who a request is from, what it may reach, and how those are refused who are not let in."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec

from ...access.challenges import bearer_challenge
from ...access.gate import Denied, Found, Gate
from ...access.identity import ANONYMOUS, Identity, Peer
from ...access.issuer_answers import Unavailable, Waits
from ...access.metadata import AREAS as RESOURCES
from ...access.metadata import metadata_url, resource_metadata, resource_path, resource_paths
from ...access.policy import all_scopes, may_see
from ...base.events import DeleteOpening, DownloadOpening, DraftOpening, GetOpening, UploadOpening
from ..headers import JSON
from . import cors
from .admin_routes import READING
from .endpoint_paths import has_second, second_path, usual_path
from .error_responses import refusal, refusal_at
from .routes import Head, McpRoute, NotAllowed, Refused, SocketRoute, Surface, Undecided

SERVER_AREAS: Final = frozenset({"mcp", "sse", "messages", "ws", "upload", "artifacts"})
"""The areas whose paths name a server."""
LINK_AREAS: Final = frozenset({"upload", "artifacts"})
"""The areas of signed links. The link is a credential by itself: programs that move files have no other."""


class Caller(NamedTuple):
    """The caller of a request.

    Attributes:
        identity: None for a probe that is not let in, and for a request whose link is its only credential.
        surface: what there is for the caller.
    """

    identity: Identity | None
    surface: Surface


def recognise(
    head: Head, path: str, surface: Surface, gate: Gate, peer: Peer, base: str, now: float, *, is_open: bool
) -> Caller | Refused | Undecided:
    """Returns the caller of a request, or the response to one that is not let in.

    Args:
        path: of the request, below the prefix of this application; the first or the second of an endpoint.
        base: the base URL under which clients reach this listener, without a slash at the end.
        is_open: the request is answered in any case.
    """
    area, *rest = usual_path(path)[1:].split("/")
    found = _identify(head, area, gate, peer, _audiences(base, area, rest, surface, gate), now)
    if isinstance(found, Denied | Unavailable | Waits) and not is_open:
        return _not_let_in(found, path, surface, gate, base)
    identity = found if isinstance(found, Identity) else None
    if identity is None and area in LINK_AREAS:
        return Caller(None, surface)  # the link was given to a caller who may use the server
    surface = _visible(surface, identity or ANONYMOUS)
    lacking = _lacking_scopes(rest, area, surface, identity or ANONYMOUS)
    if lacking:
        return _insufficient(path, lacking, identity or ANONYMOUS, surface, gate, base)
    return Caller(identity, surface)


def _audiences(base: str, area: str, rest: list[str], surface: Surface, gate: Gate) -> tuple[str, ...]:
    """Returns the URLs that a token for this request may be for: those of the server's endpoints, and the base URL."""
    if gate.issuers is None:
        return ()
    server = _server_of(area, rest, surface)
    paths = resource_paths(server, surface.unnamed) if server else []
    if server and has_second(server):
        paths += [second_path(area, server) for area in RESOURCES]
    return (base, *(base + path for path in paths))


def _identify(head: Head, area: str, gate: Gate, peer: Peer, audiences: tuple[str, ...], now: float) -> Found | None:
    """Returns the caller; None for a request with a link and without credentials, where the link is enough."""
    found = gate.identify(head.headers, peer, audiences, now)
    if area in LINK_AREAS and gate.lets_links_in and found in (Denied(), ANONYMOUS):
        return None
    return found


def _not_let_in(
    found: Denied | Unavailable | Waits, path: str, surface: Surface, gate: Gate, base: str
) -> Refused | Undecided:
    """Returns the refusal of a request that the gate does not let in, or what it waits for."""
    if isinstance(found, Waits):
        return Undecided(found.request)
    if isinstance(found, Unavailable):
        text = "the issuer of the token does not say now who the caller is: try again later"
        refused = refusal_at(path, 503, text, ((b"retry-after", b"%d" % found.retry_after_s),))
        return msgspec.structs.replace(refused, denied=found.reason)
    url = "" if gate.issuers is None else _metadata_url(path, surface, base)
    area, *rest = usual_path(path)[1:].split("/")
    rules = surface.access.get(_server_of(area, rest, surface))
    return _denied(path, found, gate.expected, url, frozenset() if rules is None else frozenset(rules.server.scopes))


def _visible(surface: Surface, identity: Identity) -> Surface:
    """Returns the surface as it is for a caller: without the servers that are for groups that the caller is not in."""
    hidden = {id for id, rules in surface.access.items() if not may_see(rules.server, identity.grants)}
    if not hidden:
        return surface
    return msgspec.structs.replace(
        surface,
        servers=tuple(id for id in surface.servers if id not in hidden),
        transparent={id: target for id, target in surface.transparent.items() if id not in hidden},
    )


def _server_of(area: str, rest: list[str], surface: Surface) -> str:
    """Returns the id of the server or profile that a path belongs to; "" if there is none."""
    if rest and rest[0]:
        return unquote(rest[0], errors="replace")
    if area in LINK_AREAS:  # a profile has none
        return surface.servers[0] if len(surface.servers) == 1 else ""
    return surface.unnamed


def _lacking_scopes(rest: list[str], area: str, surface: Surface, identity: Identity) -> frozenset[str]:
    """Returns the scopes that every request for a server needs, if the caller lacks one of them."""
    rules = surface.access.get(_server_of(area, rest, surface)) if surface.access and area in SERVER_AREAS else None
    scopes = frozenset() if rules is None else frozenset(rules.server.scopes)
    return frozenset() if scopes <= identity.scopes else scopes


def _insufficient(
    path: str, scopes: frozenset[str], identity: Identity, surface: Surface, gate: Gate, base: str
) -> Refused:
    """Returns the refusal of a caller whose token lacks a scope, with all that it needs."""
    has = " ".join(sorted(identity.scopes & scopes)) or "none of them"
    text = f"this wants the scope {' '.join(sorted(scopes))}; the token has {has}"
    url = "" if gate.issuers is None else _metadata_url(path, surface, base)
    challenge = bearer_challenge(error="insufficient_scope", description=text, scopes=scopes, metadata_url=url)
    refused = refusal_at(path, 403, text, ((b"www-authenticate", challenge),))
    return msgspec.structs.replace(refused, denied=f"{identity.principal[:200] or 'anonymous'}: {text}")


def _metadata_url(path: str, surface: Surface, base: str) -> str:
    """Returns the address of the metadata of the resource that a path belongs to."""
    area, *rest = usual_path(path)[1:].split("/")
    if area == "messages":
        path = f"/{rest[0]}/sse" if usual_path(path) != path else "/".join(("/sse", *rest))
    return metadata_url(base, _resource_path(path, surface) or "")


def _resource_path(path: str, surface: Surface) -> str | None:
    """Returns the path of the resource at a path, "" for the base; None if there is none.

    The second path of an endpoint is a resource of its own: clients compare it with the URL that they know.
    """
    usual = usual_path(path)
    found = resource_path(usual, (*surface.servers, *surface.profiles), surface.unnamed)
    return found if usual == path or not found else path.rstrip("/")


def metadata_at(head: Head, path: str, surface: Surface, issuers: tuple[str, ...], base: str) -> Refused:
    """Answers a request for protected-resource metadata, which any web page may read.

    Args:
        path: the rest of the path: that of the resource, with or without the prefix of a reverse proxy in front.
    """
    anyone = ((b"access-control-allow-origin", b"*"),)
    if head.method == "OPTIONS":
        return Refused(
            204,
            b"",
            ((b"allow", ", ".join(READING).encode()), *anyone, *cors.preflight_headers(head.headers, ("GET",))),
        )
    if head.method not in READING:
        raise NotAllowed(head.method, READING)
    resource = _resource_path(path.removeprefix(surface.prefix), surface)
    if resource is None:
        return refusal(404, f"got the path {path[:200]!r}, expected that of an endpoint", extra=anyone)
    area, *rest = usual_path(resource)[1:].split("/")
    server = _server_of(area, rest, surface) if resource else ""
    shown = surface.profiles.get(server, (server,)) if server else surface.access
    rules = [surface.access[id] for id in shown if id in surface.access]
    body = resource_metadata(base + resource, issuers, frozenset().union(*map(all_scopes, rules)))
    kept = (b"cache-control", b"max-age=300")
    described = ((b"content-type", JSON.encode()), (b"content-length", b"%d" % len(body)))
    return Refused(200, body, (*described, kept, *anyone))


def _denied(path: str, denied: Denied, expected: str, metadata_url: str, scopes: frozenset[str]) -> Refused:
    """Returns the refusal of a request whose caller is not recognised."""
    if denied.status == 400:
        refused = refusal_at(path, 400, denied.reason)
    elif not denied.reason:
        wanted = f"got no credentials, expected {expected}"
        refused = refusal_at(
            path, 401, wanted, ((b"www-authenticate", bearer_challenge(metadata_url=metadata_url, scopes=scopes)),)
        )
    else:
        challenge = bearer_challenge(error="invalid_token", description=denied.reason, metadata_url=metadata_url)
        text = f"the credentials are refused: {denied.reason}"
        refused = refusal_at(path, 401, text, ((b"www-authenticate", challenge),))
    return msgspec.structs.replace(refused, denied=denied.reason or "no credentials")


R = TypeVar("R", McpRoute, SocketRoute)


def of_caller(route: R, identity: Identity | None) -> R:
    """Returns the route with its caller."""
    if identity is None or identity == ANONYMOUS:
        return route
    changes: dict[str, object] = {"principal": identity.principal}
    if not isinstance(route.opening, GetOpening | DeleteOpening):
        changes["grants"] = identity.grants
    opening = msgspec.structs.replace(route.opening, **changes)
    return msgspec.structs.replace(route, opening=opening, identity=identity)


L = TypeVar("L", UploadOpening, DraftOpening, DownloadOpening, UploadOpening | DraftOpening)


def by_link(opening: L, gate: Gate | None, identity: Identity | None) -> L:
    """Returns the opening of a request with a link, with its caller; without one if the link alone counts."""
    if gate is None or identity is None:
        return opening
    return msgspec.structs.replace(opening, principal=identity.principal)
