"""Gives a client its registration at an authorization server.

The order: the client that was registered by hand, else the URL of its metadata document, else the registration that an
earlier login made there for these scopes, else a new one, else a person has to register it. A registration belongs to
the issuer that made it.

Source: 2026-07-28 basic/authorization/client-registration; RFC 7591; OpenID Connect Dynamic Client Registration 1.0, 2.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final

import msgspec

from .metadata import AuthorizationServer, read_object, show_url
from .requests import Fetch, Fetched, FetchFailed, LoginFailed, Registration
from .token_requests import BASIC, NO_AUTHENTICATION, POST, known_error, seconds_of

CLIENT_NAME: Final = "Isthmus"
IPV4: Final = "127.0.0.1"
NAME: Final = "localhost"

Registering = Generator[Fetch, Fetched | FetchFailed, Registration]


class ClientSettings(msgspec.Struct, frozen=True):
    """The settings of a client.

    Attributes:
        client_id: the id of a registration by hand, or the URL of a client id metadata document; "": neither.
        client_secret: "" if the client has none.
        client_issuer: the authorization server of a registration by hand; "": the first one that the server named.
        redirect_host: the host of the redirect URI; "": `IPV4`, and `NAME` for a registration by hand.
        redirect_uri: the redirect URI itself, where it is a page of a gateway; "": it is on this machine.
    """

    client_id: str = ""
    client_secret: str = ""
    client_issuer: str = ""
    redirect_host: str = ""
    redirect_uri: str = ""

    def __repr__(self) -> str:
        return f"ClientSettings({self.client_id!r}, …)"

    @property
    def is_document(self) -> bool:
        """True if the client id is the URL of a document: https, with a path."""
        return self.client_id.startswith("https://") and "/" in self.client_id.removeprefix("https://")

    def redirect(self, port: int | None) -> str:
        """Returns the redirect URI. Providers compare its host as text. Which one they take differs."""
        if self.redirect_uri:
            return self.redirect_uri
        is_by_hand = bool(self.client_id) and not self.is_document
        host = self.redirect_host or (NAME if is_by_hand else IPV4)
        return f"http://{host}{'' if port is None else f':{port}'}/callback"


def find_registration(
    server: AuthorizationServer,
    settings: ClientSettings,
    redirect: str,
    known: Mapping[str, Registration],
    scope: tuple[str, ...],
    now: float,
    *,
    grant: str = "authorization_code",
) -> Registering:
    """Returns the client at this authorization server.

    Args:
        known: the registrations that earlier logins made, by issuer.
        scope: the scopes that the client will request.
        grant: the grant type that it will use, beside that of refresh tokens.

    Raises:
        LoginFailed: there is none, and none can be made.
    """
    if settings.client_id and not settings.is_document:
        return register_by_hand(server, settings)
    if settings.is_document and server.takes_documents:
        return Registration(server.issuer, settings.client_id, redirect=redirect)
    found = known.get(server.issuer)
    if (
        found is not None
        and found.issuer == server.issuer
        and found.redirect == redirect
        and set(scope) <= set(found.scope)
        and (not found.secret_expires_at or now < found.secret_expires_at)
    ):
        return found
    if not server.registration_endpoint:
        seen = "takes no registrations (no registration_endpoint, no client id documents)"
        raise LoginFailed(f"{show_url(server.issuer)} {seen}: register {redirect} there and set client_id")
    return (yield from _register(server, redirect, scope, grant))


def register_by_hand(server: AuthorizationServer, settings: ClientSettings) -> Registration:
    """Returns the client of the settings.

    "If the authorization server indicated by protected resource metadata no longer matches the one the credentials were
    registered with, clients SHOULD surface an error."

    Raises:
        LoginFailed: it is registered at another authorization server.
    """
    if settings.client_issuer not in ("", server.issuer):
        raise LoginFailed(
            f"client_id is registered at {show_url(settings.client_issuer)}, and the server now names "
            f"{show_url(server.issuer)}: register there and set client_id, or correct issuer"
        )
    method = _method(server, "", has_secret=bool(settings.client_secret))
    return Registration(server.issuer, settings.client_id, settings.client_secret, method)


def _register(server: AuthorizationServer, redirect: str, scope: tuple[str, ...], grant: str) -> Registering:
    wanted = {
        "client_name": CLIENT_NAME,
        "redirect_uris": [redirect],
        "grant_types": [grant, "refresh_token"],
        "response_types": ["code"] if grant == "authorization_code" else [],
        "token_endpoint_auth_method": _wanted_method(server),
        # OpenID Connect Dynamic Client Registration 1.0, 2: native clients have redirect URIs on loopback.
        "application_type": "native" if redirect.startswith("http://") else "web",
    }
    if scope:
        wanted["scope"] = " ".join(scope)
    headers = ((b"content-type", b"application/json"), (b"accept", b"application/json"))
    reply = yield Fetch("POST", server.registration_endpoint, headers, msgspec.json.encode(wanted))
    if isinstance(reply, FetchFailed):
        raise LoginFailed(reply.text, is_unanswered=True)
    found = read_object(reply.body)
    if reply.status not in (200, 201):
        raise LoginFailed(_explain(server, redirect, reply.status, found))
    client_id = None if found is None else found.get("client_id")
    if found is None or not isinstance(client_id, str) or not client_id:
        raise LoginFailed(
            f"the registration at {show_url(server.issuer)} gave no client_id: register {redirect} by hand"
        )
    secret = found.get("client_secret")
    secret = secret if isinstance(secret, str) else ""
    said = found.get("token_endpoint_auth_method")
    return Registration(
        server.issuer,
        client_id,
        secret,
        _method(server, said if isinstance(said, str) else "", has_secret=bool(secret)),
        redirect,
        (seconds_of(found.get("client_secret_expires_at")) or 0) if secret else 0,
        scope,
    )


def _wanted_method(server: AuthorizationServer) -> str:
    """Returns the method to register for. A client on a person's machine keeps no secret, so `none` comes first."""
    listed = server.client_methods or (NO_AUTHENTICATION,)
    return next((each for each in (NO_AUTHENTICATION, BASIC, POST) if each in listed), NO_AUTHENTICATION)


def _method(server: AuthorizationServer, said: str, *, has_secret: bool) -> str:
    """Returns the method of a client: the one of its registration, else the first usable one that is listed.

    Source: RFC 8414, 2: "If omitted, the default is client_secret_basic".
    """
    if not has_secret:
        return NO_AUTHENTICATION
    if said in (BASIC, POST, NO_AUTHENTICATION):
        return said
    listed = server.client_methods or (BASIC,)
    return next((each for each in (BASIC, POST) if each in listed), NO_AUTHENTICATION)


def _explain(server: AuthorizationServer, redirect: str, status: int, found: dict[str, Any] | None) -> str:
    code = known_error(found)
    start = f"{show_url(server.issuer)} refused a registration ({code or f'HTTP status {status}'})"
    if code == "invalid_redirect_uri":
        other = NAME if f"//{IPV4}:" in redirect else IPV4
        return f"{start}: it does not take {redirect}; set redirect_host: {other}"
    return f"{start}: register {redirect} there by hand and set client_id"
