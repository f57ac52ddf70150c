"""Finds the authorization server of an MCP server, and what is sent to it.

The order: the metadata that the challenge names, else that at the path of the server, else that at its root. Without
any, the server is its own authorization server, as in 2025-03-26: its metadata is at its origin, or it has none and the
default endpoints.

Source: 2026-07-28 basic/authorization/authorization-server-discovery; 2025-11-25 basic/authorization, "Authorization
Server Discovery"; 2025-03-26 basic/authorization, "Server Metadata Discovery".
"""

from __future__ import annotations

from collections.abc import Generator

import msgspec

from .challenges import BearerChallenge, split_scope
from .metadata import (
    AuthorizationServer,
    ProtectedResource,
    covers,
    default_authorization_server,
    is_issuer,
    is_requestable,
    issuer_metadata_urls,
    origin_of,
    read_authorization_server,
    read_protected_resource,
    resource_metadata_urls,
    resource_of,
    show_url,
)
from .requests import Fetch, Fetched, FetchFailed, LoginFailed

AUTO = "auto"
"""The setting of `resource` that sends the identifier of the server."""
NO_RESOURCE = "none"
"""The setting of `resource` that sends none: Entra ID refuses the parameter."""

Discovering = Generator[Fetch, Fetched | FetchFailed, "Discovered"]


class Discovered(msgspec.Struct, frozen=True):
    """The authorization server of an MCP server.

    Attributes:
        resource: the `resource` parameter for all requests; "": none is sent.
        scopes: the scopes that the server's metadata lists; None if it lists none.
        is_legacy: the server has no metadata of its own, so the rules of 2025-03-26 hold.
    """

    server: AuthorizationServer
    resource: str
    scopes: tuple[str, ...] | None = None
    is_legacy: bool = False


def discover(
    url: str, challenge: BearerChallenge, *, issuer: str = "", resource: str = AUTO, wanted_issuer: str = ""
) -> Discovering:
    """Finds the authorization server of the MCP server at `url`.

    Args:
        issuer: the authorization server that the configuration names: the server's metadata is not asked for.
        resource: `AUTO`, `NO_RESOURCE`, or the URI to send.
        wanted_issuer: the one to take if the server names several; else it is the first.

    Raises:
        LoginFailed: there is none, or what was found must not be used.
    """
    if not is_requestable(url.partition("#")[0]):
        raise LoginFailed(f"{show_url(_origin(url))} is asked without TLS: expected https:// for a server with a login")
    found = None
    if not issuer:
        found = yield from _find_resource(url, challenge)
    if resource == AUTO:
        sent = resource_of(url) if found is None else found.resource
    else:
        sent = "" if resource == NO_RESOURCE else resource
    if issuer:
        return Discovered((yield from find_server(issuer)), sent)
    if found is None:
        return Discovered((yield from _find_legacy(url)), sent, is_legacy=True)
    if not found.issuers:
        raise LoginFailed(
            f"the metadata of {_origin(url)} names no authorization server (authorization_servers): set issuer"
        )
    chosen = wanted_issuer if wanted_issuer in found.issuers else found.issuers[0]
    scopes = None if found.scopes is None else split_scope(" ".join(found.scopes))
    return Discovered((yield from find_server(chosen)), sent, scopes)


def find_server(issuer: str) -> Generator[Fetch, Fetched | FetchFailed, AuthorizationServer]:
    """Returns the metadata of an authorization server.

    "The `issuer` value in the document MUST be identical to the issuer identifier used to construct the well-known URL.
    If they differ, the client MUST NOT use the metadata."

    Raises:
        LoginFailed: there is none that may be used.
    """
    if not is_issuer(issuer):
        raise LoginFailed(f"got {show_url(issuer)} as authorization server, expected an https:// URL without query")
    seen = []
    for url in issuer_metadata_urls(issuer):
        reply = yield from _get(url)
        found = read_authorization_server(reply.body) if reply.status == 200 else None
        if found is None:
            seen.append(_show(url, reply))
        elif found.issuer != issuer:
            # The SDK for Python 1.x adds a slash to what it was told, and the URL of the metadata is the same.
            is_near = found.issuer.rstrip("/") == issuer.rstrip("/")
            remedy = f"have the server corrected{f', or set issuer: {show_url(found.issuer)}' if is_near else ''}"
            raise LoginFailed(
                f"the metadata of the authorization server {show_url(issuer)} is of {show_url(found.issuer)}, "
                f"expected the same text; {remedy}"
            )
        else:
            return found
    raise LoginFailed(
        f"the authorization server {show_url(issuer)} has no metadata that can be used ({'; '.join(seen)})"
    )


def _find_resource(
    url: str, challenge: BearerChallenge
) -> Generator[Fetch, Fetched | FetchFailed, ProtectedResource | None]:
    """Returns the metadata of the resource; None if there is none anywhere."""
    named = challenge.resource_metadata
    if named and not is_requestable(named):
        raise LoginFailed(
            f"{_origin(url)} names {show_url(named.partition('?')[0])} as its metadata (resource_metadata), "
            f"expected an https:// URL; have the server corrected, or set issuer"
        )
    for where in [named] if named else resource_metadata_urls(url):
        reply = yield from _get(where)
        found = read_protected_resource(reply.body) if reply.status == 200 else None
        if found is not None:
            if not covers(found.resource, url):
                raise LoginFailed(
                    f"the metadata of {_origin(url)} is of {show_url(found.resource)}, "
                    f"expected {resource_of(url)} or what is above it; have the server corrected"
                )
            return found
        if named:
            raise LoginFailed(
                f"{_origin(url)} names metadata that cannot be used ({_show(where, reply)}); "
                f"have the server corrected, or set issuer"
            )
    return None


def _find_legacy(url: str) -> Generator[Fetch, Fetched | FetchFailed, AuthorizationServer]:
    """Returns the authorization server at the origin of the server.

    The issuer is a guess, so another one of the same origin counts as the same: one party controls both.
    """
    origin = origin_of(url)
    for where in issuer_metadata_urls(origin):
        reply = yield from _get(where)
        found = read_authorization_server(reply.body) if reply.status == 200 else None
        if found is not None:
            if not is_issuer(found.issuer) or origin_of(found.issuer) != origin:
                raise LoginFailed(
                    f"the metadata at {origin} is of the authorization server {show_url(found.issuer)}, expected "
                    f"{origin}; set issuer if you trust that one"
                )
            return found
    return default_authorization_server(origin)


def _get(url: str) -> Generator[Fetch, Fetched | FetchFailed, Fetched]:
    reply = yield Fetch("GET", url, ((b"accept", b"application/json"),))
    if isinstance(reply, FetchFailed):
        raise LoginFailed(reply.text, is_unanswered=True)
    return reply


def _origin(url: str) -> str:
    """Returns the origin of a URL that the configuration names, for people."""
    try:
        return origin_of(url)
    except ValueError:
        return "the server"


def _show(url: str, reply: Fetched) -> str:
    what = "unreadable" if reply.status == 200 else f"HTTP status {reply.status}"
    return f"{show_url(url.partition('?')[0])}: {what}"
