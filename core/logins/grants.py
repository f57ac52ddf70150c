"""Logins without a person, and renewals: client credentials, refresh, token exchange, and the enterprise's grant.

Source: RFC 6749, 4.4 and 6; RFC 8693, 2; RFC 7523, 2.1; the extensions "OAuth Client Credentials" (SEP-1046) and
"Enterprise-Managed Authorization" (SEP-990).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

import msgspec

from .challenges import BearerChallenge
from .discovery import find_server
from .login import Entropy, LoginSettings, find_login, select_scope
from .metadata import AuthorizationServer, show_url
from .registration import ClientSettings, register_by_hand
from .requests import Fetch, Fetched, FetchFailed, Login, LoginFailed, Registration
from .token_requests import BASIC, KEY, POST, Assertion, Requesting, Sign, read_tokens, request_grant, request_tokens

EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
JWT: Final = "urn:ietf:params:oauth:token-type:jwt"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"

Unattended = Generator[Fetch, Fetched | FetchFailed, Login]


class Subject(msgspec.Struct, frozen=True):
    """The token that another token is exchanged for.

    Attributes:
        kind: `ACCESS_TOKEN`, `ID_TOKEN` or `JWT`.
        name: where it comes from, for people.
    """

    token: str
    kind: str = ACCESS_TOKEN
    name: str = "subject_token"

    def __repr__(self) -> str:
        return f"Subject(…, {self.kind!r})"


class EnterpriseProvider(msgspec.Struct, frozen=True):
    """The identity provider of an enterprise, and the client there."""

    issuer: str
    client: ClientSettings


def refresh(token_endpoint: str, registration: Registration, refresh_token: str, *, resource: str = "") -> Requesting:
    """Renews tokens. The scopes stay as they are.

    Raises:
        LoginFailed: `is_refused`: the refresh token is not valid any more. `is_unanswered`: it may be used up or not.
    """
    grant = {"grant_type": "refresh_token", "refresh_token": refresh_token}
    return (yield from request_tokens(token_endpoint, registration, grant, resource=resource))


def log_in_client(
    settings: LoginSettings,
    challenge: BearerChallenge,
    *,
    entropy: Entropy,
    now: float,
    sign: Sign | None = None,
    earlier: Iterable[str] = (),
) -> Unattended:
    """Logs the client in as itself, with its secret or its key.

    Args:
        sign: signs with the client's key; None: it has a secret.
        now: Unix seconds, for the assertion.

    Raises:
        LoginFailed: there is no login.
    """
    found = yield from find_login(settings, challenge)
    server = found.server
    registration = _client(server, settings, has_key=sign is not None)
    scope = select_scope(settings.scope, challenge, found, earlier)
    grant = {"grant_type": "client_credentials", **({"scope": " ".join(scope)} if scope else {})}
    assertion = None if sign is None else Assertion(sign, server.issuer, entropy, now)
    tokens = yield from request_tokens(
        server.token_endpoint, registration, grant, resource=found.resource, assertion=assertion
    )
    return Login(registration, server.token_endpoint, found.resource, scope, tokens)


def exchange(
    settings: LoginSettings, challenge: BearerChallenge, subject: Subject, *, earlier: Iterable[str] = ()
) -> Unattended:
    """Exchanges a token for one for the MCP server, at its authorization server (RFC 8693).

    Raises:
        LoginFailed: there is no login.
    """
    found = yield from find_login(settings, challenge)
    server = found.server
    registration = _client(server, settings)
    scope = select_scope(settings.scope, challenge, found, earlier)
    grant = {
        "grant_type": EXCHANGE,
        "subject_token": subject.token,
        "subject_token_type": subject.kind,
        "requested_token_type": ACCESS_TOKEN,
        **({"scope": " ".join(scope)} if scope else {}),
    }
    given = yield from request_grant(
        server.token_endpoint, registration, grant, resource=found.resource, renewable=subject.name
    )
    tokens = read_tokens(given, server.token_endpoint)
    return Login(registration, server.token_endpoint, found.resource, scope, tokens)


def log_in_enterprise(
    settings: LoginSettings,
    challenge: BearerChallenge,
    subject: Subject,
    provider: EnterpriseProvider,
    *,
    earlier: Iterable[str] = (),
) -> Unattended:
    """Exchanges the ID token of a person at the enterprise's provider for a grant (ID-JAG), and that for a token.

    Raises:
        LoginFailed: there is no login.
    """
    found = yield from find_login(settings, challenge)
    server = found.server
    registration = _client(server, settings)
    scope = select_scope(settings.scope, challenge, found, earlier)
    scopes = {"scope": " ".join(scope)} if scope else {}
    enterprise = yield from find_server(provider.issuer)
    endpoint = enterprise.token_endpoint
    asked = {
        "grant_type": EXCHANGE,
        "requested_token_type": ID_JAG,
        "subject_token": subject.token,
        "subject_token_type": subject.kind,
        "audience": server.issuer,
        **scopes,
    }
    given = yield from request_grant(
        endpoint,
        register_by_hand(enterprise, provider.client),
        asked,
        resource=found.resource,
        renewable=subject.name,
    )
    # "token_type: N_A", since it is no access token (RFC 8693, 2.2.1).
    if given.get("issued_token_type") != ID_JAG:
        raise LoginFailed("the enterprise's provider gave another token than an ID-JAG: have it allow that exchange")
    jag = read_tokens({**given, "token_type": "Bearer"}, endpoint).access_token
    grant = {"grant_type": JWT_BEARER, "assertion": jag, **scopes}
    given = yield from request_grant(
        server.token_endpoint,
        registration,
        grant,
        resource=found.resource,
        renewable=f"the grant of {show_url(enterprise.issuer)}",
    )
    tokens = read_tokens(given, server.token_endpoint)
    return Login(registration, server.token_endpoint, found.resource, scope, tokens)


def _client(server: AuthorizationServer, settings: LoginSettings, *, has_key: bool = False) -> Registration:
    """Returns the client of the settings, which has to prove who it is."""
    found = register_by_hand(server, settings.client)
    if has_key:
        return Registration(found.issuer, found.client_id, method=KEY)
    if found.method not in (BASIC, POST):
        raise LoginFailed("a client that logs in without a person needs client_id and client_secret: set both")
    return found
