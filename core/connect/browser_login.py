"""Finds out which caller sits at a browser: it is sent to the issuer that gives the caller's tokens, with OpenID
Connect.

The ID token comes from the token endpoint itself, over TLS: "the TLS server validation MAY be used to validate the
issuer in place of checking the token signature" (OpenID Connect Core 1.0, 3.1.3.7, 6).

Source: OpenID Connect Core 1.0, 3.1; RFC 9700, 2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

import msgspec

from ..access.claims import LEEWAY_S
from ..access.issuer_answers import Refused
from ..access.json_web_tokens import NAME_MAX_CHARS, JsonWebToken, read_token
from ..logins.discovery import find_server
from ..logins.login import OpenLogin, await_grant, open_page
from ..logins.registration import ClientSettings, register_by_hand
from ..logins.requests import Browse, Fetch, Fetched, FetchFailed, LoginFailed, Returned
from ..logins.token_requests import request_grant, to_text

SCOPE: Final = ("openid",)

Entropy = Callable[[int], bytes]


class BrowserClient(msgspec.Struct, frozen=True):
    """The client that this gateway is at an issuer.

    Attributes:
        issuer: the identifier of the issuer.
        principal: the claim that names the caller, as in the issuer's access tokens.
    """

    issuer: str
    client_id: str
    client_secret: str = ""
    principal: str = "sub"

    def __repr__(self) -> str:
        return f"BrowserClient({self.issuer!r}, {self.client_id!r}, …)"


class OpenIdentity(msgspec.Struct, frozen=True):
    """A page at an issuer that finds out who sits at a browser: all that is needed to read its answer, also for another
    process. It has secrets in it."""

    login: OpenLogin
    nonce: str

    def __repr__(self) -> str:
        return f"OpenIdentity({self.login!r}, …)"


def begin_identity(
    client: BrowserClient, redirect: str, entropy: Entropy
) -> Generator[Fetch, Fetched | FetchFailed, OpenIdentity]:
    """Makes the page at the issuer where the person at a browser logs in.

    Raises:
        LoginFailed: there is none.
    """
    server = yield from find_server(client.issuer)
    if not server.authorization_endpoint:
        raise LoginFailed(f"{client.issuer} has no authorization_endpoint: nobody can log in there with a browser")
    settings = ClientSettings(client.client_id, client.client_secret, client.issuer)
    registration = register_by_hand(server, settings)
    nonce = to_text(entropy(16))
    return OpenIdentity(open_page(server, registration, redirect, entropy, scope=SCOPE, extra={"nonce": nonce}), nonce)


def end_identity(
    client: BrowserClient, begun: OpenIdentity, clock: Callable[[], float]
) -> Generator[Fetch | Browse, Fetched | FetchFailed | Returned, str]:
    """Waits for the browser, whose page was opened before, and returns the principal that its requests have.

    Raises:
        LoginFailed: nobody is logged in.
    """
    login, nonce = begun.login, begun.nonce
    grant = yield from await_grant(login, is_open=True)
    found = yield from request_grant(login.server.token_endpoint, login.registration, grant)
    token = found.get("id_token")
    if not isinstance(token, str):
        raise LoginFailed(f"{client.issuer} gave no id_token: allow the client {client.client_id} the scope openid")
    read = read_token(token)
    if isinstance(read, Refused):
        raise LoginFailed(f"the ID token of {client.issuer} is refused: {read.reason}")
    if wrong := _wrong_in(read, client, nonce, clock()):
        raise LoginFailed(f"the ID token of {client.issuer} is refused: {wrong}; log in again")
    return f"jwt:{client.issuer}|{read.claims[client.principal]}"


def _wrong_in(token: JsonWebToken, client: BrowserClient, nonce: str, now: float) -> str:
    """Returns what is wrong with an ID token, or "". Source: OpenID Connect Core 1.0, 3.1.3.7."""
    claims = token.claims
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    end, name = claims.get("exp"), claims.get(client.principal)
    if token.issuer != client.issuer:
        return "it is of another issuer (iss)"
    if client.client_id not in audiences or claims.get("azp", client.client_id) != client.client_id:
        return "it is for another client (aud)"
    if isinstance(end, bool) or not isinstance(end, int | float) or end <= now - LEEWAY_S:
        return "it has expired (exp)"
    if claims.get("nonce") != nonce:
        return "it belongs to another login (nonce)"
    if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX_CHARS or not name.isprintable():
        return f"it names no caller ({client.principal})"
    return ""
